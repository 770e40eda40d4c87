"""A program that subscribes and, on command, asks for no deliveries; in its own process.

`python -m bench.node.slow_reader DATA SELECTOR` for bench/node/slow_subscriber.py, which writes
``stall``, ``go`` and ``end`` to its standard input, a line each. While it stalls it asks its node
for its status, so that its library reads what comes; how long the answers take is noted. At the end
it prints one JSON object: how many deliveries it `got`, how many were `reported` lost to it, and
the slowest answer, `answer_ms`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.processes.programs import Program
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import Dropped, GetStatus, Status, Subscribe, Subscribed

ASK_EVERY: Final = 0.1
"""Seconds between two questions of a program that stalls."""


class StallingReader:
    """A subscriber that consumes what arrives, or stalls on command."""

    def __init__(self, client: ControlClient, selector: str) -> None:
        self.client = client
        self.got = self.reported = 0
        self.stalled = threading.Event()
        self.ended = threading.Event()
        self.answer_ms = 0.0
        client.ask(Subscribe(0, selector), Subscribed, 60.0)

    def run(self) -> None:
        """Until the command to end, or the node goes."""
        with contextlib.suppress(ControlError):
            while not self.ended.is_set():
                if self.stalled.is_set():
                    began = time.monotonic()
                    self.client.ask(GetStatus(0), Status)
                    self.answer_ms = max(self.answer_ms, (time.monotonic() - began) * 1e3)
                    time.sleep(ASK_EVERY)
                else:
                    self._consume()
            self._consume()

    def _consume(self) -> None:
        self.got += len(self.client.deliveries(0.2))
        while self.client.notices:
            news = self.client.notices.popleft()
            if isinstance(news, Dropped):
                self.reported += news.count

    def report(self) -> dict[str, Any]:
        """Events received, events reported lost, and the slowest answer in milliseconds."""
        return {"got": self.got, "reported": self.reported, "answer_ms": round(self.answer_ms, 1)}


class Apart(Program):
    """The other side: a program in a process of its own."""

    def __init__(self, data: Path, selector: str) -> None:
        """RuntimeError if it does not subscribe."""
        super().__init__("bench.node.slow_reader", data, selector)
        if self.line() != "subscribed":
            raise RuntimeError("the program that is to be slow has not subscribed")

    def end(self) -> dict[str, Any]:
        """End the process. Returns its report."""
        found = json.loads(self.ask("end"))
        assert isinstance(found, dict)
        return found


def main(args: Sequence[str] | None = None) -> int:
    data, selector = sys.argv[1:] if args is None else args
    with ControlClient.connect(data) as client:
        program = StallingReader(client, selector)
        print("subscribed", flush=True)
        thread = threading.Thread(target=program.run)
        thread.start()
        for line in sys.stdin:
            word = line.strip()
            if word == "stall":
                program.stalled.set()
            elif word == "go":
                program.stalled.clear()
            else:
                break
        program.ended.set()
        thread.join()
        print(json.dumps(program.report()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
