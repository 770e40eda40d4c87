"""What one point of a curve costs in whole nodes: no model, nothing planted (C2 to C8).

A world of the `Node`s that a process runs, with counting routing, trees cut and hosted by their
subscribers (`tree.placement: subscribers`), and one host for each virtual node, since the paper
has no replicas. Subscriptions, events and their nodes are drawn as in the routing model. Gossip
fills the tables of access points; nothing else does.

Each event is published by another node, which has found no tree before: a node that publishes
again knows them, and walks no more. Messages are counted from the trace records. As in the model,
only what walks found counts for the curves, since the paper has no owner to ask (C5); what the
owners added is counted apart. The product's tree of subscriptions without a pivot, `$event`, which
nobody has here, is left out.

A world goes through stages: nodes, subscriptions, gossip, events. None depends on a later one, and
the hop limit matters only to the node that publishes. So points can share what comes before the
stage in which they differ (`shared_world`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Any

from msgspec.structs import replace

from bench.experiments.figures.plan import FigurePlan
from bench.experiments.frame import NotReadyError, run_until_ready
from bench.experiments.routing_model.counting_routing import EventCost
from canopy.sim.scenario.range_load import RangeLoad, RangeSubscription, attribute_name, selector_of
from canopy.sim.world.clients import SimulatedSubscription
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.links.events import Codec
from overlay.machine import NodeId
from overlay.settings import Settings, TreeSettings, ViewSettings, WalkSettings
from overlay.upper_tree.owner.tree_log import Tree

JOINED_WITHIN = 30.0
"""Virtual seconds in which the nodes start."""

GAP = 0.02
"""Virtual seconds between two events …"""

SUBSCRIPTION_GAP = 0.0005
"""… and between two subscriptions."""

STILL = 1.0
"""Virtual seconds without a delivery, with nothing pending anywhere, after which all events have
been delivered."""

Key = tuple[NodeId, str]
"""A publisher of one event, and an attribute of that."""


@dataclass
class NodeCost(EventCost):
    """What some events cost in whole nodes; `delivered` are those that no owner was needed for."""

    shown: int = 0  # deliveries, however the trees were found
    asked: int = 0  # questions to owners, and their answers
    known: float = 0.0  # attributes in a node's table, on average
    at_subscribers: float = 0.0  # share of the virtual nodes that a subscriber of the tree hosts


class Steps:
    """Counts the steps of events from the trace records of all nodes, each by publisher and
    attribute."""

    def __init__(self) -> None:
        self.hops: Counter[Key] = Counter()
        """Messages of walks, by event and attribute."""
        self.entered: Counter[Key] = Counter()
        """From the publisher to the tree."""
        self.passed: Counter[Key] = Counter()
        """From host to host."""
        self.listed: Counter[Key] = Counter()
        """From a host to an interested node."""
        self.blocked = 0
        self.by: dict[Key, str] = {}
        """How the publisher found the tree: "walk" or "ring"."""

    def heard(self, node: NodeId, kind: str, fields: Mapping[str, Any]) -> None:
        """Add a trace record of a walk, a search or a delivery to the counts."""
        attribute = fields.get("attribute", "")
        if kind in ("walk_hop", "walk_recovered"):
            self.hops[fields["walk"].rpartition(".")[0], attribute] += 1
        elif kind == "walk_blocked":
            self.blocked += 1
        elif kind == "located":
            self.by[node, attribute] = fields["by"]
        elif kind == "visit":
            counted = self.entered if fields["hop"] == 1 else self.passed
            counted[publisher_of(fields["event"]), attribute] += 1
        elif kind == "forward":
            self.listed[publisher_of(fields["event"]), attribute] += 1


def publisher_of(identity: str) -> NodeId:
    """The node that published the event with this identity."""
    return identity.split(".", 1)[0]


def full_nodes(plan: FigurePlan, seed: str) -> NodeCost:
    """Publish the figure's events in an overlay of whole nodes, each at another node (as many as
    there are nodes at most), and count what they cost. Raises NotReadyError."""
    overlay = NodeOverlay(plan, seed, WireCodec())
    overlay.grow()
    overlay.draw(plan)
    overlay.subscribe(plan.subscriptions)
    overlay.gossip()
    return overlay.publish(plan.events, plan.hops)


class NodeOverlay:
    """One world with the figure's parameters, stage by stage."""

    def __init__(self, plan: FigurePlan, seed: str, codec: Codec) -> None:
        self.plan = plan
        self.seed = seed
        self.subscriptions: dict[str, RangeSubscription] = {}
        """By the identity that its node gave it."""
        self.world = World(seed, codec, settings_of(plan))
        self._made: list[tuple[SimulatedSubscription, RangeSubscription]] = []

    def grow(self) -> None:
        """Start all nodes of the overlay, which all know the first one."""
        for number in range(self.plan.nodes):
            self.world.add_node(["n0"] if number else [], f"n{number}")
            self.world.run(min(0.2, JOINED_WITHIN / self.plan.nodes))
        run_until_ready(self.world, self.world.ready)

    def draw(self, plan: FigurePlan) -> None:
        """From now on subscriptions and events are those of this plan's load, as in
        `ModelOverlay`."""
        self._load = RangeLoad(Random(f"{self.seed}/load"), plan.load, plan.nodes)
        self._sources = Random(f"{self.seed}/sources")

    def subscribe(self, count: int) -> None:
        """Make subscriptions until there are `count`."""
        for number in range(len(self._made), count):
            drawn = self._load.subscription(number)
            self._made.append((self.world.subscribe(f"n{drawn.node}", selector_of(drawn)), drawn))
            self.world.run(SUBSCRIPTION_GAP)

    def gossip(self) -> None:
        """Wait until all subscriptions are acknowledged, then let gossip fill the tables of access
        points. Raises NotReadyError if a node refused one."""
        run_until_ready(self.world, self.world.acknowledged)
        self.subscriptions = {one.identity: drawn for one, drawn in self._made if one.identity}
        if len(self.subscriptions) < len(self._made):
            raise NotReadyError("some subscriptions were refused")
        self.world.run(self.plan.gossip)

    def publish(self, events: int, hops: int) -> NodeCost:
        """Publish `events` events, with walks of at most `hops` hops."""
        cost = NodeCost(known=self._known(), at_subscribers=self._at_subscribers())
        sources = self._sources.sample(range(self.plan.nodes), min(events, self.plan.nodes))
        for source in sources:
            finder = self.world.node(f"n{source}").finder
            walk = replace(finder.settings.walk, hops=hops)
            finder.settings = replace(finder.settings, walk=walk)
        self._publish(sources, cost)
        return cost

    def _publish(self, sources: Sequence[int], cost: NodeCost) -> None:
        world, steps = self.world, Steps()
        world.recorder.listen = steps.heard
        before = self._asked()
        drawn = {}
        for source in sources:
            event = self._load.event()
            attributes = {attribute_name(name): value for name, value in event.items()}
            world.publish(f"n{source}", attributes)
            drawn[world.node(f"n{source}").me.id] = event
            world.run(GAP)
        if not world.settle(still=STILL):
            raise NotReadyError("events are still pending")
        world.recorder.listen = None
        cost.events = len(sources)
        cost.asked = self._asked() - before
        cost.blocked = steps.blocked
        for node, event in drawn.items():
            self._add(cost, steps, node, event)
        for shown in world.clients.deliveries:
            node = publisher_of(shown.delivery.event.identity)
            wanted = self.subscriptions[shown.delivery.subscription].ranges
            by = [steps.by.get((node, attribute_name(name))) for name in wanted]
            cost.shown += 1
            cost.delivered += all(each == "walk" for each in by)

    def _add(self, cost: NodeCost, steps: Steps, node: NodeId, event: dict[int, int]) -> None:
        """Add what this node's event cost."""
        cost.attributes += len(event)
        cost.expected += sum(each.matches(event) for each in self.subscriptions.values())
        for name in event:
            key = node, attribute_name(name)
            cost.walk += steps.hops[key]
            cost.matching += cost.known * (steps.hops[key] + 1)
            if steps.by.get(key) == "walk":
                cost.found += 1
                cost.walk += steps.entered[key]
                cost.tree += steps.passed[key]
                cost.lists += steps.listed[key]
                cost.matching += steps.passed[key] + 1

    def _asked(self) -> int:
        messages = self.world.traffic.messages
        return messages.get("AskTree", 0) + messages.get("TreeAnswer", 0)

    def _known(self) -> float:
        world = self.world
        return mean([float(world.node(name).access_points.cached) for name in world.names()])

    def _trees(self) -> list[Tree]:
        nodes = [self.world.node(name) for name in self.world.names()]
        owners = [node.owner for node in nodes if node.clusters.is_primary]
        return [owned.tree for owner in owners for owned in owner.trees.values()]

    def _at_subscribers(self) -> float:
        found = []
        for tree in self._trees():
            subscribers = {each.subscriber.id for each in tree.registrations.values()}
            found += [entry.hosts[0].id in subscribers for entry in tree.map.entries]
        return mean(found) if found else 0.0


def settings_of(plan: FigurePlan) -> Settings:
    """What every node of a figure is configured with."""
    return Settings(
        view=ViewSettings(size=plan.view, access_points=plan.access_points),
        walk=WalkSettings(hops=plan.hops, trace=plan.trace),
        tree=TreeSettings(
            routing="counting",
            placement="subscribers",
            replicas=1,
        ),
    )
