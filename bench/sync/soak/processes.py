"""A node, the two sides of a sync and the servers, in processes that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from canopy.cli.demo.overlay import canopy_command, environment
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import Streams
from overlay.stream_client import AddStream

PATIENCE = 60.0  # seconds


class Killable:
    """A process that is started again with the same command."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.command = command
        self.log = log
        self.env = env
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env
            )

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-2_000:]


class SyncProcesses:
    """A node with a stream, and both sides of one sync, a process each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "node"
        node = [*canopy_command(), "node", "--data", str(self.data), "--listen", "127.0.0.1:0"]
        self.node = Killable([*node, "--no-trace"], folder / "node.log", environment())
        self.sides: dict[str, Killable] = {}

    def start(self, source: str, target: str) -> None:
        """Start the node, found the stream, define the sync, and run its sides."""
        self.node.start()
        self._ask(lambda client: client.ask(AddStream(0, "s", replicas=1), Streams, PATIENCE))
        env = os.environ | {"CANOPY_CONNECT": str(self.data)}
        sync = [sys.executable, "-m", "canopy", "sync"]
        for side, url in (("from", source), ("to", target)):
            file = str(self.folder / f"{side}.json")
            add = [*sync, "add", "soak", "--stream", "s", f"--{side}", url, "--config", file]
            subprocess.run(add, check=True, env=env, capture_output=True)
            run = [*sync, "run", "--config", file]
            self.sides[side] = Killable(run, self.folder / f"{side}.log", env)
            self.sides[side].start()

    def restart(self, name: str) -> None:
        """Kill the node, or one side, and start it again."""
        one = self.node if name == "node" else self.sides[name]
        one.kill()
        one.start()

    def stop(self) -> None:
        for one in (*self.sides.values(), self.node):
            one.kill()

    def _ask(self, question: Callable[[ControlClient], object]) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with ControlClient.connect(self.data) as client:
                    question(client)
                return
            except ControlError:
                if time.monotonic() > until or self.node.has_ended():
                    raise
                time.sleep(0.1)
