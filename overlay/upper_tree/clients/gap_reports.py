"""Reports to programs that events may be missing which other nodes were to deliver (P3).

A notice (`DeliveriesGivenUp`) says how many deliveries were given up, and which attributes their
events had; or that this node's registrations in some trees had ended. A program hears of it if that
may concern a subscription of it, with the ids of those that it may concern, unless it is all. After
registrations had ended it hears once more, when the whole overlay has them again.

A notice may come before a program has found its node again, whose former process it is about. So
the last notices are kept, and a program whose subscription goes on here hears of those that came
since its last mark (low_water.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from overlay.client import Dropped
from overlay.machine import Alarm, Machine, Port, Timer
from overlay.upper_tree.clients.constants import GAP_LASTS, MISSED_MOST, NAMED_MOST
from overlay.upper_tree.clients.low_water import LocalSubscription, LowWater
from overlay.upper_tree.events import DeliveriesMissed, HostsReplaced
from overlay.upper_tree.messages import DeliveriesGivenUp


class GapOver(Timer, frozen=True):
    """The whole overlay has this node's registrations again."""


class OpenGap:
    """Registrations of this node may be unknown in a part of the overlay."""

    def __init__(self, since: float | None, attributes: frozenset[str]) -> None:
        """`since`: a time of the Port, None if it is not known; `attributes`: as in the notice."""
        self.since = since
        self.attributes = attributes

    def join(self, other: OpenGap) -> None:
        """Join the gap of another notice with this one."""
        ends = (self.since, other.since)
        self.since = None if None in ends else min(end for end in ends if end is not None)
        both = self.attributes and other.attributes
        self.attributes = self.attributes | other.attributes if both else frozenset()


class ToldNotice(NamedTuple):
    """A notice that programs were told, the attributes that it is about (empty: any), and when, by
    the Port's seconds and by the wall clock."""

    notice: Dropped
    attributes: frozenset[str]
    at: float
    wall: float


class GapReports(Machine):
    """Tells the programs of this node."""

    def __init__(
        self,
        port: Port,
        subscriptions: Mapping[str, LocalSubscription],
        low_water: LowWater,
        wall: Callable[[], float],
    ) -> None:
        """`subscriptions`: of all programs, by id, as they are when a notice comes; `wall`: seconds
        since 1970."""
        super().__init__(port)
        self._low_water = low_water
        self._wall = wall
        self._told: deque[ToldNotice] = deque(maxlen=MISSED_MOST)
        self.missed: deque[DeliveriesGivenUp] = deque(maxlen=MISSED_MOST)
        """The last notices, for `canopy why`."""
        self._subscriptions = subscriptions
        self._open: OpenGap | None = None
        self._over = Alarm(port, GapOver())

    def on_deliveries_missed(self, event: DeliveriesMissed) -> None:
        """Another node has given up deliveries to this one, or did not match for it."""
        found = event.notice
        self.missed.append(found)
        where = (found.count, found.first, found.last, found.since, found.until)
        attributes = frozenset(found.attributes)
        if not found.lapsed:
            reason = f"{found.count} deliveries to this node were given up: {found.reason}"
            self._report(Dropped(0, "unreachable", reason, *where), attributes)
            return
        reason = f"events that were published meanwhile may be missing: {found.reason}"
        notice = Dropped(0, "lapsed", reason, *where, seconds=found.lapsed_for)
        self._report(notice, attributes)
        since = self.port.now - found.lapsed_for if found.lapsed_for else None
        gap = OpenGap(since, attributes)
        if self._open is None:
            self._open = gap
        else:
            self._open.join(gap)
        self._low_water.hinder(GapOver, self.port.now - found.lapsed_for)
        self._over.within(GAP_LASTS)

    def on_hosts_replaced(self, event: HostsReplaced) -> None:
        """Report a gap after this node stalled and hosts ended that may have held events for it."""
        reason = (
            "this node stood still, and hosts that may have held events for it have ended: "
            f"events of the last {event.seconds:.1f} s may be missing"
        )
        notice = Dropped(0, "lapsed", reason, 0, "", "", 0.0, 0.0, seconds=event.seconds)
        self._report(notice, frozenset(event.trees))

    def on_gap_over(self, timer: GapOver) -> None:
        """Parts of the overlay may have lacked registrations of this node until now."""
        self._over.rang()
        gap, self._open = self._open, None
        if gap is not None:
            reason = "events that were published until now may be missing: the overlay was divided"
            seconds = 0.0 if gap.since is None else self.port.now - gap.since
            notice = Dropped(0, "lapsed", reason, 0, "", "", 0.0, 0.0, seconds=seconds)
            self._report(notice, gap.attributes)
            self._low_water.cease(GapOver)

    def acknowledged(self, mine: LocalSubscription) -> None:
        """Report to the client of an acknowledged subscription the gaps that others heard of since
        it was lost."""
        for told in self._told if mine.since else ():
            if told.wall < mine.since or (told.attributes and not mine.may_miss(told.attributes)):
                continue
            notice = told.notice
            if notice.seconds:
                seconds = notice.seconds + self.port.now - told.at
                notice = msgspec.structs.replace(notice, seconds=seconds)
            self.port.reply(mine.client, notice.of((mine.id,)))

    def _report(self, notice: Dropped, attributes: frozenset[str]) -> None:
        """Send a notice to the clients of acknowledged subscriptions that it may concern.
        `attributes`: of the events that may be missing, or whose trees did not match; empty: not
        known."""
        self._told.append(ToldNotice(notice, attributes, self.port.now, self._wall()))
        concerned: dict[int, list[str]] = {}
        others: dict[int, None] = {}
        for mine in self._subscriptions.values():
            if mine.acknowledged and (not attributes or mine.may_miss(attributes)):
                concerned.setdefault(mine.client, []).append(mine.id)
            elif mine.acknowledged:
                others[mine.client] = None
        for client, ids in concerned.items():
            named = tuple(ids) if client in others and len(ids) <= NAMED_MOST else ()
            self.port.reply(client, notice.of(named))
