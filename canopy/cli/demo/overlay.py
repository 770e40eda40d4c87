"""The node processes of a demo: started some at a time, watched, and always stopped.

All nodes run in one process group, whose leader is a small guard: a shell that reads its standard
input, a pipe from the demo, and kills the group when that ends. So no process survives, even if the
demo itself is killed. On a terminal Ctrl-C reaches the demo only, which then stops the nodes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from canopy.cli.constants import (
    DEATH_TIMEOUT,
    DRAIN_TIMEOUT,
    LOG_TAIL,
    POLL,
    READY_TIMEOUT,
    SMALL_TABLES,
    START_TIMEOUT,
    STARTING_AT_ONCE,
    STOP_TIMEOUT,
)
from canopy.cli.demo.plan import DemoError
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import GetStatus, Status

OnCount = Callable[[int], None]

EMPTY: Mapping[str, str] = MappingProxyType({})


class DemoNode:
    """One `canopy node` process.

    `number` counts from 0; `address` and `id` are empty until `listening` and the first status.
    """

    def __init__(self, number: int, out: Path, bounds: Mapping[str, str] = EMPTY) -> None:
        self.number = number
        self.bounds = dict(bounds)
        """The node's own settings, as environment variables."""
        self.data = out / "nodes" / f"{number:02}"
        self.log = out / "logs" / f"{number:02}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.id = ""
        self.is_lost = False
        """Whether the demo killed the process on purpose."""

    def start(self, arguments: list[str], group: int) -> None:
        """Start the process in process group `group`, with its output at the end of `log`."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*canopy_command(), "node", "--data", str(self.data), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment() | self.bounds,
                process_group=group,
            )

    def listening(self) -> bool:
        """Return whether the process has written its address."""
        with contextlib.suppress(OSError):
            self.address = self.address or (self.data / "address").read_text().strip()
        return bool(self.address)

    def check(self) -> None:
        """Raise DemoError with the end of its log if the process has ended by itself."""
        code = None if self.process is None else self.process.poll()
        if code is None or self.is_lost:
            return
        tail = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL:]
        raise DemoError(
            f"node {self.number} ended by itself (exit code {code}); its log, {self.log}, ends:\n"
            + "\n".join(f"  {line}" for line in tail)
        )


def canopy_command() -> list[str]:
    """The command line of `canopy` under the running Python."""
    script = Path(sys.executable).with_name("canopy")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "canopy"]


def environment() -> dict[str, str]:
    """Return this process's environment with `SMALL_TABLES` as defaults, and without the variables
    that would connect a demo's node elsewhere."""
    mine = ("CANOPY_PEERS", "CANOPY_ADVERTISE", "CANOPY_NAME", "CANOPY_TRACE__ENABLED")
    kept = {name: value for name, value in os.environ.items() if name not in mine}
    return {**SMALL_TABLES, **kept, "CANOPY_DRAIN_TIMEOUT": DRAIN_TIMEOUT}


