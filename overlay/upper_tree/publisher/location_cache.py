"""What a publisher remembers of trees: entries, virtual nodes, where nobody subscribes (C5, C7).

Everything here is a hint: a host that does not serve the tree any more says *moved*, and *nobody*
ends with its term or is recalled. So do summaries of who subscribes (`held.py`). An answer of a
former owner, which may come late, is known by its epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from matching import BOTTOM, TOP, Cut
from overlay.chord.keys import attribute_key, in_arc
from overlay.chord.messages import Cluster
from overlay.machine import Key, NodeId, Peer
from overlay.upper_tree.messages import Location, TreeSummary
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.summary_cache import SummaryCache

ENTRIES = 4
"""Ways into a tree that are remembered beside the located virtual nodes; wild guess."""


FADES = 0.7
"""The share of a term after which *nobody* is asked for anew while events keep coming: those that
come after its end have to wait for the answer, and cannot be planned together. Wild guess."""


FENCES_MOST = 256
"""Arcs whose owner is new that are remembered for a term: as many clusters as the ring's cache has
(RingSettings.known_clusters)."""


class Fence(NamedTuple):
    """What a new owner's epoch is, and until when answers of a former one could come."""

    epoch: int
    doubt_until: float


class KnownTree:
    """Ways into one tree."""

    def __init__(self, attribute: str, replicas: ReplicaSelector) -> None:
        self.attribute = attribute
        self.replicas = replicas
        self.entries: OrderedDict[NodeId, Peer] = OrderedDict()
        self.located: list[Location] = []
        self.found = ""  # how, in words
        self._starts: list[Cut] | None = None  # of what is located, in order; None: to be sorted
        self._sorted: list[Location] = []
        self._chosen: list[Peer] = []  # of each virtual node the replica to visit …
        self._chosen_at = -1  # … by what was known of hosts then
        self._only: Peer | None = None  # as good as these are

    @property
    def is_known(self) -> bool:
        """Whether there is any way in."""
        return bool(self.entries or self.located)

    @property
    def only_host(self) -> Peer | None:
        """The one host to which `host_for` leads for every value; None: there are several."""
        self._sort()
        return self._only

    def _find_only(self) -> Peer | None:
        newest = next(reversed(self.entries.values())) if self.entries else None
        first = self._chosen[0] if self._chosen else newest
        if first is None or any(host.id != first.id for host in self._chosen):
            return None
        if newest is not None and newest.id != first.id and not self._is_covered():
            return None
        return first

    def _is_covered(self) -> bool:
        """Whether for every value a virtual node is located."""
        ends = [BOTTOM, *(location.interval.hi for location in self._sorted)]
        starts = [*(location.interval.lo for location in self._sorted), TOP]
        return starts == ends

    def host_for(self, spot: Cut) -> Peer | None:
        """The best of the virtual node's hosts if known, else any way in."""
        starts = self._sort()
        number = bisect_right(starts, spot) - 1
        if number >= 0 and spot < self._sorted[number].interval.hi:
            return self._chosen[number]
        if self.entries:
            return next(reversed(self.entries.values()))
        return self._chosen[0] if self._chosen else None

    def _sort(self) -> list[Cut]:
        if self._starts is None or self._chosen_at != self.replicas.changes:
            self._sorted = sorted(self.located, key=lambda location: location.interval.lo)
            self._starts = [location.interval.lo for location in self._sorted]
            choose = self.replicas.choose
            self._chosen = [choose(self.attribute, location.hosts) for location in self._sorted]
            self._chosen_at = self.replicas.changes
            self._only = self._find_only()
        return self._starts

    def enter_at(self, peer: Peer) -> None:
        """A way in; the newest is used first."""
        if self.entries and next(reversed(self.entries.values())) == peer:
            return
        self.entries[peer.id] = peer
        self.entries.move_to_end(peer.id)
        while len(self.entries) > ENTRIES:
            self.entries.popitem(last=False)
        self._starts = None

    def learn(self, location: Location) -> None:
        """A virtual node's place; what is older and overlaps it is wrong now."""
        if location in self.located:
            return
        if any(
            known.version > location.version and known.interval.overlaps(location.interval)
            for known in self.located
        ):
            return
        self.located = [
            known for known in self.located if not known.interval.overlaps(location.interval)
        ]
        self.located.append(location)
        self._starts = None

    def bound(self, most: int) -> None:
        """Forget what was located first."""
        if len(self.located) > most:
            del self.located[:-most]
            self._starts = None

    def forget(self, node: NodeId) -> None:
        """Everything that names this node."""
        self.entries.pop(node, None)
        located: list[Location] = []
        for known in self.located:
            hosts = tuple([host for host in known.hosts if host.id != node])
            if len(hosts) == len(known.hosts):
                located.append(known)
            elif hosts:
                located.append(msgspec.structs.replace(known, hosts=hosts))
        self.located = located
        self._starts = None


