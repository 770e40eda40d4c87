"""An event on its whole way in the routing model: walks, trees, node lists, counting (C3, C7, C8).

As in the paper: an event is cut into its attributes, each walks on its own and enters its tree at
the access point that the walk met; a walk without a hit is lost (no ring, C5, which the paper has
not). Messages are counted in three parts, since the paper's own words count only the first two
(5.3: "the cost of the second stage is fixed, equal to the height of the tree"):

* walk: one per attribute and hop, and one from the node that knew to the access point,
* tree: one per hop from host to host,
* lists: one per attribute and interested node, which then counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bench.experiments.routing_model.counting_trees import plant
from bench.experiments.routing_model.random_graph import LowerLayer
from canopy.sim.scenario.range_load import LoadShape, RangeLoad, RangeSubscription
from overlay.settings import ViewSettings, WalkSettings
from overlay.upper_tree.subscriber.receiver import PartialMatch


@dataclass
class EventCost:
    """What some events cost, and which deliveries they led to."""

    events: int = 0
    attributes: int = 0  # walks
    found: int = 0  # … that met an access point
    blocked: int = 0
    walk: int = 0  # messages
    tree: int = 0
    lists: int = 0
    expected: int = 0  # (event, subscription) pairs that match
    delivered: int = 0
    matching: float = 0.0  # |APT| * hops of stage 1 + hops of stage 2, summed (CBDLO 5.4)

    @property
    def routing(self) -> int:
        """Messages as the paper counts them."""
        return self.walk + self.tree

    @property
    def messages(self) -> int:
        """Data-plane messages of the event altogether."""
        return self.walk + self.tree + self.lists


def effective(messages: float, delivered: float, expected: int) -> float | None:
    """The effective distribution cost: messages / (delivered / expected); None if nothing came."""
    return messages * expected / delivered if delivered else None


class ModelOverlay:
    """CBDLO with everything in one process."""

    def __init__(
        self,
        seed: str,
        nodes: int,
        subscriptions: int,
        shape: LoadShape,
        view: ViewSettings,
        walk: WalkSettings,
    ) -> None:
        self.load = RangeLoad(Random(f"{seed}/load"), shape, nodes)
        self.nodes = nodes
        self.subscriptions: list[RangeSubscription] = [
            self.load.subscription(number) for number in range(subscriptions)
        ]
        self.trees = plant(self.subscriptions)
        own: dict[int, list[int]] = {}
        for attribute, tree in self.trees.items():
            for host in tree.hosts:
                own.setdefault(host, []).append(attribute)
        self.lower = LowerLayer(seed, nodes, list(self.trees), self._host, own, view, walk)
        self._rng = Random(f"{seed}/sources")

    def run(self, events: int) -> EventCost:
        """Publish each event at a random node and route it by counting; costs add up in the
        model."""
        cost = EventCost()
        for _ in range(events):
            self.publish(self._rng.randrange(self.nodes), self.load.event(), cost)
        return cost

    def publish(self, source: int, event: dict[int, int], cost: EventCost) -> list[int]:
        """One event; what it cost is added. The numbers of the subscriptions that accepted it."""
        result = self.lower.walk(source, list(event))
        table = min(self.lower.view.access_points, len(self.trees))
        cost.events += 1
        cost.attributes += len(event)
        cost.found += len(result.entries)
        cost.blocked += result.blocked
        accepted: list[int] = []
        counted: dict[int, PartialMatch] = {}  # per node, as its receiver has it for one event
        for attribute, value in event.items():
            hops = result.hops.get(attribute, 0)
            cost.walk += hops
            cost.matching += table * (hops + 1)  # the source looks into its own table as well
            entry = result.entries.get(attribute)
            if entry is None:
                continue
            tree = self.trees[attribute]
            cost.walk += 1
            steps, _ = tree.route(entry, value)
            cost.tree += steps
            cost.matching += steps + 1
            reached: dict[int, None] = {}
            for subscription in tree.interested(value):
                reached[subscription.node] = None
                at = counted.setdefault(subscription.node, PartialMatch(0.0))
                if at.add(str(subscription.number), str(attribute)) == len(subscription.ranges):
                    accepted.append(subscription.number)
            cost.lists += len(reached)
        cost.delivered += len(accepted)
        cost.expected += sum(s.matches(event) for s in self.subscriptions)
        return accepted

    def _host(self, attribute: int, rng: Random) -> int | None:
        tree = self.trees.get(attribute)
        return None if tree is None else tree.entry(rng)
