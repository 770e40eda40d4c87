"""Events and subscriptions of which no record tells, by the numbers of the others.

A process numbers its events from 1 on without gaps, and its subscriptions, and its last record says
how many there were. So one that vanished with all of its records is missed. It may have been owed
deliveries: at most one by each subscription of its overlay, and a subscription one of each event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.completeness.collect import Completeness
from canopy.traces.analysis.completeness.holes import RunFacts
from canopy.traces.analysis.tasks import frame_of, in_one_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN: Final = "substring_index({0}, '.', 2)"
NUMBER: Final = "try_cast(substring_index({0}, '.', -1) AS BIGINT)"
"""SQL: of an identity, the process that gave it and its number there."""


@dataclass(frozen=True)
class Numbered:
    """The events, or subscriptions, of one process that have a record."""

    first: int
    last: int
    count: int
    foreign: int  # whose record was written by another process


def numbered(spark: SparkSession, made: DataFrame, identity: str) -> dict[str, Numbered]:
    """By `node.run` what there is in the rows of `made`, one for each `identity` (the name of a
    column) with the `run` (`node.run`) that wrote its record."""
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


def sampled(spark: SparkSession, spans: Mapping[str, tuple[int, int, int]]) -> dict[str, int]:
    """How many of the events from the first to the last number of each run have a CRC-32 below a
    limit: `spans` are first, last and limit by run."""
    if not spans:
        return {}
    rows = [(run, *span) for run, span in spans.items()]
    kept = spark.sql(
        """
        SELECT run, count(*) AS events
        FROM (SELECT run, most, explode(sequence(first, last)) AS number FROM {spans})
        WHERE crc32(CAST(concat(run, '.', number) AS BINARY)) < most GROUP BY run
        """,
        spans=frame_of(spark, rows, "run string, first bigint, last bigint, most bigint"),
    ).collect()
    return {row["run"]: row["events"] for row in kept}


@dataclass(frozen=True)
class Unseen:
    """What an overlay has no records of."""

    owed: int = 0
    """Deliveries that may have been owed at most, where records are absent that may have told."""
    reasons: tuple[str, ...] = ()
    """What no absent record explains, in sentences."""


def unseen(
    spark: SparkSession,
    complete: Completeness,
    events: Mapping[str, Numbered],
    subscriptions: Mapping[str, Numbered],
    since: float,
) -> dict[str, Unseen]:
    """By overlay. Of a run that began before `since` (seconds) earlier records may have been left
    out in good order: its first events, and any of its subscriptions."""
    spans = {}
    for each in complete.overlays:
        for run in each.runs if each.sample < 1 else ():
            if (span := _events_of(run, events, since)) is not None:
                spans[_key(run)] = (*span, int(each.sample * 2**32))
    kept = sampled(spark, spans)
    found = {}
    for each in complete.overlays:
        of = {name: {_key(run): by[_key(run)] for run in each.runs if _key(run) in by}
              for name, by in (("event", events), ("subscription", subscriptions))}  # fmt: skip
        counts = {name: sum(one.count for one in by.values()) for name, by in of.items()}
        owed, reasons = 0, []
        for run in each.runs:
            span = _events_of(run, events, since)
            there = of["event"].get(_key(run))
            due = 0 if span is None else kept.get(_key(run), span[1] - span[0] + 1)
            absent = {"event": due - (there.count if there else 0)}
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
                if number > room:
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
        found[each.name] = Unseen(owed, tuple(reasons))
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
    if run.first < since or run.begins_earlier:
        if there is None:
            return None
        first = there.first
    return (first, last) if last >= first else None
