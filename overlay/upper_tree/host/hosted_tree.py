"""A host's part of the trees: its intervals, and one index of all registrations (C6, C9).

One index serves all trees of a host in pivot routing. So an event that visits ten trees here is
matched once, not ten times: with an index per virtual node the lookups cost more than all the rest
of an event's way. What is found is compared with the trees that the event visits: registrations of
other trees are left out. In counting routing each tree has its own, for there each attribute's
visit comes by itself and asks for single constraints.

Adjacent virtual nodes that have the same hosts are one *span*: publishers and subscribers see one
location. A value that is cut into shards is one location, too: a host that has one of them takes an
event for all (shard_gatherings.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from random import Random

from matching import EVERYTHING, Cut, GroupedIndex, Index, Interval, Predicate
from overlay.chord.keys import attribute_key
from overlay.client import Event
from overlay.machine import NodeId, Peer, Version
from overlay.upper_tree.delivery.delivery_tokens import DeliveryTokens
from overlay.upper_tree.host.served_loads import VisitSample
from overlay.upper_tree.host.urgency import LatencyMap, types_of
from overlay.upper_tree.messages import Assign, Entry, Registration
from overlay.upper_tree.partition import Slice, serves
from overlay.upper_tree.shards import is_within, lies_in, shard_place

SharedIndex = GroupedIndex[tuple[str, str], NodeId]
"""All registrations of a host, by (attribute, id), in groups by interested node."""


class ServedParts:
    """The parts of a tree that a host serves, and its slice of the tree's map: what one `Assign`
    says."""

    def __init__(self, intervals: tuple[Interval, ...], slice_: Slice) -> None:
        self.intervals = intervals
        """The virtual nodes that this host serves, in order."""
        self.slice = slice_
        self.shards = _shards_of(slice_.known, intervals)
        """By value of which this host has a shard, all of its shards, in order."""
        self.spans: list[Interval] = []
        self.hosts: dict[Interval, tuple[Peer, ...]] = {}
        """By span, who serves all of it: this node and other replicas."""
        by_interval = {entry.interval: entry.hosts for entry in slice_.known.values()}
        for interval in sorted(intervals, key=lambda each: each.lo):
            hosts = by_interval.get(interval, ())
            if self.spans and self.spans[-1].hi == interval.lo and not interval.is_shard():
                before = self.spans[-1]
                if not before.is_shard() and _ids(self.hosts[before]) == _ids(hosts):
                    del self.hosts[before]
                    self.spans.pop()
                    interval = Interval(before.lo, interval.hi)
            self.spans.append(interval)
            self.hosts[interval] = hosts
        self.is_whole = self.spans == [EVERYTHING]
        """Whether every value of the attribute is served here."""
        self._starts = [span.lo for span in self.spans]

    def holds(self, registration: Registration) -> bool:
        """Whether a registration belongs to a part that is served here."""
        interval = registration.interval
        first = max(bisect_right(self._starts, interval.lo) - 1, 0)
        near = self.spans[first : bisect_left(self._starts, interval.hi)]
        return any(lies_in(registration, span) for span in near)

    def has_more_hosts(self, before: ServedParts) -> bool:
        """Whether some of this was served here before, by fewer hosts."""
        return any(
            known.overlaps(span) and not _ids(hosts) <= _ids(others)
            for span, hosts in self.hosts.items()
            for known, others in before.hosts.items()
        )

    def span(self, spot: Cut) -> Interval | None:
        """The served part of the value space that holds this place; of a value that is cut into
        shards the first, if it is served here."""
        (found,) = self.spans_at((spot,))
        return found

    def spans_at(self, spots: Iterable[Cut | None]) -> list[Interval | None]:
        """`span` for each of these places; None for NULL."""
        starts, spans = self._starts, self.spans
        found: list[Interval | None] = []
        for spot in spots:
            number = -1 if spot is None else bisect_right(starts, spot) - 1
            if spot is not None and number >= 0 and spot < spans[number].hi:
                found.append(spans[number])
            else:
                found.append(None)
        return found

    def serves_some(self, spot: Cut) -> bool:
        """Whether the place is served here, or a shard of the value there."""
        return self.span(spot) is not None or self.value_in_shards(spot) is not None

    def value_in_shards(self, spot: Cut) -> Interval | None:
        """The value at this place, if it is cut into shards and one of them is served here."""
        if not self.shards:
            return None
        value = Interval(spot, (spot[0], spot[1], 1))
        return value if value in self.shards else None


class HostedTree:
    """The state of one tree at this host. `shared` is the index of all trees; None in counting
    routing, where each tree has its own."""

    def __init__(self, attribute: str, shared: SharedIndex | None, rng: Random) -> None:
        self.attribute = attribute
        self.key = attribute_key(attribute)
        self.version: Version = (0, 0)
        self.owner: Peer | None = None
        """The owner that has assigned the present version."""
        self.served = ServedParts((), Slice(0, {}))
        self.hosts_grew_at = float("-inf")
        """When a part of the tree that is served here was given more hosts last."""
        self.registrations: dict[str, tuple[Registration, Predicate]] = {}
        self.index: Index[str] = Index()  # empty in pivot routing
        self.latency = LatencyMap()
        self.visits = VisitSample(attribute, rng)
        self.tokens = DeliveryTokens()
        """The tokens of the nodes with registrations here."""
        self.shared_token = b""
        """The token that this tree's hosts have of its owner."""
        self.former: dict[str, None] = {}
        """Registrations of before the tree was taken away, which its owner has not sent again."""
        self._shared = shared
        self._shard_places: dict[str, float] = {}
        """The places of registrations among shards, as far as they were asked for."""

    def assign(self, message: Assign, owner: Peer | None = None, now: float = 0.0) -> None:
        """Serve exactly the intervals of `message`, with the registrations already installed.
        Registrations that overlap none of them are uninstalled.

        If the message has no intervals, all registrations become `former` instead: an owner that
        takes the tree away because the host may have missed a message usually gives the same tree
        back, and the registrations then need not be compiled and indexed again (`retake`).
        Registrations that are still `former` when the tree is served again are removed.
        """
        self.version = message.version
        self.owner = owner
        self.shared_token = message.token
        before = self.served
        slice_ = Slice(message.size, dict(message.known))
        served = self.served = ServedParts(message.intervals, slice_)
        if served.has_more_hosts(before):
            self.hosts_grew_at = now
        if not served.spans:
            self.former = dict.fromkeys(self.registrations)
            return
        self.drop_former(len(self.former))
        for id_, (registration, _) in list(self.registrations.items()):
            if not served.holds(registration):
                self.uninstall(id_)

    def empty(self) -> None:
        """Drop all registrations: nothing of the tree is served any more."""
        self.assign(Assign(self.attribute, self.version))
        self.drop_former(len(self.former))

    def is_host(self, node: NodeId, token: bytes) -> bool:
        """Whether a node serves some of this tree as well: its owner has named it here, or has
        given it the same token."""
        if token and token == self.shared_token:
            return True
        return any(serves(entry, node) for entry in self.served.slice.known.values())

    def drop_former(self, most: int) -> bool:
        """Uninstall some of what the owner has not sent again. Whether nothing of it is left."""
        for id_ in list(islice(self.former, most)):
            del self.former[id_]
            self.uninstall(id_)
        return not self.former

    def retake(self, registration: Registration) -> bool:
        """Whether just this registration is installed already; it is no longer `former`."""
        known = self.registrations.get(registration.id)
        if known is None or known[0] != registration:
            return False
        self.former.pop(registration.id, None)
        return True

    def lies_within(self, id_: str, shards: Iterable[Interval]) -> bool:
        """Whether a registration that is installed here belongs to one of these shards."""
        place = self._shard_places.get(id_)
        if place is None:
            place = self._shard_places[id_] = shard_place(self.registrations[id_][0])
        return any(is_within(place, shard) for shard in shards)

    def install(self, fresh: Sequence[tuple[Registration, Predicate]]) -> None:
        """Match these registrations from now on: they go into the index together."""
        for one in fresh:
            registration, predicate = one
            self._forget(registration.id)
            self.former.pop(registration.id, None)
            self._shard_places.pop(registration.id, None)
            self.tokens.add(registration)
            self.registrations[registration.id] = one
            if registration.latency_level:
                self.latency.add(registration.latency_level, types_of(predicate))
        if self._shared is None:
            self.index.add_many((registration.id, predicate) for registration, predicate in fresh)
            return
        attribute = self.attribute
        for node, some in groupby(fresh, key=lambda one: one[0].subscriber.id):
            keyed = [((attribute, registration.id), predicate) for registration, predicate in some]
            self._shared.add_many(keyed, node)

    def uninstall(self, id_: str) -> None:
        """Stop matching this registration. Does nothing if it is not installed."""
        self._forget(id_)
        self.former.pop(id_, None)
        self._shard_places.pop(id_, None)
        if self.registrations.pop(id_, None) is not None:
            if self._shared is None:
                self.index.remove(id_)
            else:
                self._shared.remove((self.attribute, id_))

    def _forget(self, id_: str) -> None:
        if (known := self.registrations.get(id_)) is not None:
            if known[0].latency_level:
                self.latency.remove(known[0].latency_level, types_of(known[1]))
            self.tokens.remove(known[0])

    def match(self, event: Event) -> list[str]:
        """The registrations that the event matches; for tests and checks."""
        if self._shared is None:
            return self.index.match(event.attributes)
        found = self._shared.match(event.attributes)
        return [id_ for attribute, id_ in found if attribute == self.attribute]

    def finds(self, id_: str) -> bool:
        """Whether a registration is in the index; for checks."""
        return id_ in self.index if self._shared is None else (self.attribute, id_) in self._shared


def _shards_of(
    known: Mapping[int, Entry], served: Sequence[Interval]
) -> dict[Interval, list[Entry]]:
    """Group the shards of a host's slice by value, for the values of which one of the `served`
    intervals is a shard."""
    found: dict[Interval, list[Entry]] = {
        interval.around(): [] for interval in served if interval.is_shard()
    }
    if found:
        for _, entry in sorted(known.items()):
            value = entry.interval.around()
            if entry.interval.is_shard() and value in found:
                found[value].append(entry)
    return found


def _ids(hosts: tuple[Peer, ...]) -> frozenset[NodeId]:
    return frozenset(host.id for host in hosts)
