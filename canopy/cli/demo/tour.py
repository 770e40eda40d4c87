"""The tour of a demo: an overlay grows, spans regions, and loses nodes. Each scene is caused,
observed by asking the nodes, and described in a sentence or two.

The demo's nodes get small bounds for it (`TOUR_BOUNDS`), so that a few dozen subscriptions and
attributes have the effect that 20,000 and 1,000 have by default.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from canopy.cli.constants import (
    QUIET_PAUSE,
    TOUR_BANDS,
    TOUR_BOUNDS,
    TOUR_NEWS,
    TOUR_ROWS,
    TOUR_TIMEOUT,
)
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.cli.demo.plan import DemoError, PlannedSubscription
from canopy.cli.demo.subscribers import Subscribers
from canopy.cli.display import Display
from canopy.client.blocking import ControlClient
from canopy.client.client import connect
from canopy.client.errors import ControlError
from overlay.client import (
    Command,
    Draft,
    GetRing,
    GetStreams,
    Located,
    Publish,
    Published,
    Reply,
    RingClusters,
    Streams,
    Where,
)
from overlay.phrases import counted
from overlay.stream_client import AddStream

T = TypeVar("T")
R = TypeVar("R", bound=Reply)

STREAM: Final = "tour"
BAND, NEWS = "tour_band", "tour_news"
"""The attributes of the tour's own events."""

REGIONS: Final = ("north", "south")
"""The regions of the nodes with even and odd numbers."""


@dataclass(frozen=True)
class Scene:
    """A scene's title, and the observation in sentences."""

    title: str
    said: str


FLUSHED: Final = 1.0
"""Seconds after which all records of the nodes are on disk: twice their flush period."""


def crossings(traces: Path, numbers: Mapping[str, int]) -> int:
    """Count the messages that carried the tour's news from one region to another, by the nodes'
    traces. `numbers`: the nodes' numbers by their ids."""
    sent: list[tuple[str, int, int]] = []
    news: set[str] = set()
    for path in traces.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            if not any(mark in line for mark in (b'"publish"', b'"forward"', b'"visit"')):
                continue
            record = json.loads(line)
            if record["kind"] != "publish":
                sent.append((record["event"], numbers[record["node"]], numbers[record["peer"]]))
            elif NEWS in record["attributes"]:
                news.add(record["event"])
    return sum(event in news and region_of(a) != region_of(b) for event, a, b in sent)


def region_of(number: int) -> str:
    """Return the region of the node with this number."""
    return REGIONS[number % len(REGIONS)]


