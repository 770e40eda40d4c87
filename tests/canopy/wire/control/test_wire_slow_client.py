"""A program that does not consume: held by credits, informed of its losses, no matter to others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import psutil
import pytest
import trio

from canopy.client.blocking import ControlClient
from canopy.client.errors import UnreachableError
from canopy.wire.config import ClientConfig
from canopy.wire.control.client_connection import ClientConnection
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import (
    CREDIT,
    Delivered,
    Done,
    Draft,
    Dropped,
    Event,
    Failed,
    GetStatus,
    Grant,
    Publish,
    Published,
    Status,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from tests.support.real.wire_rig import PATIENCE, Rig, rig

ROOT = Path(__file__).parents[4]
SIZE: Final = 10_000  # bytes of a payload; a delivery of one has some 50 more
EACH: Final = 20  # events of one publication


def flood(writer: ControlClient, events: int, *others: ControlClient) -> list[int | Dropped]:
    """Publish so many, as fast as others consume them; what these got."""
    found: list[int | Dropped] = []
    for first in range(0, events, EACH):
        batch = [Draft({"id": number}, bytes(SIZE)) for number in range(first, first + EACH)]
        last = sequence(writer.ask(Publish(0, tuple(batch)), Published).identities[-1])
        for other in others:
            found += consume(other, last)
    return found


def sequence(identity: str) -> int:
    return int(identity.rpartition(".")[2])


def consume(client: ControlClient, last: int) -> list[int | Dropped]:
    """Sequence numbers up to one, with the news between them in their places."""
    found: list[int | Dropped] = []
    until = time.monotonic() + PATIENCE
    while not found or found[-1] != last:
        assert time.monotonic() < until, found[-3:]
        found += [one.event.sequence for one in client.deliveries(0.5)]
        while client.notices:
            news = client.notices.popleft()
            assert isinstance(news, Dropped)
            found.append(news)
    return found


def to_the_news(client: ControlClient) -> list[int | Dropped]:
    """As `consume`, up to the news of a loss."""
    found: list[int | Dropped] = []
    until = time.monotonic() + PATIENCE
    while not client.notices:
        assert time.monotonic() < until, found[-3:]
        found += [one.event.sequence for one in client.deliveries(0.5)]
    news = client.notices.popleft()
    assert isinstance(news, Dropped)
    return [*found, news]


def whole(found: list[int | Dropped]) -> int:
    """Every number from 1 is there or reported lost, in order; how many were lost."""
    due, lost = 1, 0
    for one in found:
        if isinstance(one, Dropped):
            assert (sequence(one.first), sequence(one.last)) == (due, due + one.count - 1)
            assert one.reason.startswith(f"{one.count} deliveries were dropped")
            due += one.count
            lost += one.count
        else:
            assert one == due
            due += 1
    return lost


async def outside(work: object) -> None:
    assert callable(work)
    with trio.fail_after(3 * PATIENCE):
        await trio.to_thread.run_sync(work, abandon_on_cancel=True)


def waits(one: Rig) -> list[tuple[int, int]]:
    """Under way and waiting, of each client."""
    return [(info.under_way, info.waiting) for info in one.control.clients]


@pytest.mark.trio
async def test_a_program_that_does_not_consume_is_held_asks_all_the_same_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = 1 << 20
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(queue=queue)) as one:
        grants: list[tuple[int, int]] = []
        grant = one.control._grant

        def noted(client: ClientConnection, said: Grant) -> None:
            grants.append((client.number, said.consumed))
            grant(client, said)

        monkeypatch.setattr(one.control, "_grant", noted)

        def work() -> None:
            with ControlClient.connect(tmp_path) as slow, ControlClient.connect(tmp_path) as other:
                slow.ask(Subscribe(0, "a = 1"), Subscribed)
                other.ask(Subscribe(0, "a = 1"), Subscribed)
                with ControlClient.connect(tmp_path) as writer:
                    got = flood(writer, 400, other)
                    slow.ask(GetStatus(0), Status)  # the library reads the socket, to the end
                    (under_way, waiting), *_ = waits(one)
                    assert CREDIT - 2 * SIZE < under_way <= CREDIT
                    assert queue - 2 * SIZE < waiting <= queue
                    got += flood(writer, 600, other)
                    assert waits(one)[0] == (under_way, waiting), "held by credits"
                    lost = one.control.dropped
                    assert lost == one.control.clients[0].dropped > 700
                    said = [consumed for number, consumed in grants if number == 2]
                    halves = [after - before for before, after in pairwise([0, *said])]
                    assert min(halves) >= CREDIT // 2, "a grant is for many deliveries"
                    assert 1_000 * SIZE - said[-1] < CREDIT // 2
                    assert (whole(got), len(got)) == (0, 1_000), "no other program misses anything"
                    found = to_the_news(slow)
                    assert whole(found) == lost
                    assert len(found) - 1 + lost == 1_000, "what waited, then the news"
                    flood(writer, 20)
                    assert whole(found + consume(slow, 1_020)) == lost, "then what is new"
                    assert one.control.dropped == lost

        await outside(work)


@pytest.mark.trio
async def test_a_program_may_take_less_than_the_usual_credit(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:

        def work() -> None:
            with ControlClient.connect(tmp_path, credit=50_000) as small, ControlClient.connect(
                tmp_path
            ) as writer:  # fmt: skip
                small.ask(Subscribe(0, "a = 1"), Subscribed)
                small.ask(GetStatus(0), Status)
                flood(writer, 40)
                assert 30_000 < waits(one)[0][0] <= 50_000
                assert whole(consume(small, 40)) == 0

        await outside(work)


@pytest.mark.trio
async def test_unsubscribing_needs_no_credit(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(queue=100_000)) as one:

        def work() -> None:
            with ControlClient.connect(tmp_path) as slow, ControlClient.connect(tmp_path) as writer:
                name = slow.ask(Subscribe(0, "a = 1"), Subscribed).subscription
                flood(writer, 200)
                assert waits(one)[0][1] > 0
                assert isinstance(slow.request(Unsubscribe(0, name)), Done)
                assert not slow.notices

        await outside(work)
        assert one.control.dropped > 0


@pytest.mark.trio
async def test_who_grants_nothing_gets_one_credit_and_a_grant_lets_more_go(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(queue=1 << 30)) as one:
        stream = await trio.open_unix_socket(one.path)
        one.streams.append(stream)
        await stream.send_all(COMMAND_FRAMES.encode(Subscribe(1, "a = 1")))

        async def writing() -> None:
            with ControlClient.connect(tmp_path) as writer:
                await outside(lambda: flood(writer, 300))

        reader, sizes, others = FrameReader(REPLY_FRAMES), 0, 0

        async def read(until: int) -> None:
            nonlocal sizes, others
            with trio.fail_after(PATIENCE):
                while sizes < until:
                    for reply in reader.feed(await stream.receive_some(1 << 16)):
                        if isinstance(reply, Delivered):
                            sizes += len(REPLY_FRAMES.encode(reply))
                        else:
                            others += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing)
            await read(CREDIT - 2 * SIZE)
        assert sizes == one.control.clients[0].under_way <= CREDIT
        with trio.move_on_after(0.05):
            await read(1 << 30)
        assert sizes <= CREDIT, "not a byte more"
        await stream.send_all(COMMAND_FRAMES.encode(Grant(0, sizes, CREDIT)))
        await read(2 * CREDIT - 4 * SIZE)
        assert others == 1, "SUBACK; a grant is not answered"
        await stream.send_all(COMMAND_FRAMES.encode(Grant(0, 1 << 40, CREDIT)))
        with trio.fail_after(PATIENCE):
            answers = reader.feed(await stream.receive_some(1 << 16))
        assert isinstance(answers[0], Failed)
        assert "a grant for" in answers[0].reason


@pytest.mark.trio
async def test_what_is_gathered_is_held_and_reported_in_the_same_way(tmp_path: Path) -> None:
    events = tuple(Event("p", 1, number, 0.0, {}, bytes(SIZE)) for number in range(1, 301))
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(queue=1 << 20)) as one:

        def work() -> None:
            with ControlClient.connect(tmp_path) as slow:
                slow.ask(Subscribe(0, "a = 1"), Subscribed)
                trio.from_thread.run_sync(share, events)
                slow.ask(GetStatus(0), Status)
                lost = one.control.dropped
                assert 50 < lost < 150
                found: list[int] = []
                while not slow.notices:
                    found += [event.sequence for event in slow.gathered(PATIENCE)]
                (news,) = slow.notices
                assert isinstance(news, Dropped)
                assert found == list(range(1, len(found) + 1))
                assert (len(found), news.count) == (300 - lost, lost)
                assert (news.first, news.last) == (f"p.1.{301 - lost}", "p.1.300")
                trio.from_thread.run_sync(share, events[:7])
                assert [event.sequence for event in slow.gathered(PATIENCE)] == [*range(1, 8)]

        def share(events: tuple[Event, ...]) -> None:
            one.driver.turn(lambda: one.driver.share(events, {1: range(len(events))}))

        await outside(work)


@pytest.mark.process
def test_a_process_keeps_no_more_for_a_program_that_does_not_consume(tmp_path: Path) -> None:
    config = {"listen": "127.0.0.1:0", "data": str(tmp_path), "directory": False}
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.support.real.echo_process",
            msgspec.json.encode(config).decode(),
        ],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    clients: list[ControlClient] = []
    try:
        clients += [connect(tmp_path), connect(tmp_path)]
        slow, writer = clients
        slow.ask(Subscribe(0, "a = 1"), Subscribed)
        flood(writer, 1_000)  # ten megabytes: what may wait has come together
        memory = psutil.Process(process.pid).memory_info().rss
        flood(writer, 10_000)  # a hundred
        grown = psutil.Process(process.pid).memory_info().rss - memory
        assert grown < 8 << 20, "of a hundred megabytes nothing stays"
        mine, _ = slow.ask(GetStatus(0), Status).clients
        assert (mine.pid, mine.credit) == (os.getpid(), CREDIT)
        assert (mine.under_way + mine.waiting) >> 20 == 4, "5 MiB less a rest"
        found = to_the_news(slow)
        assert whole(found) == mine.dropped
        assert len(found) - 1 + mine.dropped == 11_000
    finally:
        for client in clients:
            client.close()
        process.kill()
        process.wait()


def connect(data: Path) -> ControlClient:
    """To a process that may still be starting."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return ControlClient.connect(data)
        except UnreachableError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
