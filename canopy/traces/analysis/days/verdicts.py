"""Judges the days that something new may have changed, and takes the others as they were judged.

The verdict on a pair follows from the records of its event, wherever and whenever they were
written, from its subscription, and from what is known of the two runs. So a day, which is that of
the publications, is judged again if

* there are new records of that day, or of events that were published on it;
* or its *basis* is another: a hash of subscriptions and runs, cut to what the events of the day can
  tell apart. That a subscription ends tomorrow changes nothing today; that records which were
  absent at midnight are there now does.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.completeness.collect import Completeness
from canopy.traces.analysis.completeness.facts import FOREVER
from canopy.traces.analysis.constants import GRACE_SECONDS, NANOSECONDS, SETTLE_SECONDS
from canopy.traces.analysis.days.intake import NUMBER_OF_EVENT, RUN_OF_EVENT, Taken
from canopy.traces.analysis.days.state import Day, EventRange, StateFolder
from canopy.traces.analysis.tasks import frame_of
from canopy.traces.analysis.verdict.deliveries import DUE, DUPLICATES, number_of
from canopy.traces.analysis.window import DAY_OF_EVENT, DAY_OF_PAIR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- one line for each day: how much was published, what became of it, and how fast it came ---


def trends(spark: SparkSession, published: DataFrame, judged: DataFrame) -> list[dict[str, Any]]:
    """By day (UTC, of the publication): day, events, expected, delivered, missing (with what was
    dropped or discarded), spurious (with unknown and corrupted), duplicates, unjudged, p50_ms and
    p99_ms (None without deliveries)."""
    counts = {
        "expected": number_of(*DUE),
        "delivered": number_of("delivered"),
        "missing": number_of("missing", "dropped", "discarded"),
        "spurious": number_of("spurious", "unknown", "corrupted"),
        "duplicates": DUPLICATES,
        "unjudged": number_of("unjudged"),
    }
    frame = spark.sql(
        f"""
        WITH pairs AS (
          SELECT {DAY_OF_PAIR} AS day, {", ".join(f"{sql} AS {to}" for to, sql in counts.items())},
            percentile(latency_ms, array(0.5, 0.99)) AS latency
          FROM {{judged}} GROUP BY 1),
        events AS (SELECT {DAY_OF_EVENT} AS day, count(*) AS events FROM {{published}} GROUP BY 1)
        SELECT day, {", ".join(f"coalesce({name}, 0) AS {name}" for name in ("events", *counts))},
          latency[0] AS p50_ms, latency[1] AS p99_ms
        FROM pairs FULL JOIN events USING (day) WHERE day IS NOT NULL ORDER BY day
        """,
        published=published.select("published"),
        judged=judged.select("published", "delivered", "verdict", "copies", "latency_ms"),
    )
    return [row.asDict() for row in frame.collect()]


GRACE: Final = int(GRACE_SECONDS * NANOSECONDS)
SETTLE: Final = int(SETTLE_SECONDS * NANOSECONDS)


def changed_days(
    spark: SparkSession,
    held: StateFolder,
    taken: Taken,
    subscribed: DataFrame,
    complete: Completeness,
    judged_by: str,
) -> frozenset[str]:
    """Return the days to judge. `judged_by`: the part of the basis that all days share."""
    state = held.state
    for of, day in taken.events:
        if day != of and not state.days[of].closed and day not in state.days[of].elsewhere:
            state.days[of].elsewhere = sorted([*state.days[of].elsewhere, day])
    changed = set(taken.days) | {of for of, _ in taken.events}
    changed |= {name for name, day in state.days.items() if day.line is None}
    changed -= set(held.closed)
    rest = {name: day for name, day in state.days.items() if name not in changed and not day.closed}
    bases = bases_of(spark, rest, subscribed, complete, judged_by)
    return frozenset(changed | {name for name, day in rest.items() if day.basis != bases[name]})


def days_to_read(held: StateFolder, judged: Iterable[str]) -> frozenset[str]:
    """Return the days whose records are needed to judge the `judged` days, including those of
    events with a record on a day that is read."""
    days = held.state.days
    wanted = set(judged)
    wanted |= {other for name in judged for other in days[name].elsewhere}
    wanted -= set(held.closed)
    before = {name for name, day in days.items() if not wanted.isdisjoint(day.elsewhere)}
    return frozenset(wanted | before)


def bases_of(
    spark: SparkSession,
    days: dict[str, Day],
    subscribed: DataFrame,
    complete: Completeness,
    judged_by: str,
) -> dict[str, str]:
    """Return by day a hash of all that its verdicts depend on beside the records of its events.
    Subscriptions and runs that ended before its first event count only where a verdict is open or
    depends on them (`note`)."""
    rows = [
        (name, day.first, day.last, day.needs)
        for name, day in days.items()
        if day.first is not None and day.last is not None
    ]
    sums: dict[str, int] = {}
    if rows:
        bounds = frame_of(spark, rows, "day string, first long, last long, needs array<string>")
        found = spark.sql(
            f"""
            SELECT day, bit_xor(xxhash64(to_json(struct(
                subscription, tree_key, tree IS NOT NULL AS has_tree, altered, client, node,
                overlay, subscribed, permitted,
                IF(alive > last + {SETTLE}, {FOREVER}, alive) AS alive,
                IF(acked > last, {FOREVER}, acked) AS acked,
                IF(ended > last + {GRACE}, NULL, ended) AS ended,
                IF(ended > last + {GRACE}, NULL, kept) AS kept,
                transform(
                  filter(holes, x -> x.until > first AND x.since < last + {SETTLE}),
                  x -> struct(x.since, least(x.until, last + 1) AS until, x.cause)) AS holes
              )))) AS sum
            FROM {{bounds}} JOIN {{subscribed}}
              ON (subscribed IS NULL OR subscribed <= last + {SETTLE})
                AND (ended IS NULL OR ended > first - {GRACE}
                  OR array_contains(needs, substring_index(subscription, '.', 2)))
            GROUP BY day
            """,
            bounds=bounds,
            subscribed=subscribed,
        ).collect()
        sums = {row["day"]: row["sum"] for row in found}
    whole = set(complete.whole)
    runs = {f"{run.node}.{run.run}" for run in complete.runs}
    homes = [
        (run.first_hlc, run.node, each.name) for each in complete.overlays for run in each.runs
    ]
    complete_names = [each.name for each in complete.overlays if each.is_whole]
    result = {}
    for name, day in days.items():
        known = {(node, at) for since, node, at in homes if day.last is None or since <= day.last}
        parts = (
            judged_by,
            str(sums.get(name)),
            repr(sorted(known)),
            repr([run for run in day.needs if run in whole]),
            # Of runs without any record it matters whether anything at all is absent.
            repr([] if runs.issuperset(day.needs) else complete_names),
        )
        result[name] = blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
    return result


def note(
    spark: SparkSession,
    held: StateFolder,
    days: Iterable[str],
    published: DataFrame,
    judged: DataFrame,
) -> None:
    """Store in the state the facts that later runs need on the publications and pairs of the judged
    `days`."""
    found = {name: held.state.days.setdefault(name, Day()) for name in days}
    for day in found.values():
        day.first = day.last = None
        day.strangers, day.needs, day.line = [], [], {}
    bounds = "SELECT day, min(at) AS first, max(at) AS last FROM {published} GROUP BY day"
    for row in spark.sql(bounds, published=published).collect():
        found[row["day"]].first, found[row["day"]].last = row["first"], row["last"]
    strangers = spark.sql(
        f"""
        SELECT day, {RUN_OF_EVENT} AS run, min({NUMBER_OF_EVENT}) AS first,
          max({NUMBER_OF_EVENT}) AS last
        FROM {{judged}} WHERE published IS NULL GROUP BY day, run
        """,
        judged=judged,
    ).collect()
    for row in strangers:
        found[row["day"]].strangers.append(EventRange(row["run"], row["first"], row["last"]))
    needs = spark.sql(
        f"""
        SELECT day, run FROM (
          SELECT day, explode(array({RUN_OF_EVENT}, substring_index(subscription, '.', 2))) AS run
          FROM {{judged}} WHERE verdict IN ('unknown', 'unjudged', 'spurious'))
        GROUP BY day, run ORDER BY day, run
        """,
        judged=judged,
    ).collect()
    for row in needs:
        found[row["day"]].needs.append(row["run"])
    for line in trends(spark, published, judged):
        found[line["day"]].line = line
