"""The view: a few random neighbours that change all the time (C1; CBDLO section 2).

The paper has each node refresh its view by random sampling, so that the graph stays close to a
random graph, and leaves open how. Here it is Cyclon (Voulgaris, Gavidia and van Steen 2005, section
3). Each period a node's entries age by one; it picks its *oldest* neighbour, sends it some random
entries and itself with age 0, and receives some of its entries. What arrives fills free places
first, then replaces the partner that was asked, then what was sent to it: entries move and are not
multiplied, so that every node stays in about as many views as any other. Asking the oldest first
finds the dead within about as many periods as a view has entries.

Unlike Cyclon, the partner stays in the view until its reply brings something better: in a small
overlay it may be all that the node has. The dead leave when contact fails (LinkDown, or three
periods without a reply), never by age alone. A seed that answers always enters the view, so that a
healed partition merges. Each exchange also carries access points (C2) and hints about the ring.

Where there are regions (M1), half of a view is nodes of this node's own, as far as there are so
many, and half others: a view that lacks some of a kind gives them the places of the other kind.
Within a kind entries move as in Cyclon, so that the graph of each region is random, and so is that
between regions (docs/design/regions.md).

Whoever pushes most fills a view of this kind. Where nodes have keys it is sampled in another way
(`view.sampling`, ranked_slots.py): the same messages, but what arrives enters by a secret rank,
however often it is named, the neighbours are asked in turn, an address that is known changes only
by its node's own signed word (peer_records.py), and of one node one exchange a period is taken.
Hints about the ring are taken from others with the word of the primary that they name, alone.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from overlay.bounded import BoundedDict
from overlay.links.events import LinkDown, LinkUp, SeedReached, SessionEnd
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.constants import (
    FAR_SHARE,
    MAX_EXCHANGED,
    MAX_RING_HINTS,
    MAX_TIERED_REGIONS,
    MAX_UNANSWERED_PERIODS,
    NEAR_SHARE,
    RENEW_EVERY,
    RING_HINTS_PER_EXCHANGE,
    TIERED_PER_REGION,
)
from overlay.lower_random.messages import (
    AccessPoint,
    Neighbour,
    RingHint,
    RingHintReceived,
    Shuffle,
    ShuffleReply,
)
from overlay.lower_random.peer_records import PeerRecords, Tombstones
from overlay.lower_random.ranked_slots import RankedSlots
from overlay.machine import (
    AnyNode,
    Key,
    Machine,
    NodeId,
    NodeRoles,
    Peer,
    Port,
    ProtocolError,
    Region,
    Timer,
)
from overlay.settings import ViewSettings

# --- hints about the ring: ways in, gossiped with the view ---
#
# A hint is no authority: the cluster that it names may have moved on, and then names a better one.
# Of each cluster the newest hint is kept. Hints of rings that have ended are neither kept nor
# passed on.


class RingHints:
    """The hint of this node's own cluster, and those heard from others, oldest first."""

    def __init__(self) -> None:
        self._own: RingHint | None = None
        self._heard: BoundedDict[tuple[str, Key], RingHint] = BoundedDict(MAX_RING_HINTS)
        self._ended: BoundedDict[str, None] = BoundedDict(MAX_RING_HINTS)  # rings

    def advertise(self, hint: RingHint | None) -> None:
        """Replace the hint of this node's own cluster, which goes out first; None: it is in
        none."""
        self._own = hint

    def forget_ring(self, ring: str) -> None:
        """Drop the hints of a ring that has ended, and accept none again."""
        self._ended[ring] = None
        for place in [place for place in self._heard if place[0] == ring]:
            del self._heard[place]

    def forget_primary(self, node: NodeId) -> None:
        """Drop the hints that name this node as a primary: it cannot be one."""
        for place in [place for place, hint in self._heard.items() if hint.primary.id == node]:
            del self._heard[place]

    def learn(self, hint: RingHint) -> RingHint | None:
        """Take a hint. Returns the newest one of the same cluster; None if its ring has ended."""
        if hint.ring in self._ended:
            return None
        place = (hint.ring, hint.key)
        known = self._heard.get(place)
        if known is not None and (known.version, _until(known)) > (hint.version, _until(hint)):
            hint = known
        self._heard.renew(place, hint)
        return hint

    def sample(self, rng: Random) -> tuple[RingHint, ...]:
        """Return the hints for an exchange: the own one, and some others at random."""
        own = self._own
        others = [hint for hint in self._heard.values() if hint != own]
        some = rng.sample(others, min(RING_HINTS_PER_EXCHANGE, len(others)))
        return tuple(some) if own is None else (own, *some)