class Tour:
    """Shows the scenes one after another, in a running overlay that is at rest."""

    def __init__(
        self, overlay: Overlay, subscribers: Subscribers, traces: Path, display: Display
    ) -> None:
        self._overlay = overlay
        self._traces = traces
        self._subscribers = subscribers
        self._display = display
        self._killed: set[int] = set()
        """The numbers of the killed nodes, whose subscriptions have ended."""
        self.published = 0
        """The number of events that the tour has published."""

    def run(self) -> list[Scene]:
        """Show all scenes. Raises DemoError if an expected state is not reached in `TOUR_TIMEOUT`
        seconds."""
        acts: tuple[tuple[str, Callable[[], str]], ...] = (
            ("A tree is cut", self._cut),
            ("A cluster splits", self._split),
            ("Events cross between regions", self._cross),
            ("A stream keeps rows", self._append),
            ("A node is lost, and comes back", self._lose),
            ("A cluster is lost, and another takes its place", self._lose_cluster),
        )
        scenes = []
        for title, act in acts:
            self._display.step(title)
            try:
                said = act()
            except ControlError as error:
                self._overlay.fail(f"{title}: {error}")
            scenes.append(Scene(title, said))
            self._display.done("")
            self._display.say(said)
        return scenes

    # --- a tree and a cluster grow ---

    def _cut(self) -> str:
        nodes = len(self._overlay.nodes)
        self._subscribe(
            (f"tour, band {n}", f"{BAND} >= {n} AND {BAND} < {n + 1}", n % nodes)
            for n in range(TOUR_BANDS)
        )
        found = self._until("tree is cut", lambda: self._tree(BAND), lambda t: len(t) > 1)
        self._publish(0, [{BAND: n + 0.5} for n in range(TOUR_BANDS)], TOUR_BANDS)
        hosts = {one.host for one in found}
        return (
            f"{counted(TOUR_BANDS, 'subscription')} to one attribute are more than a virtual node "
            f"takes here ({TOUR_BOUNDS['CANOPY_TREE__SPLIT_AT']}), so its tree was cut: "
            f"{counted(len(found), 'virtual node')} on {counted(len(hosts), 'node')} share its "
            f"values. Each of {counted(TOUR_BANDS, 'event')} went to the one that has its value."
        )

    def _split(self) -> str:
        found = self._until("cluster splits", self._clusters, lambda c: len(c) > 1)
        trees = sum(len(cluster.attributes) for cluster in found)
        leaders = ", ".join(str(self._number(cluster.primary)) for cluster in found)
        return (
            f"{counted(trees, 'attribute')} have trees, and a cluster owns "
            f"{TOUR_BOUNDS['CANOPY_CLUSTER__SPLIT_TREES']} here: so it split, and the ring has "
            f"{counted(len(found), 'cluster')}, led by the nodes {leaders}. Each keeps a "
            "replicated list of who subscribed, and decides about its own trees alone."
        )

    def _tree(self, attribute: str) -> Sequence[Any]:
        return self._ask(0, Where(0, attribute), Located).virtual_nodes

    def _clusters(self) -> Sequence[Any]:
        return self._ask(0, GetRing(0), RingClusters).clusters

    # --- regions ---

    def _cross(self) -> str:
        far = [node.number for node in self._overlay.nodes if region_of(node.number) == REGIONS[1]]
        self._subscribe((f"tour, news at {n}", f"{NEWS} > 0", n) for n in far)
        self._publish(0, [{NEWS: n + 1} for n in range(TOUR_NEWS)], TOUR_NEWS * len(far))
        time.sleep(FLUSHED)
        crossed = crossings(self._traces, {node.id: node.number for node in self._overlay.nodes})
        return (
            f"{counted(TOUR_NEWS, 'event')} of a node in {REGIONS[0]} were for "
            f"{counted(len(far), 'node')} in {REGIONS[1]}: {TOUR_NEWS * len(far)} deliveries, for "
            f"which {counted(crossed, 'message')} went from region to region. An event crosses "
            "once, to one node, which passes it on to the others there."
        )

    # --- a stream, and the loss of a node and of a cluster ---

    def _append(self) -> str:
        self._ask(0, AddStream(0, STREAM), Streams)
        self._append_rows(0)
        leader, followers = self._shard()
        names = " and ".join(str(self._number(node)) for node in followers)
        return (
            f"{counted(TOUR_ROWS, 'row')} of a stream are on the disks of three nodes: node "
            f"{self._number(leader)} leads, {names} follow. A row counts once two of them have it."
        )

    def _lose(self) -> str:
        leader, _ = self._shard()
        lost = self._overlay.nodes[self._number(leader)]
        led = [cluster for cluster in self._clusters() if cluster.primary == lost.id]
        mine = [each.name for each in self._subscribers.of_node(lost.number)]
        other = self._overlay.nodes[(lost.number + 1) % len(self._overlay.nodes)]
        time.sleep(FLUSHED)
        self._lose_nodes(lost)
        began = time.monotonic()
        self._append_rows(other.number)
        took = time.monotonic() - began
        rows = self._rows(other)
        if rows != list(range(2 * TOUR_ROWS)):
            raise DemoError(f"the stream has {len(rows)} rows where it should have {2 * TOUR_ROWS}")
        self._overlay.restart(lost)
        back = time.monotonic() - began
        what = "the stream's shard" + (" and a cluster" if led else "")
        return (
            f"Node {lost.number}, which led {what}, was killed (SIGKILL). Within {took:.1f} s "
            f"another led, and all {2 * TOUR_ROWS} rows are there, in order and once. "
            f"{counted(len(mine), 'subscription')} ended with the node; after {back:.0f} s it is "
            "back with its state, and gets what it missed of the stream."
        )

    def _lose_cluster(self) -> str:
        """Kill all members of the cluster that owns the tour's tree at once."""
        clusters = self._until("second cluster", self._clusters, lambda c: len(c) > 1)
        cluster = next(each for each in clusters if BAND in each.attributes)
        members = {cluster.primary, cluster.standby, *cluster.brokers}
        lost = [node for node in self._overlay.nodes if node.id in members]
        here = next(node.number for node in self._overlay.nodes if node not in lost)
        time.sleep(FLUSHED)
        self._lose_nodes(*lost)
        began = time.monotonic()
        left = [n for n in range(TOUR_BANDS) if n % len(self._overlay.nodes) not in self._killed]
        self._publish(here, [{BAND: n + 0.5} for n in left], len(left))
        took = time.monotonic() - began
        owner = self._until("owner of the tree", lambda: self._owner(here), bool)
        self._overlay.restart(*lost)
        back = time.monotonic() - began
        numbers = ", ".join(str(node.number) for node in lost)
        return (
            f"The nodes {numbers}, all members of the cluster that owns the tree of {BAND}, were "
            f"killed at once, and {counted(len(left), 'event')} published for the subscriptions "
            "that were left. The cluster's neighbour on the ring took over its keys, with a copy "
            f"of its list: within {took:.1f} s all of these events were delivered. Node "
            f"{self._number(owner)} leads there now; after {back:.0f} s the nodes that were lost "
            "are back."
        )

    def _owner(self, number: int) -> str:
        """Return the primary of the cluster that owns the tour's tree; "" while it cannot be
        reached."""
        try:
            return self._ask(number, Where(0, BAND), Located).cluster.primary
        except ControlError:
            return ""

    def _lose_nodes(self, *lost: DemoNode) -> None:
        self._killed |= {node.number for node in lost}
        self._overlay.lose(*lost)

    def _append_rows(self, number: int) -> None:
        first = len(self._rows(self._overlay.nodes[number]))
        with connect(self._overlay.nodes[number].data) as client:
            client.append(
                STREAM, [{"row": first + n} for n in range(TOUR_ROWS)], timeout=TOUR_TIMEOUT
            )

    def _rows(self, node: DemoNode) -> list[int]:
        """Read the stream from its first row at the node, and return the rows' numbers in order."""
        with connect(node.data) as client, client.read(STREAM, start="first") as reading:
            found: list[int] = []
            while rows := reading.take(timeout=1.0):
                found += [int(str(row.attributes["row"])) for row in rows]
            return found

    def _shard(self) -> tuple[str, list[str]]:
        """Return the leader of the stream's shard, and its followers."""

        def led() -> Any:
            return self._ask(0, GetStreams(0, STREAM), Streams).streams[0].shards[0]

        shard = self._until("leader of the stream", led, lambda found: bool(found.leader))
        return shard.leader, [r.node for r in shard.replicas if r.node != shard.leader]

    # --- asking and waiting ---

    def _subscribe(self, wanted: Iterator[tuple[str, str, int]]) -> None:
        chosen = [PlannedSubscription(*each) for each in wanted]
        self._subscribers.subscribe(chosen, lambda count: None)

    def _publish(self, number: int, events: list[dict[str, Any]], expected: int) -> None:
        """Publish at a node, and wait for `expected` deliveries."""
        before = self._subscribers.total
        drafts = tuple(
            Draft({"id": f"tour {n}", "type": "tour", **e}) for n, e in enumerate(events)
        )
        self._ask(number, Publish(0, drafts, receipt=True), Published)
        self.published += len(drafts)
        self._until(
            "deliveries arrive",
            lambda: self._subscribers.total - before,
            lambda count: count >= expected,
        )

    def _ask(self, number: int, command: Command, kind: type[R]) -> R:
        with ControlClient.connect(self._overlay.nodes[number].data) as client:
            return client.ask(command, kind, timeout=TOUR_TIMEOUT)

    def _until(self, what: str, look: Callable[[], T], found: Callable[[T], bool]) -> T:
        """Call `look` until `found` accepts its result, and return that. DemoError after
        `TOUR_TIMEOUT`."""
        until = time.monotonic() + TOUR_TIMEOUT
        while not found(seen := look()):
            self._overlay.check()
            if time.monotonic() > until:
                raise DemoError(f"no {what} within {TOUR_TIMEOUT:g} s")
            time.sleep(QUIET_PAUSE)
        return seen

    def _number(self, node: str) -> int:
        return next(each.number for each in self._overlay.nodes if each.id == node)
