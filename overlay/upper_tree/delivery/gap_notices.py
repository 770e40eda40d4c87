"""Tells other nodes which deliveries to them were given up here, as soon as they are in reach.

A node is told with the next link that comes up between the two, whoever dials. This node dials too:
one that is out of reach every ten seconds, for an hour. A notice that was on a link when that was
lost is sent again: what was given up may be reported twice, and is not left out as long as the node
that gave it up lives. A node whose process has ended, or that has left, is told nothing.

The same notice, with a count of 0, comes from an owner: it has ended the registrations of a node
that it did not hear, so that nothing was matched for it since; or another cluster led in the place
of its own for a while, and nobody knows what was registered there.
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
    """Dial nodes that have to be told something."""


class Untold:
    """What one node that is out of reach has to be told."""

    __slots__ = ("count", "first", "lapsed", "last", "peer", "reason", "since", "tried_at", "until",
                 "when")  # fmt: skip

    def __init__(self, peer: Peer, when: float) -> None:
        """`when`: the first of it happened (Port's seconds)."""
        self.peer = peer
        self.when = when
        self.tried_at = when
        self.count = 0
        self.first = self.last = ""  # identities of events
        self.since = self.until = 0.0  # `Event.time`
        self.reason = ""
        self.lapsed = False

    def add(self, events: Sequence[Event], reason: str) -> None:
        """The deliveries of these events were given up."""
        first, last = min(events, key=_published), max(events, key=_published)
        if not self.count or first.time < self.since:
            self.first, self.since = first.identity, first.time
        if not self.count or last.time >= self.until:
            self.last, self.until = last.identity, last.time
        self.count += len(events)
        self.reason = reason

    def interrupted(self, reason: str) -> None:
        """Events may not have been matched for the node, for that reason."""
        self.lapsed = True
        self.reason = self.reason or reason

    def put_back(self, notice: DeliveriesGivenUp) -> None:
        """A notice of what was before all that is here did not arrive."""
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
        """Whether there is nothing to tell just now: it is on its way."""
        return not self.count and not self.lapsed

    def take(self) -> DeliveriesGivenUp:
        """The message that tells it, and forget it."""
        notice = DeliveriesGivenUp(
            self.count, self.first, self.last, self.since, self.until, self.reason, self.lapsed
        )
        self.count, self.lapsed, self.reason = 0, False, ""
        return notice


def _published(event: Event) -> float:
    return event.time


class GapNotices(Machine):
    """Remembers what nodes have to be told. Bounded: `UNREACHABLE_MOST` nodes, the first of them
    forgotten first."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self._untold: BoundedDict[NodeId, Untold] = BoundedDict(UNREACHABLE_MOST)
        self._alarm = Alarm(port, NoticeDue())

    def __len__(self) -> int:
        """How many nodes have to be told something."""
        return len(self._untold)

    def given_up(self, peer: Peer, events: Sequence[Event], reason: str) -> None:
        """The deliveries of these events (at least one) to the node were given up, in words why."""
        self._of(peer).add(events, reason)

    def on_matching_interrupted(self, event: MatchingInterrupted) -> None:
        """This node, an owner, cannot say what a subscriber has missed."""
        untold = self._of(event.subscriber)
        untold.interrupted(event.reason)
        self._send(untold)

    def _of(self, peer: Peer) -> Untold:
        untold = self._untold.get(peer.id)
        if untold is None:
            untold = self._untold[peer.id] = Untold(peer, self.port.now)
            self._alarm.within(NOTICE_PAUSE)
        return untold

    def tell(self, peer: Peer) -> None:
        """Tell the node, which is in reach, what there is, ahead of all that is sent to it from now
        on."""
        untold = self._untold.pop(peer.id, None)
        if untold is not None and not untold.is_empty:
            self._send(untold)

    def _send(self, untold: Untold) -> None:
        """Dial the node if need be; what does not arrive comes back."""
        self.port.count("gaps_told")
        untold.tried_at = self.port.now
        self.port.send(untold.peer, untold.take())

    def on_link_up(self, event: LinkUp) -> None:
        """The node is in reach."""
        self.tell(event.peer)

    def on_link_down(self, event: LinkDown) -> None:
        """A notice may not have arrived."""
        if event.left or event.end is SessionEnd.GONE:
            self._untold.pop(event.peer.id, None)
            return
        for message in event.lost:
            if isinstance(message, DeliveriesGivenUp):
                self._of(event.peer).put_back(message)
        if event.end is SessionEnd.RESET:
            self.tell(event.peer)

    def on_message_dropped(self, event: MessageDropped) -> None:
        """There was no room for a notice on the link."""
        if isinstance(event.message, DeliveriesGivenUp):
            self._of(event.peer).put_back(event.message)

    def on_notice_due(self, timer: NoticeDue) -> None:
        """Dial those that have waited, and forget those that are away for too long."""
        self._alarm.rang()
        now = self.port.now
        for untold in list(self._untold.values()):
            waited = now - untold.tried_at
            arrived = untold.is_empty and waited >= 2 * NOTICE_PAUSE
            if arrived or now - untold.when > NOTICE_FOR:
                del self._untold[untold.peer.id]
            elif not untold.is_empty and waited >= NOTICE_PAUSE:
                self._send(untold)
        if self._untold:
            self._alarm.within(NOTICE_PAUSE)
