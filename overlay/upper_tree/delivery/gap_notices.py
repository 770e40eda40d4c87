"""Notifies other nodes of deliveries to them that were given up here, as soon as they are in reach.

A notice is sent over the next link that comes up between the two nodes, whichever dials. This node
dials one that is out of reach every ten seconds, for an hour. A notice that was on a link when that
was lost is sent again: what was given up may be reported twice, and is not left out as long as the
node that gave it up lives. One that leaves hands its notices over to another node. What was for a
process that has ended, or left, its node's next process gets a notice of, for the programs that
have found their node again: it is dialled for `NOTICE_DIALLED`, and then it has to come itself.

The same notice, with a count of 0, comes from an owner: it has ended the registrations of a node
that did not renew them, so that nothing was matched for it since; or another cluster led in the
place of its own for a while, and what was registered there is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.links.events import LinkDown, LinkUp, MessageDropped, SessionEnd
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.upper_tree.delivery.constants import (
    LOST_PEERS_MOST,
    NOTICE_ATTRIBUTES,
    NOTICE_DIALLED,
    NOTICE_FOR,
    NOTICE_PAUSE,
    ON_ITS_WAY,
)
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.events import MatchingInterrupted
from overlay.upper_tree.messages import DeliveriesGivenUp, NoticeHandedOver


class NoticeDue(Timer, frozen=True):
    """Time to dial the nodes for which notices wait."""


class PendingNotice:
    """The notice that waits for one node out of reach."""

    __slots__ = (
        *("_attributes", "_lapsed_since", "_sent_since", "count", "ended_at", "first", "lapsed"),
        *("last", "peer", "reason", "since", "tried_at", "until", "when"),
    )

    def __init__(self, peer: Peer, when: float) -> None:
        """`when`: Port's seconds at which the first delivery was given up."""
        self.peer = peer
        self.when = when
        self.tried_at = when
        self.count = 0
        self.first = self.last = ""  # identities of events
        self.since = self.until = 0.0  # `Event.time`
        self.reason = ""
        self.lapsed = False
        self._lapsed_since = self._sent_since = inf  # Port's seconds; -inf: it is not known
        self._attributes: dict[str, None] | None = {}  # None: it may be any
        self.ended_at: float | None = None  # since when no process of the node is known

    def add(self, events: Sequence[Event], reason: str) -> None:
        """Add deliveries of these events, which were given up."""
        first, last = min(events, key=_published), max(events, key=_published)
        if not self.count or first.time < self.since:
            self.first, self.since = first.identity, first.time
        if not self.count or last.time >= self.until:
            self.last, self.until = last.identity, last.time
        self.count += len(events)
        self.reason = reason
        for event in events:
            self._concern(event.attributes)

    def interrupted(self, event: MatchingInterrupted) -> None:
        """Add that events may not have been matched for the node."""
        self._lapse(-inf if event.since is None else event.since)
        self.reason = self.reason or event.reason
        self._concern(event.attributes or None)

    def _lapse(self, since: float) -> None:
        self.lapsed = True
        self._lapsed_since = min(self._lapsed_since, since)

    def _concern(self, attributes: Iterable[str] | None) -> None:
        """Add attributes, or names of trees, whose events may be missing; None: any may be."""
        if attributes is None or self._attributes is None:
            self._attributes = None
            return
        self._attributes.update(dict.fromkeys(attributes))
        if len(self._attributes) > NOTICE_ATTRIBUTES:
            self._attributes = None

    def put_back(self, notice: DeliveriesGivenUp) -> None:
        """Add an earlier notice that did not arrive."""
        if notice.count:
            if not self.count or notice.since <= self.since:
                self.first, self.since = notice.first, notice.since
            if not self.count or notice.until > self.until:
                self.last, self.until = notice.last, notice.until
            self.count += notice.count
        self.reason = self.reason or notice.reason
        if notice.lapsed:
            self._lapse(self._sent_since if notice.lapsed_for and self._sent_since < inf else -inf)
        self._concern(notice.attributes or None)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send now: all of it is under way."""
        return not self.count and not self.lapsed

    def take(self, now: float) -> DeliveriesGivenUp:
        """The message to send now; afterwards the notice is empty."""
        lapsed_for = 0.0
        if self.lapsed and self._lapsed_since > -inf:
            lapsed_for = now - self._lapsed_since + ON_ITS_WAY
        notice = DeliveriesGivenUp(
            self.count,
            self.first,
            self.last,
            self.since,
            self.until,
            self.reason,
            self.lapsed,
            lapsed_for,
            tuple(self._attributes or ()),
        )
        if self.lapsed:
            self._sent_since = min(self._sent_since, self._lapsed_since)
        self.count, self.lapsed, self.reason = 0, False, ""
        self._lapsed_since, self._attributes = inf, {}
        return notice


def _published(event: Event) -> float:
    return event.time


class GapNotices(Machine):
    """Keeps the notices that wait. Bounded: `LOST_PEERS_MOST` nodes, the earliest dropped
    first."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._pending: BoundedDict[NodeId, PendingNotice] = BoundedDict(LOST_PEERS_MOST)
        self._alarm = Alarm(port, NoticeDue())
        self._relays: Relays | None = None  # set while this node leaves

    def __len__(self) -> int:
        """The number of nodes for which a notice waits or is under way."""
        return len(self._pending)

    def given_up(self, peer: Peer, events: Sequence[Event], reason: str) -> None:
        """Note that deliveries of these events (at least one) to the node were given up; `reason`:
        in words."""
        pending = self._of(peer)
        pending.add(events, reason)
        self._hand_over(pending)

    def on_matching_interrupted(self, event: MatchingInterrupted) -> None:
        """Send a notice without a count: this node, an owner, does not know which events were
        missed."""
        pending = self._of(event.subscriber)
        pending.interrupted(event)
        self._send(pending)

    def leave(self, relays: Relays) -> None:
        """Hand over the notices for unreachable nodes, now and from now on, because this node
        leaves. A notice is lost where `relays` know no node that may reach its receiver."""
        self._relays = relays
        for pending in list(self._pending.values()):
            self._hand_over(pending)

    def on_notice_handed_over(self, sender: Peer, message: NoticeHandedOver) -> None:
        """Notify the node in the place of `sender`, which leaves."""
        if message.peer.id != self.port.me.id:
            self._put_back(message.peer, message.notice)
            self.notify(message.peer)

    def _put_back(self, peer: Peer, notice: DeliveriesGivenUp) -> None:
        pending = self._of(peer)
        pending.put_back(notice)
        self._hand_over(pending)

    def _hand_over(self, pending: PendingNotice) -> None:
        """Hand a notice over if this node leaves."""
        if self._relays is None or pending.is_empty:
            return
        other = self._relays.stand_in(pending.peer)
        if other is not None:
            notice = pending.take(self.port.now)
            self.port.send(other, NoticeHandedOver(pending.peer, notice))

    def _of(self, peer: Peer) -> PendingNotice:
        pending = self._pending.get(peer.id)
        if pending is None:
            pending = self._pending[peer.id] = PendingNotice(peer, self.port.now)
            self._alarm.within(NOTICE_PAUSE)
        return pending

    def notify(self, peer: Peer) -> None:
        """Send the notice for a node in reach, if there is one, ahead of all that is sent to it
        from now on."""
        pending = self._pending.get(peer.id)
        if pending is not None and not pending.is_empty:
            self._send(pending)

    def _send(self, pending: PendingNotice) -> None:
        """Send the notice, which dials the node if need be. One that does not arrive is put
        back."""
        self.port.count("gap_notices_sent")
        pending.tried_at = self.port.now
        self.port.send(pending.peer, pending.take(self.port.now))

    def _is_dialled(self, pending: PendingNotice) -> bool:
        """Whether the node is looked for, and not only waited for."""
        return pending.ended_at is None or self.port.now - pending.ended_at < NOTICE_DIALLED

    def on_link_up(self, event: LinkUp) -> None:
        """Send what waits for the node: it is in reach."""
        if (pending := self._pending.get(event.peer.id)) is not None:
            pending.ended_at = None
        self.notify(event.peer)

    def on_link_down(self, event: LinkDown) -> None:
        """Put a notice back that may not have arrived; send it again if the session is a new
        one."""
        for message in event.lost:
            if isinstance(message, DeliveriesGivenUp):
                self._put_back(event.peer, message)
        is_gone = event.left or event.end is SessionEnd.GONE
        pending = self._pending.get(event.peer.id)
        if is_gone and pending is not None:
            pending.ended_at = pending.ended_at or self.port.now
        elif event.end is SessionEnd.RESET:
            self.notify(event.peer)

    def on_message_dropped(self, event: MessageDropped) -> None:
        """Put a notice back for which there was no room on the link."""
        if isinstance(event.message, DeliveriesGivenUp):
            self._put_back(event.peer, event.message)

    def on_notice_due(self, timer: NoticeDue) -> None:
        """Send notices that have waited long enough, and drop those for nodes that are away too
        long."""
        self._alarm.rang()
        now = self.port.now
        for pending in list(self._pending.values()):
            waited = now - pending.tried_at
            arrived = pending.is_empty and waited >= 2 * NOTICE_PAUSE
            if arrived or now - pending.when > NOTICE_FOR:
                del self._pending[pending.peer.id]
            elif not pending.is_empty and waited >= NOTICE_PAUSE and self._is_dialled(pending):
                self._send(pending)
        if self._pending:
            self._alarm.within(NOTICE_PAUSE)
