"""The view: a few random neighbours, ever changing (C1).

After Cyclon (Voulgaris, Gavidia and van Steen, 2005, section 3). Each period a node's entries age
by one; it picks its *oldest* neighbour, sends it some random entries and itself with age 0, and
gets some of its entries back. What arrives fills free places first, then replaces the partner
asked, then what was sent to it: entries move, they are not multiplied, so every node stays in
about as many views as any other. Asking the oldest first finds the dead within about as many
periods as a view has entries.

Unlike Cyclon, the partner stays in the view until its answer brings something better, since in a
small overlay it is all one has. The dead leave when contact fails (LinkDown, or three periods
without an answer), never by age alone. A seed that answers always enters, so that a healed
partition merges.

Each exchange carries access points (C2) and hints at the ring, too.
"""

from __future__ import annotations

from overlay.links.events import LinkDown, LinkUp, SeedReached, SessionEnd
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.events import NeighbourDown, NeighbourUp, RingHintReceived
from overlay.lower_random.messages import AccessPoint, Neighbour, RingHint, Shuffle, ShuffleReply
from overlay.lower_random.tombstones import Tombstones
from overlay.machine import Handlers, Key, Machine, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import ViewSettings

MAX_UNANSWERED_PERIODS = 3
"""Periods that a partner has for its answer. Wild guess; a dead link is noticed sooner."""

MAX_RING_HINTS = 16
"""Hints at the ring that are remembered, newest heard last. Wild guess."""

RING_HINTS_PER_EXCHANGE = 4
"""… and how many of them an exchange carries beside the own one. Wild guess."""

MAX_EXCHANGED = 256
"""Entries of a kind in one exchange, whatever the other's settings: a bound. Wild guess."""


class ShuffleDue(Timer, frozen=True):
    """Time for the next exchange."""