class Overlay:
    """`nodes` processes on loopback. A context manager that leaves no process running."""

    def __init__(
        self,
        nodes: int,
        out: Path,
        arguments: list[str],
        seed: int | None,
        bounds: Callable[[int], Mapping[str, str]] = lambda number: EMPTY,
    ) -> None:
        """`bounds`: returns a node's settings, as environment variables, by its number."""
        self.nodes = [DemoNode(number, out, bounds(number)) for number in range(nodes)]
        self._arguments = arguments
        self._seed = seed
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Overlay:
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", "trap '' INT TERM HUP; read _; kill -KILL 0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        guard = self._guard
        assert guard is not None
        assert guard.stdin is not None
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
        guard.stdin.close()  # the guard kills the group, itself included
        for process in (guard, *(n.process for n in self.nodes)):
            if process is not None:
                process.wait()

    def start(self, started: OnCount) -> None:
        """Start all nodes. The first founds the ring; each other one gets the first and one more as
        peers."""
        first = self.nodes[0]
        self._launch(first, [])
        self._await_listening([first])
        started(1)
        pending: list[DemoNode] = []
        listening = [first]
        for node in self.nodes[1:]:
            peers = [first.address, listening[len(listening) // 2].address]
            self._launch(node, list(dict.fromkeys(peers)))
            pending.append(node)
            if len(pending) >= STARTING_AT_ONCE:
                self._await_listening(pending[:1])
            listening += [n for n in pending if n.listening()]
            pending = [n for n in pending if not n.address]
            started(len(listening))
        for node in pending:
            self._await_listening([node])
            listening.append(node)
            started(len(listening))

    def lose(self, *lost: DemoNode) -> None:
        """Kill the nodes' processes with SIGKILL, as a power failure would."""
        for node in lost:
            assert node.process is not None
            node.is_lost = True
            node.process.kill()
        for node in lost:
            assert node.process is not None
            node.process.wait()

    def restart(self, *lost: DemoNode) -> None:
        """Start lost nodes again with their data folders, and wait until all nodes are ready."""
        others = [each.address for each in self.nodes if each not in lost]
        for node in lost:
            (node.data / "address").unlink(missing_ok=True)
            node.address = ""
            self._launch(node, others[:2])
            node.is_lost = False
        self._await_listening(list(lost))
        self.await_ready(lambda ready: None)

    def _launch(self, node: DemoNode, peers: list[str]) -> None:
        assert self._guard is not None
        arguments = ["--listen", "127.0.0.1:0", "--name", f"node {node.number}", *self._arguments]
        for peer in peers:
            arguments += ["--peer", peer]
        if self._seed is not None:
            arguments += ["--seed", str(self._seed * 1_000 + node.number)]
        node.start(arguments, self._guard.pid)

    def _await_listening(self, nodes: list[DemoNode]) -> None:
        until = time.monotonic() + START_TIMEOUT
        while not all(node.listening() for node in nodes):
            self.check()
            if time.monotonic() > until:
                raise DemoError(f"node {nodes[0].number} does not start; see {nodes[0].log}")
            time.sleep(POLL)

    def await_ready(self, ready: OnCount) -> None:
        """Wait until every node is ready. DemoError after a time-out or if a node has died."""
        until = time.monotonic() + READY_TIMEOUT * (1 + len(self.nodes) / 30)
        waiting = list(self.nodes)
        while waiting:
            self.check()
            waiting = [node for node in waiting if not self._is_ready(node)]
            ready(len(self.nodes) - len(waiting))
            if time.monotonic() > until:
                numbers = ", ".join(str(node.number) for node in waiting[:5])
                raise DemoError(f"not ready in time: node {numbers}; see {waiting[0].log}")
            if waiting:
                time.sleep(4 * POLL)

    def _is_ready(self, node: DemoNode) -> bool:
        try:
            with ControlClient.connect(node.data) as client:
                status = client.ask(GetStatus(0), Status, timeout=10.0)
        except ControlError:
            return False  # not yet listening, or dead: `check` raises then
        node.id = status.node
        return status.ready

    def check(self) -> None:
        """Raise DemoError if a node has died."""
        for node in self.nodes:
            node.check()

    @contextlib.contextmanager
    def clients(self, failed: str) -> Iterator[list[ControlClient]]:
        """Connect to each node. A ControlError in the block calls `fail` with the text `failed` and
        the error."""
        with contextlib.ExitStack() as stack:
            try:
                connected = (ControlClient.connect(node.data) for node in self.nodes)
                yield [stack.enter_context(client) for client in connected]
            except ControlError as error:
                self.fail(f"{failed}: {error}")

    def fail(self, what: str) -> NoReturn:
        """Raise DemoError: with the log of a node that ends within `DEATH_TIMEOUT`, else with
        `what`."""
        until = time.monotonic() + DEATH_TIMEOUT
        while time.monotonic() < until:
            self.check()
            time.sleep(POLL)
        raise DemoError(what)

    def stop(self, left: OnCount) -> list[DemoNode]:
        """Let all nodes drain and leave. Returns those that had to be killed."""
        for node in self._running():
            assert node.process is not None
            node.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_TIMEOUT
        while (running := list(self._running())) and time.monotonic() < until:
            left(len(self.nodes) - len(running))
            time.sleep(POLL)
        for node in running:
            assert node.process is not None
            node.process.kill()
            node.process.wait()
        left(len(self.nodes))
        return running

    def _running(self) -> Iterator[DemoNode]:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                yield node
