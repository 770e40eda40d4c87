"""The access-point lookup table, APT (C2; CBDLO section 2 and figure 9).

The paper: each node caches, for a bounded number of attributes, a node inside that attribute's
topology. Here an attribute has several points, each with the partition map's version when it was
true and its age in shuffles. A higher version beats a lower one; among points of the newest epoch
the choice is random, which spreads the load. The attribute that was used least recently leaves
first. The trees that this node serves itself are always true, never age and are never evicted.

A point that proved wrong is dropped, remembered as wrong up to that version (gossip would bring it
back at once), and whoever named it is told (StalePoint); that node does not pass it on: tombstones
and ages do the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.messages import AccessPoint, StalePoint
from overlay.lower_random.tombstones import Tombstones
from overlay.machine import Handlers, Machine, NodeId, Peer, Port, Version
from overlay.settings import ViewSettings

STALE_REMEMBERED = 1_024
"""Points known to be wrong, the oldest is given up first. Wild guess."""


class Entry(NamedTuple):
    """A point in the table. Ages are read and not kept: a shuffle ages them all."""

    point: AccessPoint  # with the age that it came with
    named_by: Peer | None
    born: int  # the shuffle in which its age was 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """Best first: newest version, then youngest."""
        epoch, number = self.point.version
        return (-epoch, -number, -self.born)


class AccessPoints(Machine):
    """Attribute → nodes that can enter an event into its tree."""

    def __init__(self, port: Port, settings: ViewSettings) -> None:
        super().__init__(port)
        self._settings = settings
        self.ring = 0  # mark of the ring that this node belongs to
        self._own: dict[str, AccessPoint] = {}
        # Least recently used attribute first; per attribute best first, with who named the point.
        self._table: dict[str, list[Entry]] = {}
        self._stale: dict[tuple[str, NodeId], Version] = {}
        self._tombstones = Tombstones()
        self._shuffles = 0

    def handlers(self) -> Handlers:
        """StalePoint from the wire; links that come and go."""
        return {
            StalePoint: self.on_stale_point,
            LinkUp: self.on_link_up,
            LinkDown: self.on_link_down,
        }

    def __len__(self) -> int:
        """How many attributes are known, own ones included."""
        return len(self._own) + sum(attribute not in self._own for attribute in self._table)

    def lookup(self, attribute: str, but: NodeId = "") -> AccessPoint | None:
        """A way into the attribute's tree: this node itself, else a random point of the newest
        epoch; never node `but`. None if there is none."""
        own = self._own.get(attribute)
        if own is not None and own.peer.id != but:
            return own
        entries = self._table.get(attribute)
        if entries is None:
            return None
        entries = [entry for entry in entries if entry.point.peer.id != but]
        if not entries:
            return None
        self._table[attribute] = self._table.pop(attribute)  # used now
        epoch = entries[0].point.version[0]
        newest = [entry for entry in entries if entry.point.version[0] == epoch]
        return self._aged(newest[0] if len(newest) == 1 else self.port.rng.choice(newest))

    def learn(self, point: AccessPoint, named_by: Peer | None = None) -> bool:
        """Take a point that somebody named, unless it is known to be wrong, too old, or worse than
        all that is kept. True if it is in the table now."""
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
        entries = self._table.pop(attribute, [])
        self._table[attribute] = entries
        entry = Entry(point, named_by, self._shuffles - point.age)
        for index, known in enumerate(entries):
            if known.point.peer.id == who:
                if known.rank <= entry.rank:
                    return True
                del entries[index]
                break
        entries.append(entry)
        entries.sort(key=_rank)
        del entries[self._settings.per_attribute :]
        if len(self._table) > self._settings.access_points:
            del self._table[next(iter(self._table))]
        return any(each is entry for each in entries)

    def invalidate(self, attribute: str, peer_id: NodeId, version: Version | None = None) -> None:
        """This node no longer has the attribute, as of `version` (None: of the version that is
        in the table): forget it, tell who named it."""
        for point, named_by, _ in self._table.get(attribute, []):
            if point.peer.id != peer_id:
                continue
            if version is None:
                version = point.version
            if named_by is not None and point.version <= version:
                self.port.send(named_by, StalePoint(attribute, peer_id, version))
        if version is not None:
            self._forget(attribute, peer_id, version)

    def enter_ring(self, ring: str) -> None:
        """This node belongs to this ring now: ways into trees of any other lead astray."""
        self.ring = crc32(ring.encode())
        for attribute in list(self._table):
            kept = [each for each in self._table[attribute] if each.point.ring == self.ring]
            self._table[attribute] = kept
            if not kept:
                del self._table[attribute]

    def set_local(self, points: Sequence[AccessPoint]) -> None:
        """All trees that this node serves now; replaces what was said before."""
        self._own = {point.attribute: point for point in points}

    def sample(self, count: int) -> tuple[AccessPoint, ...]:
        """At most `count` points to tell a neighbour: own ones for one half at least, so that the
        truth spreads from where it is known, the rest from the table, all at random."""
        rng = self.port.rng
        own = list(self._own.values())
        heard = [
            entries[0] for attribute, entries in self._table.items() if attribute not in self._own
        ]
        others = min(len(heard), count - min(len(own), (count + 1) // 2))
        mine = min(len(own), count - others)
        return (*rng.sample(own, mine), *map(self._aged, rng.sample(heard, others)))

    def age_entries(self) -> None:
        """One shuffle later: everything but the own trees ages; what is too old leaves."""
        self._shuffles += 1
        oldest = self._shuffles - self._settings.access_point_age
        for attribute, entries in list(self._table.items()):
            if any(entry.born < oldest for entry in entries):
                entries[:] = [entry for entry in entries if entry.born >= oldest]
                if not entries:
                    del self._table[attribute]

    def _aged(self, entry: Entry) -> AccessPoint:
        """The point with its present age."""
        point, age = entry.point, self._shuffles - entry.born
        if point.age == age:
            return point
        return AccessPoint(point.attribute, point.peer, point.version, age, point.ring)

    def on_stale_point(self, sender: Peer, message: StalePoint) -> None:
        """A point that we named proved wrong (C10)."""
        del sender
        self.port.count("stale_points")
        self._forget(message.attribute, message.peer, message.version)

    def on_link_up(self, event: LinkUp) -> None:
        """It lives."""
        self._tombstones.remove(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """Nobody enters a tree through the dead."""
        self._tombstones.add(event.peer.id, self._shuffles)
        for attribute in list(self._table):
            self._remove(attribute, event.peer.id, None)

    def _forget(self, attribute: str, peer_id: NodeId, version: Version) -> None:
        former = self._stale.pop((attribute, peer_id), version)
        self._stale[attribute, peer_id] = max(former, version)
        if len(self._stale) > STALE_REMEMBERED:
            del self._stale[next(iter(self._stale))]
        self._remove(attribute, peer_id, version)

    def _remove(self, attribute: str, peer_id: NodeId, up_to: Version | None) -> None:
        entries = self._table.get(attribute)
        if entries is None:
            return
        kept = [
            each
            for each in entries
            if each.point.peer.id != peer_id or (up_to is not None and each.point.version > up_to)
        ]
        if not kept:
            del self._table[attribute]
        elif len(kept) < len(entries):
            self._table[attribute] = kept


def _rank(entry: Entry) -> tuple[int, int, int]:
    return entry.rank
