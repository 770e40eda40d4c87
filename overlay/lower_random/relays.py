"""Connections by way of other nodes, to peers whose link is silent (P3; Phoenix section 2).

A link can be broken while both its ends live. When one is silent, the links ask here for other
ways (`open`): connections whose frames travel inside messages to *helpers*, other nodes to which
this one has a link, which pass them on over theirs. On each of them the links first ask who is
there: that is SWIM's indirect probe, and a helper that does not reach the peer brings no answer.
The session resumes on one that does (overlay/links/links.py).

Who passes something on keeps no state for it. It passes on what its sender says itself, and only
where its own link to the receiver is neither silent nor on a detour: so nothing goes round. What it
cannot pass on it drops; the session, which is not acknowledged, notices.
"""

from __future__ import annotations

from typing import cast

import msgspec

from overlay.bounded import BoundedDict
from overlay.links.events import ConnectionId, LinkDown, LinkUp, SessionEnd
from overlay.links.links import Links
from overlay.links.messages import AnyFrame, Frame, Hello
from overlay.lower_random.constants import (
    DETOURS_MOST,
    HELPERS,
    LOST_FOR,
    LOST_NODES_MOST,
    PROBES_PER_SECOND,
)
from overlay.lower_random.messages import Relayed
from overlay.lower_random.view import View
from overlay.machine import Machine, NodeId, Peer, Port, ProtocolError


class Detour(msgspec.Struct, frozen=True):
    """A connection by way of another node, as one of its ends sees it."""

    peer: Peer  # the other end
    number: int  # given by the end that opened it
    is_accepted: bool  # the other end has opened it
    helper: Peer

    @property
    def name(self) -> tuple[NodeId, int, bool]:
        """The key that distinguishes this detour from all others of this node."""
        return (self.peer.id, self.number, self.is_accepted)


class Relaying(Machine):
    """Both ends of detours, and the helper between them. Implements `overlay.links.events.Detours`
    for the links."""

    def __init__(self, port: Port, view: View, links: Links) -> None:
        """`view`: the nodes that may help; `links`: take what comes on a detour."""
        super().__init__(port)
        self._view = view
        self._links = links
        self._detours = BoundedDict[ConnectionId, Detour](DETOURS_MOST, self._evicted)
        self._ids: dict[tuple[NodeId, int, bool], ConnectionId] = {}
        self._lost = BoundedDict[NodeId, float](LOST_NODES_MOST)  # when a link to them ended
        self._last = 0  # connection; they count downwards
        self._second = float("-inf")  # when the present second of probes began …
        self._opened = 0  # … and how many there were in it

    def __len__(self) -> int:
        return len(self._detours)

    # --- what the links call ---

    def open(self, peer: Peer) -> list[ConnectionId]:
        """Connections to `peer` by some helpers, at random; none if there are no helpers, or if too
        many were opened within this second."""
        if self.port.now >= self._second + 1.0:
            self._second, self._opened = self.port.now, 0
        ends = (peer.id, self.port.me.id)
        fit = [p for p in self._view.peers() if p.id not in ends and self._links.is_direct(p.id)]
        count = min(HELPERS, PROBES_PER_SECOND - self._opened, len(fit))
        self._opened += count
        return [
            self._add(Detour(peer, self.port.rng.getrandbits(53), False, helper))
            for helper in self.port.rng.sample(fit, count)
        ]

    def write(self, connection: ConnectionId, frame: Frame) -> None:
        """Send a frame to the helper. It is dropped where that is reached on a detour itself: two
        detours that lead by each other's ends would send it round for ever."""
        detour = self._detours.get(connection)
        if detour is None or not self._links.may_reach(detour.helper.id):
            self.port.count("frames_not_relayed")
            return
        me, peer = self.port.me, detour.peer
        self.port.count("frames_relayed")
        anything = cast("AnyFrame", frame)
        envelope = Relayed(me, peer, detour.number, detour.is_accepted, anything)
        self.port.send(detour.helper, envelope)

    def close(self, connection: ConnectionId, reason: str) -> None:
        """End this side of a detour: frames that still come for it are dropped."""
        detour = self._detours.pop(connection, None)
        if detour is not None:
            del self._ids[detour.name]

    # --- what comes ---

    def on_relayed(self, sender: Peer, message: Relayed) -> None:
        """Pass on a frame for another node; hand a frame for this node to the links. Raises
        ProtocolError for a message that a helper may not send."""
        origin = message.origin
        if message.to.id != self.port.me.id:
            self._pass_on(sender, message)
            return
        if origin.id in (self.port.me.id, sender.id):
            raise ProtocolError("relays to itself")
        name = (origin.id, message.number, not message.is_answer)
        connection = self._ids.get(name)
        if connection is None:
            if message.is_answer or not isinstance(message.frame, Hello):
                return  # of a connection that was closed here
            connection = self._add(Detour(origin, message.number, True, sender))
            self._links.on_detour_accepted(connection)
        self._links.on_frame(connection, message.frame)

    def _pass_on(self, sender: Peer, message: Relayed) -> None:
        if message.origin.id != sender.id:
            raise ProtocolError("relays for another node")
        lost_at = self._lost.get(message.to.id, float("-inf"))
        if self._links.may_reach(message.to.id) and self.port.now >= lost_at + LOST_FOR:
            self.port.count("frames_relayed_for_others")
            self.port.send(message.to, message)
        else:
            self.port.count("frames_not_relayed")

    def on_link_up(self, event: LinkUp) -> None:
        """Note that frames for this node can be passed on over its link again."""
        self._lost.pop(event.peer.id, None)

    def on_link_down(self, event: LinkDown) -> None:
        """A helper is lost, and what led by way of it. Nothing is passed on to it for a while: who
        asks for it asks several, and again."""
        if event.end is not SessionEnd.RESET:
            self._lost.renew(event.peer.id, self.port.now)
        for connection, detour in list(self._detours.items()):
            if detour.helper.id == event.peer.id:
                self._lose(connection, detour, "the node between is lost")

    # --- the table ---

    def _add(self, detour: Detour) -> ConnectionId:
        self._last -= 1
        self._ids[detour.name] = self._last
        self._detours[self._last] = detour
        return self._last

    def _evicted(self, connection: ConnectionId, detour: Detour) -> None:
        self._lose(connection, detour, "too many connections by way of other nodes")

    def _lose(self, connection: ConnectionId, detour: Detour, reason: str) -> None:
        self._detours.pop(connection, None)
        self._ids.pop(detour.name, None)
        self._links.on_closed(connection, reason)
