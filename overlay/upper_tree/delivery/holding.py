"""Deliveries to a node that is out of reach are held until it is back, within bounds (P3).

                   link lost, no relay reaches it              link up, or a relay reaches it
    sent directly ───────────────────────────────► held ──────────────────────────────► sent
                                                    │
                                                    └── bound reached, lease over, process ended:
                                                        given up, traced; the node is told

A node is *out of reach* when this node's link to it is lost and a relay could not reach it either,
or there is none (relays.py). From then on what is for it waits here (held_deliveries.py), but for
one message, the oldest: that goes over the link and by a relay in turn, and comes back as long as
the node is out of reach. So what is held costs no more messages than one, however much it is; when
the link comes up, or a relay gives nothing back, the rest follows in order.

Deliveries are held for the time of a lease at least, and then as long as the node has registrations
here: its owner ends those of a node that nobody hears. Beyond the bound the oldest are given up.
What is given up is written to the trace, an event at a time, counted, and told to the node before
what is held after it (gap_notices.py).

A delegate holds nothing: it gives back to the host at once what is for a node out of its reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from overlay.links.events import LinkUp
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.settings import TreeSettings
from overlay.upper_tree.delivery.constants import HOLD_CHECK, RELAY_TRIAL
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.held_deliveries import HeldDeliveries, HeldNode, split
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.messages import DelegateShare, Deliver, Undelivered

BOUND = "no room to hold it for a node out of reach"
LEASE = "its node was out of reach for longer than its lease"
LEAVES = "the node that held it leaves, and knows no other one"


class HoldDue(Timer, frozen=True):
    """Look after what is held."""


class Holding(Machine):
    """Holds what is for nodes out of reach."""

    def __init__(
        self,
        port: Port,
        settings: TreeSettings,
        relays: Relays,
        notices: GapNotices,
        is_registered: Callable[[NodeId], bool],
    ) -> None:
        """`relays` and `notices`: of this node; `is_registered`: whether a node has registrations
        here."""
        super().__init__(port)
        self.relays = relays
        self.notices = notices
        self.held = HeldDeliveries(settings.held, settings.held_events)
        self._lease = settings.lease
        self._is_registered = is_registered
        self._is_leaving = False
        self._alarm = Alarm(port, HoldDue())

    # --- asked by those who deliver ---

    def holds(self, node: NodeId) -> bool:
        """Whether what is for this node is held now."""
        return node in self.held

    def send(self, peer: Peer, message: Deliver) -> None:
        """Send a delivery, or hold it. What is held has no share for a delegate (`onward`)."""
        held = self.held.find(peer.id)
        if held is None:
            self.port.send(peer, message)
        elif message.host is not None:
            self.give_back(message.host, peer, split(message))
        else:
            self.port.count("deliveries_held", len(message.events))
            self.held.append(held, message)
            self._respect_bound()

    def give_back(self, host: Peer, peer: Peer, messages: Iterable[Deliver]) -> None:
        """Hand the host what this node, its delegate or relay, cannot bring to `peer`."""
        for each in messages:
            undelivered = Undelivered(each.attribute, each.interval, each.hop, each.events, peer)
            self.port.send(host, undelivered)

    def relay(self, relay: Peer, peer: Peer, message: Deliver) -> None:
        """Send a delivery through a relay."""
        for each in split(message):
            self.port.count("deliveries_relayed", len(each.events))
            share = DelegateShare(each.attribute, each.interval, (peer,))
            onward = ((share,),) * len(each.events)
            self.port.send(relay, msgspec.structs.replace(each, onward=onward))

    def put_back(self, peer: Peer, messages: Sequence[Deliver]) -> None:
        """These deliveries, in order, did not reach the node: it is out of reach."""
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
        self.held.put_back(held, messages)
        self._respect_bound()
        self._try(held)

    def link_lost(self, peer: Peer) -> None:
        """This node's link to another one is lost, and what waited there was named."""
        for held in self.held.all():
            attempt = held.attempt
            if attempt is not None and (attempt.relay or held.peer).id == peer.id:
                held.came_back()

    def process_ended(self, peer: Peer, messages: Iterable[Deliver]) -> None:
        """The node's process is gone, and with it the programs that these deliveries, and those
        that are held, were for."""
        held = self.held.find(peer.id)
        for message in (*messages, *(() if held is None else self.held.forget(held))):
            self.port.count("deliveries_to_ended", len(message.events))

    def node_left(self, peer: Peer) -> None:
        """The node has left in order: its subscriptions have ended."""
        if (held := self.held.find(peer.id)) is not None:
            self.held.forget(held)

    def leave(self) -> None:
        """This node leaves: hand over what is held, now and from now on."""
        self._is_leaving = True
        for held in self.held.all():
            self._hand_over(held.peer, self.held.forget(held))

    def _hand_over(self, peer: Peer, messages: Sequence[Deliver]) -> None:
        """Let another node, which it may reach, deliver or hold this in the place of this one."""
        other = self.relays.relay(peer.id)
        if other is None:
            self._drop(peer, messages, LEAVES)
        else:
            self.port.count("deliveries_handed_over", sum([len(m.events) for m in messages]))
            for message in messages:
                self.give_back(other, peer, split(message))

    def _add(self, peer: Peer) -> HeldNode:
        if not self.held.has_room:
            self._give_up_all(self.held.all()[0], BOUND)
        self._alarm.within(HOLD_CHECK)
        return self.held.add(peer, self.relays.lost_since(peer.id))

    def _is_over(self, node: NodeId, since: float) -> bool:
        """Whether nothing is to be held any more for a node that is out of reach since then."""
        return self.port.now - since > self._lease and not self._is_registered(node)

    # --- giving up ---

    def _respect_bound(self) -> None:
        for held, message in self.held.excess():
            self._give_up(held.peer, (message,), BOUND)

    def _give_up_all(self, held: HeldNode, reason: str) -> None:
        """Hold nothing more for a node."""
        self._give_up(held.peer, self.held.forget(held), reason)

    def _give_up(self, peer: Peer, messages: Iterable[Deliver], reason: str) -> None:
        """Drop what was held, and let the node know of it."""
        for message in self._drop(peer, messages, reason):
            self.notices.given_up(peer, message.events, reason)

    def _drop(self, peer: Peer, messages: Iterable[Deliver], reason: str) -> list[Deliver]:
        dropped = [message for message in messages if message.events]
        for message in dropped:
            self.port.count("deliveries_lost", len(message.events))
            for event in self.port.sampled(message.events):
                self.port.trace(
                    "drop", event=event.identity, peer=peer.id, reason=reason,
                    size=len(event.payload),
                )  # fmt: skip
        return dropped

    # --- trying ---

    def on_hold_due(self, timer: HoldDue) -> None:
        """Give up what was held for too long; try nodes for which nothing is on its way."""
        self._alarm.rang()
        now = self.port.now
        for held in self.held.all():
            attempt, node = held.attempt, held.peer.id
            if self._is_over(node, held.since):
                self._give_up_all(held, LEASE)
            elif attempt is None:
                self._try(held)
            elif attempt.relay is not None and now - held.tried_at > RELAY_TRIAL:
                self._reached_by(held, attempt.relay)
        if self.held:
            self._alarm.within(HOLD_CHECK)

    def _try(self, held: HeldNode) -> None:
        """Send the oldest message, over the link or by a relay in turn."""
        now, peer = self.port.now, held.peer
        if now - held.tried_at < HOLD_CHECK:
            return
        if not held.messages:
            self.held.forget(held)
            return
        message = self.held.take(held)
        relay = None
        if not message.registrations and not held.went_by_relay:
            relay = self.relays.relay(peer.id)
        held.tries(relay, now)
        if relay is None:
            self.port.send(peer, message)
        else:
            self.relay(relay, peer, message)

    def on_link_up(self, event: LinkUp) -> None:
        """The node is back: all that is held follows."""
        held = self.held.find(event.peer.id)
        if held is not None:
            for message in self.held.forget(held):
                self.port.send(event.peer, message)

    def _reached_by(self, held: HeldNode, relay: Peer) -> None:
        """A relay has not given back what it was to bring: the rest follows it."""
        self.relays.relay_reaches(held.peer.id, relay.id)
        for message in self.held.forget(held):
            self.relay(relay, held.peer, message)
