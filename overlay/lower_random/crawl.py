"""CRAWL: random walks with a trace that look for attributes' trees (C3, C4, C10; CBDLO section 3).

Step 1 of the paper's figure 2: the source puts itself into the trace and sends the walk to a random
neighbour. Step 2, at every node reached: an attribute that is in the node's table of access points
ends here, and the origin is informed (2.1); else, unless the hop limit is reached (2.2), the node
puts itself into the trace and sends the rest to a random neighbour that is not in it.

Blocking (section 3.2): when all neighbours are in the trace, the walk starts again from a random
node of the trace with half of the hop limit; the halving ends at 1, so that a walk of limit 10
recovers three times at most. The trace is kept over a recovery: it still says where not to go.

One walk carries several attributes; each ends on its own and has its own trace records, written by
the origin at start and end (so that each has exactly one end, however many answers come) and by
each node that takes a step. The event itself waits at the origin.

A walk that meets a node that does not answer (paused, or just dead) would be lost. The node that
sent it there learns of the silence from its link and reports a miss, and the origin starts another
walk with half of the hop limit, as after a recovery. Neighbours that are silent are passed over,
and so are those that the health file calls sub-healthy while there are others (T6). A walk that is
not heard of in time counts as a miss: it may have ended with a node that died.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from overlay.health import Health
from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.constants import (
    MAX_HOPS,
    MAX_OPEN_WALKS,
    MAX_WALK_ATTRIBUTES,
    POINTS_PER_HIT,
)
from overlay.lower_random.messages import (
    AccessPoint,
    Walk,
    WalkFailed,
    WalkFound,
    WalkHit,
    WalkMiss,
)
from overlay.lower_random.view import View
from overlay.machine import Machine, Message, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import WalkSettings


class WalkOverdue(Timer, frozen=True):
    """A walk of this node was not heard of for ``walk.timeout``."""

    number: int


class OpenWalk(msgspec.Struct):
    """A walk of this node that has not ended."""

    limit: int
    missing: dict[str, None]  # the attributes without an end


class Crawl(Machine):
    """The walks of this node, and the steps of others' walks."""

    def __init__(
        self,
        port: Port,
        settings: WalkSettings,
        view: View,
        access_points: AccessPoints,
        health: Health | None = None,
    ) -> None:
        """`health`: the known health of nodes; None: it is never known."""
        super().__init__(port)
        self._health = health or Health(port)
        self._settings = settings
        self._view = view
        self._access_points = access_points
        self._number = 0  # of this node's latest walk
        self._open: dict[int, OpenWalk] = {}  # by number
        self._silent: dict[NodeId, None] = {}  # peers whose links are suspected

    @property
    def open_walks(self) -> int:
        """The number of unfinished walks of this node, at most MAX_OPEN_WALKS + 1."""
        return len(self._open)

    def walk(self, attributes: Sequence[str], hops: int | None = None) -> None:
        """Look for the trees of these attributes. For each, WalkFound or WalkFailed is emitted, now
        or within ``walk.timeout``.

        `hops` is the limit instead of ``walk.hops`` (half of it after a stale access point: C10,
        CBDLO section 4).
        """
        limit = max(1, self._settings.hops if hops is None else hops)
        names = list(dict.fromkeys(attributes))
        for first in range(0, len(names), MAX_WALK_ATTRIBUTES):
            self._begin(names[first : first + MAX_WALK_ATTRIBUTES], limit)

    def _begin(self, attributes: list[str], limit: int) -> None:
        self._number += 1
        number, me = self._number, self.port.me
        self._record("walk_start", me, number, attributes, hops=limit)
        self._open[number] = OpenWalk(limit, dict.fromkeys(attributes))
        self.port.set_timer(self._settings.timeout, WalkOverdue(number))
        found, rest = self._look_up(attributes, me)
        self._end_found(number, found, 0, None)
        if rest and len(self._open) > MAX_OPEN_WALKS:
            self.port.count("walks_refused")
            self._fail(self._end_missed(number, rest, 0), 0)
        elif rest and not self._view.peers():
            self._fail(self._end_missed(number, rest, 0), 0)
        elif rest:
            ring = self._access_points.ring
            self._forward(Walk(me, number, tuple(rest), 0, limit, limit, (), ring))

    # --- a step, of this node's walk or of another's ---

    def on_walk(self, sender: Peer, walk: Walk) -> None:
        """Step 2 of the paper's figure 2. Raises ProtocolError for a walk that no correct node
        sends."""
        _check(walk)
        if walk.ring == self._access_points.ring:
            found, rest = self._look_up(walk.attributes, walk.origin)
        else:
            found, rest = [], list(walk.attributes)
        if found:
            self.port.send(walk.origin, WalkHit(walk.number, walk.hop, tuple(found)))
        if rest and walk.left == 0:
            self.port.send(walk.origin, WalkMiss(walk.number, walk.hop, tuple(rest)))
        elif rest:
            self._forward(msgspec.structs.replace(walk, attributes=tuple(rest)))

    def _look_up(
        self, attributes: Iterable[str], origin: Peer
    ) -> tuple[list[AccessPoint], list[str]]:
        """Split the attributes: return the access points in this node's table, and the attributes
        without one. Entries that name the origin do not count, since the origin knows best which
        trees it serves."""
        exclude = "" if origin.id == self.port.me.id else origin.id
        points = {name: self._access_points.points(name, exclude) for name in attributes}
        found = [point for known in points.values() for point in known]
        return found, [name for name, known in points.items() if not known]

    def _forward(self, walk: Walk) -> None:
        """Put this node into the trace, and send the walk to a random neighbour that is not in it
        and not silent."""
        me = self.port.me
        trace = tuple(peer for peer in walk.trace if peer.id != me.id)
        trace = (*trace, me)[-self._settings.trace :]
        visited = {peer.id for peer in trace}
        ways = [peer for peer in self._view.peers() if self._may_go(peer, visited)]
        if not ways:
            self._recover(walk, trace)
            return
        onward = msgspec.structs.replace(walk, left=walk.left - 1, trace=trace)
        self._send("walk_hop", onward, ways)

    def _recover(self, walk: Walk, trace: tuple[Peer, ...]) -> None:
        """Restart a blocked walk (C4) from a random node of its trace with half of the limit, or
        end it if that is less than 1."""
        self.port.count("walks_blocked")
        self._record("walk_blocked", walk.origin, walk.number, walk.attributes, hop=walk.hop)
        limit = walk.limit // 2
        others = [peer for peer in trace if self._may_go(peer, {self.port.me.id})]
        if limit < 1 or not others:
            self.port.send(walk.origin, WalkMiss(walk.number, walk.hop, walk.attributes))
            return
        self.port.count("walks_recovered")
        again = msgspec.structs.replace(walk, left=limit, limit=limit, trace=trace)
        self._send("walk_recovered", again, others)

    def _may_go(self, peer: Peer, excluded: Collection[NodeId]) -> bool:
        return peer.id not in excluded and peer.id not in self._silent

    def _send(self, kind: str, walk: Walk, ways: Sequence[Peer]) -> None:
        """Send the walk's next hop to one of the healthiest of `ways` at random (T6); record it as
        `kind`."""
        peer, hop = self.port.rng.choice(self._health.healthiest(ways)), walk.hop + 1
        self._record(kind, walk.origin, walk.number, walk.attributes, hop=hop, peer=peer.id)
        self.port.send(peer, msgspec.structs.replace(walk, hop=hop))

    # --- nodes that do not answer ---

    def on_link_suspected(self, event: LinkSuspected) -> None:
        """The peer is silent: no walk goes there, and those that did are taken for lost."""
        self._silent[event.peer.id] = None
        self._report_lost(event.unacknowledged)

    def on_link_recovered(self, event: LinkRecovered) -> None:
        """The peer answers again."""
        self._silent.pop(event.peer.id, None)

    def on_link_up(self, event: LinkUp) -> None:
        """The peer has a new link, so walks may go there again."""
        self._silent.pop(event.peer.id, None)

    def on_link_down(self, event: LinkDown) -> None:
        """The peer has left the view; walks that may not have come there are lost."""
        self._silent.pop(event.peer.id, None)
        self._report_lost(event.lost)

    def _report_lost(self, messages: Iterable[Message]) -> None:
        for walk in messages:
            if isinstance(walk, Walk):
                self.port.count("walks_unanswered")
                miss = WalkMiss(walk.number, walk.hop, walk.attributes, lost=True)
                self.port.send(walk.origin, miss)

    # --- the ends of this node's walks ---

    def on_walk_hit(self, sender: Peer, message: WalkHit) -> None:
        """A node on the way has access points for some attributes: they are learnt, even if the
        walk has ended. Raises ProtocolError for a hit beyond all bounds."""
        if len(message.found) > MAX_WALK_ATTRIBUTES * POINTS_PER_HIT or message.hop < 0:
            raise ProtocolError("a walk's hit beyond all bounds")
        self._end_found(message.number, message.found, message.hop, sender)

    def on_walk_miss(self, sender: Peer, message: WalkMiss) -> None:
        """The walk ended without finding these attributes. If it was lost they are walked for
        again, with half of the hops."""
        walk = self._open.get(message.number)
        missed = self._end_missed(message.number, message.attributes, message.hop)
        if missed and message.lost and walk is not None and walk.limit > 1:
            self._begin(missed, walk.limit // 2)
        else:
            self._fail(missed, message.hop)

    def on_walk_overdue(self, timer: WalkOverdue) -> None:
        """Nothing was heard of the rest in time: it counts as a miss at hop 0, since how far the
        walk came is not known."""
        walk = self._open.get(timer.number)
        if walk is not None:
            self.port.count("walks_overdue")
            self._fail(self._end_missed(timer.number, list(walk.missing), 0), 0)

    def _end_found(
        self, number: int, found: Sequence[AccessPoint], hop: int, sender: Peer | None
    ) -> None:
        """Take access points. Those of a ring that this node has left meanwhile are of no use: for
        their attributes the walk is overdue some time, and then a miss."""
        by_attribute: dict[str, list[AccessPoint]] = {}
        for point in found:
            if point.ring == self._access_points.ring:
                by_attribute.setdefault(point.attribute, []).append(point)
                if sender is not None:
                    self._access_points.learn(point, sender)  # of use even if it comes late
        walk = self._open.get(number)
        if walk is None:
            return
        for attribute, (first, *others) in by_attribute.items():
            if attribute in walk.missing:
                del walk.missing[attribute]
                at = first.peer.id
                self._record("walk_hit", self.port.me, number, (attribute,), hop=hop, peer=at)
                self.port.emit(WalkFound(first, hop, tuple(others)))
        self._end_if_done(number, walk)

    def _end_missed(self, number: int, attributes: Iterable[str], hop: int) -> list[str]:
        """These attributes were not found. Returns those whose end this is."""
        walk = self._open.get(number)
        if walk is None:
            return []
        missed = [name for name in dict.fromkeys(attributes) if name in walk.missing]
        for attribute in missed:
            del walk.missing[attribute]
        self._record("walk_miss", self.port.me, number, missed, hop=hop)
        self._end_if_done(number, walk)
        return missed

    def _fail(self, attributes: Sequence[str], hop: int) -> None:
        if attributes:
            self.port.emit(WalkFailed(tuple(attributes), hop))

    def _end_if_done(self, number: int, walk: OpenWalk) -> None:
        if not walk.missing:
            del self._open[number]
            self.port.cancel_timer(WalkOverdue(number))

    def _record(
        self, kind: str, origin: Peer, number: int, names: Iterable[str], **fields: int | str
    ) -> None:
        for attribute in names:
            self.port.trace(kind, walk=f"{origin.id}.{number}", attribute=attribute, **fields)


def _check(walk: Walk) -> None:
    """Raises ProtocolError for a walk that no correct node sends."""
    if not 1 <= len(walk.attributes) <= MAX_WALK_ATTRIBUTES:
        raise ProtocolError(f"a walk for {len(walk.attributes)} attributes")
    if not 0 <= walk.left <= walk.limit <= MAX_HOPS or not 1 <= walk.hop <= 4 * MAX_HOPS:
        raise ProtocolError(f"a walk at hop {walk.hop} with {walk.left} of {walk.limit} left")
    if not 1 <= len(walk.trace) <= MAX_HOPS:
        raise ProtocolError(f"a walk with a trace of {len(walk.trace)}")
