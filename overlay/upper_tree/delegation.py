"""Deliveries on their way: from the host to the interested nodes, through delegates (C11).

`Deliveries` collects what one turn has for the interested nodes, so that it leaves together. If an
event has more recipients than this node may send copies of it (copies.py), some of them become
delegates, by turns (fanout.py).

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
from typing import NamedTuple

import msgspec

from matching import Interval
from overlay.client import Event
from overlay.links.events import End, LinkDown, LinkHeard, LinkSilent, LinkUp
from overlay.machine import Handlers, LocalEvent, Machine, NodeId, Peer, Port
from overlay.upper_tree.batches import HEAD, in_batches, weigh_event, weigh_text
from overlay.upper_tree.copies import Copies
from overlay.upper_tree.detours import Detours, of_message, use_up
from overlay.upper_tree.fanout import spread, turn
from overlay.upper_tree.messages import Deliver, Share, Undelivered

SHARE_MOST = 2_000
"""Peers that one message names per event at most: about 100 kB, far under a frame. A delegate with
a larger share gets the event more than once."""


class Delegated(LocalEvent, frozen=True):
    """Events came that this node has to pass on to others."""

    sender: Peer
    message: Deliver


class Recipient(NamedTuple):
    """An interested node, and the virtual node that found it."""

    peer: Peer
    attribute: str
    interval: Interval


class Item(NamedTuple):
    """One event for one node."""

    event: Event
    registrations: tuple[str, ...]
    onward: tuple[Share, ...]


class Deliveries:
    """What leaves for interested nodes in one turn."""

    def __init__(self, port: Port, copies: Copies, hop: int, host: Peer | None = None) -> None:
        """`copies`: what this node has sent already; `hop`: messages from the publisher to here;
        `host`: whose delegate we are."""
        self.port = port
        self.copies = copies
        self.hop = hop
        self.host = host
        self._groups: dict[tuple[NodeId, str, Interval], tuple[Peer, list[Item]]] = {}

    def add(
        self, to: Recipient, event: Event, registrations: tuple[str, ...] = (),
        onward: tuple[Share, ...] = (),
    ) -> None:  # fmt: skip
        """One event for one node."""
        key = (to.peer.id, to.attribute, to.interval)
        group = self._groups.setdefault(key, (to.peer, []))
        group[1].append(Item(event, registrations, onward))

    def spread(self, event: Event, recipients: Iterable[Recipient]) -> None:
        """One event for all of these, through delegates if they are many. Ourselves we need no
        message to reach."""
        remote: list[Recipient] = []
        for recipient in recipients:
            if recipient.peer.id == self.port.me.id:
                self.add(recipient, event)
            else:
                remote.append(recipient)
        if not remote:
            return
        whose, room = 0, self.copies.room(event)
        if len(remote) > room:
            whose = turn(event.publisher, event.incarnation, event.sequence, self.port.me.id)
        sent = 0
        for delegate, share in spread(remote, room, whose):
            for first in range(0, len(share) or 1, SHARE_MOST):
                sent += 1
                self.add(delegate, event, onward=shares_of(share[first : first + SHARE_MOST]))
        self.copies.note((event,), sent)

    def send(self, traced: bool = True) -> None:
        """All of it, as few messages as will do. Not `traced`: it repeats what was traced before
        it was lost or late, and counts as no copy more (C11)."""
        for (node, attribute, interval), (peer, items) in self._groups.items():
            hop = self.hop + (node != self.port.me.id)
            if traced and node != self.port.me.id:
                for item in items:
                    self.port.trace(
                        "forward", event=item.event.identity, attribute=attribute, peer=node,
                        hop=hop,
                    )  # fmt: skip
            for batch in in_batches(items, weigh_item):
                events = tuple(item.event for item in batch)
                counted = tuple(item.registrations for item in batch)
                onward = tuple(item.onward for item in batch)
                self.port.send(
                    peer,
                    Deliver(
                        attribute,
                        interval,
                        hop,
                        events,
                        counted if any(counted) else (),
                        onward if any(onward) else (),
                        self.host,
                    ),
                )


def shares_of(recipients: Iterable[Recipient]) -> tuple[Share, ...]:
    """Recipients by the virtual node that found them."""
    found: dict[tuple[str, Interval], list[Peer]] = {}
    for peer, attribute, interval in recipients:
        found.setdefault((attribute, interval), []).append(peer)
    return tuple(Share(*key, tuple(peers)) for key, peers in found.items())


def recipients_of(shares: Iterable[Share]) -> list[Recipient]:
    """The other way round."""
    return [
        Recipient(peer, share.attribute, share.interval) for share in shares for peer in share.peers
    ]


class Delegation(Machine):
    """A delegate's part, and what becomes of deliveries whose link is lost."""

    def __init__(
        self, port: Port, copies: Copies, others: Callable[[], Sequence[Peer]] = tuple
    ) -> None:
        """`copies`: what this node sends, also as a host; `others`: nodes that may help around a
        broken link."""
        super().__init__(port)
        self.copies = copies
        self.detours = Detours(port, others)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Delegated: self.on_delegated,
            Undelivered: self.on_undelivered,
            LinkSilent: self.on_link_silent,
            LinkHeard: self.on_link_heard,
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

    def on_link_silent(self, event: LinkSilent) -> None:
        """What waits there goes another way as well."""
        node = event.peer.id
        for message in event.waiting:
            if not isinstance(message, Deliver) or message.registrations:
                continue
            helper = self.detours.helper(node)
            if message.host is None and helper is None:
                continue
            if self.detours.copy(node, message):
                self._go_around(event.peer, message, helper)

    def on_link_heard(self, event: LinkHeard) -> None:
        """It was slow, or the link was."""
        self.detours.hear(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """What others were to get through the lost node goes another way. What it was to get itself
        goes back to the host, if we are a delegate, and is sent again, if we are the host. What
        goes another way since the link fell silent, it is left to."""
        deliveries = [message for message in event.lost if isinstance(message, Deliver)]
        returns = [message for message in event.lost if isinstance(message, Undelivered)]
        copied = self.detours.copied(event.peer.id)
        gone = event.left or event.end is End.GONE
        if event.end is End.UNHEARD and not gone:
            self.detours.lose(event.peer.id)
        else:
            self.detours.find(event.peer.id)
        for returned in returns:
            self._return_again(event.peer, returned, gone)
        for message in deliveries:
            if message.events and use_up(copied, of_message(message)):
                continue
            helper = None
            if event.end is End.UNHEARD and not gone and not message.registrations:
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


def weigh_item(item: Item) -> int:
    """Bytes of an event with what goes along, about."""
    size = weigh_event(item.event.attributes, item.event.payload)
    size += sum(map(weigh_text, item.registrations))
    for share in item.onward:
        size += 8 * HEAD + sum(2 * HEAD + weigh_text(peer.address) for peer in share.peers)
    return size
