"""The verdict on a recovery: how long deliveries took to flow again, and what went wrong.

A *flow* is an attribute of its own with one subscription, so that each event is wanted by one
subscription or by none. The simulated trial (trial.py) and the one in real processes (bench/)
both end here. Times are seconds of one clock, whichever.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

LATE: Final = 0.5
"""Seconds from publishing to delivery that are no longer usual. Not measured; would be measured
by the slowest delivery of a run without faults."""

ROUNDING: Final = 0.002
"""Seconds by which the wall clock of a gap may differ from the clock of the trial."""

Row = dict[str, Any]

TIMES: Final = ("first_s", "all_s", "subscribe_s", "gap_s", "late_until_s")
SUMS: Final = ("published", "lost_before", "lost_after", "told", "duplicates", "spurious")


class PublishedEvent(NamedTuple):
    """An event when it was handed to the publisher's node; `wanted`: its flow's subscription is to
    get it."""

    at: float
    flow: str
    wanted: bool


class DeliveredEvent(NamedTuple):
    """A delivery to the subscription of `flow`."""

    at: float
    flow: str
    id: str


class ToldGap(NamedTuple):
    """A gap that the subscriber of these flows was told: events that were published within it may
    be missing."""

    flows: tuple[str, ...]
    since: float
    until: float

    def covers(self, event: PublishedEvent) -> bool:
        """Whether the event is one of those that may be missing."""
        is_there = self.since - ROUNDING <= event.at <= self.until + ROUNDING
        return is_there and event.flow in self.flows


class RecoveryVerdict(NamedTuple):
    """One kill. Times in seconds after it; None: not seen at all."""

    first_s: float | None
    """The first delivery of an event that was published after the kill and needed the killed."""
    all_s: float | None
    """When each flow that needed the killed had such a delivery."""
    subscribe_s: float | None
    """The first delivery to the subscription that was asked for at the kill."""
    gap_s: float
    """The longest time without a delivery in any flow."""
    late_until_s: float
    """The last delivery that took longer than `LATE`; 0.0 if none did."""
    published: int
    lost_before: int
    """Events that were published before the kill and did not come (in flight through the killed)"""
    lost_after: int
    """… and after it."""
    told: int
    """Of both, those in a gap that their subscriber was told."""
    lost_last_s: float
    """When the last lost event was published, relative to the kill; 0.0 if none is lost."""
    duplicates: int
    spurious: int

    def as_row(self) -> Row:
        """The same as plain values for JSON."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in self._asdict().items()
        }


def judge(
    sent: dict[str, PublishedEvent],
    arrivals: Iterable[DeliveredEvent],
    killed_at: float,
    needing: Iterable[str],
    subscribed: str = "",
    gaps: Sequence[ToldGap] = (),
) -> RecoveryVerdict:
    """Hold what came against what was published. `needing` are the flows that needed the killed,
    `subscribed` is the one that was subscribed to after the kill, `gaps` are what subscribers were
    told."""
    came: dict[str, float] = {}
    first: dict[str, float] = {}
    latest: dict[str, float] = {}
    duplicates = spurious = 0
    gap = late_until = 0.0
    for one in sorted(arrivals):
        event = sent.get(one.id)
        if event is None or not event.wanted or event.flow != one.flow:
            spurious += 1
            continue
        if one.id in came:
            duplicates += 1
            continue
        came[one.id] = one.at
        gap = max(gap, one.at - latest.get(one.flow, one.at))
        latest[one.flow] = one.at
        if event.at >= killed_at:
            first.setdefault(one.flow, one.at - killed_at)
        if one.at - event.at > LATE and one.at > killed_at:
            late_until = max(late_until, one.at - killed_at)
    missing = [event for name, event in sent.items() if event.wanted and name not in came]
    lost = [event.at for event in missing]
    needed = [first.get(flow) for flow in needing]
    seen = [at for at in needed if at is not None]
    return RecoveryVerdict(
        first_s=min(seen) if seen else None,
        all_s=max(seen) if seen and len(seen) == len(needed) else None,
        subscribe_s=first.get(subscribed),
        gap_s=gap,
        late_until_s=late_until,
        published=len(sent),
        lost_before=sum(at < killed_at for at in lost),
        lost_after=sum(at >= killed_at for at in lost),
        told=sum(any(gap.covers(event) for gap in gaps) for event in missing),
        lost_last_s=max(lost) - killed_at if lost else 0.0,
        duplicates=duplicates,
        spurious=spurious,
    )


def summary(kill: str, rate: float, trials: Sequence[Row]) -> Row:
    """One row of the table from the repetitions that could be measured."""
    row: Row = {"kill": kill, "rate": rate, "times": len(trials)}
    for name in TIMES:
        seen = [trial[name] for trial in trials if trial[name] is not None]
        row[name] = {
            "median": round(statistics.median(seen), 3) if seen else None,
            "most": max(seen) if seen else None,
        }
    row.update((name, sum(trial[name] for trial in trials)) for name in SUMS)
    row["failed"] = sum(not trial["recovered"] for trial in trials)
    row["trials"] = list(trials)
    return row


def is_good(row: Row) -> bool:
    """Whether all repetitions recovered, with nothing delivered that should not be."""
    return row["times"] > 0 and not row["failed"] + row["duplicates"] + row["spurious"]
