"""Nodes as processes behind a fault proxy that are killed, stopped and started again.

Each node listens on a port of its own and advertises an entrance of the proxy, which it keeps over
restarts, as it keeps its data folder unless that is wiped. All run in one process group with a
guard that ends them should this process be killed. For bench/endurance.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.processes.set_clock import set_ahead
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from harness.fault_proxy import FaultProxy
from overlay.client import GetRing, GetStatus, RingClusters, Status
from overlay.info import ClusterInfo

ROOT: Final = Path(__file__).resolve().parents[2]
"""So that the nodes run the code beside this file, wherever Canopy is installed."""

PATIENCE: Final = 60.0
"""Seconds for a process to listen on its control socket, on a busy machine; ample."""

PORTS: Final = (10_000, 32_000)
"""Below those that Linux gives to sockets that dial (net.ipv4.ip_local_port_range)."""

FREED: Final = 20.0
"""Seconds for an entrance to be free again, on a busy machine; ample."""

SHORT: Final = 3.0
"""Seconds for a question that may be put to a node that was just stopped; ample."""

LAST_LINES: Final = 20
"""Lines that are kept of the log of a node that ended by itself."""


_ports = Random()
_given: dict[int, None] = {}  # by this process, whose nodes may not listen there yet


class ProxiedNode:
    """One node; `name` is what the proxy calls it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.data = folder / name
        self.port = free_port(_ports)
        self.entrance = f"127.0.0.1:{free_port(_ports)}"
        self.process: subprocess.Popen[bytes] | None = None
        self.id = ""
        self.ended = 0  # by itself
        self.last_lines: list[str] = []  # of its log, when it ended by itself
        self.is_paused = False
        self.clock = folder / f"{name}.clock"  # by what its wall clock is ahead, if it is set
        self.has_stood_still = False  # its process was paused once
        self.is_meant_to_run = False
        self.is_leaving = False  # was asked to, and has not been started again

    @property
    def is_up(self) -> bool:
        """Whether its process runs (it may stand still)."""
        return self.process is not None and self.process.poll() is None

    def start(self, config: dict[str, Any], peers: Sequence[str], group: int) -> None:
        """Start its process, in a process group."""
        path = self.folder / f"{self.name}.yaml"
        path.write_text(json.dumps({**config, "advertise": self.entrance}))  # YAML, too
        command = [sys.executable, "node.py"]
        if self.clock.exists():
            command = [sys.executable, "-m", "bench.processes.set_clock", str(self.clock)]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        command += ["--data", str(self.data), "--config", str(path)]
        for peer in peers:
            command += ["--peer", peer]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=group,
            )
        self.is_meant_to_run = True
        self.has_stood_still = False

    def look(self) -> None:
        """Count its end, if it was not killed."""
        if self.is_meant_to_run and not self.is_up:
            self.ended += 1
            self.is_meant_to_run = False
            log = (self.folder / f"{self.name}.log").read_text(errors="replace")
            self.last_lines = log.splitlines()[-LAST_LINES:]

    def signal(self, number: int) -> None:
        """Send a signal to the process, which may have ended."""
        if self.is_up:
            assert self.process is not None
            self.process.send_signal(number)

    def memory(self) -> int:
        """Bytes of its process that are resident; 0 if there is none."""
        with contextlib.suppress(OSError, IndexError):
            if self.is_up:
                assert self.process is not None
                pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
                return int(pages) * os.sysconf("SC_PAGE_SIZE")
        return 0


