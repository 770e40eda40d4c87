"""What a silent link does not carry goes by way of other nodes (P3; Phoenix section 2).

A link can be broken while both its ends live. When it is suspected (`LinkSuspected`), what waits
there and may travel so (`Message.when_relayed`) is sent to *relays* as well: other nodes to which
this one has a link, which pass it on. Who gets something by a relay knows that the link is
silent from the other side, and has its answers relayed without waiting for a suspicion of its own.

What is relayed stays on the link, too: it may come twice, late, and behind what was sent later. So
only messages are relayed that allow for that; of a message that comes by two relays the second is
dropped here. A relay gives nothing back: who asked asks again, perhaps by another relay. Deliveries
have relays of their own (overlay/upper_tree/delivery/), which give back what they cannot deliver,
so that it can be held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from overlay.bounded import BoundedDict
from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp, SessionEnd
from overlay.lower_random.constants import (
    RELAY_CHECK,
    RELAY_FOR,
    RELAYED_IN_VAIN,
    RELAYED_MOST,
    RELAYED_NODES_MOST,
    RELAYS_AT_ONCE,
)
from overlay.lower_random.events import ReachedByRelay
from overlay.lower_random.messages import Relayed
from overlay.machine import Alarm, Machine, Message, NodeId, Peer, Port, ProtocolError, Timer


class RelayDue(Timer, frozen=True):
    """Time to look for what waits on silent links."""


class CutNode(msgspec.Struct):
    """A node whose link is silent, from here or from there."""

    used_at: float  # when something was relayed last
    via: Peer | None = None
    """The relay that brought something from it last."""
    in_vain: int = 0  # messages that were relayed since anything came back


class RelayPorts(msgspec.Struct, frozen=True):
    """What `Relaying` needs of its node beside the Port."""

    others: Callable[[], Sequence[Peer]]  # nodes that may relay
    is_connected: Callable[[NodeId], bool]
    hurry: Callable[[NodeId], None]  # suspect the link at once, if something waits there
    encode: Callable[[Sequence[Message]], bytes]
    decode: Callable[[bytes], list[Message]]  # raises ProtocolError
    dispatch: Callable[[Peer, Message], None]  # as if it had come over the link


class Relaying(Machine):
    """Sends by relays, is one, and takes what relays bring."""

    def __init__(self, port: Port, ports: RelayPorts) -> None:
        super().__init__(port)
        self._ports = ports
        self._cut: BoundedDict[NodeId, CutNode] = BoundedDict(RELAYED_NODES_MOST)
        self._suspected: dict[NodeId, None] = {}  # of those with a session
        self._lost: BoundedDict[NodeId, None] = BoundedDict(RELAYED_NODES_MOST)
        self._number = 0  # of the last message that was relayed
        self._taken: BoundedDict[tuple[NodeId, int], None] = BoundedDict(RELAYED_MOST)
        self._check = Alarm(port, RelayDue())

    # --- what leaves ---

    def on_link_suspected(self, event: LinkSuspected) -> None:
        """What waits there and may be relayed is sent by relays as well."""
        to = event.peer
        self._suspected[to.id] = None
        found = [message.when_relayed() for message in event.unacknowledged]
        messages = [message for message in found if message is not None]
        if not messages:
            return
        relays = self._relays(to.id)
        if not relays or self._is_given_up(to.id):
            return
        self._note_cut(to.id).in_vain += len(messages)
        self.port.count("messages_relayed", len(messages))
        for message in messages:
            self._number += 1
            units, body = message.data_units(), self._ports.encode([message])
            envelope = Relayed(self.port.me, to, self._number, body, units)
            for relay in relays:
                self.port.send(relay, envelope)

    def _is_given_up(self, to: NodeId) -> bool:
        """Whether so much was relayed to this node in vain that it is rather dead than cut off."""
        known = self._cut.get(to)
        return known is not None and known.in_vain >= RELAYED_IN_VAIN

    def _relays(self, to: NodeId) -> list[Peer]:
        """The relay that reaches this node, or some that may."""
        known = self._cut.get(to)
        if known is not None and known.via is not None and self._is_fit(known.via, to):
            return [known.via]
        fit = [peer for peer in self._ports.others() if self._is_fit(peer, to)]
        return self.port.rng.sample(fit, min(RELAYS_AT_ONCE, len(fit)))

    def _is_fit(self, peer: Peer, to: NodeId) -> bool:
        is_silent = peer.id in self._suspected or peer.id in self._lost
        is_end = peer.id in (to, self.port.me.id)
        return not (is_end or is_silent) and self._ports.is_connected(peer.id)

    def _note_cut(self, node: NodeId, via: Peer | None = None) -> CutNode:
        """Something is relayed to or from this node: look often for what waits on its link."""
        known = self._cut.get(node)
        if known is None:
            known = CutNode(self.port.now)
        known.used_at = self.port.now
        if via is not None:
            known.via, known.in_vain = via, 0
        self._cut.renew(node, known)
        self._check.within(RELAY_CHECK)
        return known

    def on_relay_due(self, timer: RelayDue) -> None:
        """Do not wait for a suspicion on links that are known to be silent."""
        self._check.rang()
        for node, known in list(self._cut.items()):
            if self.port.now - known.used_at > RELAY_FOR:
                del self._cut[node]
            elif not self._is_given_up(node):
                self._ports.hurry(node)
        if self._cut:
            self._check.within(RELAY_CHECK)

    # --- what comes ---

    def on_relayed(self, sender: Peer, message: Relayed) -> None:
        """Pass on what is for another node; take what is for this one as if it had come over the
        link. Raises ProtocolError for what a relay may not bring."""
        origin = message.origin
        if message.to.id != self.port.me.id:
            if origin.id != sender.id:
                raise ProtocolError("relays for another node")
            self.port.count("messages_relayed_for_others")
            self.port.send(message.to, message)
            return
        key = (origin.id, message.number)
        if origin.id == self.port.me.id or key in self._taken:
            return
        self._taken[key] = None
        self._note_cut(origin.id, sender)
        self.port.emit(ReachedByRelay(origin))
        for one in self._ports.decode(message.body):
            safe = one.when_relayed()
            if safe is None:
                raise ProtocolError(f"{type(one).__name__} cannot be relayed")
            try:
                self._ports.dispatch(origin, safe)
            except ProtocolError:  # the fault of its origin, and not of the relay
                self.port.count("relayed_refused")

    # --- what is known of links ---

    def on_link_recovered(self, event: LinkRecovered) -> None:
        """The peer acknowledges again."""
        self._forget(event.peer.id)

    def on_link_up(self, event: LinkUp) -> None:
        """The peer is reached again."""
        self._forget(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """The session has ended; a node that is silent is reached by its relay meanwhile."""
        node = event.peer.id
        self._suspected.pop(node, None)
        if event.left or event.end is not SessionEnd.UNREACHABLE:
            self._forget(node)
        else:
            self._lost.renew(node, None)

    def _forget(self, node: NodeId) -> None:
        self._suspected.pop(node, None)
        self._lost.pop(node, None)
        self._cut.pop(node, None)