def _until(hint: RingHint) -> int:
    """Until when its primary has signed it."""
    return 0 if hint.record is None else hint.record.until


class TieredNodes:
    """Nodes that should pass on for their region, learnt by gossip (M1, M2): those of the highest
    tiers of each region, at most `TIERED_PER_REGION`. The region that was learnt first is forgotten
    first.

    Nodes with a tier are few, and views change all the time, so these nodes are kept apart from the
    view until contact with them fails.
    """

    def __init__(self) -> None:
        self._by_region: BoundedDict[Region, list[Peer]] = BoundedDict(MAX_TIERED_REGIONS)
        self._all: tuple[Peer, ...] = ()

    def peers(self) -> tuple[Peer, ...]:
        """These nodes, of all regions, without an order."""
        return self._all

    def learn(self, peer: Peer) -> None:
        """Keep a node if it has a region and a tier, and fewer nodes of its region have as high a
        tier."""
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


class ShuffleDue(Timer, frozen=True):
    """Time for the next exchange of neighbours (Cyclon's shuffle)."""


class View(Machine):
    """The neighbours of this node, at most ``view.size``."""

    def __init__(
        self,
        port: Port,
        settings: ViewSettings,
        access_points: AccessPoints,
        load: Callable[[], int] = int,
        roles: NodeRoles | None = None,
        records: PeerRecords | None = None,
    ) -> None:
        """`load`: per cent of what this node can host that is asked of it now. `roles`: say
        whether a node may be in views (one that may not asks for neighbours and names none), and
        whether it may lead clusters, so that hints may name it. `records`: of where nodes are, by
        their own signed word. None: nodes have no keys, and sign nothing."""
        super().__init__(port)
        self._records = records or PeerRecords(port.me, None, lambda: 0.0)
        self._roles = roles or AnyNode()
        self._load = load
        self._settings = settings
        self._access_points = access_points
        self._entries: dict[NodeId, Neighbour] = {}
        # Partners whose reply is awaited -> when they were asked, and the entries sent to them.
        self._asked: dict[NodeId, tuple[int, tuple[NodeId, ...]]] = {}
        self._tombstones = Tombstones()
        self._ring_hints = RingHints()
        self._tiered = TieredNodes()
        self._shuffles = 0
        self._is_idle = True
        self._is_settled = False
        # Where views are ranked: the places in it, when each neighbour was asked last, and who has
        # begun an exchange since the last period.
        self._slots: RankedSlots | None = None
        self._asked_last: dict[NodeId, int] = {}
        self._took_from: dict[NodeId, None] = {}
        if settings.sampling == "ranked":
            near = int(settings.size * NEAR_SHARE)
            self._slots = RankedSlots(settings.size, near, self._is_near, port.rng)

    def start(self) -> None:
        """Set the timer of the first exchange."""
        self._set_timer()

    # --- for the machines above ---

    def peers(self) -> tuple[Peer, ...]:
        """Ids and addresses of the neighbours, longest known first."""
        return tuple(entry.peer for entry in self._entries.values())

    def own_entry(self) -> Neighbour:
        """Return this node's entry for its exchanges."""
        me, record = self.port.me, self._records.own()
        return Neighbour(me, 0, self._is_idle, self._load(), record)

    def tiered_peers(self) -> tuple[Peer, ...]:
        """Nodes with a tier that were heard of, some of each region."""
        return self._tiered.peers()

    def neighbours(self) -> tuple[Neighbour, ...]:
        """The neighbours with their ages and whether they may be recruited, longest known first."""
        return tuple(self._entries.values())

    def idle_peers(self) -> tuple[Peer, ...]:
        """Return the neighbours that serve in no cluster. Those with little load come first, in
        steps of a quarter of their capacity, and at equal load the youngest entry."""
        idle = [entry for entry in self._entries.values() if entry.idle]
        idle.sort(key=lambda entry: (entry.load // 25, entry.age))
        return tuple(entry.peer for entry in idle)

    def set_idle(self, is_idle: bool) -> None:
        """Note whether this node may be recruited; every exchange carries it."""
        self._is_idle = is_idle

    def advertise_ring(self, hint: RingHint | None) -> None:
        """Replace the hint of this node's own cluster, which every exchange carries; None: none."""
        self._ring_hints.advertise(hint)

    def forget_ring(self, ring: str) -> None:
        """Forget the hints of a ring that has ended, and pass them on no more."""
        self._ring_hints.forget_ring(ring)

    @property
    def is_filled(self) -> bool:
        """Whether the view is full, the last exchange brought no new node, or there is no
        neighbour."""
        full = len(self._entries) >= self._settings.size
        return full or self._is_settled or self.is_alone

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_alone(self) -> bool:
        """Whether the view is empty: no walk can leave this node."""
        return not self._entries

    # --- the exchange ---

    def on_shuffle_due(self, timer: ShuffleDue) -> None:
        """Begin the next period: age all entries, give up partners that did not reply, and begin an
        exchange with the oldest neighbour."""
        self._set_timer()
        self._shuffles += 1
        self._access_points.age_entries()
        for peer_id, entry in list(self._entries.items()):
            self._entries[peer_id] = msgspec.structs.replace(entry, age=entry.age + 1)
        for peer_id, (when, _) in list(self._asked.items()):
            if self._shuffles - when >= MAX_UNANSWERED_PERIODS:
                self.port.count("shuffles_unanswered")
                self._contact_failed(peer_id)
        if self._slots is not None:
            self._took_from.clear()
            self._asked_last = {k: v for k, v in self._asked_last.items() if k in self._entries}
            self._sample(self._slots)
        self._shuffle_with_oldest()

    def _sample(self, slots: RankedSlots) -> None:
        """Give one place another seed when its time has come, and offer it, and places that are
        free, to those who were heard of."""
        renewed = slots.renew() if self._shuffles % RENEW_EVERY == 0 else None
        has_room = len(self._entries) < min(self._settings.size, len(slots.heard))
        if renewed is None and not has_room:
            return
        slots.heard.expire(self._shuffles)
        for peer in slots.heard.peers():
            wanted = has_room or (renewed is not None and slots.is_better(peer, renewed))
            if wanted and peer.id not in self._entries:
                self._take(slots.heard.entry(peer.id, self._shuffles), [], first_hand=False)

    def on_shuffle(self, sender: Peer, message: Shuffle) -> None:
        """Handle an exchange that a neighbour begins: reply with as many entries, and take those
        that it sent. Raises ProtocolError for an exchange beyond all bounds."""
        _check(message)
        self._tombstones.remove(sender.id)
        mine = self._choose(sender.id)
        self.port.send(sender, ShuffleReply(*self._parts(mine)))
        if self._slots is not None:
            if sender.id in self._took_from:
                self.port.count("shuffles_beyond_turn")
                return
            self._took_from[sender.id] = None
        self._merge(sender, message, [entry.peer.id for entry in mine])

    def on_shuffle_reply(self, sender: Peer, message: ShuffleReply) -> None:
        """The second half of an exchange that this node began. Raises ProtocolError as above."""
        _check(message)
        asked = self._asked.pop(sender.id, None)
        if asked is None:
            return  # given up meanwhile
        self._is_settled = not self._merge(sender, message, [sender.id, *asked[1]])
        if not self.is_filled:  # each reply brought new nodes: a new node fills its view at once
            self._shuffle_with_oldest()

    def _shuffle_with_oldest(self) -> None:
        candidates = [entry for entry in self._entries.values() if entry.peer.id not in self._asked]
        if not candidates:
            return
        if self._slots is None:
            chosen = max(candidates, key=lambda entry: entry.age)
        else:  # in turn: an age is what others say
            chosen = min(candidates, key=lambda entry: self._asked_last.get(entry.peer.id, -1))
        self._shuffle_with(chosen.peer)

    def _shuffle_with(self, peer: Peer) -> None:
        mine = self._choose(peer.id)
        self._asked_last[peer.id] = self._shuffles
        self._asked[peer.id] = (self._shuffles, tuple(entry.peer.id for entry in mine))
        self.port.send(peer, Shuffle(*self._parts(mine)))

    def _choose(self, partner: NodeId) -> list[Neighbour]:
        """Some entries for the partner, at random, without the partner itself."""
        most, good = max(self._settings.shuffle - 1, 0), self._records.is_good
        if self._slots is None:
            others = [e for e in self._entries.values() if e.peer.id != partner and good(e)]
            return self.port.rng.sample(others, min(most, len(others)))
        heard = self._slots.heard
        nodes = [node for node in dict.fromkeys((*self._entries, *heard)) if node != partner]
        chosen: list[Neighbour] = []
        for node in self.port.rng.sample(nodes, min(2 * most, len(nodes))):
            entry = self._entries.get(node) or heard.entry(node, self._shuffles)
            if len(chosen) < most and good(entry):
                chosen.append(entry)
        return chosen

    def _parts(
        self, mine: list[Neighbour]
    ) -> tuple[tuple[Neighbour, ...], tuple[AccessPoint, ...], tuple[RingHint, ...]]:
        """The three parts of a Shuffle or ShuffleReply that carries these entries."""
        if not self._roles.takes_part(self.port.me.id):
            return (), (), ()
        myself = self.own_entry()
        points = self._access_points.sample(self._settings.gossiped)
        hints = map(self._records.hint, self._ring_hints.sample(self.port.rng))
        return (myself, *mine), points, tuple(filter(self._records.is_good_hint, hints))

    def _merge(
        self, sender: Peer, message: Shuffle | ShuffleReply, replaceable: list[NodeId]
    ) -> bool:
        """Take what an exchange brought; entries of `replaceable` may leave for it, in that order.
        Returns whether the view has more entries than before."""
        before = len(self._entries)
        for entry in message.neighbours:
            if self._records.is_good(entry):
                self._take(entry, replaceable, first_hand=entry.peer.id == sender.id)
            else:
                self.port.count("neighbours_refused")
        for point in message.access_points:
            self._access_points.learn(point, sender)
        for hint in message.rings:
            self._learn_ring(hint)
        return len(self._entries) > before

    def _take(self, entry: Neighbour, replaceable: list[NodeId], first_hand: bool = True) -> None:
        """Take an entry, if there is a place for it. `first_hand`: the node itself was heard."""
        who = entry.peer.id
        if who == self.port.me.id or self._tombstones.covers(who, entry.age, self._shuffles):
            return
        if not self._roles.takes_part(who):
            return
        self._tiered.learn(entry.peer)
        known = self._entries.get(who)
        if self._slots is not None:
            self._slots.heard.learn(entry, self._shuffles)
        if known is not None:
            if entry.age <= known.age:  # the younger entry has the newer address
                self._entries[who] = self._renewed(known, entry, first_hand)
            return
        if self._slots is not None:
            loser = self._slots.offer(entry.peer)
            if loser != who:
                self._entries.pop(loser, None)
                self._entries[who] = entry
            return
        if len(self._entries) >= self._settings.size:
            victim = self._victim(entry, replaceable)
            if victim is None:
                return
            if victim in replaceable:
                replaceable.remove(victim)
            del self._entries[victim]
        self._entries[who] = entry

    def _renewed(self, known: Neighbour, entry: Neighbour, first_hand: bool) -> Neighbour:
        """Return the entry to keep for a known node about which a new entry came."""
        record, other = known.record, entry.record
        if record is not None and (other is None or other.until < record.until):
            return msgspec.structs.replace(entry, peer=known.peer, record=record)
        if self._slots is not None and not first_hand and other is None:
            return msgspec.structs.replace(entry, peer=known.peer)
        return entry

    def _victim(self, entry: Neighbour, replaceable: list[NodeId]) -> NodeId | None:
        """Return the entry to replace by this one, or None: one of `replaceable` of the same kind
        (near or far). A kind that has less than its share takes a place of the other."""
        if not self.port.me.region:
            return next((node for node in replaceable if node in self._entries), None)
        kind = self._is_near(entry.peer)
        alike = [node for node, e in self._entries.items() if self._is_near(e.peer) is kind]
        others = self._entries.keys() - alike
        share = int(self._settings.size * (NEAR_SHARE if kind else FAR_SHARE))
        if others and len(alike) < max(share, 1):
            first = next((node for node in replaceable if node in others), None)
            return first or max(
                (node for node in self._entries if node in others),
                key=lambda node: self._entries[node].age,
            )
        return next((node for node in replaceable if node in alike), None)

    def _is_near(self, peer: Peer) -> bool:
        return bool(peer.region) and peer.region == self.port.me.region

    def _learn_ring(self, hint: RingHint) -> None:
        """Keep a hint and emit the newest one of its cluster, unless its primary is known to be
        dead."""
        who = hint.primary.id
        if not self._records.is_good_hint(hint):
            self.port.count("hints_refused")
            return
        if self._tombstones.covers(who, 0, self._shuffles) or self._roles.votes(who) is False:
            return
        newest = self._ring_hints.learn(hint)
        if newest is not None:
            self.port.emit(RingHintReceived(newest))

    def _set_timer(self) -> None:
        # A quarter to and fro at random keeps nodes that were started together out of step.
        self.port.set_timer(
            self._settings.period * (0.75 + self.port.rng.random() / 2), ShuffleDue()
        )

    # --- the links' events ---

    def on_link_up(self, event: LinkUp) -> None:
        """The peer is alive: it becomes a neighbour if there is room. With the first one an
        exchange begins at once."""
        self._tombstones.remove(event.peer.id)
        if self._roles.votes(event.peer.id) is False:
            self._ring_hints.forget_primary(event.peer.id)
        was_alone = self.is_alone
        self._take(Neighbour(event.peer, 0), [])
        if was_alone and event.peer.id in self._entries:
            self._shuffle_with(event.peer)

    def on_seed_reached(self, event: SeedReached) -> None:
        """Enter a node of the peer list, which has answered, into the view, in place of the oldest
        entry if the view is full, and begin an exchange with it."""
        self._tombstones.remove(event.peer.id)
        if event.peer.id == self.port.me.id:
            return
        by_age = sorted(self._entries.values(), key=lambda entry: -entry.age)
        self._take(Neighbour(event.peer, 0), [entry.peer.id for entry in by_age])
        if event.peer.id not in self._asked:
            self._shuffle_with(event.peer)

    def on_link_down(self, event: LinkDown) -> None:
        """Remove a peer from the view after contact with it failed. A peer that only reset the
        session stays, but requests to it may be lost."""
        if event.end is SessionEnd.RESET:
            self._asked.pop(event.peer.id, None)
        else:
            self._contact_failed(event.peer.id)

    def _contact_failed(self, peer_id: NodeId) -> None:
        self._tombstones.add(peer_id, self._shuffles)
        self._asked.pop(peer_id, None)
        self._entries.pop(peer_id, None)
        if self._slots is not None:
            self._slots.remove(peer_id)
            self._slots.heard.forget(peer_id)
        self._tiered.forget(peer_id)


def _check(message: Shuffle | ShuffleReply) -> None:
    """Raises ProtocolError for an exchange beyond all bounds."""
    parts = (message.neighbours, message.access_points, message.rings)
    if any(len(part) > MAX_EXCHANGED for part in parts):
        raise ProtocolError(f"a shuffle with more than {MAX_EXCHANGED} entries of a kind")
    ages = [entry.age for entry in message.neighbours] + [p.age for p in message.access_points]
    if any(age < 0 for age in ages):
        raise ProtocolError("a shuffle with an entry from the future")
