"""Peers of streams: a batch is one where the peer has batches, and each row is counted once."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from bench.streams.contestants.asking import AskingProgram
from bench.streams.contestants.jetstream_batch import JetStreamBatch
from bench.streams.contestants.rabbitmq_stream import RabbitStream


class Program(AskingProgram):
    """Each row is acknowledged a turn of the loop later."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack)
        self.sent: list[int] = []

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        self.sent += range(place, place + count)
        answer: asyncio.Future[Any] = self.loop.create_future()
        self.loop.call_soon(answer.set_result, None)
        return [answer]


@pytest.mark.parametrize("batch", [1, 7])
def test_all_that_was_sent_is_acknowledged_and_counted(batch: int) -> None:
    with ExitStack() as stack:
        program = Program(stack)
        done = program.append(batch, 4, 0.01)
        assert program.sent == list(range(done))
        assert done >= 4 * batch


class Client:
    """Takes messages as a server of NATS does that answers to the last of a batch."""

    def __init__(self, batches: bool) -> None:
        self.batches = batches
        self.took: list[tuple[bytes, dict[str, str]]] = []

    async def publish(self, subject: str, row: bytes, headers: dict[str, str]) -> None:
        self.took.append((row, headers))

    async def publish_async(
        self, subject: str, row: bytes, headers: dict[str, str]
    ) -> asyncio.Future[Any]:
        await self.publish(subject, row, headers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        size = int(headers["Nats-Batch-Sequence"]) if self.batches else None
        answer.set_result(SimpleNamespace(batch_size=size))
        return answer


@pytest.mark.parametrize("batches", [True, False])
def test_jetstream_is_told_where_a_batch_ends_and_must_have_stored_it_whole(batches: bool) -> None:
    async def send() -> None:
        for answer in await program.send(1, 3):
            await answer

    program: Any = object.__new__(JetStreamBatch)
    program.batches, program.rows = 0, [b"a", b"b", b"c"]
    program.client = program.stream = client = Client(batches)
    if not batches:
        with pytest.raises(RuntimeError, match=r"nats-server 2\.12"):
            asyncio.run(send())
    else:
        asyncio.run(send())
    assert [row for row, _ in client.took] == [b"b", b"c", b"a"]
    assert [headers["Nats-Batch-Sequence"] for _, headers in client.took] == ["1", "2", "3"]
    assert len({headers["Nats-Batch-Id"] for _, headers in client.took}) == 1
    assert ["Nats-Batch-Commit" in headers for _, headers in client.took] == [False, False, True]


class Producer:
    """Numbers rows as rstream's does, an entry by its last row, and confirms them."""

    def __init__(self) -> None:
        self.number = 0
        self.waiting: list[tuple[list[int], Any]] = []

    async def send_batch(self, stream: str, rows: list[bytes], on_publish_confirm: Any) -> None:
        numbers = list(range(self.number + 1, self.number + 1 + len(rows)))
        self.number += len(rows)
        self.waiting.append((numbers, on_publish_confirm))

    async def send_sub_entry(self, stream: str, rows: list[bytes], on_publish_confirm: Any) -> None:
        self.number += len(rows)
        self.waiting.append(([self.number], on_publish_confirm))

    async def _publish_buffered_messages(self, stream: str) -> None:
        """Sent."""

    def confirm(self) -> None:
        for numbers, confirmed in self.waiting:
            for number in numbers:
                confirmed(SimpleNamespace(message_id=number, is_confirmed=True))


@pytest.mark.parametrize(("sub_entries", "answers"), [(False, 8), (True, 3)])
def test_rabbitmq_confirms_each_row_or_a_batch_as_one_entry(
    sub_entries: bool, answers: int
) -> None:
    async def send() -> None:
        program.loop = asyncio.get_running_loop()
        sent = [*await program.send(0, 4), *await program.send(4, 3), *await program.send(7, 1)]
        assert len(sent) == answers
        assert not any(one.done() for one in sent)
        program.producer.confirm()
        assert all(one.done() for one in sent)
        assert not program.waiting

    program: Any = object.__new__(RabbitStream)
    program.sub_entries, program.producer, program.rows = sub_entries, Producer(), [b"row"]
    program.number, program.waiting = 0, {}
    asyncio.run(send())
