"""What delegates do, and what becomes of deliveries that their link does not carry (C11, P3).

    host ── Deliver(onward) ──► delegate ── Deliver(host) ──► interested node
                                   └────── Undelivered ─────► host ── Deliver ──► interested node

A delivery through a delegate is as reliable as a direct one. When a delegate is lost before it has
acknowledged (the link's own acknowledgement, which follows the delegate's turn), the sender spreads
the delegate's share anew. What a delegate cannot deliver it gives back to the host, which sends it
itself, as it would have done at first. A link can be broken while both its ends live (P3): what the
host cannot deliver goes to a *relay*, any other node, as if that were a delegate. If the relay
cannot reach the node either, the host tries again itself, for some time (relays.py); it gives up at
once where the node's process has ended, or another node has its address. The interested node
removes what comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp, SessionEnd
from overlay.machine import LocalEvent, Machine, Message, Peer, Port
from overlay.upper_tree.delivery.deliveries import Deliveries, Recipient, recipients_of, split
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.relays import Relays, keys_of, take_copied
from overlay.upper_tree.messages import DelegateShare, Deliver, Undelivered


class Delegated(LocalEvent, frozen=True):
    """Events came that this node has to pass on to others."""

    sender: Peer
    message: Deliver


class Delegation(Machine):
    """Passes on what this node is a delegate for, and saves deliveries whose link is lost."""

    def __init__(
        self, port: Port, copies: CopyBudget, others: Callable[[], Sequence[Peer]] = tuple
    ) -> None:
        """`copies`: the node's budget, also as a host; `others`: nodes that may relay around a
        broken link."""
        super().__init__(port)
        self.copies = copies
        self.relays = Relays(port, others)

    def on_delegated(self, event: Delegated) -> None:
        """Pass the events on to the rest of the interested nodes."""
        message = event.message
        self._pass_on(message, message.hop, message.host or event.sender)

    def on_undelivered(self, sender: Peer, message: Undelivered) -> None:
        """A delegate or relay could not reach a node: send it from here, unless several could not
        reach it for long."""
        self.port.count("deliveries_given_back", len(message.events))
        events = self.relays.take_back(message)
        if not events:
            return
        if not self.relays.gave_back(message.peer.id, sender.id):
            self.port.count("deliveries_lost", len(events))
            return
        deliveries = Deliveries(self.port, self.copies, message.hop)
        self.copies.spend(events)
        for event in events:
            deliveries.add(Recipient(message.peer, message.attribute, message.interval), event)
        deliveries.send(traced=False)

    def on_link_suspected(self, event: LinkSuspected) -> None:
        """What waits there is sent through a relay as well."""
        node = event.peer.id
        for message in deliveries_of(event.unacknowledged):
            if message.registrations:
                continue
            relay = self.relays.relay(node)
            if message.host is None and relay is None:
                continue
            if self.relays.copy(node, message):
                self._go_around(event.peer, message, relay)

    def on_link_recovered(self, event: LinkRecovered) -> None:
        """The peer acknowledges again: what waits there needs no relay."""
        self.relays.link_recovered(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """The lost node's share as a delegate is spread anew. What was for the node itself is given
        back to the host, if this node is a delegate, and is relayed or sent again, if it is the
        host. What was relayed since the link fell silent is left to the relay."""
        deliveries = deliveries_of(event.lost)
        returns = [message for message in event.lost if isinstance(message, Undelivered)]
        copied = self.relays.copied(event.peer.id)
        gone = event.left or event.end is SessionEnd.GONE
        if event.end is SessionEnd.UNREACHABLE and not gone:
            self.relays.link_lost(event.peer.id)
        else:
            self.relays.forget(event.peer.id)
        for returned in returns:
            self._return_again(event.peer, returned, gone)
        for message in deliveries:
            if message.events and take_copied(copied, keys_of(message)):
                continue
            relay = None
            if event.end is SessionEnd.UNREACHABLE and not gone and not message.registrations:
                relay = self.relays.relay(event.peer.id)
            if relay is not None or message.host is not None:
                self._go_around(event.peer, message, relay, event.left)
                continue
            if message.onward:
                self._spread_anew(message)
            if event.left:
                continue
            if not gone and self.relays.is_worth_retrying(event.peer.id):
                self.port.count("deliveries_sent_again", len(message.events))
                self.copies.spend(message.events)
                self.port.send(event.peer, msgspec.structs.replace(message, onward=()))
            else:
                self.port.count(
                    "deliveries_to_ended" if gone else "deliveries_lost", len(message.events)
                )

    def _return_again(self, host: Peer, message: Undelivered, gone: bool) -> None:
        """A host did not hear that this node could not deliver. If it is gone this node takes its
        place."""
        if gone or not self.relays.is_worth_retrying(host.id):
            self.on_undelivered(self.port.me, message)
        else:
            self.port.send(host, message)

    def _go_around(
        self, to: Peer, message: Deliver, relay: Peer | None, has_left: bool = False
    ) -> None:
        """Avoid the link to a node: its share as a delegate is spread anew, and what was for the
        node itself goes back to the host, if this node is a delegate, else to a relay."""
        if message.onward:
            self._spread_anew(message)
        if has_left:
            return
        if message.host is not None:
            self.port.send(
                message.host,
                Undelivered(message.attribute, message.interval, message.hop, message.events, to),
            )
        elif relay is not None:
            self.port.count("deliveries_relayed", len(message.events))
            self.copies.spend(message.events)
            share = DelegateShare(message.attribute, message.interval, (to,))
            onward = ((share,),) * len(message.events)
            self.port.send(relay, msgspec.structs.replace(message, onward=onward))

    def _spread_anew(self, message: Deliver) -> None:
        self.port.count("deliveries_spread_anew", len(message.events))
        self._pass_on(message, message.hop - 1, message.host, traced=False)

    def on_link_up(self, event: LinkUp) -> None:
        """The peer is reached again: deliveries to it need no relay."""
        self.relays.forget(event.peer.id)

    def _pass_on(self, message: Deliver, hop: int, host: Peer | None, traced: bool = True) -> None:
        deliveries = Deliveries(self.port, self.copies, hop, host)
        for event, shares in zip(message.events, message.onward, strict=True):
            deliveries.spread(event, recipients_of(shares))
        deliveries.send(traced)


def deliveries_of(messages: Iterable[Message]) -> list[Deliver]:
    """The `Deliver` messages among these, split so that each is of one tree."""
    return [one for each in messages if isinstance(each, Deliver) for one in split(each)]
