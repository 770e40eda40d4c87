"""Notifies other nodes of deliveries to them that were given up here, as soon as they are in reach.

A notice is sent over the next link that comes up between the two nodes, whichever dials. This node
dials one that is out of reach every ten seconds, for an hour. A notice that was on a link when that
was lost is sent again: what was given up may be reported twice, and is not left out as long as the
node that gave it up lives. A node whose process has ended, or that has left, gets none.

The same notice, with a count of 0, comes from an owner: it has ended the registrations of a node
that did not renew them, so that nothing was matched for it since; or another cluster led in the
place of its own for a while, and what was registered there is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.links.events import LinkDown, LinkUp, MessageDropped, SessionEnd
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.upper_tree.delivery.constants import NOTICE_FOR, NOTICE_PAUSE, UNREACHABLE_MOST
from overlay.upper_tree.events import MatchingInterrupted
from overlay.upper_tree.messages import DeliveriesGivenUp


class NoticeDue(Timer, frozen=True):
    """Time to dial the nodes for which notices wait."""


class PendingNotice:
    """The notice that waits for one node out of reach."""

    __slots__ = ("count", "first", "lapsed", "last", "peer", "reason", "since", "tried_at", "until",
                 "when")  # fmt: skip

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

    def add(self, events: Sequence[Event], reason: str) -> None:
        """Add deliveries of these events, which were given up."""
        first, last = min(events, key=_published), max(events, key=_published)
        if not self.count or first.time < self.since:
            self.first, self.since = first.identity, first.time
        if not self.count or last.time >= self.until:
            self.last, self.until = last.identity, last.time
        self.count += len(events)
        self.reason = reason

    def interrupted(self, reason: str) -> None:
        """Add that events may not have been matched for the node, for that reason."""
        self.lapsed = True
        self.reason = self.reason or reason

    def put_back(self, notice: DeliveriesGivenUp) -> None:
        """Add an earlier notice that did not arrive."""
        if notice.count:
            if not self.count or notice.since <= self.since:
                self.first, self.since = notice.first, notice.since
            if not self.count or notice.until > self.until:
                self.last, self.until = notice.last, notice.until
            self.count += notice.count
        self.reason = self.reason or notice.reason
        self.lapsed = self.lapsed or notice.lapsed

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send now: all of it is under way."""
        return not self.count and not self.lapsed

    def take(self) -> DeliveriesGivenUp:
        """The message to send; afterwards the notice is empty."""
        notice = DeliveriesGivenUp(
            self.count, self.first, self.last, self.since, self.until, self.reason, self.lapsed
        )
        self.count, self.lapsed, self.reason = 0, False, ""
        return notice


def _published(event: Event) -> float:
    return event.time


class GapNotices(Machine):
    """Keeps the notices that wait. Bounded: `UNREACHABLE_MOST` nodes, the earliest dropped
    first."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._pending: BoundedDict[NodeId, PendingNotice] = BoundedDict(UNREACHABLE_MOST)
        self._alarm = Alarm(port, NoticeDue())

    def __len__(self) -> int:
        """For how many nodes a notice waits or is under way."""
        return len(self._pending)

    def given_up(self, peer: Peer, events: Sequence[Event], reason: str) -> None:
        """Note that deliveries of these events (at least one) to the node were given up; `reason`:
        in words."""
        self._of(peer).add(events, reason)

    def on_matching_interrupted(self, event: MatchingInterrupted) -> None:
        """Send a notice without a count: this node, an owner, does not know what was missed."""
        pending = self._of(event.subscriber)
        pending.interrupted(event.reason)
        self._send(pending)

    def _of(self, peer: Peer) -> PendingNotice:
        pending = self._pending.get(peer.id)
        if pending is None:
            pending = self._pending[peer.id] = PendingNotice(peer, self.port.now)
            self._alarm.within(NOTICE_PAUSE)
        return pending

    def notify(self, peer: Peer) -> None:
        """Send the notice for a node in reach, if there is one, ahead of all that is sent to it
        from now on."""
        pending = self._pending.pop(peer.id, None)
        if pending is not None and not pending.is_empty:
            self._send(pending)

    def _send(self, pending: PendingNotice) -> None:
        """Send the notice, which dials the node if need be. One that does not arrive is put
        back."""
        self.port.count("gap_notices_sent")
        pending.tried_at = self.port.now
        self.port.send(pending.peer, pending.take())

    def on_link_up(self, event: LinkUp) -> None:
        """Send what waits for the node: it is in reach."""
        self.notify(event.peer)

    def on_link_down(self, event: LinkDown) -> None:
        """Put a notice back that may not have arrived; send it again if the session is a new
        one."""
        if event.left or event.end is SessionEnd.GONE:
            self._pending.pop(event.peer.id, None)
            return
        for message in event.lost:
            if isinstance(message, DeliveriesGivenUp):
                self._of(event.peer).put_back(message)
        if event.end is SessionEnd.RESET:
            self.notify(event.peer)

    def on_message_dropped(self, event: MessageDropped) -> None:
        """Put a notice back for which there was no room on the link."""
        if isinstance(event.message, DeliveriesGivenUp):
            self._of(event.peer).put_back(event.message)

    def on_notice_due(self, timer: NoticeDue) -> None:
        """Send what has waited long enough, and drop notices for nodes that are away too long."""
        self._alarm.rang()
        now = self.port.now
        for pending in list(self._pending.values()):
            waited = now - pending.tried_at
            arrived = pending.is_empty and waited >= 2 * NOTICE_PAUSE
            if arrived or now - pending.when > NOTICE_FOR:
                del self._pending[pending.peer.id]
            elif not pending.is_empty and waited >= NOTICE_PAUSE:
                self._send(pending)
        if self._pending:
            self._alarm.within(NOTICE_PAUSE)
