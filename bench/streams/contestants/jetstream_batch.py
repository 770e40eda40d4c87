"""A JetStream stream that takes atomic batches: servers from 2.12 on.

The rows of a batch carry its identity and their place in it as headers, and the last one its
commit, to which the servers answer for all: they store the batch as a whole or not at all. A server
takes 1,000 rows in a batch and 50 batches of a stream at a time.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.streams.contestants.jetstream import JetStream


class JetStreamBatch(JetStream):
    """A batch of one row is published as it is without batches."""

    config = {"allow_atomic": True}

    def __init__(self, folder: Path, stack: ExitStack, sync: str) -> None:
        self.batches = 0
        super().__init__(folder, stack, sync)

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Publish the rows as one batch."""
        if count == 1:
            return await super().send(place, count)
        self.batches += 1
        # By its program: those of several ones have to differ.
        batch = {"Nats-Batch-Id": f"bench-{id(self)}-{self.batches}"}
        for number in range(1, count):
            headers = {**batch, "Nats-Batch-Sequence": str(number)}
            row = self.rows[(place + number - 1) % len(self.rows)]
            await self.client.publish("bench", row, headers=headers)
        headers = {**batch, "Nats-Batch-Sequence": str(count), "Nats-Batch-Commit": "1"}
        row = self.rows[(place + count - 1) % len(self.rows)]
        answer = await self.stream.publish_async("bench", row, headers=headers)
        return [asyncio.ensure_future(_whole(answer, count))]


async def _whole(answer: asyncio.Future[Any], count: int) -> None:
    """Wait until a batch is stored. Raises RuntimeError if the answer is not for so many rows: a
    server that knows no batches stores and acknowledges each row by itself."""
    stored = (await answer).batch_size
    if stored != count:
        raise RuntimeError(f"{stored} of {count} rows in a batch; nats-server 2.12 is needed")
