"""How often an event crosses between regions, and how long it takes, with and without regions (M1).

Nodes are in regions with short ways inside and long ones between. Each node subscribes to a topic,
and each topic has subscribers in some of the regions: topic k in the first `k mod regions + 1`.
Publishers in all regions publish events for all topics. The network is the same both times; only
without regions the nodes do not know where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from bench.experiments.frame import Experiment, NotReadyError, Progress, run_until_ready
from canopy.sim.world.network import Conditions
from canopy.sim.world.world import MeteredNode, World
from canopy.wire.transport.codec import WireCodec
from overlay.machine import Message, Peer
from overlay.settings import Settings
from overlay.upper_tree.messages import Deliver, Undelivered, Visit

Count = Annotated[int, Meta(ge=1, le=100_000)]

JOINED_WITHIN = 60.0
"""Virtual seconds in which the nodes start."""

GOSSIP = 30.0
"""Virtual seconds after that in which views and hosts settle."""

STAGES = ("grow", "subscribe", "publish")
"""Of a run, each about as long as another."""

PARTS_DRAWN = 20
"""Sets of dead nodes for which it is counted how many of the others hold together."""


class RegionsPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the experiment depends on, beside the code."""

    regions: Count = 5
    nodes: Count = 200  # in each region
    topics: Count = 20
    publishers: Count = 4  # in each region
    events: Count = 400
    rate: Annotated[float, Meta(gt=0)] = 20.0  # events per second, of all together
    settings: Settings = Settings()
    network: Conditions = Conditions(
        latency_low=0.001, latency_high=0.001, backbone=0.079, loss=0.01
    )
    seed: int = 1


class RegionsRow(msgspec.Struct, frozen=True):
    """What came out, with regions or without. Times are milliseconds."""

    seed: int
    known: bool  # whether nodes know their region
    regions: int
    nodes: int  # in each
    events: int
    interested: float  # regions with a recipient, per event
    crossings: float  # copies of an event from one region to another, per event: visits, deliveries
    ratio: float  # crossings per interested region
    own_region: float  # share of the events that enter the region again that they come from
    inside_p50: float | None
    inside_p99: float | None
    across_p50: float | None
    across_p99: float | None
    delivered: int
    expected: int
    twice: int  # deliveries of an event that came to a node again
    hosts: dict[str, int]  # virtual nodes, by the region of their hosts
    together_50: float  # share of the living in the largest part with half of the nodes dead: the
    # least of some draws, before anything is repaired


class Crossings:
    """Counts what nodes send from one region to another."""

    def __init__(self) -> None:
        self.region: dict[str, str] = {}
        """Of each node, by id."""
        self.copies: dict[str, Counter[str]] = {}
        """By event, how often it entered which region."""

    def sent(self, sender: Peer, receiver: Peer, message: Message) -> None:
        """Count a message, if its ends are in two regions."""
        there = self.region[receiver.id]
        if self.region[sender.id] == there:
            return
        if isinstance(message, Visit | Deliver | Undelivered):
            for event in message.events:
                self.copies.setdefault(event.identity, Counter())[there] += 1


