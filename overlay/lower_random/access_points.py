"""The access-point lookup table, APT (C2; CBDLO section 2).

In the paper each node caches, for a bounded number of attributes, a node inside that attribute's
topology. Here an attribute has several access points, each with the version of the partition map at
which it was true and its age in shuffles. A higher version beats a lower one; among points of the
newest epoch the choice is random, which spreads the load, of the healthy before others (T6). The
least recently used attribute is evicted first. The trees that this node serves itself are always
true, never age, and are never evicted.

A point that proved wrong is removed and remembered as wrong up to that version, since gossip would
bring it back at once, and the node that named it is informed (StalePoint); that node does not pass
it on, since tombstones and ages do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

from overlay.bounded import BoundedDict
from overlay.health import Health
from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.constants import MAX_STALE_POINTS, POINTS_PER_HIT
from overlay.lower_random.messages import AccessPoint, StalePoint
from overlay.lower_random.peer_records import Tombstones
from overlay.machine import Machine, NodeId, Peer, Port, Version
from overlay.settings import ViewSettings


class CachedPoint(NamedTuple):
    """An access point in the table. Its age is computed when it is read: a shuffle ages all."""

    point: AccessPoint  # with the age that it came with
    named_by: Peer | None  # the node that it was learnt from
    born: int  # the shuffle in which its age was 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sorts best first: newest version, then youngest."""
        epoch, number = self.point.version
        return (-epoch, -number, -self.born)


