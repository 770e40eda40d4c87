"""Partition map and midpoint tree (C6, C7).

A partition map is the sorted list of an attribute's virtual nodes: adjacent, disjoint intervals
that cover the whole value space, each with its hosts (its *replicas*: any of them will do). CBDLO
organises them as a balanced binary tree; here the tree *follows* from the list and is never stored:
the root of the virtual nodes ``[low, high)`` is the one in the middle, its children are the roots
of the two halves.

             index   0   1   2   3   4   5   6            7 virtual nodes, height 3
                                 3
                         1               5
                     0       2       4       6

A host keeps only a `Slice` of the map: the virtual nodes on the paths from the root to its own,
and the children of those. To route a value it descends the tree as far as its slice goes and hands
the event to a host of the last virtual node it knows. That one knows the next level, so an event
needs at most the tree's height, and mostly less, since the first jump skips the common part.

A hot value that is a virtual node of its own may be cut further, into *shards* (shards.py): each
has a part of the registrations, and an event with that value visits all of them. The host of one
knows the others: its slice has all shards of the value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import isfinite

from matching import EVERYTHING, Cut, Interval
from overlay.machine import NodeId, Peer, Region, Version
from overlay.regions import distance
from overlay.upper_tree.messages import Assign, Entry, Registration
from overlay.upper_tree.shards import lies_in, shard_place


def tree_path(size: int, index: int) -> Iterator[int]:
    """Indexes from the root of a midpoint tree of `size` nodes down to `index`, both included."""
    low, high = 0, size
    while True:
        middle = (low + high) // 2
        yield middle
        if middle == index:
            return
        if index < middle:
            high = middle
        else:
            low = middle + 1


def tree_children(size: int, index: int) -> Iterator[int]:
    """The one, two or no children of `index` in a midpoint tree of `size` nodes."""
    low, high = 0, size
    for middle in tree_path(size, index):
        if middle < index:
            low = middle + 1
        elif middle > index:
            high = middle
    if low < index:
        yield (low + index) // 2
    if index + 1 < high:
        yield (index + 1 + high) // 2


class PartitionMap:
    """All virtual nodes of one attribute. Immutable; changes make a new map of a later version."""

    def __init__(self, version: Version, entries: tuple[Entry, ...]) -> None:
        """`entries` in order, adjacent, from the bottom to the top of the value space."""
        assert entries[0].interval.lo == EVERYTHING.lo
        assert entries[-1].interval.hi == EVERYTHING.hi
        for left, right in pairwise(entries):
            assert left.interval.hi == right.interval.lo, "virtual nodes must be adjacent"
        self.version = version
        self.entries = entries
        self._starts = [entry.interval.lo for entry in entries]
        self._hosts = {host.id: host for entry in entries for host in entry.hosts}
        self._served: dict[NodeId, list[int]] = {}  # by host, once it is asked for
        self._shards: dict[Interval, list[int]] = {}
        """By value that is cut into shards, their indexes."""
        for index, entry in enumerate(entries):
            if entry.interval.is_shard():
                self._shards.setdefault(entry.interval.around(), []).append(index)

    @classmethod
    def single(cls, version: Version, hosts: tuple[Peer, ...]) -> PartitionMap:
        """A newly planted tree: one virtual node."""
        return cls(version, (Entry(EVERYTHING, hosts),))

    def find(self, place: Cut) -> int:
        """Index of the virtual node that holds this place."""
        return bisect_right(self._starts, place) - 1

    def hosts(self) -> dict[NodeId, Peer]:
        """All hosts, in order of their first virtual node."""
        return dict(self._hosts)

    def hosted_by(self, node: NodeId) -> tuple[Interval, ...]:
        """The intervals of the virtual nodes of which `node` is a host, in order."""
        return tuple(self.entries[index].interval for index in self.indexes_of(node))

    def indexes_of(self, node: NodeId) -> Sequence[int]:
        """Return the indexes of the virtual nodes of which `node` is a host. The indexes of all
        hosts are computed at once, since searching the map for each host would take as many steps
        as the product of both numbers."""
        if not self._served:
            for index, entry in enumerate(self.entries):
                for host in entry.hosts:
                    self._served.setdefault(host.id, []).append(index)
        return self._served.get(node, ())

    def serving(self, registration: Registration) -> list[Entry]:
        """The virtual nodes in which a registration lies: each of their hosts has to match it."""
        interval = registration.interval
        if interval.lo >= interval.hi:
            return []
        first = max(bisect_right(self._starts, interval.lo) - 1, 0)
        found = self.entries[first : bisect_left(self._starts, interval.hi)]
        if not self._shards:
            return list(found)
        return [entry for entry in found if lies_in(registration, entry.interval)]

    def hosts_of(self, registration: Registration) -> Mapping[NodeId, Peer]:
        """The hosts that have to match a registration."""
        interval = registration.interval
        if len(self.entries) == 1 and interval.lo < interval.hi:
            return self._hosts
        return {host.id: host for entry in self.serving(registration) for host in entry.hosts}

    def counts(self, registrations: Collection[Registration]) -> list[int]:
        """Return how many of the registrations lie in each virtual node."""
        begin = [0] * (len(self.entries) + 1)  # at each virtual node, less those that end before it
        for interval in [registration.interval for registration in registrations]:
            if interval.lo < interval.hi:
                begin[bisect_right(self._starts, interval.lo) - 1] += 1
                begin[bisect_left(self._starts, interval.hi)] -= 1
        found = list(accumulate(begin))[:-1]
        for value, indexes in self._shards.items():
            ends = [entry.interval.hi[2] for entry in map(self.entries.__getitem__, indexes)]
            found[indexes[0] : indexes[-1] + 1] = [0] * len(indexes)
            for registration in registrations:
                if registration.interval.overlaps(value):
                    found[indexes[0] + bisect_right(ends, shard_place(registration))] += 1
        return found

    def root(self) -> Entry:
        """The virtual node at the root of the tree."""
        return self.entries[len(self.entries) // 2]

    def slice_for(self, node: NodeId) -> tuple[tuple[int, Entry], ...]:
        """Return the part of the tree that a host has to know: its paths from the root, and their
        children; and all shards of each value of which it has a shard."""
        size = len(self.entries)
        wanted: dict[int, None] = {}
        for index in self.indexes_of(node):
            for step in tree_path(size, index):
                wanted[step] = None
                wanted.update(dict.fromkeys(tree_children(size, step)))
            if self._shards:
                around = self.entries[index].interval.around()
                wanted.update(dict.fromkeys(self._shards.get(around, ())))
        return tuple((index, self.entries[index]) for index in sorted(wanted))

    def assignment(self, attribute: str, node: NodeId, token: bytes = b"") -> Assign:
        """Return the assignment of `node` by this map: the intervals that it serves, its slice, and
        the token that the tree's hosts share."""
        served, known = self.hosted_by(node), self.slice_for(node)
        return Assign(attribute, self.version, served, len(self.entries), known, token)

    # --- changes ---

    def moved(self, version: Version, hosts: Sequence[tuple[Peer, ...]]) -> PartitionMap:
        """The virtual nodes are served by these, in order."""
        each = zip(self.entries, hosts, strict=True)
        return PartitionMap(version, tuple(Entry(old.interval, new) for old, new in each))

    def split(
        self, version: Version, index: int, cut: Cut, hosts: tuple[Peer, ...]
    ) -> PartitionMap:
        """Virtual node `index` is cut; `hosts` serve the upper part."""
        old = self.entries[index]
        lower = Entry(Interval(old.interval.lo, cut), old.hosts)
        upper = Entry(Interval(cut, old.interval.hi), hosts)
        return PartitionMap(
            version, (*self.entries[:index], lower, upper, *self.entries[index + 1 :])
        )

    def cut(self, version: Version, cuts: Mapping[int, Sequence[Cut]]) -> PartitionMap:
        """Virtual nodes, by index, are cut at these places, in order. All keep their hosts."""
        entries: list[Entry] = []
        for index, old in enumerate(self.entries):
            ends = [old.interval.lo, *cuts.get(index, ()), old.interval.hi]
            entries += [Entry(Interval(lo, hi), old.hosts) for lo, hi in pairwise(ends)]
        return PartitionMap(version, tuple(entries))

    def merged(self, version: Version, joins: Container[int]) -> PartitionMap:
        """Virtual nodes with these indexes take over the one after each."""
        entries: list[Entry] = []
        for index, old in enumerate(self.entries):
            if index - 1 in joins:
                left = entries.pop()
                entries.append(Entry(Interval(left.interval.lo, old.interval.hi), left.hosts))
            else:
                entries.append(old)
        return PartitionMap(version, tuple(entries))


