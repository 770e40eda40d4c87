"""The lists of the report: distributions, examples, the run over time.

Every list has a limit and is cut by Spark before it reaches this process, so that the report of a
million events is as large as that of a hundred.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.constants import (
    BINS_PER_DECADE,
    CORRUPT_SHOWN,
    LEAST_MS,
    SUBSCRIPTIONS_SHOWN,
    TIME_BINS,
)
from canopy.traces.analysis.parsing.blocks import CORRUPT
from canopy.traces.analysis.verdict.deliveries import DUE, DUPLICATES, number_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


@dataclass(frozen=True)
class Waits:
    """The waiting times of subscriptions for their SUBACKs, in milliseconds."""

    acked: int
    unacked: int
    p50: float | None
    most: float | None
    slowest: list[Row]
    """The subscriptions with deliveries of events that were published before them, then those that
    waited longest: rows of `subscription_table` with `waited_ms`."""


@dataclass(frozen=True)
class Details:
    """All lists of the report; the functions of this file describe their columns."""

    latency: list[tuple[int, int]]
    subscriptions: list[Row]
    corrupt: list[Row]
    corrupt_examples: list[Row]
    reasons: list[Row]
    timeline: list[Row]
    bin_seconds: float
    withheld: list[Row]
    waits: Waits


def _rows(frame: DataFrame) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def latency_histogram(bins: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """(column, deliveries), sorted, of judged pairs by bin of latency (`latencies.PairBins`);
    column c holds 10^(c/B) to 10^((c+1)/B) ms, B = BINS_PER_DECADE."""
    found: Counter[int] = Counter()
    for row in bins:
        if row["bin"] is not None:
            mean = max(row["total"] / row["pairs"], LEAST_MS)
            found[math.floor(math.log10(mean) * BINS_PER_DECADE)] += row["pairs"]
    return sorted(found.items())


def subscription_table(spark: SparkSession, subscribed: DataFrame, judged: DataFrame) -> DataFrame:
    """One row per subscription: who, what, and how many expected, delivered, missing, wrong. Its
    times are seconds by the hybrid logical clock."""
    counts = {
        "expected": number_of(*DUE),
        **{verdict: number_of(verdict) for verdict in (*DUE, "unjudged", "withheld", "spurious")},
        "either_way": number_of("early", "ending"),
        "duplicates": DUPLICATES,
        "early": number_of("early"),
    }
    return spark.sql(
        f"""
        WITH counted AS (
          SELECT subscription, {", ".join(f"{sql} AS {name}" for name, sql in counts.items())},
                 percentile(latency_ms, array(0.5D, 0.9D, 0.99D)) AS shares,
                 max(latency_ms) AS max_ms
          FROM {{judged}} GROUP BY subscription)
        SELECT s.subscription, s.name, s.node, s.selector, s.tree, s.overlay,
               s.subscribed / 1e9D AS subscribed, s.acked / 1e9D AS acked, s.ended / 1e9D AS ended,
               s.tree_key IS NOT NULL OR s.altered AS readable, s.altered,
               {", ".join(f"coalesce(c.{name}, 0) AS {name}" for name in counts)},
               c.shares[0] AS p50_ms, c.shares[1] AS p90_ms, c.shares[2] AS p99_ms, c.max_ms
        FROM {{subscribed}} s LEFT JOIN counted c ON s.subscription = c.subscription
        """,
        subscribed=subscribed,
        judged=judged,
    )


def worst_subscriptions(table: Any) -> list[Row]:
    """The first subscriptions for the report, of the Arrow table of `subscription_table`: those
    whose tree is not that of their selector, then those with faults, then those with most
    events."""
    names = ["altered", *FAULTS, "expected", "name", "subscription"]
    every = zip(*(table[name].to_pylist() for name in names), strict=True)

    def key(row: tuple[Any, ...]) -> Any:
        altered, *faults, expected, name, subscription, _ = row
        return not altered, -sum(faults), -expected, name is not None, name, subscription

    first = sorted(((*row, at) for at, row in enumerate(every)), key=key)[:SUBSCRIPTIONS_SHOWN]
    rows: list[Row] = [table.slice(row[-1], 1).to_pylist()[0] for row in first]
    return [row if row["altered"] else row | {"tree": None} for row in rows]  # trees are long


def withheld_most(table: Any) -> list[Row]:
    """Return the subscriptions with most withheld pairs, from the table of `subscription_table`."""
    import pyarrow.compute as pc

    some = table.filter(pc.greater(table["withheld"], 0))
    order = [("withheld", "descending"), ("subscription", "ascending")]
    rows: list[Row] = some.take(pc.select_k_unstable(some, WITHHELD_SHOWN, order)).to_pylist()
    return rows


def waits_of(table: Any) -> Waits:
    """Return the waiting times of the subscriptions in the table of `subscription_table`."""
    import pyarrow.compute as pc

    waited = pc.multiply(pc.subtract(table["acked"], table["subscribed"]), 1e3)
    known = table.append_column("waited_ms", waited).filter(pc.is_valid(waited))
    if not len(known):
        return Waits(0, len(table), None, None, [])
    order = [("early", "descending"), ("waited_ms", "descending"), ("subscription", "ascending")]
    return Waits(
        len(known),
        len(table) - len(known),
        pc.quantile(known["waited_ms"], 0.5)[0].as_py(),
        pc.max(known["waited_ms"]).as_py(),
        known.take(pc.select_k_unstable(known, WAITS_SHOWN, order)).to_pylist(),
    )


WITHHELD_SHOWN: Final = 20
WAITS_SHOWN: Final = 10

FAULTS: Final = ("missing", "dropped", "discarded", "corrupted", "spurious", "duplicates")


def counts_of(row: Row) -> dict[str, Any]:
    """Return the numbers of one subscription, with its name; `made`: all deliveries, including
    wrong ones. With the selector and its tree if these differ."""
    counts = {name: row[name] for name in ("expected", "delivered", *FAULTS, "withheld")}
    made = (
        row["delivered"]
        + row["discarded"]
        + row["corrupted"]
        + row["spurious"]
        + row["either_way"]
        + row["duplicates"]
    )
    named = {"subscription": row["subscription"], "name": row["name"]}
    if row["altered"]:
        named |= {"selector": row["selector"], "tree": row["tree"]}
    return {**named, **counts, "made": made}


def corrupt_lines(tally: Iterable[Row]) -> list[Row]:
    """Corrupt lines by problem, the most first, from the rows of a `tally`."""
    found: Counter[str] = Counter()
    for row in tally:
        if row["kind"] == CORRUPT:
            found[row["problem"]] += row["count"]
    ordered = sorted(((count, problem) for problem, count in found.items()), reverse=True)
    return [{"problem": problem, "count": count} for count, problem in ordered[:CORRUPT_SHOWN]]


def corrupt_examples(records: DataFrame) -> list[Row]:
    """A few of the corrupt lines, with file and text."""
    kept = records.where(f"kind = '{CORRUPT}'").select("problem", "file", "line")
    return _rows(kept.orderBy("problem", "file", "line").limit(20))


def loss_reasons(tally: Iterable[Row]) -> list[Row]:
    """Return kind (drop or refused), reason, count: drops and refusals that nodes have recorded."""
    found: Counter[tuple[str, str | None]] = Counter()
    for row in tally:
        if row["kind"] in ("drop", "refused"):
            found[row["kind"], row["reason"]] += row["count"]
    return [
        {"kind": kind, "reason": reason, "count": count}
        for (kind, reason), count in found.most_common(20)
    ]


def timeline(spark: SparkSession, records: DataFrame, first: float, width: float) -> list[Row]:
    """bin, published, delivered, messages per time bin, each `width` seconds long."""
    return _rows(
        spark.sql(
            f"""
            SELECT least(CAST(floor((time - {first!r}D) / {width!r}D) AS INT), {TIME_BINS - 1})
                     AS bin,
                   count_if(kind = 'publish') AS published,
                   count_if(kind = 'deliver') AS delivered,
                   count_if(kind IN ('walk_hop', 'visit', 'forward')) AS messages
            FROM {{records}} WHERE kind IN ('publish', 'deliver', 'walk_hop', 'visit', 'forward')
            GROUP BY 1 ORDER BY 1
            """,
            records=records,
        )
    )
