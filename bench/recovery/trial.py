"""One kill in an overlay of real processes on loopback (bench/recovery/measure.py).

Whom it hits and what needs them is defined in harness/recovery/plan.py, which the
simulated trial follows as well.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.command import flags, group
from bench.processes.nodes import ProxiedNode, ProxiedNodes
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from harness.fault_proxy import FaultProxy
from harness.recovery.flows import FlowPublisher, FlowSubscriber, wait_until
from harness.recovery.plan import (
    AFTER,
    CUTS,
    FLOWS,
    GIVE_UP,
    OUTSIDE,
    PLANTED,
    PROBED,
    QUIET,
    WARM,
    TrialError,
    check_arc,
    members,
    names,
    plan,
    selector,
    settings,
    shape,
)
from harness.recovery.verdict import RecoveryVerdict, judge
from overlay.client import (
    GetRing,
    GetStatus,
    Located,
    RingClusters,
    Status,
    Subscribe,
    Subscribed,
    Where,
)
from overlay.info import ClusterInfo

SETTLE: Final = 60.0
"""Seconds for clusters to fill, and for trees to find their hosts; ample."""

ROOT: Final = Path(__file__).resolve().parents[2]
"""So that the nodes run the code beside this file, wherever Canopy is installed."""

Say = Callable[[str], None]

AnyNode = DemoNode | ProxiedNode


@contextlib.contextmanager
def variables(values: dict[str, str]) -> Iterator[None]:
    """Environment of the processes that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class ProcessTrial:
    """Starts an overlay, kills, and measures what came of it."""

    def __init__(self, kill: str, rate: float, out: Path, trace: float, say: Say) -> None:
        """`trace`: the share of events that the nodes trace."""
        self.kill = kill
        self.rate = rate
        self.out = out
        self.trace = trace
        self.say = say
        self.clusters, self.size = shape(kill)
        self.nodes: Sequence[AnyNode] = ()
        self.subscribers: list[FlowSubscriber] = []
        self.stack = ExitStack()

    def run(self) -> dict[str, Any]:
        """Run the trial and return its row. Raises TrialError, DemoError or ControlError where
        nothing can be measured."""
        for name in ("nodes", "logs", "traces"):
            (self.out / name).mkdir(parents=True)
        with self.stack:
            if self.kill in CUTS:
                self._grow_behind_a_proxy()
            else:
                self._grow()
            return self._measure()

    def _grow(self) -> None:
        count = self.clusters * self.size + OUTSIDE
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        wanted = settings(self.kill)
        environment = {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "CANOPY_TREE__HOST_ENTRIES": str(wanted.tree.host_entries),
            "CANOPY_CLUSTER__SIZE": str(wanted.cluster.size),
            "CANOPY_CLUSTER__SPLIT_TREES": str(wanted.cluster.split_trees),
        }
        with variables(environment):
            overlay = Overlay(count, self.out, flags(self.trace), None)
            self.nodes = self.stack.enter_context(overlay).nodes
            overlay.start(lambda n: self.say(f"{n} of {count} nodes started"))
        overlay.await_ready(lambda n: self.say(f"{n} of {count} nodes ready"))

    def _grow_behind_a_proxy(self) -> None:
        self.proxy = self.stack.enter_context(FaultProxy())
        wanted = settings(self.kill)
        config = {
            "directory": False,
            "trace": group(self.trace),
            "tree": {
                "host_entries": wanted.tree.host_entries, "replicas": wanted.tree.replicas,
            },
            "cluster": {
                "size": wanted.cluster.size, "split_trees": wanted.cluster.split_trees,
            },
        }  # fmt: skip
        count = self.clusters * self.size + OUTSIDE
        grown = ProxiedNodes(count, self.out / "nodes", self.proxy, config)
        self.stack.enter_context(grown)
        self.say(f"{count} nodes start")
        grown.grow()
        self.nodes = list(grown.nodes.values())

    def _measure(self) -> dict[str, Any]:
        self.say("clusters fill")
        cluster, outside = self._clusters()
        self.source, self.target = outside[:2]
        flows = list(itertools.islice(names(cluster, "flow"), FLOWS))
        lookup = next(names(cluster, "lookup"))
        self.subscribers += [FlowSubscriber(self._client(node)) for node in outside[1:]]
        for number, flow in enumerate([*flows, lookup]):
            self.subscribers[number % len(self.subscribers)].subscribe(flow)
        self.say("trees find their hosts")
        found = plan(self.kill, cluster, self._hosts(flows))
        publisher = FlowPublisher(self._client(self.source), self.rate, flows)
        self.say(f"{self.rate:g} events/s")
        for thread in (publisher, *self.subscribers):
            thread.start()
        time.sleep(WARM)
        late = next(names(cluster, "subscribe"))
        probe = threading.Thread(target=self._subscribe, args=(publisher, late), daemon=True)
        once = self._client(self.source)
        check_arc(cluster, once.ask(GetRing(0), RingClusters).clusters)
        killed_at = self._kill(found.victims)
        probe.start()
        publisher.one(once, lookup)
        probes = (lookup,) if self.kill in PROBED else ()

        def verdict() -> RecoveryVerdict:
            arrivals = [one for each in self.subscribers for one in list(each.arrivals)]
            needing = (*found.needing, *probes)
            gaps = [gap for each in self.subscribers for gap in list(each.gaps)]
            return judge(publisher.so_far(), arrivals, killed_at, needing, late, gaps)

        def is_done() -> bool:
            return verdict().all_s is not None and verdict().subscribe_s is not None

        recovered = wait_until(is_done, GIVE_UP, 0.25)
        time.sleep(max(0.0, AFTER - (time.monotonic() - killed_at)))
        self.say("the rest arrives")
        publisher.stop()
        self._quiet(once)
        row = verdict().as_row()
        recovered = recovered and publisher.error is None
        return {"recovered": recovered, **row, "held_back_s": round(publisher.held_back, 3)}

    def _kill(self, victims: tuple[str, ...]) -> float:
        """kill -9, or a link that is cut; when."""
        self.say(f"loss of the {self.kill}")
        hit = [node for node in self.nodes if node.id in victims]
        killed_at = time.monotonic()
        if self.kill in CUTS:
            end = self.source if self.kill == "link" else self.target
            for node in hit:
                self.proxy.cut(self._name(end), self._name(node))
            return killed_at
        doomed = [node.process for node in hit]
        for process in doomed:
            assert process is not None
            process.kill()
        return killed_at

    def _subscribe(self, publisher: FlowPublisher, flow: str) -> None:
        """A subscription that is asked for at the kill, and then one event for it."""
        with contextlib.suppress(ControlError):  # no SUBACK: the verdict misses the delivery
            one = FlowSubscriber(self._client(self.source))
            one.subscribe(flow)
            one.start()
            self.subscribers.append(one)
            publisher.one(self._client(self.source), flow)

    def _quiet(self, client: ControlClient) -> None:
        """Wait until all that was accepted has had its time to arrive."""

        def is_quiet() -> bool:
            last = max((s.arrivals[-1].at for s in self.subscribers if s.arrivals), default=0.0)
            done = client.ask(GetStatus(0), Status).pending == 0
            return done and time.monotonic() - last > QUIET

        wait_until(is_quiet, GIVE_UP, 0.1)

    # -- before the kill -------------------------------------------------------------------------

    def _clusters(self) -> tuple[ClusterInfo, list[AnyNode]]:
        """The cluster to hit, and the nodes that are in none, once all clusters are full."""
        client = self._client(self.nodes[0])
        if self.clusters > 1:  # trees enough for a split, held by the founder's client
            asked = [Subscribe(0, selector(f"split{n}")) for n in range(PLANTED)]
            client.ask_many(asked, Subscribed, SETTLE, len(asked))
        found: list[ClusterInfo] = []

        def are_full() -> bool:
            found[:] = client.ask(GetRing(0), RingClusters).clusters
            sizes = [len(members(cluster)) for cluster in found]
            return len(sizes) == self.clusters and min(sizes) >= self.size

        if not wait_until(are_full, SETTLE, 0.2):
            raise TrialError(f"no {self.clusters} full clusters in {SETTLE:g} s")
        inside = {node for cluster in found for node in members(cluster)}
        outside = [node for node in self.nodes if node.id not in inside]
        return found[-1], outside[:OUTSIDE]

    def _hosts(self, flows: list[str]) -> dict[str, str]:
        """flow -> the host of its tree, once that has not changed for a second."""
        client = self._client(self.source)
        found: dict[str, str] = {}
        since = time.monotonic()

        def stay() -> bool:
            nonlocal since
            before = dict(found)
            for flow in flows:
                tree = client.ask(Where(0, flow), Located).virtual_nodes
                found[flow] = tree[0].host if tree else ""
            if before != found or not all(found.values()):
                since = time.monotonic()
            return time.monotonic() - since > 1.5

        if not wait_until(stay, SETTLE, 0.2):
            raise TrialError("the trees do not come to rest")
        return found

    @staticmethod
    def _name(node: AnyNode) -> str:
        """What the proxy calls it."""
        assert isinstance(node, ProxiedNode)
        return node.name

    def _client(self, node: AnyNode) -> ControlClient:
        return self.stack.enter_context(ControlClient.connect(node.data))
