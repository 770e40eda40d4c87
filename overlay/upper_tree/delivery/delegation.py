"""A delegate's part, and what becomes of deliveries that their link does not carry (C11, P3).

    host ── Deliver(onward) ──► delegate ── Deliver(host) ──► interested node
                                   └────── Undelivered ─────► host ── Deliver ──► interested node

Delegation takes nothing from what a delivery can rely on. A delegate that is lost before it has
acknowledged (the link's own acknowledgement, which follows the delegate's turn) leaves its share
with the sender, who spreads it anew. What a delegate cannot bring to its destination it gives back
to the host, who tries for itself, as it would have done at first. A link can be broken while both
its ends live (P3): what the host cannot bring goes to a *helper*, any other node, as if that were a
delegate. If the helper cannot reach the node either, the host tries again itself, for some time
(detours.py); it gives up at once where nobody listens any more, or another node does.
The interested node removes what comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp, SessionEnd
from overlay.machine import Handlers, LocalEvent, Machine, Message, Peer, Port
from overlay.upper_tree.delivery.copies import Copies
from overlay.upper_tree.delivery.deliveries import Deliveries, Recipient, recipients_of, split
from overlay.upper_tree.delivery.relays import Relays, of_message, use_up
from overlay.upper_tree.messages import Deliver, Share, Undelivered


class Delegated(LocalEvent, frozen=True):
    """Events came that this node has to pass on to others."""

    sender: Peer
    message: Deliver


class Delegation(Machine):
    """A delegate's part, and what becomes of deliveries whose link is lost."""

    def __init__(
        self, port: Port, copies: Copies, others: Callable[[], Sequence[Peer]] = tuple
    ) -> None:
        """`copies`: what this node sends, also as a host; `others`: nodes that may help around a
        broken link."""
        super().__init__(port)
        self.copies = copies
        self.detours = Relays(port, others)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Delegated: self.on_delegated,
            Undelivered: self.on_undelivered,
            LinkSuspected: self.on_link_silent,
            LinkRecovered: self.on_link_heard,
            LinkDown: self.on_link_down,
            LinkUp: self.on_link_up,
        }

    def on_delegated(self, event: Delegated) -> None:
        """Bring the events to the rest of the interested nodes."""
        message = event.message
        self._pass_on(message, message.hop, message.host or event.sender)

    def on_undelivered(self, sender: Peer, message: Undelivered) -> None:
        """A delegate could not reach this node; we try, unless nobody could for long."""
        self.port.count("deliveries_given_back", len(message.events))
        events = self.detours.take_back(message)
        if not events:
            return
        if not self.detours.gave_back(message.peer.id, sender.id):
            self.port.count("deliveries_given_up", len(events))
            return
        deliveries = Deliveries(self.port, self.copies, message.hop)
        self.copies.note(events)
        for event in events:
            deliveries.add(Recipient(message.peer, message.attribute, message.interval), event)
        deliveries.send(traced=False)

    def on_link_silent(self, event: LinkSuspected) -> None:
        """What waits there goes another way as well."""
        node = event.peer.id
        for message in deliveries_of(event.unacknowledged):
            if message.registrations:
                continue
            helper = self.detours.helper(node)
            if message.host is None and helper is None:
                continue
            if self.detours.copy(node, message):
                self._go_around(event.peer, message, helper)

    def on_link_heard(self, event: LinkRecovered) -> None:
        """It was slow, or the link was."""
        self.detours.hear(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """What others were to get through the lost node goes another way. What it was to get itself
        goes back to the host, if we are a delegate, and is sent again, if we are the host. What
        goes another way since the link fell silent, it is left to."""
        deliveries = deliveries_of(event.lost)
        returns = [message for message in event.lost if isinstance(message, Undelivered)]
        copied = self.detours.copied(event.peer.id)
        gone = event.left or event.end is SessionEnd.GONE
        if event.end is SessionEnd.UNREACHABLE and not gone:
            self.detours.lose(event.peer.id)
        else:
            self.detours.find(event.peer.id)
        for returned in returns:
            self._return_again(event.peer, returned, gone)
        for message in deliveries:
            if message.events and use_up(copied, of_message(message)):
                continue
            helper = None
            if event.end is SessionEnd.UNREACHABLE and not gone and not message.registrations:
                helper = self.detours.helper(event.peer.id)
            if helper is not None or message.host is not None:
                self._go_around(event.peer, message, helper, event.left)
                continue
            if message.onward:
                self._spread_anew(message)
            if event.left:
                continue
            if not gone and self.detours.is_fresh(event.peer.id):
                self.port.count("deliveries_sent_again", len(message.events))
                self.copies.note(message.events)
                self.port.send(event.peer, msgspec.structs.replace(message, onward=()))
            else:
                self.port.count("deliveries_given_up", len(message.events))

    def _return_again(self, host: Peer, message: Undelivered, gone: bool) -> None:
        """A host did not hear that we could not deliver. If it is gone we are in its place."""
        if gone or not self.detours.is_fresh(host.id):
            self.on_undelivered(self.port.me, message)
        else:
            self.port.send(host, message)

    def _go_around(
        self, to: Peer, message: Deliver, helper: Peer | None, has_left: bool = False
    ) -> None:
        """Past a link: a delegate's share is spread anew, and what was for the node itself goes
        back to the host, if we are a delegate, else to a helper."""
        if message.onward:
            self._spread_anew(message)
        if has_left:
            return
        if message.host is not None:
            self.port.send(
                message.host,
                Undelivered(message.attribute, message.interval, message.hop, message.events, to),
            )
        elif helper is not None:
            self.port.count("deliveries_relayed", len(message.events))
            self.copies.note(message.events)
            share = Share(message.attribute, message.interval, (to,))
            onward = ((share,),) * len(message.events)
            self.port.send(helper, msgspec.structs.replace(message, onward=onward))

    def _spread_anew(self, message: Deliver) -> None:
        self.port.count("deliveries_spread_anew", len(message.events))
        self._pass_on(message, message.hop - 1, message.host, traced=False)

    def on_link_up(self, event: LinkUp) -> None:
        """It lives."""
        self.detours.find(event.peer.id)

    def _pass_on(self, message: Deliver, hop: int, host: Peer | None, traced: bool = True) -> None:
        deliveries = Deliveries(self.port, self.copies, hop, host)
        for event, shares in zip(message.events, message.onward, strict=True):
            deliveries.spread(event, recipients_of(shares))
        deliveries.send(traced)


def deliveries_of(messages: Iterable[Message]) -> list[Deliver]:
    """The deliveries among messages, each of events that came through one tree."""
    return [one for each in messages if isinstance(each, Deliver) for one in split(each)]