class Slice:
    """A host's part of a partition map, with which it routes (C7)."""

    def __init__(self, size: int, known: Mapping[int, Entry]) -> None:
        self.size = size
        self.known = known

    def route(self, place: Cut) -> Entry | None:
        """The deepest virtual node known on the way to `place`: the one that holds it, or one
        whose host knows the way on. None only if the slice is empty."""
        low, high = 0, self.size
        deepest: Entry | None = None
        while low < high:
            middle = (low + high) // 2
            entry = self.known.get(middle)
            if entry is None:
                break
            deepest = entry
            if place < entry.interval.lo:
                high = middle
            elif place >= entry.interval.hi:
                low = middle + 1
            else:
                break
        return deepest


def serves(entry: Entry, node: NodeId) -> bool:
    """Whether `node` is one of its hosts."""
    return any(host.id == node for host in entry.hosts)


def ranked(me: NodeId, hosts: Sequence[Peer], region: Region = "") -> list[Peer]:
    """The hosts of a virtual node in the order in which `me` tries them: itself first, then those
    with the fewest borders on the way from its `region` (M1), and among these by rendezvous
    hashing. (A checksum would not do: those of names of one length differ by the same bits.)"""

    def weight(host: Peer) -> tuple[bool, int, bytes]:
        borders = distance(region, host.region) if region else 0
        return host.id != me, borders, blake2b(f"{me} {host.id}".encode(), digest_size=8).digest()

    return sorted(hosts, key=weight)


