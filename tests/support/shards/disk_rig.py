"""A disk of shards over files, asked without a node: canopy/wire/shards/."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from canopy.wire.log import Log
from canopy.wire.shards.log_disk import FileLogDisk
from harness.logs import SHARD, LogWriter, batch
from overlay.machine import LocalEvent
from streams.disk import Opened
from tests.support.real.wire_rig import PATIENCE

NODE = "a" * 16
Answer = TypeVar("Answer", bound=LocalEvent)


class Rig:
    """A disk in a folder, asked without a node."""

    def __init__(self, path: Path, node: str = NODE) -> None:
        self.log = io.StringIO()
        self.disk = FileLogDisk(path, node, Log("info", self.log))
        self.events: list[LocalEvent] = []
        self.idle = 0.0
        """inf: the node has the time for each small write, which it carries out itself."""
        self._answered = threading.Event()
        self.disk.on_answers(self._answered.set)

    def hand_over(self) -> int:
        """Have done what was asked for; how many answers there were at once."""
        answers = self.disk.hand_over(self.idle)
        self.events += answers
        return len(answers)

    def look(self) -> list[LocalEvent]:
        """All answers so far."""
        self.hand_over()
        self.events += self.disk.take()
        return self.events

    def answer(self, ticket: int, kind: type[Answer]) -> Answer:
        """Wait for the answer to a request."""
        while True:
            for event in self.look():
                if getattr(event, "ticket", 0) == ticket:
                    assert isinstance(event, kind), event
                    return event
            assert self._answered.wait(PATIENCE), f"no answer to request {ticket}"
            self._answered.clear()

    def opened(self, shard: str = SHARD) -> Opened:
        return self.answer(self.disk.open(shard), Opened)

    def append(self, log: LogWriter, shard: str = SHARD, first: int = 1) -> int:
        """Write the chunks of `log` from `first` on; the ticket of the last."""
        ticket = 0
        for chunk in log.chunks[first - 1 :]:
            ticket = self.disk.write(shard, *piece_of(log, chunk.number))
        self.hand_over()
        return ticket


def small_log(shard: str = SHARD, chunks: int = 3) -> LogWriter:
    log = LogWriter(shard)
    log.begin_segment()
    for number in range(chunks):
        log.events(batch("p", 1, number * 2, 2))
    return log


class Gate:
    """Stands in for a function of `os`: each call waits until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "pwritev") -> None:
        self._original: Callable[..., int] = getattr(os, name)
        self._asks, self._may = threading.Semaphore(0), threading.Semaphore(0)
        self.calls = 0
        monkeypatch.setattr(os, name, self)

    def __call__(self, *arguments: object) -> int:
        self.calls += 1
        self._asks.release()
        assert self._may.acquire(timeout=PATIENCE)
        return self._original(*arguments)

    def entered(self) -> None:
        assert self._asks.acquire(timeout=PATIENCE), "it was not called"

    def open(self, calls: int = 1_000) -> None:
        self._may.release(calls)


def piece_of(log: LogWriter, number: int) -> tuple[str, int, bytes]:
    line = log.log.line(number)
    assert line is not None
    return line.segment, line.at, log.chunks[number - 1].data