class RegionsRun:
    """One world, with regions that its nodes know or do not know."""

    def __init__(self, plan: RegionsPlan, progress: Progress, known: bool) -> None:
        self.plan = plan
        self.known = known
        self.crossings = crossings = Crossings()
        self._progress = progress

        class CountedNode(MeteredNode):
            def send(self, peer: Peer, message: Message) -> None:
                if peer.id != self.me.id:
                    crossings.sent(self.me, peer, message)
                super().send(peer, message)

        self.world = World(plan.seed, WireCodec(), plan.settings, build=CountedNode)
        self.world.network.conditions = plan.network
        self.draw: Random = self.world.generator("regions")
        self.members: dict[str, list[str]] = {f"r{n}": [] for n in range(plan.regions)}
        self.wanted: dict[str, list[str]] = {f"t{n}": [] for n in range(plan.topics)}
        """Topic -> nodes that subscribe to it."""

    def row(self) -> RegionsRow:
        """Grow, subscribe, publish; what came out."""
        self._report("grow")
        self._grow()
        self._report("subscribe")
        self._subscribe()
        self._report("publish")
        publishers = [
            name for members in self.members.values() for name in members[: self.plan.publishers]
        ]
        self._publish(publishers * 2, 0.05)  # they find the tree
        self.world.run(GOSSIP)
        took = self.plan.events / self.plan.rate
        return self._sum_up(self._publish(self.draw.choices(publishers, k=self.plan.events), took))

    # --- what is done ---

    def _grow(self) -> None:
        plan, world = self.plan, self.world
        count = plan.regions * plan.nodes
        regions = [region for _ in range(plan.nodes) for region in self.members]
        for number, region in enumerate(regions):
            name = f"n{number}"
            world.network.place(name, region)
            # Nodes join at the first one, or at one of theirs.
            seeds = [] if not number else [*self.members[region][:1], "n0"][:1]
            world.add_node(seeds, name, region if self.known else "")
            self.crossings.region[world.drivers[name].disk.node] = region
            self.members[region].append(name)
            world.run(min(0.2, JOINED_WITHIN / count))
        run_until_ready(world, world.ready)
        world.run(GOSSIP)

    def _subscribe(self) -> None:
        topics = list(self.wanted)
        for place, members in enumerate(self.members.values()):
            there = [t for n, t in enumerate(topics) if n % self.plan.regions >= place]
            for name in members:
                topic = self.draw.choice(there)
                self.wanted[topic].append(name)
                self.world.subscribe(name, f"topic = '{topic}'")
                self.world.run(0.01)
        run_until_ready(self.world, self.world.acknowledged)
        self.world.run(GOSSIP)

    def _publish(self, publishers: Sequence[str], seconds: float) -> list[str]:
        """Publish an event of each of these in turn, and wait until they have arrived."""
        topics = self.draw.choices(list(self.wanted), k=len(publishers))
        self.first = len(self.world.clients.publications)
        for number, (name, topic) in enumerate(zip(publishers, topics, strict=True)):
            self.world.publish(name, {"topic": topic, "number": number})
            self.world.run(seconds / len(publishers))
        if not self.world.settle():
            raise NotReadyError("events are still pending")
        return topics

    def _report(self, stage: str) -> None:
        where = "with regions" if self.known else "without regions"
        self._progress(where, STAGES.index(stage) / len(STAGES))

    # --- what came out ---

    def _sum_up(self, topics: Sequence[str]) -> RegionsRow:
        plan, world = self.plan, self.world
        made = list(islice(world.clients.publications, self.first, None))
        at = {each.identity: each for each in made}
        home = {name: region for region, names in self.members.items() for name in names}
        reached = {t: {home[name] for name in names} for t, names in self.wanted.items()}
        counts = [sum(self._copies(each.identity).values()) for each in made]
        interested = [len(reached[topic]) for topic in topics]
        inside: list[float] = []
        across: list[float] = []
        shown: Counter[tuple[str, str]] = Counter()
        for one in world.clients.deliveries:
            published = at.get(one.delivery.event.identity)
            if published is not None:
                shown[published.identity, one.node] += 1
                near = home[one.node] == home[published.node]
                (inside if near else across).append(one.time - published.published)
        returned = sum(self._copies(each.identity)[home[each.node]] > 0 for each in made)
        return RegionsRow(
            seed=plan.seed,
            known=self.known,
            regions=plan.regions,
            nodes=plan.nodes,
            events=len(made),
            interested=round(sum(interested) / len(made), 3),
            crossings=round(sum(counts) / len(made), 3),
            ratio=round(sum(counts) / max(1, sum(interested)), 3),
            own_region=round(returned / len(made), 3),
            inside_p50=quantile(inside, 0.5),
            inside_p99=quantile(inside, 0.99),
            across_p50=quantile(across, 0.5),
            across_p99=quantile(across, 0.99),
            delivered=len(shown),
            expected=sum(len(self.wanted[topic]) for topic in topics),
            twice=sum(shown.values()) - len(shown),
            hosts=self._hosts(home),
            together_50=self._together(0.5),
        )

    def _copies(self, identity: str) -> Counter[str]:
        return self.crossings.copies.get(identity, Counter())

    def _hosts(self, home: dict[str, str]) -> dict[str, int]:
        """Virtual nodes by the region of their hosts, a replica counted as one."""
        found: Counter[str] = Counter()
        for name in self.world.names():
            node = self.world.node(name)
            if node.clusters.is_primary:
                for owned in node.owner.trees.values():
                    for entry in owned.tree.map.entries:
                        for host in entry.hosts:
                            found[home[self.world.identities[host.id]]] += 1
        return dict(sorted(found.items()))

    def _views(self) -> dict[str, list[str]]:
        """By node, the ids of its neighbours."""
        names = self.world.names()
        return {name: [peer.id for peer in self.world.node(name).view.peers()] for name in names}

    def _together(self, dead: float) -> float:
        """The share of the living that hold together along views, the least of some draws."""
        views = {self.world.drivers[n].disk.node: ids for n, ids in self._views().items()}
        least = 1.0
        for _ in range(PARTS_DRAWN):
            gone = set(self.draw.sample(sorted(views), int(dead * len(views))))
            living = {node: ids for node, ids in views.items() if node not in gone}
            least = min(least, largest_part(living) / len(living))
        return round(least, 4)


def largest_part(linked: dict[str, list[str]]) -> int:
    """Nodes of the largest part of a graph that holds together; links count in both directions,
    those to nodes that are not in it do not count."""
    both: dict[str, list[str]] = {node: [] for node in linked}
    for node, others in linked.items():
        for other in others:
            if other in both:
                both[node].append(other)
                both[other].append(node)
    seen: set[str] = set()
    largest = 0
    for node in both:
        todo, size = [node], 0
        while todo:
            each = todo.pop()
            if each not in seen:
                seen.add(each)
                size += 1
                todo += both[each]
        largest = max(largest, size)
    return largest


def quantile(seconds: Iterable[float], share: float) -> float | None:
    """In milliseconds; None if there are none."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    return round(1_000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)


def trials(plan: RegionsPlan, progress: Progress) -> Iterator[RegionsRow]:
    """With regions, and without them beside."""
    for known in (True, False):
        yield RegionsRun(plan, progress, known).row()


REGIONS = Experiment(
    "regions",
    "Measure how often events cross between regions.",
    """… and how long they take, where nodes know their region and where they do not, in the same
    network: five regions of 200 nodes, 1 ms inside and 80 ms between, 1 % loss. docs/lab/regions.md
    has the results. Takes some minutes, and about a gigabyte. The exit code is 1 if a delivery is
    missing or was made twice.""",
    RegionsPlan(),
    trials,
    "transposed | known: nodes know their region | "
    + " | ".join(
        f"{name}: {name.replace('_', ' ')}"
        for name in RegionsRow.__struct_fields__
        if name not in ("known", "hosts")
    ),
    is_good=lambda row: row["delivered"] == row["expected"] and not row["twice"],
)
