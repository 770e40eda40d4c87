"""The verdict on every pair of event and subscription: deliveries compared with the expected ones.

A full join of the matching pairs (`expected.py`) with the deliver records. Each pair gets one
verdict:

    delivered  expected and delivered          missing   expected and not delivered
    dropped    expected and not delivered; some node says that it gave it up (a `drop` record)
    early      delivered, published before the SUBACK    ending  … around the subscription's end
    spurious   delivered, though the selector is not true, or long after the end
    unknown    delivered, but the traces lack the event or the subscription

`copies` above 1 are duplicates, whatever the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canopy.traces.analysis.tasks import in_one_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def judge(
    spark: SparkSession,
    records: DataFrame,
    pairs: DataFrame,
    published: DataFrame,
    subscribed: DataFrame,
) -> DataFrame:
    """One row per judged pair.

    event, subscription, verdict, reason, published, copies, and of the first delivery: delivered
    (seconds), node, latency_ms, attribute, hops, lo, hi.
    """
    met = spark.sql(
        """
        WITH delivered AS (
          SELECT event, subscription, count(*) AS copies,
                 min_by(struct(time AS delivered, node, latency_ms, attribute, hops, lo, hi), time)
                   AS first
          FROM {records} WHERE kind = 'deliver' GROUP BY event, subscription)
        SELECT coalesce(p.event, d.event) AS event,
               coalesce(p.subscription, d.subscription) AS subscription,
               p.published, p.standing, d.copies, d.first
        FROM {pairs} p FULL JOIN delivered d
          ON p.event = d.event AND p.subscription = d.subscription
        WHERE d.copies IS NOT NULL OR p.standing = 'expected'
        """,
        records=records,
        pairs=pairs,
    )
    return spark.sql(
        """
        WITH dropped AS (
          SELECT event, peer AS node, min(reason) AS reason FROM {records}
          WHERE kind = 'drop' AND event IS NOT NULL AND peer IS NOT NULL GROUP BY event, peer)
        SELECT m.event, m.subscription,
          CASE WHEN m.standing = 'expected' AND m.copies IS NULL AND g.event IS NOT NULL
                 THEN 'dropped'
               WHEN m.standing = 'expected' AND m.copies IS NULL THEN 'missing'
               WHEN m.standing = 'expected' THEN 'delivered'
               WHEN m.standing IN ('early', 'ending') THEN m.standing
               WHEN m.standing = 'over' THEN 'spurious'
               WHEN e.event IS NULL OR s.tree_key IS NULL THEN 'unknown'
               ELSE 'spurious' END AS verdict,
          CASE WHEN m.standing = 'over' THEN 'published after the subscription had ended'
               WHEN m.standing = 'expected' AND m.copies IS NULL THEN g.reason
               WHEN m.standing IS NOT NULL THEN NULL
               WHEN e.event IS NULL THEN 'the traces have no publish record of this event'
               WHEN s.tree_key IS NULL THEN 'the traces have no readable selector of it'
               ELSE 'the selector is not true for this event' END AS reason,
          coalesce(m.published, e.published) AS published,
          coalesce(m.copies, 0) AS copies, m.first.*
        FROM {met} m
        LEFT JOIN {published} e ON m.event = e.event
        LEFT JOIN {subscribed} s ON m.subscription = s.subscription
        LEFT JOIN dropped g ON m.event = g.event AND s.node = g.node
        """,
        records=records,
        met=in_one_task(met),
        published=published.select("event", "published"),
        subscribed=subscribed.select("subscription", "tree_key", "node"),
    )


@dataclass(frozen=True)
class VerdictCounts:
    """How many pairs have which verdict, and the latencies of first deliveries in milliseconds."""

    expected: int
    delivered: int
    missing: int
    dropped: int
    duplicates: int
    spurious: int
    early: int
    ending: int
    unknown: int
    latency_ms: dict[str, float | None]


def count(judged: DataFrame) -> VerdictCounts:
    """Count the verdicts; the percentiles are exact (linear between the two nearest ranks), the
    variance (in ms squared) and the standard deviation are of all deliveries, not of a sample."""
    kinds = ("delivered", "missing", "dropped", "spurious", "early", "ending", "unknown")
    row = judged.selectExpr(
        *(f"count_if(verdict = '{kind}') AS {kind}" for kind in kinds),
        "coalesce(sum(copies - 1) FILTER (WHERE copies > 1), 0) AS duplicates",
        "percentile(latency_ms, array(0.5, 0.9, 0.99, 1.0)) AS latency",
        "avg(latency_ms) AS mean",
        "var_pop(latency_ms) AS variance",
        "stddev_pop(latency_ms) AS deviation",
    ).collect()[0]
    latency = dict(zip(("p50", "p90", "p99", "max"), row["latency"] or [None] * 4, strict=True))
    return VerdictCounts(
        expected=row["delivered"] + row["missing"] + row["dropped"],
        duplicates=row["duplicates"],
        latency_ms=latency | {name: row[name] for name in ("mean", "variance", "deviation")},
        **{kind: row[kind] for kind in kinds},
    )
