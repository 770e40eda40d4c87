"""Lookups: who owns a key? (P2: recursive routing in O(log n) steps over clusters)

`Find` is passed on from node to node; the owner's primary answers the origin itself. Lookups of one
key are coalesced: however many ask, one is under way. One that is not answered in time, or whose
first step turns out to be dead, is tried again along another way, and after some tries given up
with OwnerUnknown: the ring is being repaired, and the caller decides whether to ask again.

A member of the owner's cluster keeps what it should pass on to a primary that does not answer,
until there is another one (*bufferMessageList*, P4).

Only the owner's own word is an answer. Descriptions on the way are hints, old ones cost hops: the
former owner of an arc knows to whom it gave it, so that stale knowledge leads forward.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlay.bounded import BoundedDict
from overlay.chord.constants import LOOKUP_TRIES, LOOKUPS_MOST, LOOKUPS_WAITING_MOST, MOST_HOPS
from overlay.chord.events import OwnerFound, OwnerUnknown
from overlay.chord.messages import Cluster, Find, FindReply
from overlay.chord.ring.ring_state import RingState
from overlay.machine import Key, Message, NodeId, Peer, Timer


class LookupTimeout(Timer, frozen=True):
    """Lookup `number` was not answered in time."""

    number: int


class Lookup:
    """A lookup of one key that is under way."""

    def __init__(self, key: Key, number: int) -> None:
        self.key = key
        self.number = number
        self.wanted = False  # by a caller, not only by a finger
        self.tries = 0
        self.through: NodeId = ""  # first step of the present try
        self.tried: dict[NodeId, None] = {}
        self.doubted: FindReply | None = None  # an answer that is not believed yet


class Lookups:
    """Lookups that began here, and lookups of others passing through."""

    def __init__(self, state: RingState) -> None:
        self.state = state
        self.port = state.port
        self._by_key: dict[Key, Lookup] = {}
        self._by_number: dict[int, Lookup] = {}
        self._count = 0
        # by origin and number; dropped beyond LOOKUPS_WAITING_MOST: their origins try again.
        self._waiting = BoundedDict[tuple[NodeId, int], Find](LOOKUPS_WAITING_MOST, self._drop)

    def find(self, key: Key, wanted: bool = True) -> None:
        """Look `key` up; answered by OwnerFound or OwnerUnknown if `wanted`, else only learnt."""
        own = self.state.led
        if own is not None and own.owns(key):
            if wanted:
                self.port.emit(OwnerFound(key, own, 0))
            return
        lookup = self._by_key.get(key)
        if lookup is not None:
            lookup.wanted = lookup.wanted or wanted
            return
        if len(self._by_key) >= LOOKUPS_MOST:
            self.port.count("lookups_refused")
            if wanted:
                self.port.emit(OwnerUnknown(key))
            return
        self._count += 1
        lookup = Lookup(key, self._count)
        lookup.wanted = wanted
        self._by_key[key] = self._by_number[lookup.number] = lookup
        self.port.count("lookups")
        self._try(lookup)

    def ring_became_known(self) -> None:
        """Begin the lookups that waited for a first entry into the ring."""
        for lookup in list(self._by_number.values()):
            if not lookup.through:
                self._try(lookup)

    def peer_lost(self, node: NodeId, lost: Sequence[Message] = ()) -> None:
        """Send lookups that went through `node`, which does not answer, another way: the own ones,
        and those in `lost` that this node passed on."""
        for message in lost:
            if isinstance(message, Find) and message.origin.id != self.port.me.id:
                self.on_find(self.port.me, message)
        for lookup in list(self._by_number.values()):
            if lookup.through == node:
                self._try(lookup)

    def arc_changed(self) -> None:
        """Answer lookups from this node's own arc, after it became a primary or its arc changed."""
        own = self.state.led
        for lookup in list(self._by_number.values()):
            if own is not None and own.owns(lookup.key):
                self._found(lookup, own, 0)
        self.primary_changed()

    def primary_changed(self) -> None:
        """Pass on the lookups that waited for a primary of the own cluster."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for message in waiting:
            self.on_find(self.port.me, message)

    def on_timeout(self, timer: LookupTimeout) -> None:
        """Try another way to the owner, or give the lookup up."""
        lookup = self._by_number.get(timer.number)
        if lookup is not None:
            self._try(lookup)

    def on_find(self, sender: Peer, message: Find) -> None:
        """Answer the origin if this node owns the key, keep the lookup while the own cluster has no
        primary (bufferMessageList, P4), else pass it on."""
        own = self.state.led
        if own is not None and own.owns(message.key):
            self.port.send(message.origin, FindReply(message.number, own, message.hop))
            return
        if self.state.awaits_primary(message.key):
            self._waiting[message.origin.id, message.number] = message
            return
        peer = self.state.route(message.key, avoid=(sender.id, message.origin.id))
        peer = peer or self.state.route(message.key, avoid=(message.origin.id,))
        if peer is None or message.hop >= MOST_HOPS:
            self.port.count("lookups_dropped")
            return
        self.port.send(peer, Find(message.key, message.origin, message.number, message.hop + 1))

    def _drop(self, origin: tuple[NodeId, int], message: Find) -> None:
        self.port.count("lookups_dropped")

    def on_find_reply(self, sender: Peer, message: FindReply) -> None:
        """The owner answers a lookup that began here. Nobody else answers for it."""
        if message.cluster.primary.id != sender.id:
            self.port.count("claims_refused")
            return
        lookup = self._by_number.get(message.number)
        if not self.state.admits(message.cluster):
            if lookup is not None:
                lookup.doubted = message  # it is tried again meanwhile
            return
        self.state.learn(message.cluster)
        cluster = message.cluster
        if lookup is None or cluster.ring != self.state.ring or not cluster.owns(lookup.key):
            return  # answered already, or an answer to a former incarnation of ours
        self._found(lookup, cluster, message.hop)

    def claim_believed(self, cluster: Cluster) -> None:
        """Handle that a claim is now believed. It may be the answer to a lookup."""
        for lookup in list(self._by_number.values()):
            doubted = lookup.doubted
            if doubted is not None and doubted.cluster.primary.id == cluster.primary.id:
                lookup.doubted = None
                self.on_find_reply(cluster.primary, doubted)

    def _try(self, lookup: Lookup) -> None:
        if lookup.tries >= LOOKUP_TRIES:
            self._finish(lookup)
            self.port.count("lookups_failed")
            if lookup.wanted:
                self.port.emit(OwnerUnknown(lookup.key))
            return
        peer = self.state.route(lookup.key, avoid=lookup.tried)
        if peer is None and lookup.tried:  # every way was tried: once more from the best
            lookup.tried.clear()
            peer = self.state.route(lookup.key)
        lookup.through = "" if peer is None else peer.id
        lookup.tries += 1
        self.port.set_timer(self.state.settings.lookup_timeout, LookupTimeout(lookup.number))
        if peer is not None:
            lookup.tried[peer.id] = None
            self.port.send(peer, Find(lookup.key, self.port.me, lookup.number, 1))

    def _found(self, lookup: Lookup, owner: Cluster, hops: int) -> None:
        self._finish(lookup)
        if lookup.wanted:
            self.port.emit(OwnerFound(lookup.key, owner, hops))

    def _finish(self, lookup: Lookup) -> None:
        del self._by_key[lookup.key], self._by_number[lookup.number]
        self.port.cancel_timer(LookupTimeout(lookup.number))
