"""Since when deliveries to this node may be incomplete: its low-water mark (P3).

A program that loses its node has to know from when on it may miss something. That is not when the
connection was lost: a node that stands still, or is cut off, gets nothing for a while before it is
killed, and the hosts that hold deliveries for its process drop them when it has ended. So the node
tells its programs, every few seconds and behind the deliveries, up to when these are complete
(`CompleteUntil`). A node that cannot speak moves no mark.

What was published before `links.dead_after` and a little more has come, unless it waits for this
node at some host. That may be where

- this node stood still (`LocalStall`, or a timer of its own that came late);
- a link to another node is lost, which may hold something, or was lost until shortly before;
- registrations of this node have lapsed, or their leases are no longer confirmed;
- parts of the overlay may lack its registrations (`GapReports`).

Each of these holds the mark where it was before, until `SETTLES` after its end: by then what was
held has come. Times are the Port's seconds, which jump with no wall clock; a mark leaves in the
wall clock's time at which it is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from math import inf

import msgspec

from matching import Predicate
from overlay.bounded import BoundedDict
from overlay.client import CompleteUntil
from overlay.links.events import LinkDown, LinkUp, LocalStall, SessionEnd
from overlay.machine import Alarm, Machine, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.clients.constants import (
    CLOCK_SET,
    HINDRANCES_MOST,
    LOST_FOR,
    MARK_PERIOD,
    SETTLES,
    SLACK,
    STOOD_STILL,
)

# --- a subscription of a program of this node ---


class LocalSubscription(msgspec.Struct):
    """A subscription of one client of this node."""

    id: str
    client: int
    request: int
    name: str
    predicate: Predicate
    gathers: bool  # its client gets events once for all its subscriptions
    trees: tuple[tuple[str, ...], ...] = ()  # per conjunction, those it is registered in
    order: int = 0  # number of the change of this node's subscriptions by which it came …
    until: int | None = None  # … and by which it went
    acknowledged: bool = False
    level: int = 0  # latency level
    marks: bool = False  # its client wants to know up to when deliveries are complete
    since: float = 0.0  # the last such mark of another node or process; 0: it is new
    unread_for: float = 0.0  # when it ended: seconds for which no program was there to read
    missing_since: float | None = None  # it has lapsed; a time of the Port
    delivered: int = 0  # where it does not gather

    @property
    def pivots(self) -> tuple[str, ...]:
        """The trees that it is registered in, by conjunction."""
        return tuple(tree for trees in self.trees for tree in trees)

    def may_miss(self, attributes: Collection[str]) -> bool:
        """Whether an event may be meant for it that has no other attributes than these; or one that
        was to be matched in the tree of one of these. A conjunction needs all attributes that it
        may be registered under, so one is enough; whether it uses one at all is quicker to say."""
        if any(name in attributes for name in self.predicate.attributes):
            return True
        return not all(each.pivots() for each in self.predicate.conjunctions)


class MarkDue(Timer, frozen=True):
    """Time to tell programs up to when their deliveries are complete."""


class Hindrance:
    """A reason why deliveries may be incomplete since a given time."""

    __slots__ = ("over_at", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.over_at = inf
        """When it does not count any more; inf: it lasts."""


class LowWater(Machine):
    """Tells the programs of this node that want it."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        wall: Callable[[], float],
        unconfirmed_since: Callable[[], float | None],
    ) -> None:
        """`wall`: seconds since 1970; `unconfirmed_since`: since when leases of this node's
        registrations are not confirmed, None if all are."""
        super().__init__(port)
        self._lag = settings.links.dead_after + SLACK
        self._wall = wall
        self._unconfirmed_since = unconfirmed_since
        self._clients: dict[int, None] = {}
        self._hindrances: BoundedDict[Hashable, Hindrance] = BoundedDict(HINDRANCES_MOST)
        self._alarm = Alarm(port, MarkDue())
        self._due: float | None = None
        self._offsets: deque[tuple[float, float]] = deque()
        """By how much the wall clock is ahead of the Port's, since when; the last, and those before
        it that the mark reaches back to."""

    # --- programs ---

    def follow(self, client: int) -> None:
        """Tell this client from now on; its first subscription is acknowledged."""
        self._clients[client] = None
        self._tell_later()

    def forget(self, client: int) -> None:
        """Forget a client that has gone."""
        self._clients.pop(client, None)

    def _tell_later(self) -> None:
        if self._clients and self._due is None:
            self._due = self.port.now + MARK_PERIOD
            self._alarm.within(MARK_PERIOD)

    def on_mark_due(self, timer: MarkDue) -> None:
        """Tell all, and note it if this comes late: the node stood still."""
        self._alarm.rang()
        if self._due is not None:
            self._stood_still(self.port.now - self._due)
        self._due = None
        until = self._in_wall_time(self.mark)
        for client in self._clients:
            self.port.reply(client, CompleteUntil(0, until))
        self._tell_later()

    def _in_wall_time(self, mark: float) -> float:
        """Convert a time of the Port to the wall clock's time. If the clock was set since, take the
        earlier of the times by its former and its present setting."""
        offset = self._wall() - self.port.now
        if not self._offsets or abs(offset - self._offsets[-1][1]) > CLOCK_SET:
            self._offsets.append((self.port.now, offset))
        while len(self._offsets) > 1 and self._offsets[1][0] <= mark:
            self._offsets.popleft()
        return mark + min(offset for _, offset in self._offsets)

    @property
    def mark(self) -> float:
        """Up to when deliveries are complete, in the Port's seconds."""
        now = self.port.now
        for key, each in list(self._hindrances.items()):
            if each.over_at <= now:
                del self._hindrances[key]
        found = [each.since for each in self._hindrances.values()]
        if (unconfirmed := self._unconfirmed_since()) is not None:
            found.append(unconfirmed)
        return min([now - self._lag, *found])

    # --- what holds the mark ---

    def hinder(self, key: Hashable, since: float, most: float = inf) -> None:
        """Deliveries may be incomplete since then, until `cease`, or for `most` seconds."""
        known = self._hindrances.setdefault(key, Hindrance(since))
        known.since, known.over_at = min(known.since, since), self.port.now + most

    def cease(self, key: Hashable) -> None:
        """Let a hindrance end after `SETTLES`, in which the events that it held up follow."""
        known = self._hindrances.get(key)
        if known is not None:
            known.over_at = min(known.over_at, self.port.now + SETTLES)

    def on_local_stall(self, event: LocalStall) -> None:
        """The node stood still: others may have held something for it meanwhile."""
        self._stood_still(event.seconds)

    def _stood_still(self, seconds: float) -> None:
        if seconds >= STOOD_STILL:
            self.hinder(MarkDue, self.port.now - seconds - self._lag)
            self.cease(MarkDue)

    def on_link_down(self, event: LinkDown) -> None:
        """Note that deliveries may be incomplete, because another node is unreachable or holds
        events that it could not send to this one. Events held by a process that has ended are lost
        with it."""
        if event.left or event.end is SessionEnd.GONE:
            self._hindrances.pop(event.peer.id, None)
            return
        self.hinder(event.peer.id, self.port.now - self._lag, LOST_FOR)
        if event.end is SessionEnd.RESET:
            self.cease(event.peer.id)

    def on_link_up(self, event: LinkUp) -> None:
        """Let the hindrance of a node that is reachable again end, since the events that it has
        held follow."""
        self.cease(event.peer.id)