class AccessPoints(Machine):
    """Attribute → nodes that can enter an event into its tree."""

    def __init__(self, port: Port, settings: ViewSettings, health: Health | None = None) -> None:
        """`health`: the known health of nodes; None: it is never known."""
        super().__init__(port)
        self._health = health or Health(port)
        self._settings = settings
        self.ring = 0  # CRC-32 of the id of the ring that this node belongs to
        self._local: dict[str, AccessPoint] = {}
        # Least recently used attribute first; per attribute best first.
        self._table: BoundedDict[str, list[CachedPoint]] = BoundedDict(settings.access_points)
        self._stale: BoundedDict[tuple[str, NodeId], Version] = BoundedDict(MAX_STALE_POINTS)
        self._tombstones = Tombstones()
        self._shuffles = 0

    def __len__(self) -> int:
        """Return the number of known attributes, including those served here."""
        return len(self._local) + sum(attribute not in self._local for attribute in self._table)

    @property
    def cached(self) -> int:
        """The number of attributes in the table, at most ``view.access_points``."""
        return len(self._table)

    # --- use ---

    def points(self, attribute: str, exclude: NodeId = "") -> tuple[AccessPoint, ...]:
        """Ways into the attribute's tree, in this ring: this node itself if it serves the tree,
        then the points of the newest epoch known in random order, the healthy first,
        `POINTS_PER_HIT` at most; never the node `exclude`."""
        local = self._local.get(attribute)
        found: list[AccessPoint] = []
        if local is not None and local.ring == self.ring and local.peer.id != exclude:
            found.append(local)
        entries = self._table.get(attribute, [])
        entries = [entry for entry in entries if entry.point.peer.id != exclude]
        if entries:
            self._table.move_to_end(attribute)
            epoch = entries[0].point.version[0]
            newest = [entry for entry in entries if entry.point.version[0] == epoch]
            if len(newest) > 1:
                self.port.rng.shuffle(newest)
                newest.sort(key=lambda entry: self._health.severity(entry.point.peer.id))
            found += map(self._aged, newest)
        return tuple(found[:POINTS_PER_HIT])

    def sample(self, count: int) -> tuple[AccessPoint, ...]:
        """At most `count` points for an exchange, at random: half of them or more from the trees
        served here, so that the truth spreads from where it is known, the rest from the table."""
        rng = self.port.rng
        local = list(self._local.values())
        heard = [
            entries[0] for attribute, entries in self._table.items() if attribute not in self._local
        ]
        others = min(len(heard), count - min(len(local), (count + 1) // 2))
        mine = min(len(local), count - others)
        return (*rng.sample(local, mine), *map(self._aged, rng.sample(heard, others)))

    # --- what is known ---

    def learn(self, point: AccessPoint, named_by: Peer | None = None) -> bool:
        """Take a point that another node named, unless it is known to be wrong, too old, of another
        ring, or worse than all that are kept. Returns whether it is in the table now."""
        who, attribute = point.peer.id, point.attribute
        if who == self.port.me.id or point.age > self._settings.access_point_age:
            return False
        if point.ring != self.ring:
            return False
        stale = self._stale.get((attribute, who))
        if stale is not None and point.version <= stale:
            return False
        if self._tombstones.covers(who, point.age, self._shuffles):
            return False
        entries = self._table.get(attribute)
        if entries is None:
            entries = self._table[attribute] = []
        else:
            self._table.move_to_end(attribute)
        entry = CachedPoint(point, named_by, self._shuffles - point.age)
        rank = entry.rank
        for index, known in enumerate(entries):
            if known.point.peer.id == who:
                if known.rank <= rank:
                    return True
                del entries[index]
                break
        entries.append(entry)
        entries.sort(key=lambda each: each.rank)
        del entries[self._settings.per_attribute :]
        return any(each is entry for each in entries)

    def invalidate(self, attribute: str, peer_id: NodeId, version: Version | None = None) -> None:
        """Remove the access point `peer_id`, which does not serve the attribute as of `version`
        (None: the version in the table), and inform the node that named it."""
        for point, named_by, _ in self._table.get(attribute, []):
            if point.peer.id != peer_id:
                continue
            if version is None:
                version = point.version
            if named_by is not None and point.version <= version:
                self.port.send(named_by, StalePoint(attribute, peer_id, version))
        if version is not None:
            self._mark_stale(attribute, peer_id, version)

    def set_local(self, points: Sequence[AccessPoint]) -> None:
        """Set the access points of all trees that this node now serves, in place of the former
        ones."""
        self._local = {point.attribute: point for point in points}

    def serve(self, point: AccessPoint) -> None:
        """Take this node's own access point of a tree that it serves, in place of the one by an
        earlier map."""
        self._local[point.attribute] = point

    def withdraw(self, attribute: str) -> None:
        """Remove the access point of a tree that this node no longer serves. Does nothing if it did
        not."""
        self._local.pop(attribute, None)

    def enter_ring(self, ring: str) -> None:
        """Note that this node now belongs to the ring with this id. Access points of any other ring
        are removed, since they lead into trees that do not know its subscribers."""
        self.ring = crc32(ring.encode())
        for attribute in list(self._table):
            self._keep(attribute, lambda each: each.point.ring == self.ring)

    def age_entries(self) -> None:
        """Age every point in the table by one shuffle. Points older than ``view.access_point_age``
        are removed."""
        self._shuffles += 1
        oldest = self._shuffles - self._settings.access_point_age
        for attribute, entries in list(self._table.items()):
            if any(each.born < oldest for each in entries):
                self._keep(attribute, lambda each: each.born >= oldest)

    # --- handlers ---

    def on_stale_point(self, sender: Peer, message: StalePoint) -> None:
        """A point that this node named proved wrong (C10)."""
        self.port.count("stale_points")
        self._mark_stale(message.attribute, message.peer, message.version)

    def on_link_up(self, event: LinkUp) -> None:
        """The peer is alive: its tombstone is removed."""
        self._tombstones.remove(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """Contact with the peer failed: all its points leave, and what other nodes say of them is
        ignored."""
        self._tombstones.add(event.peer.id, self._shuffles)
        for attribute in list(self._table):
            self._keep(attribute, lambda each: each.point.peer.id != event.peer.id)

    # --- parts ---

    def _aged(self, entry: CachedPoint) -> AccessPoint:
        """The point with its present age."""
        point, age = entry.point, self._shuffles - entry.born
        if point.age == age:
            return point
        return AccessPoint(point.attribute, point.peer, point.version, age, point.ring)

    def _mark_stale(self, attribute: str, peer_id: NodeId, version: Version) -> None:
        key = (attribute, peer_id)
        self._stale.renew(key, max(self._stale.get(key, version), version))
        self._keep(
            attribute, lambda each: each.point.peer.id != peer_id or each.point.version > version
        )

    def _keep(self, attribute: str, is_good: Callable[[CachedPoint], bool]) -> None:
        """Remove the other points of the attribute."""
        entries = self._table.get(attribute, [])
        entries[:] = filter(is_good, entries)
        if not entries:
            self._table.pop(attribute, None)
