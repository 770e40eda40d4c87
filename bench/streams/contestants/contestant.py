"""What contestants share: when a row counts as acknowledged, the rows, and servers."""

from __future__ import annotations

import contextlib
import subprocess
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import psutil

from overlay.client import Draft

PAYLOAD: Final = 100
PATIENCE: Final = 90.0
"""Seconds for servers to begin and for an answer, on a busy machine; ample."""

MAJORITY: Final = "majority"
"""On the disks of a majority of the servers, synced."""

FIRST: Final = "first"
"""On the disk of the server that was asked, synced; the others follow."""

LAZY: Final = "lazy"
"""With a majority of the servers, each of which syncs when it likes."""


def rows(count: int) -> list[Draft]:
    """What is appended, the same for all."""
    rng = Random(1)
    return [
        Draft(
            {"id": f"e{n}", "sensor": f"s{n % 1000}", "value": rng.random(), "level": n % 7},
            b"x" * PAYLOAD,
        )
        for n in range(count)
    ]


def encoded_rows(count: int) -> list[bytes]:
    """The same as MessagePack, for contestants that take bytes."""
    return [msgspec.msgpack.encode(row) for row in rows(count)]


class Servers:
    """Processes that end with `stack`."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: list[str], log: Path, environment: dict[str, str] | None = None
    ) -> None:
        """Start one, with what it says in `log`."""
        with log.open("ab") as out:
            server = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        self._started.append(server)
        self._stack.callback(server.wait)
        self._stack.callback(_end, server.pid)

    def processes(self) -> list[psutil.Process]:
        """Those that run, with what they have started themselves."""
        found = []
        for server in self._started:
            found += _with_children(server.pid)
        return found


def _with_children(number: int) -> list[psutil.Process]:
    process = psutil.Process(number)
    return [process, *process.children(recursive=True)]


def _end(number: int) -> None:
    for process in _with_children(number):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
