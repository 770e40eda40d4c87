"""A publisher's knowledge of trees: entry points, virtual nodes, which have no subscribers (C5,
C7).

Everything here is a hint: a host that does not serve the tree any more answers `TreeMoved`, and *no
subscribers* ends with its term or is invalidated. So do summaries of who subscribes
(summary_cache.py). An answer of a former owner, which may come late, is known by its epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from math import inf
from typing import NamedTuple

import msgspec

from matching import BOTTOM, TOP, Cut
from overlay.bounded import BoundedDict
from overlay.chord.keys import attribute_key, in_arc
from overlay.chord.messages import Cluster
from overlay.machine import Key, NodeId, Peer
from overlay.settings import TreeSettings
from overlay.upper_tree.messages import Location, TreeSummary
from overlay.upper_tree.publisher.constants import (
    CONFIRMED_MOST,
    ENTRY_POINTS,
    FENCES_MOST,
    LOCATIONS_PER_TREE,
    REFRESH_ABSENT,
)
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.summary_cache import SummaryCache


class Fence(NamedTuple):
    """A new owner's epoch, and until when answers of a former one could come."""

    epoch: int
    until: float


class KnownTree:
    """The locations and entry points that are known of one tree."""

    def __init__(self, attribute: str, replicas: ReplicaSelector) -> None:
        self.attribute = attribute
        self.replicas = replicas
        self.entries: BoundedDict[NodeId, Peer] = BoundedDict(ENTRY_POINTS)  # the newest last
        self._entry: Peer | None = None  # the one of them to visit; chosen like `_chosen`
        self.located: list[Location] = []  # virtual nodes, as they were located
        self.found = ""  # how the tree was found, for people
        self.confirmed: BoundedDict[NodeId, None] = BoundedDict(CONFIRMED_MOST)
        """Hosts that the owner named, or one that it named."""
        self._starts: list[Cut] | None = None  # of `located`, in order; None: to be sorted
        self._ends: list[Cut] = []
        self._sorted: list[Location] = []
        self._chosen: list[Peer] = []  # of each virtual node the replica to visit …
        self._chosen_at = -1  # … at this count of `ReplicaSelector.changes`
        self._only: Peer | None = None  # `only_host`, by the same

    @property
    def is_known(self) -> bool:
        """Whether any entry point or virtual node is known."""
        return bool(self.entries or self.located)

    @property
    def only_host(self) -> Peer | None:
        """The one host to which `host_for` leads for every value; None: there are several."""
        self._sort()
        return self._only

    @property
    def hosts_of_all(self) -> tuple[Peer, ...]:
        """The hosts that serve every value, as far as is known, and are not suspected."""
        self._sort()
        if not self._sorted or not self._is_covered():
            return ()
        common = self._sorted[0].hosts
        for location in self._sorted[1:]:
            common = tuple([host for host in common if host in location.hosts])
        suspects = self.replicas.suspects
        return tuple([host for host in common if not suspects(self.attribute, host.id)])

    def _find_only(self) -> Peer | None:
        entry = self._entry
        first = self._chosen[0] if self._chosen else entry
        if first is None or any(host.id != first.id for host in self._chosen):
            return None
        if entry is not None and entry.id != first.id and not self._is_covered():
            return None
        return first

    def _is_covered(self) -> bool:
        """Whether for every value a virtual node is located."""
        ends = [BOTTOM, *(location.interval.hi for location in self._sorted)]
        starts = [*(location.interval.lo for location in self._sorted), TOP]
        return starts == ends

    def host_for(self, spot: Cut) -> Peer | None:
        """The chosen replica of the virtual node that holds the place, if that is located; else the
        chosen entry point; None if there is none."""
        (found,) = self.hosts_for((spot,))
        return found

    def hosts_for(self, spots: Iterable[Cut | None]) -> list[Peer | None]:
        """`host_for` for each of these places; for NULL as for a place that is not located."""
        starts = self._sort()
        chosen, ends = self._chosen, self._ends
        elsewhere = self._entry or (chosen[0] if chosen else None)
        found: list[Peer | None] = []
        for spot in spots:
            number = -1 if spot is None else bisect_right(starts, spot) - 1
            if spot is not None and number >= 0 and spot < ends[number]:
                found.append(chosen[number])
            else:
                found.append(elsewhere)
        return found

    def _sort(self) -> list[Cut]:
        is_sorted = self._starts is not None
        if self._starts is None:
            self._sorted = sorted(self.located, key=lambda location: location.interval.lo)
            self._starts = [location.interval.lo for location in self._sorted]
            self._ends = [location.interval.hi for location in self._sorted]
        if not is_sorted or self._chosen_at != self.replicas.changes:
            choose = self.replicas.choose
            self._chosen = [choose(self.attribute, location.hosts) for location in self._sorted]
            entries = tuple(self.entries.values())
            self._entry = choose(self.attribute, entries) if entries else None
            self._chosen_at = self.replicas.changes
            self._only = self._find_only()
        return self._starts

    def enter_at(self, peer: Peer) -> None:
        """Learn an entry point. Which one is visited is chosen as among replicas, so that an event
        enters all trees that share their hosts at the same one."""
        self.entries.renew(peer.id, peer)
        self._starts = None

    def learn(self, location: Location) -> bool:
        """Learn where a virtual node is; older locations that overlap it are wrong now. Returns
        whether that is news."""
        if location in self.located:
            return False
        if any(
            known.version > location.version and known.interval.overlaps(location.interval)
            for known in self.located
        ):
            return False
        self.located = [
            known for known in self.located if not known.interval.overlaps(location.interval)
        ]
        self.located.append(location)
        if len(location.hosts) > 1:
            self.replicas.choose(self.attribute, location.hosts)  # it knows what may be chosen
        self._starts = None
        return True

    def bound(self, most: int) -> None:
        """Forget all locations of the tree but the `most` that were learnt last."""
        if len(self.located) > most:
            del self.located[:-most]
            self._starts = None

    def forget(self, node: NodeId) -> None:
        """Remove this node from all locations and entry points."""
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
    """Bounded: the least recently used tree is evicted, but none that an event waits for (`hold`),
    or an acceptance (`doubt`).
    Times are the Port's seconds."""

    def __init__(
        self,
        capacity: int,
        replicas: ReplicaSelector,
        per_tree: int = LOCATIONS_PER_TREE,
        summaries: SummaryCache | None = None,
    ) -> None:
        """`capacity` in trees (known and absent, each); `per_tree` in virtual nodes."""
        self.capacity = capacity
        self.replicas = replicas
        self.per_tree = per_tree
        self.summaries = SummaryCache(capacity) if summaries is None else summaries
        self.changes = 0
        """Grows whenever something is learnt or forgotten that events are routed by."""
        self._trees: OrderedDict[str, KnownTree] = OrderedDict()  # the last used last
        self._held: set[str] = set()
        self._doubted: set[str] = set()
        self._absent: BoundedDict[str, tuple[float, float]] = BoundedDict(capacity)
        """Attribute without subscribers -> until when that is valid, from when to ask again."""
        self._invalidated: BoundedDict[str, tuple[int, float]] = BoundedDict(capacity)
        """Attribute -> the epoch of its invalidation, until when to reject older answers."""
        self._fences: dict[tuple[Key, Key], Fence] = {}  # by arc

    @classmethod
    def configured(cls, settings: TreeSettings, replicas: ReplicaSelector) -> LocationCache:
        """A cache with the capacity and the summaries that a node's settings say."""
        capacity = settings.locations
        summaries = SummaryCache(capacity, settings.summary_visits, settings.summary_term)
        return cls(capacity, replicas, summaries=summaries)

    @property
    def unheld(self) -> int:
        """The number of known trees for which no event waits. Used by checks."""
        return sum(name not in self._held | self._doubted for name in self._trees)

    # --- where trees are ---

    def host_for(self, attribute: str, spot: Cut) -> Peer | None:
        """The host to which an event is sent: that of its virtual node if known, else any entry
        point."""
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
        """Whether any host of the tree is known."""
        tree = self._trees.get(attribute)
        return tree is not None and tree.is_known

    def found(self, attribute: str, by: str, hops: int) -> None:
        """Remember how the tree was found, for people."""
        if (tree := self._trees.get(attribute)) is not None:
            tree.found = f", found by {by} at hop {hops}"

    def how_found(self, attributes: Iterable[str]) -> tuple[str, ...]:
        """Return, for each tree, a description of how it was found; "" if that is not
        remembered."""
        trees = map(self._trees.get, attributes)
        return tuple(["" if tree is None else tree.found for tree in trees])

    def is_confirmed(self, attribute: str, host: NodeId) -> bool:
        """Whether the tree's owner, or a host that it named, has named this host."""
        tree = self._trees.get(attribute)
        return tree is not None and host in tree.confirmed

    def is_answered(self, attribute: str) -> bool:
        """Whether the owner has said who hosts the tree."""
        tree = self._trees.get(attribute)
        return tree is not None and bool(tree.confirmed)

    def learn_entry(self, attribute: str, peer: Peer) -> None:
        """Learn an entry point of the tree."""
        self._tree(attribute).enter_at(peer)
        self.changes += 1

    def learn(self, location: Location) -> None:
        """Cache the location of a virtual node, which the owner or a host that it named says."""
        tree = self._tree(location.attribute)
        tree.confirmed.update((host.id, None) for host in location.hosts)
        if tree.learn(location):
            tree.bound(self.per_tree)
            self.changes += 1

    def _tree(self, attribute: str) -> KnownTree:
        """A tree that is not absent; what else is learnt of it is the caller's to count."""
        self.changes += self._absent.pop(attribute, None) is not None
        tree = self._trees.get(attribute)
        if tree is None:
            tree = KnownTree(attribute, self.replicas)
            self._trees[attribute] = tree
            self.trim(attribute)
        self._trees.move_to_end(attribute)
        return tree

    def trim(self, new: str = "") -> None:
        """Forget the least recently used trees that exceed the capacity, but those that are held
        and `new`."""
        excess = len(self._trees) - self.capacity
        if excess > 0:
            held, doubted = self._held, self._doubted
            free = (
                name
                for name in self._trees
                if name not in held and name not in doubted and name != new
            )
            for name in list(islice(free, excess)):
                del self._trees[name]
            self.changes += 1

    def hold(self, attribute: str) -> None:
        """Keep the location of this tree, for which an event waits, even without room. (An event
        that waits for more trees than there is room for would otherwise wait for ever: each tree
        that is found would evict one that was found before.)"""
        self._held.add(attribute)

    def release(self, attribute: str) -> None:
        """Release a tree for which no event waits any more. It is kept until the next `trim`: the
        events that have waited are to be routed first."""
        self._held.discard(attribute)

    def doubt(self, attribute: str) -> None:
        """Nodes have accepted events that the tree's owner has not named as hosts yet: what it
        answers will not be forgotten before it was looked at."""
        self._doubted.add(attribute)

    def settle(self, attribute: str) -> None:
        """End the doubt about a tree: the owner's answer is being looked at, and no acceptance
        waits for it."""
        self._doubted.discard(attribute)

    def forget(self, attribute: str, node: NodeId) -> None:
        """Remove a node that does not, or no longer does, serve the tree from the known hosts."""
        if (tree := self._trees.get(attribute)) is not None:
            tree.forget(node)
            self.changes += 1

    def forget_tree(self, attribute: str) -> None:
        """Drop all that is known of where the tree is: none of it was right."""
        self._trees.pop(attribute, None)
        self.changes += 1

    def forget_node(self, node: NodeId) -> None:
        """Forget everything that names this node: its link is lost."""
        for tree in self._trees.values():
            tree.forget(node)
        self.changes += 1

    def clear(self) -> None:
        """Forget all: the trees have other owners and hosts."""
        self._trees.clear()
        self._absent.clear()
        self._invalidated.clear()
        self._fences.clear()
        self.summaries.clear()
        self.changes += 1

    # --- trees without subscribers ---

    def is_absent(self, attribute: str, now: float) -> bool:
        """Whether the owner said less than a term ago that it has no subscribers."""
        known = self._absent.get(attribute)
        return known is not None and known[0] > now

    def absent_until(self, attribute: str) -> float:
        """Return the time at which to ask the owner again whether the tree has subscribers;
        infinite unless the owner said that it has none."""
        known = self._absent.get(attribute)
        return inf if known is None else known[1]

    def was_absent(self, attribute: str) -> bool:
        """Whether it was absent when last asked, however long ago: worth no walk."""
        return attribute in self._absent

    def learn_absent(self, attribute: str, until: float, epoch: int, now: float) -> bool:
        """The owner says under this epoch that there are no subscribers. False if that answer is
        stale."""
        if self._is_stale(attribute, epoch, now):
            return False
        self._trees.pop(attribute, None)
        self._absent.renew(attribute, (until, now + REFRESH_ABSENT * (until - now)))
        self.changes += 1
        return True

    def invalidate(self, attribute: str, epoch: int, until: float) -> None:
        """Discard a *no subscribers* answer or a summary because there is now a subscriber that it
        does not admit. Until `until`, answers under an epoch older than `epoch` are stale, since
        they may have been delayed on the way."""
        self._absent.pop(attribute, None)
        self.summaries.invalidate(attribute)
        self._invalidated.renew(attribute, (epoch, until))
        self.changes += 1

    def learn_summary(self, found: TreeSummary, until: float, epoch: int, now: float) -> None:
        """Take the owner's summary of a tree; ignored if the answer is stale."""
        if not self._is_stale(found.attribute, epoch, now):
            self.summaries.learn(found.attribute, found.digest, found.summary, until, now)
            self.changes += 1

    # --- coherence under a new owner ---

    def fence(self, arc: Cluster, until: float, now: float) -> bool:
        """The arc has a new owner: until `until` reject answers under older epochs about it. False
        if there is no room to remember that."""
        for where, known in list(self._fences.items()):
            if known.until <= now:
                del self._fences[where]
        place, epoch = (arc.start, arc.key), arc.version[0]
        before = self._fences.get(place)
        if before is None and len(self._fences) >= FENCES_MOST:
            return False
        if before is None or before.epoch <= epoch:
            self._fences[place] = Fence(epoch, until)
        return True

    def cached(self, arc: Cluster, now: float) -> list[tuple[str, int]]:
        """The valid copies of trees of this arc: the digests of their summaries, 0 for *no
        subscribers*."""
        found = [(name, 0) for name, (until, _) in self._absent.items() if until > now]
        found += self.summaries.valid(now)
        return [one for one in found if arc.owns(attribute_key(one[0]))]

    def _is_stale(self, attribute: str, epoch: int, now: float) -> bool:
        """Return whether an answer under this epoch may be older than the known state of the
        tree."""
        since, until = self._invalidated.get(attribute, (0, 0.0))
        if epoch < since and until > now:
            return True
        return bool(self._fences) and any(
            epoch < fence.epoch and fence.until > now and in_arc(attribute_key(attribute), *where)
            for where, fence in self._fences.items()
        )
