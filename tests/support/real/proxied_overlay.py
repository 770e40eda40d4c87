"""Real nodes that reach each other only through a fault proxy (harness/fault_proxy.py) or
from network namespaces, and events between them that are held against what was published."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from pathlib import Path

from canopy.client.blocking import ControlClient
from harness.fault_proxy import FaultProxy
from harness.real_overlay import PATIENCE, Overlay, status, wait_ready
from harness.recovery.flows import FlowPublisher, FlowSubscriber
from harness.recovery.plan import members
from harness.recovery.verdict import RecoveryVerdict, judge
from overlay.client import GetRing, RingClusters
from overlay.info import ClusterInfo
from tests.support.real.namespaces import Namespaces

CONFIG = """
directory: false  # addresses come through the proxy only
cluster: {size: 3}
tree: {summary_term: 1.0}  # for which a SUBACK waits after an election
trace: {enabled: false}
"""
RATE = 200.0
"""Events per second: enough to see a gap of some hundredths, and little work."""


class FlowingOverlay(Overlay):
    """Nodes with roles that a test asks for."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        super().__init__(folder, config)
        self.ids: list[str] = []

    def settle(self) -> None:
        """Wait until all processes are ready, and the cluster is full."""
        self.clients += [self._client(number) for number in range(len(self.processes))]
        wait_ready(*self.clients)
        self.ids = [status(client).node for client in self.clients]
        wait_for(lambda: len(members(self.cluster())) == 3)

    def cluster(self, asked: int = 0) -> ClusterInfo:
        """The one cluster, as this node sees it."""
        return self.clients[asked].ask(GetRing(0), RingClusters).clusters[0]

    def who(self, role: str) -> int:
        """The number of the `primary` or `standby`, or of the first `broker`."""
        cluster = self.cluster(self.outside()[0])
        node = cluster.brokers[0] if role == "broker" else getattr(cluster, role)
        return self.ids.index(node)

    def outside(self) -> list[int]:
        """Nodes that are in no cluster, by their own word."""
        return [
            number
            for number, client in enumerate(self.clients)
            if self.processes[number].poll() is None and status(client).role == "none"
        ]

    def data(self, number: int) -> Path:
        return self.folder / str(number)


class ProxiedOverlay(FlowingOverlay):
    """Nodes behind a proxy, where they are called "0", "1", …, in the order of their start."""

    def __init__(self, folder: Path, proxy: FaultProxy) -> None:
        super().__init__(folder)
        self.proxy = proxy

    def grow(self, count: int) -> None:
        """Start so many nodes, each in its own network namespace."""
        first: tuple[str, ...] = ()
        for number in range(count):
            port = free_port()
            entrance = self.proxy.enter(str(number), port)
            self.processes.append(self._process(number, f"127.0.0.1:{port}", first, entrance))
            first = first or (entrance,)
        self.settle()


class ScatteredOverlay(FlowingOverlay):
    """Nodes in network namespaces."""

    def __init__(self, folder: Path, spaces: Namespaces) -> None:
        super().__init__(folder, CONFIG + "insecure: true\n")
        self.spaces = spaces

    def grow(self, count: int) -> None:
        """So many nodes, each in a namespace of its own."""
        addresses = [f"{self.spaces.address(number)}:4470" for number in range(count)]
        for number, address in enumerate(addresses):
            before = self.spaces.command(number)
            seeds = tuple(addresses[:1]) if number else ()
            self.processes.append(self._process(number, address, seeds, before=before))
        self.settle()


class Flow:
    """A publisher at one node and a subscriber at another; a context manager around the faults."""

    _count = itertools.count()

    def __init__(self, overlay: FlowingOverlay, source: int, target: int) -> None:
        self.source, self.target = source, target
        self.name = f"flow{next(self._count)}"
        self.publisher = FlowPublisher(
            ControlClient.connect(overlay.data(source)), RATE, [self.name]
        )
        self.subscriber = FlowSubscriber(ControlClient.connect(overlay.data(target)))
        self.subscriber.subscribe(self.name)

    def __enter__(self) -> Flow:
        self.publisher.start()
        self.subscriber.start()
        wait_for(lambda: len(self.subscriber.arrivals) > 20)
        return self

    def __exit__(self, *_: object) -> None:
        self.publisher.stop()
        self.publisher.client.close()
        self.subscriber.client.close()

    def verdict(self, since: float) -> RecoveryVerdict:
        """What came of it, for a fault at `since`."""
        return judge(self.publisher.so_far(), list(self.subscriber.arrivals), since, [self.name])

    def flows_again(self, since: float) -> None:
        """Wait for an event that was published after `since`."""
        wait_for(lambda: self.verdict(since).first_s is not None)

    def exact(self, since: float) -> RecoveryVerdict:
        """Stop, and wait until everything has come: exactly what was published, once."""
        self.publisher.stop()
        assert self.publisher.error is None
        wait_for(lambda: not self.verdict(since).lost_before + self.verdict(since).lost_after)
        found = self.verdict(since)
        assert (found.duplicates, found.spurious) == (0, 0)
        return found


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Fails if it does not come to hold in time."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)
