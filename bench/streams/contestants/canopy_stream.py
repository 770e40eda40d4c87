"""A stream of three nodes, of which the program's is one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

import canopy.aio
from bench.streams.contestants.asking import AskingProgram
from bench.streams.contestants.contestant import MAJORITY, PATIENCE, rows
from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from overlay.client import AppendEvents, Draft, EventsAppended, Streams
from overlay.stream_client import AddStream


class CanopyStream:
    """Three nodes, and a program at one of them, whose batches are atomic."""

    durable = MAJORITY

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        for name in ("nodes", "logs", "traces"):
            (folder / name).mkdir(parents=True)
        self.overlay = stack.enter_context(Overlay(3, folder, ["--no-trace"], seed=1))
        self.overlay.start(lambda _: None)
        self.overlay.await_ready(lambda _: None)
        where = self.overlay.nodes[0].data
        self.client = stack.enter_context(ControlClient.connect(where))
        self.rows = rows(4_096)
        time.sleep(3.0)  # until the views are filled, so that there are three nodes to choose from
        made = self.client.ask(AddStream(0, "bench"), Streams, PATIENCE)
        assert len(made.streams[0].shards[0].replicas) == 3
        self.append(1, 1, 1.0)

    def processes(self) -> list[psutil.Process]:
        """The nodes."""
        return [psutil.Process(n.process.pid) for n in self.overlay.nodes if n.process is not None]

    def _begin(self, place: int, batch: int) -> int:
        return self._begin_many(place, batch, 1)[0]

    def _begin_many(self, place: int, batch: int, count: int) -> list[int]:
        most = len(self.rows) - batch + 1
        places = [(place + n * batch) % most for n in range(count)]
        return self.client.begin_many(
            [AppendEvents(0, "bench", tuple(self.rows[n : n + batch])) for n in places]
        )

    def _finish(self, number: int) -> None:
        reply = self.client.finish(number, PATIENCE)
        assert isinstance(reply, EventsAppended), reply

    def append(self, batch: int, ahead: int, seconds: float) -> int:
        """Append for so long. When some batches are answered, as many are sent together."""
        waiting: deque[int] = deque()
        done = place = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            count = ahead - len(waiting)
            waiting += self._begin_many(place, batch, count)
            place += batch * count
            self._finish(waiting.popleft())
            done += batch
            while waiting and self.client.is_answered(waiting[0], 0.0):
                self._finish(waiting.popleft())
                done += batch
        for number in waiting:
            self._finish(number)
            done += batch
        return done

    def pace(self, rate: float, seconds: float) -> list[float]:
        """One row at a time, each when it is due; another thread takes the receipts."""
        took: list[float] = []
        waiting: SimpleQueue[tuple[int, float] | None] = SimpleQueue()

        def finish() -> None:
            while (one := waiting.get()) is not None:
                self._finish(one[0])
                took.append(time.monotonic() - one[1])

        thread = threading.Thread(target=finish)
        thread.start()
        began = time.monotonic()
        for place in range(round(rate * seconds)):
            due = began + place / rate
            time.sleep(max(0.0, due - time.monotonic()))
            waiting.put((self._begin(place, 1), due))
        waiting.put(None)
        thread.join()
        return took


class CanopyPrograms(AskingProgram):
    """The same nodes, and programs with a connection each, over asyncio."""

    durable = MAJORITY

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(stack)
        self.servers = CanopyStream(folder, stack)
        self.processes = self.servers.processes
        self.rows = list(self.servers.rows)
        self.reconnect()

    def reconnect(self) -> None:
        where = self.servers.overlay.nodes[0].data

        async def opened() -> canopy.aio.AsyncClient:
            return await canopy.aio.connect(where)

        self.client = self.loop.run_until_complete(opened())
        self.stack.callback(self.client.close)

    def carry(self, body: bytes) -> None:
        self.rows = [Draft({"n": 1}, body)]

    def reader(self) -> tuple[str, ...]:
        return ("canopy", str(self.servers.overlay.nodes[1].data))

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Append the rows as one batch."""
        rows = [self.rows[n % len(self.rows)] for n in range(place, place + count)]
        appending = self.client.append("bench", rows, atomic=True, timeout=PATIENCE)
        return [asyncio.ensure_future(appending)]
