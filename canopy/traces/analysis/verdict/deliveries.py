"""The verdict on every pair of event and subscription: deliveries compared with the expected ones.

A full join of the matching pairs (`expected.py`) with the deliver records. Each pair gets one
verdict:

    delivered  expected and delivered          missing   expected and not delivered
    dropped    expected and not delivered; some node says that it gave it up (a `drop` record)
    discarded  expected and delivered at its node, which dropped it, since the program did not read
    early      delivered, published before the SUBACK    ending  … around the subscription's end
    spurious   delivered, though the selector is not true, or long after the end, or before it was
               published, or at another node than the subscription's
    unknown    delivered, but the traces lack the event or the subscription, though nothing of the
               node that should have written of it is absent
    unjudged   what would decide it may be among the records that are absent, or is unreadable, or
               its subscription waited long for the SUBACK, or has another tree than its text

`copies` above 1 are duplicates, whatever the verdict. Except for `delivered` and `dropped` every
verdict has a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.completeness.collect import sql_text
from canopy.traces.analysis.constants import NANOSECONDS, SETTLE_SECONDS
from canopy.traces.analysis.tasks import in_one_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTLE: Final = int(SETTLE_SECONDS * NANOSECONDS)

RULES: Final = (
    ("NOT is_published AND has_all_published", "unknown",
     "'the traces have no publish record of this event'"),
    ("NOT is_published", "unjudged", "'not all records of its publisher are there'"),
    ("redacted AND NOT elsewhere AND hlc > at", "unjudged",
     "'values or selectors are redacted in its records (trace.redact)'"),
    ("altered", "unjudged", "'the tree of its subscription is not that of its selector'"),
    ("NOT has_tree AND (has_selector OR has_all_subscribed)", "unknown",
     "'the traces have no readable selector of it'"),
    ("NOT has_tree", "unjudged", "'not all records of the node of its subscription are there'"),
    ("NOT has_attributes", "unjudged", "'the attributes of the event cannot be read'"),
    ("elsewhere", "spurious", "'delivered by another process than that of the subscription'"),
    ("hlc <= at", "spurious", "'delivered before it was published'"),
    ("standing IS NULL", "spurious", "'the selector is not true for this event'"),
    ("standing = 'over'", "spurious", "'published after the subscription had ended'"),
    ("standing = 'waiting' AND copies = 0", "unjudged",
     "IF(acked IS NULL, 'there is no SUBACK', 'published long after the subscription was made, and "
     "before its SUBACK')"),
    ("standing IN ('waiting', 'early')", "early", "'published before the SUBACK'"),
    ("standing = 'ending'", "ending", "'published around the end of the subscription'"),
    ("copies = 0 AND given_up IS NOT NULL", "dropped", "given_up"),
    ("copies = 0 AND hole IS NOT NULL", "unjudged", "concat('of the subscriber''s node: ', hole)"),
    ("copies = 0", "missing", "'no node says what became of it'"),
    ("discarded", "discarded", "'its program did not read in time'"),
    ("true", "delivered", "NULL"),
)  # fmt: skip
"""When a pair has which verdict and why, in SQL; the first rule that is true decides."""


DROPPED: Final = """
    WITH dropped AS (
      SELECT event, peer AS node, min(reason) AS reason FROM {records}
      WHERE kind = 'drop' AND event IS NOT NULL AND peer IS NOT NULL GROUP BY event, peer)"""
GIVEN_UP: Final = "LEFT JOIN dropped g ON m.event = g.event AND s.node = g.node"
"""SQL: what was given up for which node, and the join with it."""


def judge(
    spark: SparkSession,
    records: DataFrame,
    pairs: DataFrame,
    published: DataFrame,
    subscribed: DataFrame,
    whole: Iterable[str],
    *,
    by_hybrid_clock: bool,
    has_dropped: bool,
    has_discarded: bool,
) -> DataFrame:
    """One row per judged pair.

    event, subscription, overlay, verdict, reason, published, copies, and of the first delivery:
    delivered (seconds), node, latency_ms, attribute, hops, lo, hi. `whole` are the runs
    (`node.run`) of which no record is absent. Latencies are differences of wall clocks, or where
    these do not agree `by_hybrid_clock`. `has_dropped`: some node gave something up, and
    `has_discarded`: some of it since a program did not read it.
    """
    known = ", ".join(map(sql_text, whole)) or "''"
    dropped, given_up = (DROPPED, GIVEN_UP) if has_dropped else ("", "")
    known_all = f"substring_index({{}}, '.', 2) IN ({known})"
    joined = spark.sql(
        f"""
        {dropped}
        SELECT m.event, m.subscription, coalesce(e.overlay, s.overlay) AS overlay,
          m.standing, m.elsewhere, m.hlc, coalesce(m.at, e.at) AS at,
          {"g.reason" if has_dropped else "CAST(NULL AS STRING)"} AS given_up,
          e.event IS NOT NULL AS is_published, e.attributes IS NOT NULL AS has_attributes,
          s.tree_key IS NOT NULL AS has_tree, s.tree IS NOT NULL AS has_selector, s.acked,
          coalesce(s.altered, false) AS altered,
          coalesce(e.redacted, false) OR coalesce(s.selector LIKE 'redacted:%', false) AS redacted,
          {known_all.format("m.event")} AS has_all_published,
          {known_all.format("m.subscription")} AS has_all_subscribed,
          filter(s.holes, x -> x.until > m.at AND x.since < m.at + {SETTLE})[0].cause AS hole,
          coalesce(m.published, e.published) AS published, m.copies, m.first
        FROM {{met}} m
        LEFT JOIN {{published}} e ON m.event = e.event
        LEFT JOIN {{subscribed}} s ON m.subscription = s.subscription
        {given_up}
        """,
        records=records,
        met=in_one_task(_met(spark, records, pairs)),
        published=published.select("event", "published", "at", "overlay", "attributes", "redacted"),
        subscribed=subscribed.select(
            *("subscription", "tree_key", "tree", "node", "overlay", "acked", "holes", "altered"),
            "selector",
        ),
    )
    if has_discarded:
        joined = _with_discarded(spark, records, joined, subscribed)
    else:
        joined = joined.selectExpr("*", "false AS discarded")
    latency = "(hlc - at) / 1000000" if by_hybrid_clock else "first.latency_ms"
    verdict = " ".join(f"WHEN {condition} THEN '{name}'" for condition, name, _ in RULES)
    reason = " ".join(f"WHEN {condition} THEN {why}" for condition, _, why in RULES)
    return joined.selectExpr(
        *("event", "subscription", "overlay"),
        f"CASE {verdict} END AS verdict",
        f"CASE {reason} END AS reason",
        *("published", "copies", "first.delivered", "first.node"),
        f"CAST(IF(copies > 0, {latency}, NULL) AS DOUBLE) AS latency_ms",
        *("first.attribute", "first.hops", "first.lo", "first.hi"),
    )


def _met(spark: SparkSession, records: DataFrame, pairs: DataFrame) -> DataFrame:
    """The pairs that were delivered or owed, each with what its deliver records say."""
    return spark.sql(
        """
        WITH delivered AS (
          SELECT event, subscription, count(*) AS copies, min(hlc) AS hlc,
                 bool_or(concat(node, '.', run) <> substring_index(subscription, '.', 2))
                   AS elsewhere,
                 min_by(struct(time AS delivered, node, latency_ms, attribute, hops, lo, hi), hlc)
                   AS first
          FROM {records} WHERE kind = 'deliver' GROUP BY event, subscription)
        SELECT coalesce(p.event, d.event) AS event,
               coalesce(p.subscription, d.subscription) AS subscription,
               p.published, p.at, p.standing, coalesce(d.copies, 0) AS copies,
               d.hlc, coalesce(d.elsewhere, false) AS elsewhere, d.first
        FROM {pairs} p FULL JOIN delivered d
          ON p.event = d.event AND p.subscription = d.subscription
        WHERE d.copies IS NOT NULL OR p.standing IN ('expected', 'waiting')
        """,
        records=records,
        pairs=pairs,
    )


def _with_discarded(
    spark: SparkSession, records: DataFrame, joined: DataFrame, subscribed: DataFrame
) -> DataFrame:
    """`joined` with `discarded`: whether the node dropped what it had delivered to the program. A
    drop record names one subscription, or none: then it is for all of its program's."""
    return spark.sql(
        """
        WITH thrown AS (
          SELECT d.event, coalesce(d.subscription, s.subscription) AS subscription
          FROM {drops} d LEFT JOIN {subscribed} s
            ON d.subscription IS NULL AND d.run = substring_index(s.subscription, '.', 2)
              AND d.client = s.client
          GROUP BY 1, 2)
        SELECT j.*, t.event IS NOT NULL AS discarded
        FROM {joined} j LEFT JOIN thrown t
          ON j.event = t.event AND j.subscription = t.subscription
        """,
        drops=records.where("kind = 'drop' AND client IS NOT NULL").selectExpr(
            *("event", "subscription", "client"), "concat(node, '.', run) AS run"
        ),
        subscribed=subscribed.select("subscription", "client"),
        joined=joined,
    )


