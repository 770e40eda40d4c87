"""Nodes, and syncs between databases, whose sides are processes that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.processes.overlays import started
from canopy.client.blocking import ControlClient
from overlay.client import Streams
from overlay.stream_client import AddStream

PATIENCE = 300.0
"""Seconds for whatever is waited for, on a busy machine; ample."""


class Side:
    """`canopy sync run` with what one file says."""

    def __init__(self, file: Path, environment: dict[str, str]) -> None:
        self._file, self._log = file, file.with_suffix(".log")
        self._environment = environment
        self.start()

    def start(self) -> None:
        """Start its process, also after `kill`."""
        command = [sys.executable, "-m", "canopy", "sync", "run", "--config", str(self._file)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End its process with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End its process in order."""
        self.process.terminate()
        self.process.wait()

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2_000:]


class Syncs:
    """Nodes, and syncs whose streams have a replica at each."""

    def __init__(self, folder: Path, stack: ExitStack, nodes: int = 1) -> None:
        self.folder, self.replicas = folder, nodes
        self.overlay = stack.enter_context(started(nodes, 0.0))
        self.node = self.overlay.nodes[0].data
        self._environment = os.environ | {"CANOPY_CONNECT": str(self.node)}
        self._count = 0

    def defined(self, source: str, target: str, *options: str) -> tuple[str, list[Path]]:
        """A new sync of a new stream: its name, and a file for each side. `options`: of the
        source's."""
        self._count += 1
        name = f"s{self._count}"
        with ControlClient.connect(self.node) as client:
            client.ask(AddStream(0, name, replicas=self.replicas), Streams, PATIENCE)
        files = []
        for side, url in (("--from", source), ("--to", target)):
            file = self.folder / f"{name}{side}.json"
            self.add(file, name, side, url, *(options if side == "--from" else ()))
            files.append(file)
        return name, files

    def add(self, file: Path, name: str, *options: str) -> None:
        """Add a side of a sync to a file."""
        command = [sys.executable, "-m", "canopy", "sync", "add", name, "--stream", name, *options]
        quiet = {"env": self._environment, "stderr": subprocess.DEVNULL}
        subprocess.run([*command, "--config", str(file)], check=True, **quiet)  # type: ignore[call-overload]

    @contextmanager
    def running(self, *files: Path) -> Iterator[list[Side]]:
        """A process for each file, until the block ends."""
        with ExitStack() as stack:
            sides = []
            for file in files:
                sides.append(Side(file, self._environment))
                stack.callback(sides[-1].stop)
            yield sides

    def restart_node(self) -> None:
        """Kill the first node and start it again."""
        self.overlay.lose(self.overlay.nodes[0])
        self.overlay.restart(self.overlay.nodes[0])
