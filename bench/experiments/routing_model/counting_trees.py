"""One tree per attribute in the routing model, from the ranges of its subscriptions.

As the paper has it: every cut is some subscription's, and its subscriber hosts the virtual node
that begins there. The maps and the way from virtual node to virtual node are the product's
(`PartitionMap`, `Slice`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from bench.experiments.routing_model.random_graph import model_peer, peer_number
from canopy.sim.scenario.range_load import MOST_VALUE, RangeSubscription
from matching import EVERYTHING, Cut, Interval, place
from overlay.upper_tree.messages import Entry
from overlay.upper_tree.partition import PartitionMap, Slice


class ModelTree:
    """One attribute's virtual nodes, their hosts, and who is interested where."""

    def __init__(self, attribute: int, subscriptions: Sequence[RangeSubscription]) -> None:
        """`subscriptions` are those that have the attribute; at least one."""
        self.attribute = attribute
        self.subscriptions = subscriptions
        self.map = PartitionMap((1, 1), self._entries())
        self._slices: dict[int, Slice] = {}
        self.hosts = tuple(map(peer_number, self.map.hosts().values()))

    @property
    def size(self) -> int:
        """The number of virtual nodes in the tree."""
        return len(self.map.entries)

    def entry(self, rng: Random) -> int:
        """A random host, as an access point names it."""
        return rng.choice(self.hosts)

    def route(self, entry: int, value: int) -> tuple[int, int]:
        """(hops from host to host, host of the virtual node that holds the value)."""
        spot = place(value)
        goal = self.map.find(spot)
        host, hops = entry, 0
        while goal not in self.map.indexes_of(model_peer(host).id):
            step = self._slice(host).route(spot)
            assert step is not None
            assert peer_number(step.hosts[0]) != host, "a slice leads back to its own host"
            host = peer_number(step.hosts[0])
            hops += 1
        return hops, host

    def interested(self, value: int) -> list[RangeSubscription]:
        """The subscriptions in the node list of the virtual node that holds the value."""
        return [
            subscription
            for subscription in self.subscriptions
            if subscription.ranges[self.attribute][0]
            <= value
            <= subscription.ranges[self.attribute][1]
        ]

    def _entries(self) -> tuple[Entry, ...]:
        cuts: dict[Cut, int] = {}  # cut -> the subscriber whose it is; the first keeps it
        for subscription in self.subscriptions:
            low, high = subscription.ranges[self.attribute]
            if low > 0:
                cuts.setdefault(place(low), subscription.node)
            if high < MOST_VALUE:
                cuts.setdefault(place(high + 1), subscription.node)
        ordered = sorted(cuts)
        starts = [EVERYTHING.lo, *ordered]
        ends = [*ordered, EVERYTHING.hi]
        hosts = [self.subscriptions[0].node, *(cuts[cut] for cut in ordered)]
        return tuple(
            Entry(Interval(lo, hi), (model_peer(host),))
            for lo, hi, host in zip(starts, ends, hosts, strict=True)
        )

    def _slice(self, host: int) -> Slice:
        found = self._slices.get(host)
        if found is None:
            known = dict(self.map.slice_for(model_peer(host).id))
            found = self._slices[host] = Slice(self.size, known)
        return found


def plant(subscriptions: Iterable[RangeSubscription]) -> dict[int, ModelTree]:
    """A tree for every attribute that anybody subscribes to."""
    by_attribute: dict[int, list[RangeSubscription]] = {}
    for subscription in subscriptions:
        for attribute in subscription.ranges:
            by_attribute.setdefault(attribute, []).append(subscription)
    return {
        attribute: ModelTree(attribute, by_attribute[attribute])
        for attribute in sorted(by_attribute)
    }
