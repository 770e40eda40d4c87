"""What events ask of the hosts of a tree, as hosts would measure it: for tests without processors.

The events of a tree have values from a list. Each virtual node asks its hosts for its share of all
that the tree asks for, evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matching import place
from overlay.machine import NodeId
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host_load import ServedLoad, VirtualNodeLoad
from tests.support.trees import HostNode

PLACES = 64
"""Values in one report."""


class Demand:
    """The demand for the tree `attribute`, in shares of one host's time; may be changed."""

    def __init__(self, total: float = 0.0, values: Sequence[float] = range(100)) -> None:
        self.total = total
        self.values = values
        self.attribute = "x"
        self.seconds = 0.0
        """What an event takes that meets all registrations of its value; 0: next to nothing."""

    def put_on(self, hosts: Mapping[NodeId, HostNode]) -> None:
        """From now on these hosts report what they are asked for."""
        for node in hosts.values():
            node.hosting.assigned.loads.report = self._reporter(node)  # type: ignore[method-assign]

    def of(self, node: HostNode) -> float:
        """What one host is asked for."""
        return sum(load.busy for load in self._nodes(node))

    def most(self, hosts: Mapping[NodeId, HostNode]) -> float:
        """What the host is asked for that is asked for most."""
        return max(map(self.of, hosts.values()))

    def _reporter(self, node: HostNode) -> Callable[..., ServedLoad | None]:
        def report(owned: Callable[[str], bool]) -> ServedLoad | None:
            nodes = self._nodes(node)
            return ServedLoad(sum(load.busy for load in nodes), tuple(nodes)) if nodes else None

        return report

    def _nodes(self, node: HostNode) -> list[VirtualNodeLoad]:
        tree = node.hosting.trees.get(self.attribute)
        if tree is None or not self.total or not node.hosting.assigned.has_lease(tree):
            return []
        return [
            load for each in tree.served.intervals if (load := self._load(tree, each)) is not None
        ]

    def _load(self, tree: HostedTree, interval: object) -> VirtualNodeLoad | None:
        (entry,) = (e for e in tree.served.slice.known.values() if e.interval == interval)
        here = [value for value in self.values if entry.interval.around().contains(value)]
        if not here:
            return None
        (_, _, low), (_, _, high) = entry.interval.lo, entry.interval.hi
        share = high - low if entry.interval.is_shard() else 1.0
        busy = share * self.total * len(here) / len(self.values) / len(entry.hosts)
        seconds = share * self.seconds
        step = max(1, len(here) // PLACES)
        places = tuple(place(value) for value in here[::step])
        return VirtualNodeLoad(self.attribute, entry.interval, busy, busy, places, seconds)
