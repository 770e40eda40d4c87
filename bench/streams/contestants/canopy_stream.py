"""A stream of three nodes, and programs of the asynchronous library at the first of them."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

import canopy.aio
from bench.streams.contestants.asking import AskingProgram
from bench.streams.contestants.contestant import MAJORITY, PATIENCE, rows
from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from overlay.client import Draft, Streams
from overlay.stream_client import AddStream


class CanopyStream(AskingProgram):
    """Batches are atomic."""

    durable = MAJORITY

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(stack)
        for name in ("nodes", "logs", "traces"):
            (folder / name).mkdir(parents=True)
        self.overlay = stack.enter_context(Overlay(3, folder, ["--no-trace"], seed=1))
        self.overlay.start(lambda _: None)
        self.overlay.await_ready(lambda _: None)
        self.rows = rows(4_096)
        time.sleep(3.0)  # until the views are filled, so that there are three nodes to choose from
        with ControlClient.connect(self.overlay.nodes[0].data) as client:
            made = client.ask(AddStream(0, "bench"), Streams, PATIENCE)
        assert len(made.streams[0].shards[0].replicas) == 3
        self.reconnect()
        self.append(1, 1, 1.0)

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(n.process.pid) for n in self.overlay.nodes if n.process is not None]

    def reconnect(self) -> None:
        where = self.overlay.nodes[0].data

        async def opened() -> canopy.aio.AsyncClient:
            return await canopy.aio.connect(where)

        self.client = self.loop.run_until_complete(opened())
        self.stack.callback(self.client.close)

    def carry(self, body: bytes) -> None:
        self.rows = [Draft({"n": 1}, body)]

    def reader(self) -> tuple[str, ...]:
        return ("canopy", str(self.overlay.nodes[1].data))

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Append the rows as one batch."""
        rows = [self.rows[n % len(self.rows)] for n in range(place, place + count)]
        appending = self.client.append("bench", rows, atomic=True, timeout=PATIENCE)
        return [asyncio.ensure_future(appending)]
