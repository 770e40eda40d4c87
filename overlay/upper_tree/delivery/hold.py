"""Deliveries that a node cannot take now are held until it can, within bounds (P3).

                  link lost, a relay failed                  link up, or a relay reaches it
    sent directly ──────────────────────────► held: lost ────────────────────────────┐
          ▲  │                                   │                                     ▼
          │  └── too much waits on the link ─────┼──► held: congested ◄────────────► held: open
          │                                      ▼            │      link relieved     │
          │                           given up: traced; ◄─────┘                        │
          │                            a notice to the node                            │
          └────────────────────────────────────────────────────────── all is sent ─────┘

A node is *out of reach* when this node's link to it is lost and a relay could not reach it either,
or there is none (relays.py). From then on what is for it waits here (held_deliveries.py), but for
one message, the oldest: that goes over the link and by a relay in turn, and comes back as long as
the node is out of reach. So what is held costs no more messages than one, however much it is; when
the link comes up, or a relay gives nothing back, the rest follows in order, a piece at a time.

Deliveries are held for the time of a lease at least, and then as long as the node has registrations
here: its owner ends those of a node that does not renew them. Beyond the bound the oldest are given
up. What is given up is written to the trace, an event at a time, and counted; the node gets a
notice of it before what is held after it (gap_notices.py).

A node in reach may take its deliveries more slowly than they come. Where its link is *congested*
(links/constants.py) the rest waits here in the same way. Meanwhile this host *holds back* what it
is to match (host/visit_scheduler.py): publishers are not answered, and slow down. A link that
carries next to nothing does not slow others for long (`HOLD_BACK_MOST`); what is for its node is
held, and given up beyond the bound.

A delegate holds nothing: it gives back to the host at once what is for a node out of its reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Protocol

import msgspec

from overlay.bounded import BoundedDict
from overlay.links.constants import CONGESTED_SHARE, RELIEVED_SHARE
from overlay.links.events import LinkCongested, LinkRelieved, LinkUp
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.regions import entered
from overlay.settings import Settings
from overlay.upper_tree.delivery.constants import (
    GIVEN_UP_AT_ONCE,
    HOLD_BACK_MOST,
    HOLD_CHECK,
    PIECE_PAUSE,
    RELAY_TRIAL,
    WEIGHED_MOST,
)
from overlay.upper_tree.delivery.fan_out import Part, Recipient
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.held_deliveries import (
    HeldDeliveries,
    HeldNode,
    Reach,
    split_by_tree,
)
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.messages import DelegateShare, Deliver, Undelivered

# --- how an event enters another region: once, at an access node there (M1) ---
#
#     host ──► d (near) ──► …
#     ├──► a in eu ──► e1, e2 …
#     └──► b in us ──► u1 ──► …
#
# A node groups the recipients of an event by the border that the event has to cross on its way to
# them (overlay/regions.py). One node behind each border, the *access node*, gets the event with all
# the others there as its share, as a delegate does. It may have borders of its own to cross, into
# the parts of its region.
#
# The access node is one of the highest tier among the recipients there, or one of a still higher
# tier of which this node has heard, interested or not. Among equals it is the first by rendezvous
# hashing: for one sender the same as long as it is among them, so that few links cross the border,
# and another one for another sender. Nodes whose link is silent or lost are passed over. While
# links to nodes behind a border are silent more access nodes are taken, one for each of these:
# where a whole region is cut off the sender finds that out in some steps instead of one node after
# the other.


class AccessNodes:
    """One node's choice of access nodes."""

    def __init__(self, port: Port, relays: Relays) -> None:
        """`relays`: which nodes are out of reach, and which have a tier."""
        self._port = port
        self._relays = relays
        self._weights: BoundedDict[NodeId, bytes] = BoundedDict(WEIGHED_MOST)

    def joins(self, peers: Iterable[Peer]) -> bool:
        """Whether an event for all of these would cross some border for two of them."""
        mine = self._port.me.region
        crossed = [region for each in peers if (region := entered(mine, each.region))]
        return len(crossed) > len(dict.fromkeys(crossed))

    def divide(
        self, recipients: Sequence[Recipient]
    ) -> tuple[list[Recipient], list[Part[Recipient]]]:
        """The recipients that no border divides from this node; and of the others, for each border,
        an access node with the rest as its share."""
        mine = self._port.me.region
        near: list[Recipient] = []
        behind: dict[str, list[Recipient]] = {}
        for each in recipients:
            region = entered(mine, each.peer.region)
            (behind.setdefault(region, []) if region else near).append(each)
        far: list[Part[Recipient]] = []
        for region, some in behind.items():
            far += [(some[0], ())] if len(some) == 1 else self._enter(region, some)
        return near, far

    def _enter(self, region: str, recipients: list[Recipient]) -> list[Part[Recipient]]:
        """Access nodes for these recipients, all of whom are in `region`."""
        chosen = sorted([*recipients, *self._others(region, recipients)], key=self._rank)
        chosen = chosen[: 1 + sum(map(partial(self._is_in, region), self._relays.suspected()))]
        ids = {each.peer.id for each in chosen}
        rest = [each for each in recipients if each.peer.id not in ids]
        return [(each, tuple(rest[n :: len(chosen)])) for n, each in enumerate(chosen)]

    def _others(self, region: str, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Nodes in `region` with a higher tier than any of these recipients."""
        highest, first = max(each.peer.tier for each in recipients), recipients[0]
        return [
            Recipient(peer, first.attribute, first.interval)
            for peer in self._relays.tiered()
            if peer.tier > highest
            and self._is_in(region, peer)
            and not self._relays.is_silent(peer.id)
        ]

    def _is_in(self, region: str, peer: Peer) -> bool:
        return entered(self._port.me.region, peer.region) == region

    def _rank(self, recipient: Recipient) -> tuple[bool, bool, int, bytes]:
        peer, relays = recipient.peer, self._relays
        lacks = not relays.has_standing(peer.id)
        return relays.is_silent(peer.id), lacks, -peer.tier, self._weight(peer.id)

    def _weight(self, node: NodeId) -> bytes:
        """Return the weight of a node in rendezvous hashing for this sender."""
        weight = self._weights.get(node)
        if weight is None:
            weight = blake2b(f"{self._port.me.id} {node}".encode(), digest_size=8).digest()
            self._weights[node] = weight
        return weight


BOUND = "its node was out of reach, or slow, and there was no room to hold more"
LEASE = "its node was out of reach for longer than its lease"
TOO_LARGE = "it is too large for a link"
ENDED = "its node's process ended before it came there"
LEAVES = "the node that held it leaves, and knows no other one"


class HoldDue(Timer, frozen=True):
    """Fires when unreachable nodes are to be tried again, and deliveries that were held too long
    given up."""


class RegisteredNodes(Protocol):
    """A host's knowledge of nodes by their registrations."""

    def has_registrations(self, node: NodeId) -> bool:
        """Whether a node has registrations here."""

    def life_of(self, node: NodeId) -> int:
        """The newest incarnation of a node that has had registrations here, 0 if it is not
        known."""


class Holding(Machine):
    """Holds deliveries for unreachable nodes."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        relays: Relays,
        notices: GapNotices,
        registered: RegisteredNodes,
    ) -> None:
        """`relays` and `notices`: of this node."""
        super().__init__(port)
        self.relays = relays
        self.access = AccessNodes(port, relays)
        """The nodes by which deliveries enter other regions."""
        self.notices = notices
        self.held = HeldDeliveries(settings.tree.held, settings.tree.held_events)
        self._lease = settings.tree.lease
        self._piece = settings.links.queue // (CONGESTED_SHARE * RELIEVED_SHARE)
        """Bytes that are sent in one turn: as many as a congested link sends to be relieved."""
        self.registered = registered
        self._congested: dict[NodeId, float] = {}  # links, and when they drained last
        self._is_leaving = False
        self._alarm = Alarm(port, HoldDue())

    # --- asked by those who deliver ---

    def holds(self, node: NodeId) -> bool:
        """Return whether deliveries for this node are held now."""
        return node in self.held

    def is_congested(self, node: NodeId) -> bool:
        """Whether more comes for this node than its link carries."""
        return node in self._congested

    def send(self, peer: Peer, message: Deliver) -> None:
        """Send a delivery, or hold it. A held delivery has no share for a delegate (`onward`)."""
        held = self.held.find(peer.id)
        if held is None:
            self.port.send(peer, message)
        elif message.host is None:
            self.port.count("deliveries_held", len(message.events))
            self.held.append(held, message, self.port.now)
            self._respect_bound()
        elif held.reach is Reach.LOST:
            self.give_back(message.host, peer, split_by_tree(message))
        else:
            self.port.send(peer, message)

    def give_back(self, host: Peer, peer: Peer, messages: Iterable[Deliver]) -> None:
        """Hand the host what this node, its delegate or relay, cannot bring to `peer`."""
        for each in messages:
            undelivered = Undelivered(
                each.attribute,
                each.interval,
                each.hop,
                each.events,
                peer,
                each.life,
                each.token,
            )
            self.port.send(host, undelivered)

    def relay(self, relay: Peer, peer: Peer, message: Deliver) -> None:
        """Send a delivery through a relay."""
        for each in split_by_tree(message):
            self.port.count("deliveries_relayed", len(each.events))
            tokens = (each.token,) if each.token else ()
            share = DelegateShare(each.attribute, each.interval, (peer,), (), (each.life,), tokens)
            onward = ((share,),) * len(each.events)
            passing = msgspec.structs.replace(
                each, onward=onward, life=0, held=0, passing=True, token=b""
            )
            self.port.send(relay, passing)

    def put_back(self, peer: Peer, messages: Sequence[Deliver]) -> None:
        """Hold deliveries, in order, that did not reach their node, which is out of reach."""
        if self._is_leaving:
            self._hand_over(peer, messages)
            return
        held = self.held.find(peer.id)
        if held is None:
            if self._is_over(peer.id, self.relays.lost_since(peer.id)):
                self._give_up(peer, messages, LEASE)
                return
            held = self._add(peer)
            self.port.count("deliveries_held", sum([len(each.events) for each in messages]))
        held.came_back()
        self.held.put_back(held, messages, self.port.now)
        self._respect_bound()
        if held.reach is Reach.LOST:
            self._try(held)

    def link_lost(self, peer: Peer) -> None:
        """Handle that this node's link to another one is lost, after the messages waiting on it
        were named."""
        for held in self.held.all():
            attempt = held.attempt
            if held.peer.id == peer.id:
                self._congested.pop(peer.id, None)
                held.turns(Reach.LOST, self.port.now)
            if attempt is not None and (attempt.relay or held.peer).id == peer.id:
                held.came_back()

    def not_sent(self, peer: Peer, message: Deliver, can_be_sent: bool) -> None:
        """Handle a delivery that found no room on the link, or that can never be sent."""
        if not can_be_sent:
            self._give_up(peer, (message,), TOO_LARGE)
            return
        if self._is_leaving:
            self._hand_over(peer, (message,))
            return
        self.port.count("deliveries_held", len(message.events))
        held = self.held.find(peer.id) or self._add(peer)
        self.held.append(held, message, self.port.now)
        self._respect_bound()

    @property
    def holds_back(self) -> bool:
        """Whether a node's link carries less than comes for it, so that publishers should slow
        down."""
        if not self._congested:
            return False
        return self.port.now - max(self._congested.values()) < HOLD_BACK_MOST

    def process_ended(self, peer: Peer, messages: Iterable[Deliver]) -> None:
        """Send a notice in place of these deliveries and of the held ones, whose subscriptions are
        gone with the node's process. The programs may be at the node's next process soon, which
        gets the notice."""
        held = self.held.find(peer.id)
        self._to_ended(peer, (*messages, *(() if held is None else self.held.forget(held))))

    def _to_ended(self, peer: Peer, messages: Iterable[Deliver]) -> None:
        for message in messages:
            if message.events:
                self.port.count("deliveries_to_ended", len(message.events))
                self.notices.given_up(peer, message.events, ENDED)

    def leave(self) -> None:
        """Hand over the held deliveries and the waiting notices, now and from now on, because this
        node leaves."""
        self._is_leaving = True
        self.notices.leave(self.relays)
        for held in self.held.all():
            self._hand_over(held.peer, self.held.forget(held))

    def _hand_over(self, peer: Peer, messages: Sequence[Deliver]) -> None:
        """Give deliveries for `peer` to another node, which delivers or holds them in place of this
        one. Drops them if there is no such node."""
        other = self.relays.stand_in(peer)
        if other is None:
            self._drop(peer, messages, LEAVES)
        else:
            self.port.count("deliveries_handed_over", sum([len(m.events) for m in messages]))
            for message in messages:
                self.give_back(other, peer, split_by_tree(message))

    def _add(self, peer: Peer) -> HeldNode:
        if not self.held.has_room:
            first = self.held.all()[0]
            self._give_up(first.peer, self.held.forget(first), BOUND)
        self._alarm.within(HOLD_CHECK)
        return self.held.add(peer, self.relays.lost_since(peer.id))

    def _is_over(self, node: NodeId, since: float) -> bool:
        """Whether nothing is to be held any more for a node that is out of reach since then."""
        return self.port.now - since > self._lease and not self.registered.has_registrations(node)

    # --- giving up ---

    def _respect_bound(self) -> None:
        for held, message in self.held.excess(self.port.now):
            self._give_up(held.peer, (message,), BOUND)

    def _give_up(self, peer: Peer, messages: Iterable[Deliver], reason: str) -> None:
        """Drop held deliveries, and notify the node."""
        for message in self._drop(peer, messages, reason):
            self.notices.given_up(peer, message.events, reason)

    def _drop(self, peer: Peer, messages: Iterable[Deliver], reason: str) -> list[Deliver]:
        dropped = [message for message in messages if message.events]
        for message in dropped:
            self.port.count("deliveries_lost", len(message.events))
            for event in self.port.sampled(message.events):
                self.port.trace(
                    "drop",
                    event=event.identity,
                    peer=peer.id,
                    reason=reason,
                    size=len(event.payload),
                )
        return dropped

    # --- trying ---

    def on_hold_due(self, timer: HoldDue) -> None:
        """Give up deliveries that were held too long; try nodes for which none is on its way; send
        the next piece to reachable nodes."""
        self._alarm.rang()
        over: list[HeldNode] = []
        for held in self.held.all():
            if held.reach is Reach.OPEN:
                self._send_piece(held)
            elif held.reach is Reach.LOST and self._is_over(held.peer.id, held.since):
                over.append(held)
            elif held.reach is Reach.LOST:
                self._look_after(held)
        self._give_up_some(over)
        if self.held:
            self._alarm.within(HOLD_CHECK)

    def _give_up_some(self, over: Iterable[HeldNode]) -> None:
        """Give up deliveries held for these nodes, as many as a turn may; the rest follows at
        once."""
        left = GIVEN_UP_AT_ONCE
        for held in over:
            some: list[Deliver] = []
            while held.messages and left > 0:
                some.append(self.held.take(held, self.port.now))
                left -= len(some[-1].events)
            self._give_up(held.peer, some, LEASE)
            if held.messages:
                self._alarm.within(0.0)
                return
            self.held.forget(held)

    def _look_after(self, held: HeldNode) -> None:
        """Check whether a node is still out of reach."""
        attempt, waited = held.attempt, self.port.now - held.tried_at
        if attempt is None:
            self._try(held)
        elif attempt.relay is None:
            if waited > HOLD_CHECK and not self.relays.is_lost(held.peer.id):
                self._open(held)
        elif waited > RELAY_TRIAL:
            self._reached_by(held, attempt.relay)

    def _try(self, held: HeldNode) -> None:
        """Send the oldest message, over the link or by a relay in turn."""
        now, peer = self.port.now, held.peer
        if now - held.tried_at < HOLD_CHECK:
            return
        if not held.messages:
            self.held.forget(held)
            return
        message = self.held.take(held, now)
        relay = None
        if not message.registrations and not held.went_by_relay:
            relay = self.relays.relay(peer.id, peer.region)
        held.tries(relay, now)
        if relay is None:
            self.port.send(peer, message)
        else:
            self.relay(relay, peer, message)

    def on_link_up(self, event: LinkUp) -> None:
        """Send the held deliveries to a node that is back, except those for an earlier process."""
        held = self.held.find(event.peer.id)
        if held is not None:
            self._to_ended(event.peer, self.held.take_earlier(held, event.incarnation))
            self._open(held)

    def on_link_congested(self, event: LinkCongested) -> None:
        """Hold deliveries for the node from now on."""
        if event.peer.id == self.port.me.id or self._is_leaving:
            return
        held = self.held.find(event.peer.id) or self._add(event.peer)
        self._congested[event.peer.id] = self.port.now
        held.turns(Reach.CONGESTED, self.port.now)

    def on_link_relieved(self, event: LinkRelieved) -> None:
        """Begin to send the deliveries that were held because of congestion: the link has room
        again."""
        self._congested.pop(event.peer.id, None)
        held = self.held.find(event.peer.id)
        if held is not None and held.reach is Reach.CONGESTED:
            self._open(held)

    def _open(self, held: HeldNode) -> None:
        held.turns(Reach.OPEN, self.port.now)
        self._send_piece(held)

    def _send_piece(self, held: HeldNode) -> None:
        """Send a piece of the held deliveries. If it is too much for the link, the link reports
        that."""
        self.notices.notify(held.peer)
        least = held.bytes - self._piece
        while held.messages and held.bytes > least:
            self.port.send(held.peer, self.held.take(held, self.port.now))
        if held.messages:
            self._alarm.within(PIECE_PAUSE)
        else:
            self.held.forget(held)

    def _reached_by(self, held: HeldNode, relay: Peer) -> None:
        """Send the other deliveries by a relay that has not given back its first one."""
        self.relays.relay_reaches(held.peer.id, relay.id)
        for message in self.held.forget(held):
            self.relay(relay, held.peer, message)