class LocationCache:
    """Bounded: the tree that was not used for longest goes first. Times are the Port's."""

    def __init__(self, capacity: int, replicas: ReplicaSelector, per_tree: int = 256) -> None:
        """`capacity` in trees (known and absent, each)."""
        self.capacity = capacity
        self.replicas = replicas
        self.per_tree = per_tree
        self.summaries = SummaryCache(capacity)
        self._trees: OrderedDict[str, KnownTree] = OrderedDict()
        self._absent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """attribute -> believed until, to be asked for anew from"""
        self._recalled: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._fences: dict[tuple[Key, Key], Fence] = {}  # by arc

    # --- where trees are ---

    def host_for(self, attribute: str, spot: Cut) -> Peer | None:
        """Where to send an event: the virtual node's host if known, else any way in."""
        tree = self._trees.get(attribute)
        if tree is None:
            return None
        self._trees.move_to_end(attribute)
        return tree.host_for(spot)

    def tree(self, attribute: str) -> KnownTree | None:
        """All that is known of a tree."""
        tree = self._trees.get(attribute)
        if tree is not None:
            self._trees.move_to_end(attribute)
        return tree

    def knows(self, attribute: str) -> bool:
        """Whether there is any way into the tree."""
        tree = self._trees.get(attribute)
        return tree is not None and tree.is_known

    def found(self, attribute: str, by: str, hops: int) -> None:
        """Remember how the tree was found, for people."""
        if (tree := self._trees.get(attribute)) is not None:
            tree.found = f", found by {by} at hop {hops}"

    def how_found(self, attribute: str) -> str:
        """In words; "" if it is not remembered."""
        tree = self._trees.get(attribute)
        return "" if tree is None else tree.found

    def learn_entry(self, attribute: str, peer: Peer) -> None:
        """A way into the tree; the newest is used first."""
        self._tree(attribute).enter_at(peer)

    def learn(self, location: Location) -> None:
        """A virtual node's place."""
        tree = self._tree(location.attribute)
        tree.learn(location)
        tree.bound(self.per_tree)

    def _tree(self, attribute: str) -> KnownTree:
        self._absent.pop(attribute, None)
        tree = self._trees.get(attribute)
        if tree is None:
            tree = self._trees[attribute] = KnownTree(attribute, self.replicas)
        self._trees.move_to_end(attribute)
        while len(self._trees) > self.capacity:
            self._trees.popitem(last=False)
        return tree

    def forget(self, attribute: str, node: NodeId) -> None:
        """This node does not serve the tree."""
        if (tree := self._trees.get(attribute)) is not None:
            tree.forget(node)

    def forget_tree(self, attribute: str) -> None:
        """Nothing that is known of it helped."""
        self._trees.pop(attribute, None)

    def forget_node(self, node: NodeId) -> None:
        """This node is gone."""
        for tree in self._trees.values():
            tree.forget(node)

    def forget_all(self) -> None:
        """All trees have other owners and hosts."""
        self._trees.clear()
        self._absent.clear()
        self._recalled.clear()
        self._fences.clear()
        self.summaries.forget_all()

    # --- where nobody is ---

    def is_absent(self, attribute: str, now: float) -> bool:
        """Whether the owner said, not long ago, that nobody subscribes to it."""
        known = self._absent.get(attribute)
        return known is not None and known[0] > now

    def fades(self, attribute: str, now: float) -> bool:
        """Whether that word ends soon."""
        known = self._absent.get(attribute)
        return known is not None and known[1] <= now

    def was_absent(self, attribute: str) -> bool:
        """Whether it was absent when last asked, however long ago: worth no walk."""
        return attribute in self._absent

    def absent(self, attribute: str, until: float, epoch: int, now: float) -> bool:
        """The owner says *nobody*, under this epoch. False if that is not to be believed."""
        if self._is_doubtful(attribute, epoch, now):
            return False
        self._trees.pop(attribute, None)
        self._absent[attribute] = (until, now + FADES * (until - now))
        self._absent.move_to_end(attribute)
        while len(self._absent) > self.capacity:
            self._absent.popitem(last=False)
        return True

    def recall(self, attribute: str, epoch: int, doubt_until: float) -> None:
        """Somebody subscribes now whom *nobody*, or the summary, does not admit. What was said
        under an older epoch may come later than this, and be older."""
        self._absent.pop(attribute, None)
        self.summaries.recall(attribute)
        self._recalled[attribute] = (epoch, doubt_until)
        self._recalled.move_to_end(attribute)
        while len(self._recalled) > self.capacity:
            self._recalled.popitem(last=False)

    def learn_summary(
        self, found: TreeSummary, until: float, epoch: int, now: float
    ) -> None:  # fmt: skip
        """The owner tells who subscribes, unless that is not to be believed."""
        if not self._is_doubtful(found.attribute, epoch, now):
            self.summaries.learn(found.attribute, found.digest, found.summary, until, now)

    # --- whom to believe ---

    def fence(self, arc: Cluster, doubt_until: float, now: float) -> bool:
        """There is a new owner: until then believe nobody of an older epoch about this arc. False
        if there is no room to remember that."""
        for where, known in list(self._fences.items()):
            if known.doubt_until <= now:
                del self._fences[where]
        place, epoch = (arc.start, arc.key), arc.version[0]
        before = self._fences.get(place)
        if before is None and len(self._fences) >= FENCES_MOST:
            return False
        if before is None or before.epoch <= epoch:
            self._fences[place] = Fence(epoch, doubt_until)
        return True

    def beliefs(self, arc: Cluster, now: float) -> list[tuple[str, int]]:
        """What is believed of trees of this arc: the digests of their summaries, 0 for *nobody*."""
        found = [(name, 0) for name, (until, _) in self._absent.items() if until > now]
        found += self.summaries.believed(now)
        return [one for one in found if arc.owns(attribute_key(one[0]))]

    def _is_doubtful(self, attribute: str, epoch: int, now: float) -> bool:
        """Whether another owner has spoken since: this word may be older."""
        since, doubt_until = self._recalled.get(attribute, (0, 0.0))
        if epoch < since and doubt_until > now:
            return True
        return bool(self._fences) and any(
            epoch < fence.epoch
            and fence.doubt_until > now
            and in_arc(attribute_key(attribute), *where)
            for where, fence in self._fences.items()
        )