class ProxiedNodes:
    """A context manager that leaves nothing running."""

    def __init__(
        self,
        count: int,
        folder: Path,
        proxy: FaultProxy,
        config: dict[str, Any],
        own: Mapping[str, dict[str, Any]] = {},
        can_set_clocks: bool = False,
    ) -> None:
        """`config`: what stands in every node's configuration; `own`: what stands in that of a node
        as well, by its name."""
        self.nodes = {str(n): ProxiedNode(str(n), folder) for n in range(count)}
        self.proxy = proxy
        self.config = config
        self.own = own
        self.can_set_clocks = can_set_clocks
        for name in self.nodes if can_set_clocks else ():
            self.set_clock(name, 0.0)
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ProxiedNodes:
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", "trap '' INT TERM HUP; read _; kill -KILL 0"],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.signal(signal.SIGKILL)
        assert self._guard is not None
        assert self._guard.stdin is not None
        self._guard.stdin.close()  # it kills the group, itself included
        self._guard.wait()
        for node in self.nodes.values():
            if node.process is not None:
                node.process.wait()

    def grow(self) -> None:
        """Start all; returns when all are ready."""
        first: tuple[str, ...] = ()
        for node in self.nodes.values():
            while True:
                try:
                    self.proxy.enter(node.name, node.port, node.entrance)
                    break
                except OSError:  # taken meanwhile
                    node.entrance = f"127.0.0.1:{free_port(_ports)}"
            self._start(node, first)
            if not first:
                first = (node.entrance,)
        for node in self.nodes.values():
            self.await_ready(node)

    def kill(self, name: str) -> None:
        """kill -9: from then on who dials it is refused, as by its system."""
        node = self.nodes[name]
        node.look()
        node.is_meant_to_run = False
        node.signal(signal.SIGKILL)
        assert node.process is not None
        node.process.wait()
        node.is_paused = False
        self.proxy.leave(name)

    def leave(self, name: str) -> None:
        """Ask it to leave in order (SIGTERM); it ends by itself."""
        node = self.nodes[name]
        node.look()
        node.is_meant_to_run = False
        node.is_leaving = True
        node.signal(signal.SIGTERM)

    def restart(self, name: str, wiped: bool) -> None:
        """Start it again; `wiped`: its disk is empty, so it is another node at the same address.

        Raises TimeoutError if it was asked to leave and has not ended.
        """
        node = self.nodes[name]
        if node.is_up:
            raise TimeoutError(f"node {name} was asked to leave and still runs")
        if node.is_leaving:
            node.is_leaving = False
            self.proxy.leave(name)
        if wiped:
            shutil.rmtree(node.data, ignore_errors=True)
        self._enter(node)
        self._start(node, [other.entrance for other in self.nodes.values() if other is not node])

    def pause(self, name: str) -> None:
        """Make the process stand still (SIGSTOP)."""
        self.nodes[name].is_paused = self.nodes[name].has_stood_still = True
        self.nodes[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let the process go on (SIGCONT)."""
        self.nodes[name].is_paused = False
        self.nodes[name].signal(signal.SIGCONT)

    def set_clock(self, name: str, ahead: float) -> None:
        """Let its wall clock show so many seconds more than the machine's, from now on."""
        set_ahead(self.nodes[name].clock, ahead)

    def status(self, name: str, timeout: float = SHORT) -> Status | None:
        """The node's own status; None if it does not answer in time."""
        with contextlib.suppress(ControlError):
            with ControlClient.connect(self.nodes[name].data, timeout) as client:
                found = client.ask(GetStatus(0), Status, timeout)
            self.nodes[name].id = found.node
            return found
        return None

    def clusters(self, avoid: Sequence[str] = ()) -> tuple[ClusterInfo, ...]:
        """All clusters, as the first node sees them that answers and is not to be avoided."""
        for node in self.nodes.values():
            if node.name not in avoid and node.is_up and not node.is_paused:
                try:
                    with ControlClient.connect(node.data, SHORT) as client:
                        return client.ask(GetRing(0), RingClusters, SHORT).clusters
                except ControlError:
                    continue
        return ()

    def named(self, id_: str) -> str:
        """The name of the node with this id, as far as known; else ""."""
        return next((node.name for node in self.nodes.values() if node.id == id_), "")

    def await_ready(self, node: ProxiedNode) -> Status:
        """Its status when it is ready. Raises TimeoutError."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = self.status(node.name)
            if found is not None and found.ready:
                return found
            time.sleep(0.1)
        raise TimeoutError(f"node {node.name} is not ready; see {node.folder}/{node.name}.log")

    def _enter(self, node: ProxiedNode) -> None:
        """Give it the entrance back that it had. OSError if that is in use for long."""
        until = time.monotonic() + FREED
        while True:
            try:
                self.proxy.enter(node.name, node.port, node.entrance)
                return
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _start(self, node: ProxiedNode, peers: Sequence[str]) -> None:
        assert self._guard is not None
        config = {**self.config, **self.own.get(node.name, {})}
        node.start(config, peers, self._guard.pid)


def free_port(rng: Random) -> int:
    """A port that is not in use, outside of the range from which the system assigns ports."""
    while True:
        port = rng.randrange(*PORTS)
        if port in _given:
            continue
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket() as found, datagrams, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            datagrams.bind(("127.0.0.1", port))
            _given[port] = None
            return port
