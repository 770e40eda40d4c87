"""Shards of a hot value: a part of its registrations each (C6).

Where one value has most of a tree's events it becomes a virtual node of its own, and no further cut
between values helps. More hosts for it (replicas, each with all of its registrations) share its
*events*. Where a single event is what takes long, or its registrations have no room on one host, it
is cut within the value: each registration has a place there between 0 and 1, and a shard has those
within its bounds. BlueDove and StreamHub divide registrations like that, by hash.

The place is by the subscriber first, so that a node's registrations mostly lie together and an
event is sent to it once; by the registration second, so that a subscriber that has most of them is
divided as well. Every node computes the same.

An event with the value visits all of its shards (host/shard_gatherings.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby

from matching import Cut, Interval
from overlay.machine import Peer
from overlay.upper_tree.messages import Entry, Registration

SUBSCRIBER_BITS, ID_BITS = 24, 28
"""Bits of a place: together as many as a double has, less one."""


def shard_place(registration: Registration) -> float:
    """Return the place of the registration within any value: 0 <= place < 1."""
    high = _bits(registration.subscriber.id, SUBSCRIBER_BITS)
    low = _bits(registration.id, ID_BITS)
    return ((high << ID_BITS) + low) / float(1 << (SUBSCRIBER_BITS + ID_BITS))


def _bits(text: str, bits: int) -> int:
    digest = blake2b(text.encode(), digest_size=4).digest()
    return int.from_bytes(digest) >> (32 - bits)


def lies_in(registration: Registration, interval: Interval) -> bool:
    """Whether a registration belongs to the virtual node with this interval."""
    if not registration.interval.overlaps(interval):
        return False
    return not interval.is_shard() or is_within(shard_place(registration), interval)


def is_within(place: float, shard: Interval) -> bool:
    """Whether a place within a value belongs to this shard of it (or is the whole value)."""
    return shard.lo[2] <= place < shard.hi[2]


def shard_cuts(
    interval: Interval, registrations: Iterable[Registration], parts: int
) -> list[tuple[Cut, float]]:
    """Return where to cut a value, or a shard of one, into `parts` parts with equally many
    registrations, each cut with the share of them below it, and with as few digits as possible.
    Empty if all have the same place."""
    places = sorted([shard_place(one) for one in registrations if lies_in(one, interval)])
    rank, value, _ = interval.lo
    found: dict[float, float] = {}
    for number in range(1, parts):
        at = number * len(places) // parts
        if at and places[at - 1] < places[at]:
            found[_between(places[at - 1], places[at])] = at / len(places)
    return [((rank, value, side), share) for side, share in found.items()]


def full_value_cuts(
    interval: Interval, registrations: Sequence[Registration], most: int
) -> list[Cut]:
    """Return where to cut a virtual node whose registrations no cut between values divides: around
    the value that has more than `most` of them, and within it. Empty if there is none."""
    whole = interval
    if not interval.is_shard():
        counts = Counter(one.interval for one in registrations if one.interval.is_point())
        ((interval, count),) = counts.most_common(1) or [(interval, 0)]
        if count <= most:
            return []
    within = [cut for cut, _ in shard_cuts(interval, registrations, 2)]
    return [cut for cut in (interval.lo, *within, interval.hi) if whole.lo < cut < whole.hi]


def may_merge(left: Interval, right: Interval) -> bool:
    """Whether neighbours may become one virtual node: shards of one value, or neither is one."""
    if left.is_shard() or right.is_shard():
        return left.around() == right.around()
    return True


def _between(low: float, high: float) -> float:
    """The number with the fewest binary digits such that low < it <= high."""
    scale = 2.0
    while int(high * scale) / scale <= low:
        scale *= 2.0
    return int(high * scale) / scale


def by_value(entries: Iterable[Entry]) -> Iterator[tuple[Interval, tuple[Peer, ...]]]:
    """Virtual nodes as publishers need to know them: the shards of a value are one, and each host
    of any of them will do."""
    for value, some in groupby(entries, key=lambda entry: entry.interval.around()):
        hosts = {host.id: host for entry in some for host in entry.hosts}
        yield value, tuple(hosts.values())