class View(Machine):
    """The neighbours of this node."""

    def __init__(self, port: Port, settings: ViewSettings, access_points: AccessPoints) -> None:
        super().__init__(port)
        self._settings = settings
        self._access_points = access_points
        self._entries: dict[NodeId, Neighbour] = {}
        self._asked: dict[NodeId, tuple[int, tuple[NodeId, ...]]] = {}  # when, what was sent
        self._tombstones = Tombstones()
        self._shuffles = 0
        self._is_idle = True
        self._is_settled = False
        self._own_ring: RingHint | None = None
        self._rings: dict[tuple[str, Key], RingHint] = {}
        self._ended: dict[str, None] = {}  # rings that are no more

    def handlers(self) -> Handlers:
        """Shuffles, their timer, and the links' news."""
        return {
            Shuffle: self.on_shuffle,
            ShuffleReply: self.on_shuffle_reply,
            ShuffleDue: self.on_shuffle_due,
            LinkUp: self.on_link_up,
            LinkDown: self.on_link_down,
            SeedReached: self.on_seed_reached,
        }

    def start(self) -> None:
        """Shuffle from now on, out of step with the others."""
        self._set_timer()

    # For the machines above

    def peers(self) -> tuple[Peer, ...]:
        """The neighbours, longest known first."""
        return tuple(entry.peer for entry in self._entries.values())

    def neighbours(self) -> tuple[Neighbour, ...]:
        """The entries, longest known first."""
        return tuple(self._entries.values())

    def sample(self, count: int) -> tuple[Peer, ...]:
        """At most `count` different neighbours at random."""
        peers = self.peers()
        return tuple(self.port.rng.sample(peers, min(count, len(peers))))

    def idle_peers(self) -> tuple[Peer, ...]:
        """Neighbours that serve in no cluster, the freshest news first."""
        idle = [entry for entry in self._entries.values() if entry.idle]
        return tuple(entry.peer for entry in sorted(idle, key=lambda entry: entry.age))

    def set_idle(self, is_idle: bool) -> None:
        """Whether this node may be recruited; told in every exchange."""
        self._is_idle = is_idle

    @property
    def is_filled(self) -> bool:
        """The view is full, or the last exchange brought nobody new, or this node is alone."""
        full = len(self._entries) >= self._settings.size
        return full or self._is_settled or self.is_alone

    @property
    def is_alone(self) -> bool:
        """There is no neighbour."""
        return not self._entries

    def forget(self, peer_id: NodeId) -> None:
        """Somebody found this node dead."""
        self._tombstones.add(peer_id, self._shuffles)
        self._asked.pop(peer_id, None)
        entry = self._entries.pop(peer_id, None)
        if entry is not None:
            self.port.emit(NeighbourDown(entry.peer))

    def advertise_ring(self, hint: RingHint | None) -> None:
        """The own cluster's hint, told in every exchange; None: this node is in none."""
        self._own_ring = hint

    def forget_ring(self, ring: str) -> None:
        """This ring is no more: no gossip about it."""
        self._ended[ring] = None
        if len(self._ended) > MAX_RING_HINTS:
            del self._ended[next(iter(self._ended))]
        self._rings = {place: hint for place, hint in self._rings.items() if place[0] != ring}

    # The exchange

    def on_shuffle_due(self, timer: ShuffleDue) -> None:
        """One period later."""
        self._set_timer()
        self._shuffles += 1
        self._access_points.age_entries()
        for peer_id, entry in list(self._entries.items()):
            self._entries[peer_id] = Neighbour(entry.peer, entry.age + 1, entry.idle)
        for peer_id, (when, _) in list(self._asked.items()):
            if self._shuffles - when >= MAX_UNANSWERED_PERIODS:
                self.port.count("shuffles_unanswered")
                self.forget(peer_id)
        self._shuffle_with_oldest()

    def on_shuffle(self, sender: Peer, message: Shuffle) -> None:
        """A neighbour begins an exchange."""
        _check(message)
        self._tombstones.remove(sender.id)
        mine = self._choose(sender.id)
        self.port.send(sender, ShuffleReply(*self._told(mine)))
        self._hear(sender, message, [entry.peer.id for entry in mine])

    def on_shuffle_reply(self, sender: Peer, message: ShuffleReply) -> None:
        """The other half of an exchange that we began."""
        _check(message)
        asked = self._asked.pop(sender.id, None)
        if asked is None:
            return  # given up meanwhile
        self._is_settled = not self._hear(sender, message, [sender.id, *asked[1]])
        if not self.is_filled:  # a newcomer fills its view at once: each answer brought somebody
            self._shuffle_with_oldest()

    def _shuffle_with_oldest(self) -> None:
        candidates = [entry for entry in self._entries.values() if entry.peer.id not in self._asked]
        if candidates:
            self._shuffle_with(max(candidates, key=lambda entry: entry.age).peer)

    def _shuffle_with(self, peer: Peer) -> None:
        mine = self._choose(peer.id)
        self._asked[peer.id] = (self._shuffles, tuple(entry.peer.id for entry in mine))
        self.port.send(peer, Shuffle(*self._told(mine)))

    def _choose(self, partner: NodeId) -> list[Neighbour]:
        """Some entries for the partner, at random; itself it knows."""
        others = [entry for entry in self._entries.values() if entry.peer.id != partner]
        count = min(self._settings.shuffle - 1, len(others))
        return self.port.rng.sample(others, max(count, 0))

    def _told(
        self, mine: list[Neighbour]
    ) -> tuple[tuple[Neighbour, ...], tuple[AccessPoint, ...], tuple[RingHint, ...]]:
        """The three parts of a Shuffle or ShuffleReply."""
        myself = Neighbour(self.port.me, 0, self._is_idle)
        points = self._access_points.sample(self._settings.gossiped)
        return (myself, *mine), points, self._tell_rings()

    def _hear(
        self, sender: Peer, message: Shuffle | ShuffleReply, replaceable: list[NodeId]
    ) -> bool:
        """Take what an exchange brought. True if somebody new entered into a free place."""
        before = len(self._entries)
        for entry in message.neighbours:
            self._take(entry, replaceable)
        for point in message.access_points:
            self._access_points.learn(point, sender)
        for hint in message.rings:
            self._hear_ring(hint)
        return len(self._entries) > before

    def _take(self, entry: Neighbour, replaceable: list[NodeId]) -> None:
        who = entry.peer.id
        if who == self.port.me.id or self._tombstones.covers(who, entry.age, self._shuffles):
            return
        known = self._entries.get(who)
        if known is not None:
            if entry.age <= known.age:  # the younger news has the newer address
                self._entries[who] = entry
            return
        if len(self._entries) >= self._settings.size:
            victim = next((each for each in replaceable if each in self._entries), None)
            if victim is None:
                return
            replaceable.remove(victim)
            del self._entries[victim]
        self._entries[who] = entry
        self.port.emit(NeighbourUp(entry.peer))

    def _set_timer(self) -> None:
        # A quarter to and fro at random keeps nodes that were started together out of step.
        self.port.set_timer(
            self._settings.period * (0.75 + self.port.rng.random() / 2), ShuffleDue()
        )

    # The links' news

    def on_link_up(self, event: LinkUp) -> None:
        """Somebody lives: a neighbour if there is room. The first one is asked at once."""
        self._tombstones.remove(event.peer.id)
        was_alone = self.is_alone
        self._take(Neighbour(event.peer, 0), [])
        if was_alone and event.peer.id in self._entries:
            self._shuffle_with(event.peer)

    def on_seed_reached(self, event: SeedReached) -> None:
        """Somebody of the peer list answers: it enters at once, for the oldest if need be."""
        self._tombstones.remove(event.peer.id)
        if event.peer.id == self.port.me.id:
            return
        by_age = sorted(self._entries.values(), key=lambda entry: -entry.age)
        self._take(Neighbour(event.peer, 0), [entry.peer.id for entry in by_age])
        if event.peer.id not in self._asked:
            self._shuffle_with(event.peer)

    def on_link_down(self, event: LinkDown) -> None:
        """Contact failed: out of the view. Who lives stays; what was asked of it may be lost."""
        if event.end is SessionEnd.RESET:
            self._asked.pop(event.peer.id, None)
        else:
            self.forget(event.peer.id)

    # Ways into the ring

    def _tell_rings(self) -> tuple[RingHint, ...]:
        own = self._own_ring
        others = [hint for hint in self._rings.values() if hint != own]
        some = self.port.rng.sample(others, min(RING_HINTS_PER_EXCHANGE, len(others)))
        return tuple(some) if own is None else (own, *some)

    def _hear_ring(self, hint: RingHint) -> None:
        """Remember the newest of each cluster; a primary found dead is not passed on."""
        if hint.ring in self._ended or self._tombstones.covers(hint.primary.id, 0, self._shuffles):
            return
        place = (hint.ring, hint.key)
        known = self._rings.pop(place, None)
        if known is not None and known.version > hint.version:
            hint = known
        self._rings[place] = hint
        if len(self._rings) > MAX_RING_HINTS:
            del self._rings[next(iter(self._rings))]
        self.port.emit(RingHintReceived(hint))


def _check(message: Shuffle | ShuffleReply) -> None:
    """Raises ProtocolError for an exchange beyond all bounds."""
    parts = (message.neighbours, message.access_points, message.rings)
    if any(len(part) > MAX_EXCHANGED for part in parts):
        raise ProtocolError(f"a shuffle with more than {MAX_EXCHANGED} entries of a kind")
    ages = [entry.age for entry in message.neighbours] + [p.age for p in message.access_points]
    if any(age < 0 for age in ages):
        raise ProtocolError("a shuffle with an entry from the future")