@dataclass(frozen=True)
class VerdictCounts:
    """How many pairs have which verdict, and the latencies of first deliveries in milliseconds."""

    expected: int
    delivered: int
    missing: int
    dropped: int
    discarded: int
    duplicates: int
    spurious: int
    early: int
    ending: int
    unknown: int
    unjudged: int
    latency_ms: dict[str, float | None]


VERDICTS: Final = (
    *("delivered", "missing", "dropped", "discarded", "spurious", "early", "ending", "unknown"),
    "unjudged",
)
"""The verdicts that a pair may have."""

COUNTED: Final = (
    *(f"count_if(verdict = '{kind}') AS {kind}" for kind in VERDICTS),
    "coalesce(sum(copies - 1) FILTER (WHERE copies > 1), 0) AS duplicates",
    "percentile(latency_ms, array(0.5, 0.9, 0.99, 1.0)) AS latency",
    "avg(latency_ms) AS mean",
    "var_pop(latency_ms) AS variance",
    "stddev_pop(latency_ms) AS deviation",
)
"""SQL: what `_counts_of` needs of a set of judged pairs."""


def count(judged: DataFrame) -> VerdictCounts:
    """Count the verdicts; the percentiles are exact (linear between the two nearest ranks), the
    variance (in ms squared) and the standard deviation are of all deliveries, not of a sample."""
    return _counts_of(judged.selectExpr(*COUNTED).collect()[0])


def count_by_overlay(judged: DataFrame) -> dict[str, VerdictCounts]:
    """The same for each overlay that a pair is of."""
    from pyspark.sql.functions import expr

    rows = judged.groupBy("overlay").agg(*map(expr, COUNTED)).collect()
    return {row["overlay"] or "": _counts_of(row) for row in rows}


def no_pairs() -> VerdictCounts:
    """The counts of an overlay without any pair."""
    names = ("p50", "p90", "p99", "max", "mean", "variance", "deviation")
    return VerdictCounts(
        **dict.fromkeys((*VERDICTS, "expected", "duplicates"), 0),
        latency_ms=dict.fromkeys(names),
    )


def _counts_of(row: Any) -> VerdictCounts:
    latency = dict(zip(("p50", "p90", "p99", "max"), row["latency"] or [None] * 4, strict=True))
    return VerdictCounts(
        expected=row["delivered"] + row["missing"] + row["dropped"] + row["discarded"],
        duplicates=row["duplicates"],
        latency_ms=latency | {name: row[name] for name in ("mean", "variance", "deviation")},
        **{kind: row[kind] for kind in VERDICTS},
    )
