"""Delegates, and deliveries that their link does not carry (C11, P3).

    host ── Deliver(onward) ──► delegate ── Deliver(host) ──► interested node
                                   └────── Undelivered ─────► host ── Deliver ──► interested node

A delivery through a delegate is as reliable as a direct one. When a delegate is lost before it has
acknowledged (the link's own acknowledgement, which follows the delegate's turn), the sender spreads
the delegate's share again. What a delegate cannot deliver it gives back to the host, which sends it
itself, as it would have done at first. A link can be broken while both its ends live (P3): what the
host cannot deliver goes to a *relay*, any other node, as if that were a delegate. If the relay
cannot reach the node either, the host holds what is for it until one of them does (hold.py),
unless the node's process has ended, or another node has its address. The interested node removes
what comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from overlay.links.events import (
    TOO_LARGE,
    LinkDown,
    LinkRecovered,
    LinkSuspected,
    LinkUp,
    MessageDropped,
    SessionEnd,
)
from overlay.machine import LocalEvent, Machine, Message, Peer, Port
from overlay.upper_tree.delivery.deliveries import Deliveries
from overlay.upper_tree.delivery.fan_out import CopyBudget, recipients_of
from overlay.upper_tree.delivery.held_deliveries import split_by_tree
from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.delivery.relays import keys_of, take_copied
from overlay.upper_tree.messages import Deliver, Undelivered


class Delegated(LocalEvent, frozen=True):
    """Events came that this node has to pass on to others."""

    sender: Peer
    message: Deliver


class Delegation(Machine):
    """Passes on what this node is a delegate for, and saves deliveries whose link is lost."""

    def __init__(self, port: Port, copies: CopyBudget, holding: Holding) -> None:
        """`copies`: the node's budget, also as a host. `holding`: the deliveries that it holds for
        unreachable nodes."""
        super().__init__(port)
        self.copies = copies
        self.holding = holding
        self.relays = holding.relays

    def on_delegated(self, event: Delegated) -> None:
        """Pass the events on to the rest of the interested nodes."""
        message = event.message
        self._pass_on(message, message.hop, message.host or event.sender)

    def on_undelivered(self, sender: Peer, message: Undelivered) -> None:
        """A delegate or relay could not reach a node: send it from here, or hold it if the link
        from here is lost as well."""
        self.port.count("deliveries_given_back", len(message.events))
        events = tuple(self.relays.take_back(message))
        if not events:
            return
        node = message.peer.id
        self.relays.gave_back(node, sender.id)
        self.copies.add(events)
        again = Deliver(
            message.attribute,
            message.interval,
            message.hop + 1,
            events,
            life=message.life,
            token=message.token,
        )
        if self.relays.is_lost(node) or self.holding.holds(node):
            self.holding.put_back(message.peer, (again,))
        else:
            self.port.send(message.peer, again)

    def on_link_suspected(self, event: LinkSuspected) -> None:
        """Send the messages that wait on a suspected link through a relay as well, unless they are
        known to wait because of congestion."""
        node = event.peer.id
        if self.holding.is_congested(node):
            return
        for message in deliveries_of(event.unacknowledged):
            if message.registrations:
                continue
            relay = self.relays.relay(node, event.peer.region)
            if message.host is None and relay is None:
                continue
            if self.relays.copy(event.peer, message):
                self._go_around(event.peer, message, relay)

    def on_link_recovered(self, event: LinkRecovered) -> None:
        """The peer acknowledges again: what waits there needs no relay."""
        self.relays.link_recovered(event.peer.id)

    def on_message_dropped(self, event: MessageDropped) -> None:
        """Handle that a link had no room for a message. This node still owes it to the receiver, or
        to others through the receiver."""
        message = event.message
        if isinstance(message, Undelivered):
            self.on_undelivered(self.port.me, message)
        elif isinstance(message, Deliver):
            for part in split_by_tree(message):
                if part.onward:
                    self._spread_again(part)
                if part.passing:
                    continue
                if part.host is not None:
                    self.holding.give_back(part.host, event.peer, (part,))
                else:
                    kept = msgspec.structs.replace(part, onward=())
                    self.holding.not_sent(event.peer, kept, event.reason != TOO_LARGE)

    def on_link_down(self, event: LinkDown) -> None:
        """Spread the lost node's share as a delegate again. Deliveries for the node itself are
        given back to the host, if this node is a delegate. If it is the host, they are sent again
        to a node that began again, and otherwise relayed or held. Deliveries relayed since the link
        fell silent are left to the relay."""
        peer = event.peer
        copied, is_stalled = self.relays.copied(peer.id), self.relays.is_stalled(peer.id)
        is_gone = event.left or event.end is SessionEnd.GONE
        is_lost = event.end is SessionEnd.UNREACHABLE and not is_gone
        if is_lost:
            self.relays.link_lost(peer.id)
        else:
            self.relays.forget(peer.id)
        self.holding.link_lost(peer)
        for message in event.lost:
            if isinstance(message, Undelivered):
                self._return_again(peer, message, is_gone)
        mine: list[Deliver] = []
        for message in deliveries_of(event.lost):
            if message.events and take_copied(copied, keys_of(message)):
                continue
            if message.onward:
                self._spread_again(message)
            if message.passing:
                continue
            if message.host is None:
                mine.append(msgspec.structs.replace(message, onward=()))
            elif not event.left:
                self.holding.give_back(message.host, peer, (message,))
        if is_gone:
            self.holding.process_ended(peer, mine)
        elif is_lost:
            self._bring_otherwise(peer, mine, is_stalled)
        else:
            for message in mine:
                self.port.count("deliveries_sent_again", len(message.events))
                self.copies.add(message.events)
                self.port.send(peer, message)

    def _bring_otherwise(self, peer: Peer, messages: Sequence[Deliver], is_stalled: bool) -> None:
        """Send deliveries by a relay, since the link to their node is lost; or hold them if no
        relay is left, or one has failed already (`is_stalled`)."""
        to_hold: list[Deliver] = []
        is_held = is_stalled or self.holding.holds(peer.id)
        for message in messages:
            relay = None
            if not is_held and not message.registrations:
                relay = self.relays.relay(peer.id, peer.region)
            if relay is None:
                to_hold.append(message)
            else:
                self.copies.add(message.events)
                self.holding.relay(relay, peer, message)
        if to_hold:
            self.holding.put_back(peer, to_hold)

    def _return_again(self, host: Peer, message: Undelivered, gone: bool) -> None:
        """Report again to a host that this node could not deliver. If the host is gone this node
        takes its place."""
        if gone or not self.relays.is_worth_retrying(host.id):
            self.on_undelivered(self.port.me, message)
        else:
            self.port.send(host, message)

    def _go_around(self, to: Peer, message: Deliver, relay: Peer | None) -> None:
        """Avoid a silent link: the node's share as a delegate is spread again, and what is for the
        node itself goes back to the host, if this node is a delegate, else to a relay. A delegate
        behind a border of the host's takes a relay, too, rather than cross it twice (M1); what such
        a relay cannot bring it gives back to the host."""
        if message.onward:
            self._spread_again(message)
        if message.passing:
            return
        host = message.host
        if host is not None and not (relay and self.relays.is_nearer(relay, host, to)):
            self.holding.give_back(host, to, (message,))
        elif relay is not None:
            self.copies.add(message.events)
            self.holding.relay(relay, to, msgspec.structs.replace(message, onward=()))

    def _spread_again(self, message: Deliver) -> None:
        self.port.count("deliveries_spread_again", len(message.events))
        self._pass_on(message, message.hop - 1, message.host, traced=False)

    def on_link_up(self, event: LinkUp) -> None:
        """The peer is reached again: deliveries to it need no relay."""
        self.relays.forget(event.peer.id)

    def _pass_on(self, message: Deliver, hop: int, host: Peer | None, traced: bool = True) -> None:
        deliveries = Deliveries(self.port, self.copies, self.holding, hop, host, message.before)
        for event, shares in zip(message.events, message.onward, strict=True):
            deliveries.spread(event, recipients_of(shares))
        deliveries.send(traced)


def deliveries_of(messages: Iterable[Message]) -> list[Deliver]:
    """The `Deliver` messages among these, split so that each is of one tree."""
    return [one for each in messages if isinstance(each, Deliver) for one in split_by_tree(each)]
