"""Pairs of event and subscription that are wrong: by node, cause and time, and examples.

A pair has the kind of its verdict; one that was delivered more than once has the kind
`duplicates`, too. Both the groups and the examples have a quota per kind, so that thousands of one
kind neither fill a report nor hide two of another. All is cut by Spark before it reaches this
process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.constants import EPISODE_SECONDS, EXAMPLES_SHOWN, GROUPS_SHOWN
from canopy.traces.analysis.tasks import computed_once, in_one_task
from canopy.traces.analysis.verdict.deliveries import VerdictCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

KINDS: Final = (
    *("missing", "corrupted", "spurious", "duplicates", "unknown", "dropped", "discarded"),
    "unjudged",
)
"""The faults of a pair, the worst first."""

RANK: Final = "array_position(array({}), kind)".format(", ".join(f"'{kind}'" for kind in KINDS))


@dataclass(frozen=True)
class WrongPairs:
    """The pairs that are neither right nor allowed."""

    groups: list[Row] = field(default_factory=list)
    """kind, node (the subscriber's), by (who gave up what was dropped, else None), cause, count
    (deliveries; of duplicates those too many), events, subscriptions (distinct ones), first and
    last (times of publication); and `groups`: how many there are of the kind. The worst kind first,
    of a kind the largest."""
    examples: list[Row] = field(default_factory=list)
    """kind, cause, by, copies, event, id, publisher, published, subscription, name, node, selector,
    attributes; of each kind the first by time of publication."""


def find_wrong(
    spark: SparkSession,
    records: DataFrame,
    judged: DataFrame,
    published: DataFrame,
    subscribed: DataFrame,
    counts: VerdictCounts,
) -> WrongPairs:
    """Group all pairs that are wrong or not judged, and choose examples of each kind."""
    if not any(getattr(counts, kind) for kind in KINDS):
        return WrongPairs()
    pairs = computed_once(in_one_task(_explained(spark, records, judged, subscribed)))
    return WrongPairs(
        [row.asDict() for row in _groups(spark, pairs).collect()],
        [row.asDict() for row in _examples(spark, pairs, published, subscribed).collect()],
    )


def _explained(
    spark: SparkSession, records: DataFrame, judged: DataFrame, subscribed: DataFrame
) -> DataFrame:
    """kind, node, by, cause, copies, event, subscription, published, name of each wrong pair."""
    return spark.sql(
        f"""
        WITH chosen AS (
          SELECT j.event, j.subscription, j.published, j.copies, j.reason, s.name,
            coalesce(s.node, j.node) AS node,
            explode(filter(array(
              IF(j.verdict NOT IN ('delivered', 'early', 'ending', 'withheld'), j.verdict, NULL),
              IF(j.copies > 1, 'duplicates', NULL)), kind -> kind IS NOT NULL)) AS kind
          FROM {{judged}} j LEFT JOIN {{subscribed}} s ON j.subscription = s.subscription
          WHERE j.verdict NOT IN ('delivered', 'early', 'ending', 'withheld') OR j.copies > 1),
        seen AS (
          SELECT c.event, c.node, {SEEN}
          FROM (SELECT DISTINCT event, node FROM chosen WHERE kind IN ('missing', 'dropped')) c
          JOIN {{records}} r ON c.event = r.event GROUP BY c.event, c.node)
        SELECT c.kind, c.node, IF(c.kind = 'dropped', seen.by, NULL) AS by,
          CASE c.kind WHEN 'missing' THEN {LAST_SEEN} WHEN 'duplicates' THEN 'delivered again'
            ELSE c.reason END AS cause,
          c.copies, c.event, c.subscription, c.published, c.name
        FROM chosen c LEFT JOIN seen ON c.event = seen.event AND c.node = seen.node
          AND c.kind IN ('missing', 'dropped')
        """,
        judged=judged,
        subscribed=subscribed.select("subscription", "node", "name"),
        records=records.where("event IS NOT NULL").select(
            "event", "kind", "node", "peer", "reason", "client", "recipients"
        ),
    )


SEEN: Final = """
    bool_or(r.kind = 'deliver' AND r.node = c.node) AS delivered,
    bool_or(r.kind = 'recheck_failed' AND r.node = c.node) AS refused,
    bool_or(r.kind = 'arrive' AND r.node = c.node) AS arrived,
    array_join(slice(sort_array(collect_set(r.reason) FILTER (WHERE
      r.kind = 'drop' AND coalesce(r.peer = c.node, r.client IS NULL))), 1, 3), ', ') AS drops,
    min(r.node) FILTER (WHERE r.kind = 'drop' AND r.peer = c.node) AS by,
    bool_or(r.kind = 'forward' AND r.peer = c.node) AS sent,
    count_if(r.kind = 'match' AND r.recipients > 0) AS matches,
    bool_or(r.kind = 'visit') AS visited,
    bool_or(r.kind = 'publish') AS published
"""
"""SQL: the way of an event toward the node of `c`, from its records `r`."""

LAST_SEEN: Final = """CASE
    WHEN seen.delivered THEN 'arrived, and was delivered to other subscriptions of its node alone'
    WHEN seen.refused THEN 'arrived, but the check of its node found no match'
    WHEN seen.arrived THEN 'arrived at its node and was not delivered'
    WHEN seen.drops <> '' THEN concat('dropped: ', seen.drops)
    WHEN seen.sent THEN 'sent to its node and never arrived'
    WHEN seen.matches > 0 THEN concat('sent to others by ', seen.matches, ' virtual ',
      IF(seen.matches = 1, 'node', 'nodes'), ', but not to its node')
    WHEN seen.visited THEN 'sent toward a tree, but no virtual node found anybody interested'
    WHEN seen.published THEN 'published, but sent nowhere'
    ELSE 'no record of it' END"""
"""SQL: how far a missing event got on its way to the subscriber's node."""


def _groups(spark: SparkSession, pairs: DataFrame) -> DataFrame:
    """The groups of each kind: pairs of one node and cause that were published one soon after
    another."""
    return spark.sql(
        f"""
        WITH begun AS (
          SELECT *, coalesce(published - lag(published) OVER (
              PARTITION BY kind, node, by, cause ORDER BY published
            ) > {EPISODE_SECONDS!r}D, true) AS begins FROM {{pairs}}),
        numbered AS (
          SELECT *, sum(CAST(begins AS INT)) OVER (
              PARTITION BY kind, node, by, cause ORDER BY published
              ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS episode FROM begun),
        grouped AS (
          SELECT kind, node, by, cause,
            CAST(sum(IF(kind = 'duplicates', copies - 1, 1)) AS BIGINT) AS count,
            count(DISTINCT event) AS events, count(DISTINCT subscription) AS subscriptions,
            min(published) AS first, max(published) AS last
          FROM numbered GROUP BY kind, node, by, cause, IF(published IS NULL, 0, episode)),
        ranked AS (
          SELECT *, count(*) OVER (PARTITION BY kind) AS groups, row_number() OVER (
              PARTITION BY kind ORDER BY count DESC, first, node, cause) AS place FROM grouped)
        SELECT kind, node, by, cause, count, events, subscriptions, first, last, groups
        FROM ranked WHERE place <= {GROUPS_SHOWN} ORDER BY {RANK}, place
        """,
        pairs=pairs,
    )


def _examples(
    spark: SparkSession, pairs: DataFrame, published: DataFrame, subscribed: DataFrame
) -> DataFrame:
    """The first pairs of each kind."""
    return spark.sql(
        f"""
        WITH ranked AS (
          SELECT *, row_number() OVER (
            PARTITION BY kind ORDER BY published, event, subscription) AS place FROM {{pairs}})
        SELECT r.kind, r.cause, r.by, r.copies, r.event, p.id, p.publisher, r.published,
          r.subscription, r.name, r.node, s.selector, substr(p.attributes, 1, 400) AS attributes
        FROM ranked r
        LEFT JOIN {{published}} p ON r.event = p.event
        LEFT JOIN {{subscribed}} s ON r.subscription = s.subscription
        WHERE r.place <= {EXAMPLES_SHOWN} ORDER BY {RANK}, r.place
        """,
        pairs=pairs,
        published=published.select("event", "id", "publisher", "attributes"),
        subscribed=subscribed.select("subscription", "selector"),
    )
