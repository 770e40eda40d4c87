"""Nodes that are meant to pass on for their region, as gossip brings them (M1, M2).

Nodes with a tier are few, and views change all the time: what is heard of them is kept apart from
the view, some of each region, until contact fails.
"""

from __future__ import annotations

from overlay.bounded import BoundedDict
from overlay.lower_random.constants import MAX_TIERED_REGIONS, TIERED_PER_REGION
from overlay.machine import NodeId, Peer, Region


class TieredNodes:
    """The nodes of the highest tiers of each region, at most `TIERED_PER_REGION`; the region that
    was heard of first is forgotten first."""

    def __init__(self) -> None:
        self._by_region: BoundedDict[Region, list[Peer]] = BoundedDict(MAX_TIERED_REGIONS)
        self._all: tuple[Peer, ...] = ()

    def peers(self) -> tuple[Peer, ...]:
        """These nodes, of all regions, without an order."""
        return self._all

    def learn(self, peer: Peer) -> None:
        """A node was heard of. It is kept if it has a region and a tier, and fewer nodes of its
        region have as high a one."""
        if peer in self._all:
            return
        self.forget(peer.id)
        if not (peer.region and peer.tier):
            return
        known = self._by_region.setdefault(peer.region, [])
        known.append(peer)
        known.sort(key=lambda each: -each.tier)  # of equal ones the longest known stays
        del known[TIERED_PER_REGION:]
        self._collect()

    def forget(self, node: NodeId) -> None:
        """Contact with this node failed."""
        for region, known in self._by_region.items():
            if any(each.id == node for each in known):
                self._by_region[region] = [each for each in known if each.id != node]
                self._collect()
                return

    def _collect(self) -> None:
        self._all = tuple([each for known in self._by_region.values() for each in known])
