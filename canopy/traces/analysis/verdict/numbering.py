"""Finds events and subscriptions without any record, by the numbers of the others.

A process numbers its events from 1 on without gaps, and its subscriptions, and its last record says
how many there were. So one that vanished with all of its records is missed. It may have been owed
deliveries: at most one by each subscription of its overlay, and a subscription one of each event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.completeness.collect import Completeness
from canopy.traces.analysis.completeness.facts import HASHES
from canopy.traces.analysis.completeness.holes import RunFacts
from canopy.traces.analysis.tasks import frame_of, in_one_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN: Final = "substring_index({0}, '.', 2)"
NUMBER: Final = "try_cast(substring_index({0}, '.', -1) AS BIGINT)"
"""SQL: of an identity, the process that gave it and its number there."""


PIECE: Final = 100_000  # numbers that Spark holds at once, in an array
COUNTED_MOST: Final = 100_000_000
"""Numbers of a run whose hashes are computed: ten seconds of processor time. A number may be
damaged, and then any."""

DEVIATIONS: Final = 6.0  # of the count, which is binomial


@dataclass(frozen=True)
class Numbered:
    """The events, or subscriptions, of one process that have a record."""

    first: int
    last: int
    count: int
    foreign: int  # whose record was written by another process


def numbered(spark: SparkSession, made: DataFrame, identity: str) -> dict[str, Numbered]:
    """Return by `node.run` the numbers in the rows of `made`, one row for each `identity` (the name
    of a column) with the `run` (`node.run`) that wrote its record."""
    rows = spark.sql(
        f"""
        SELECT of, min(number) AS first, max(number) AS last, count(number) AS count,
               count_if(writer <> of) AS foreign
        FROM (SELECT {RUN.format(identity)} AS of, {NUMBER.format(identity)} AS number, writer
              FROM {{made}})
        WHERE number IS NOT NULL GROUP BY of
        """,
        made=in_one_task(made.select(identity, "writer")),
    ).collect()
    return {
        row["of"]: Numbered(row["first"], row["last"], row["count"], row["foreign"]) for row in rows
    }


Span = tuple[str, int, int, int]
"""A run, the numbers of its first and its last event, and the limit of the CRC-32 of those kept."""


def sampled(spark: SparkSession, spans: Iterable[Span]) -> dict[str, int]:
    """By run, how many of the events of all its spans have a CRC-32 below the limit. Of a very long
    span, which is not gone through, as many as it is at least, but for a chance of one in a
    billion."""
    found: dict[str, int] = {}
    rows: list[Span] = []
    for run, first, last, most in spans:
        count = last - first + 1
        if most < HASHES and count <= COUNTED_MOST:
            starts = range(first, last + 1, PIECE)
            rows += [(run, start, min(start + PIECE - 1, last), most) for start in starts]
            continue
        if most < HASHES:
            mean = count * most / HASHES
            count = int(mean - DEVIATIONS * mean**0.5)
        found[run] = found.get(run, 0) + count
    if not rows:
        return found
    kept = spark.sql(
        """
        SELECT run, count(*) AS events
        FROM (SELECT run, most, explode(sequence(first, last)) AS number FROM {spans})
        WHERE crc32(CAST(concat(run, '.', number) AS BINARY)) < most GROUP BY run
        """,
        spans=frame_of(spark, rows, "run string, first bigint, last bigint, most bigint"),
    ).collect()
    for row in kept:
        found[row["run"]] = found.get(row["run"], 0) + row["events"]
    return found


def spans_of(run: RunFacts, first: int, last: int, most: float) -> Iterator[Span]:
    """The events of a run from the first to the last number, by the share that was traced: at
    most `most`, and less where the run's records say so."""
    changes = [*run.shares, (last + 1, 0.0)]
    since, share = first, most
    for number, following in changes:
        if since < min(number, last + 1):
            yield _key(run), since, min(number - 1, last), int(share * HASHES)
            since = number
        share = min(most, following)


@dataclass(frozen=True)
class Unseen:
    """The events and subscriptions of an overlay without any record."""

    owed: int = 0
    """An upper bound of the deliveries that may have been due, where the records of an event or a
    subscription may be absent."""
    reasons: tuple[str, ...] = ()
    """Events and subscriptions whose absence no absent record explains, in sentences."""
    numbered: int = 0
    """Events that its nodes have published, also those that they did not trace."""


def unseen(
    spark: SparkSession,
    complete: Completeness,
    events: Mapping[str, Numbered],
    subscriptions: Mapping[str, Numbered],
    since: float,
) -> dict[str, Unseen]:
    """By overlay. Of a run that began before `since` (seconds) earlier records may have been left
    out in good order: its first events, and any of its subscriptions."""
    spans: list[Span] = []
    numbers: dict[str, int] = {}  # of the events of each run, also of those that are not kept
    for each in complete.overlays:
        for run in each.runs:
            if (span := _events_of(run, events, since)) is not None:
                spans += spans_of(run, *span, each.sample)
                numbers[_key(run)] = span[1] - span[0] + 1
    kept = sampled(spark, spans)
    found = {}
    for each in complete.overlays:
        of = {
            name: {_key(run): by[_key(run)] for run in each.runs if _key(run) in by}
            for name, by in (("event", events), ("subscription", subscriptions))
        }
        counts = {name: sum(one.count for one in by.values()) for name, by in of.items()}
        owed, reasons = 0, []
        adapts = any(run.shares for run in each.runs)
        for run in each.runs:
            there = of["event"].get(_key(run))
            absent = {"event": kept.get(_key(run), 0) - (there.count if there else 0)}
            said = run.subscribed or 0
            made = of["subscription"].get(_key(run))
            if run.first >= since and not run.begins_earlier:
                last = max(said, made.last if made else 0)
                absent["subscription"] = last - (made.count if made else 0)
            room = sum(hole.records or 0 for hole in run.holes)
            for name, number in absent.items():
                if number <= 0:
                    continue
                other = "subscription" if name == "event" else "event"
                owed += number * max(counts[other], 1)
                # One absent record may be the one by which a run has traced a share from then on.
                if number > room and not (room and adapts and name == "event"):
                    reasons.append(
                        f"by their numbers {number:,} {name}s of {run.node} "
                        "have no record, and none of its records is absent"
                    )
        foreign = sum(one.foreign for by in of.values() for one in by.values())
        if foreign:
            reasons.append(
                f"{foreign:,} events or subscriptions were recorded by other processes "
                "than their identities name"
            )
        numbered = sum(numbers.get(_key(run), 0) for run in each.runs)
        found[each.name] = Unseen(owed, tuple(reasons), numbered)
    return found


def _key(run: RunFacts) -> str:
    return f"{run.node}.{run.run}"


def _events_of(
    run: RunFacts, events: Mapping[str, Numbered], since: float
) -> tuple[int, int] | None:
    """The first and the last number of the events that a run should have records of."""
    there = events.get(_key(run))
    last = max(run.published or 0, there.last if there else 0)
    first = 1
    if run.begins_earlier:
        return None  # what share of its events it traced then, earlier records say
    if run.first < since:
        if there is None:
            return None
        first = there.first
    return (first, last) if last >= first else None