def overlap_count(interval: Interval, intervals: list[Interval]) -> int:
    """Return how many of `intervals` share some value with `interval`."""
    return sum(1 for other in intervals if other.overlaps(interval))


def best_cut(interval: Interval, intervals: list[Interval]) -> Cut | None:
    """Return where to split a virtual node so that its registrations spread evenly.

    Only end points of registrations can separate them. None if no cut makes the larger part smaller
    than nine tenths of the whole (a hot value, or intervals that all overlap).
    """
    inside = sorted(
        cut
        for other in intervals
        for cut in (other.lo, other.hi)
        if interval.lo < cut < interval.hi
    )
    if not inside:
        return None
    cut = inside[len(inside) // 2]
    parts = (Interval(interval.lo, cut), Interval(cut, interval.hi))
    larger = max(overlap_count(part, intervals) for part in parts)
    return cut if larger < 0.9 * len(intervals) else None


def short_cut(below: Cut, above: Cut) -> Cut:
    """Return a cut between two values, given as their places, with as few digits or letters as
    possible, because people read it. Returns `above` itself if the values are of different
    types."""
    (rank, low, _), (other, high, _) = below, above
    if isinstance(low, str) and isinstance(high, str):
        common = next(n for n in range(len(high)) if low[n : n + 1] != high[n])
        return (other, high[: common + 1], 0)
    if rank != other or isinstance(low, str | bool) or isinstance(high, str | bool):
        return above
    number = _shortest(low, high)
    return above if number is None else (other, number, 0)


def _shortest(low: float, high: float) -> float | None:
    """The multiple of the largest power of ten with low < it <= high; None: there is none that a
    double tells from `low`, or one of the two is infinite."""
    if not isfinite(low) or not isfinite(high):
        return None
    least, most = Decimal(low), Decimal(high)
    if least < 0 <= most:
        return 0
    for power in range((most - least).adjusted() + 1, (most - least).adjusted() - 3, -1):
        unit = Decimal(1).scaleb(power)
        found = (most / unit).to_integral_value(ROUND_FLOOR) * unit
        number = int(found) if found == found.to_integral_value() else float(found)
        if low < number <= high:
            return number
    return None


def describe(cut: Cut) -> str:
    """A bound of an interval for people: the value, or the end of the value space or of a type; of
    a shard also where within the value."""
    rank, value, side = cut
    if 0 < side < 1:
        return f"{describe((rank, value, 0))} + {side:.3g}"
    if cut == EVERYTHING.lo:
        return "-∞"
    if rank > 2:
        return "+∞"
    if value == float("-inf"):
        return "first number"
    if isinstance(value, str):
        return repr(value) if value else "first string"
    return str(value)
