"""What the policy left of tenants' subscriptions, from their nodes' records.

A `subscribe` record of a tenant's node has the tree of what the policy leaves of the selector, and
a `confined` record that of each later policy. The policy comes to owners and hosts some seconds
earlier or later than to that node, so that near a change either may have decided.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.completeness.facts import FOREVER
from canopy.traces.analysis.constants import NANOSECONDS, SETTLE_SECONDS
from canopy.traces.analysis.selection.trees import TreeError, condition, parse_tree
from canopy.traces.analysis.tasks import few, in_one_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTLE: Final = int(SETTLE_SECONDS * NANOSECONDS)


def permitted_stretches(spark: SparkSession, records: DataFrame) -> DataFrame:
    """One row per policy that confined a subscription: subscription, since, until (hybrid logical
    clock), permitted (JSON text), permitted_key."""
    return spark.sql(
        f"""
        SELECT subscription, permitted, md5(permitted) AS permitted_key,
          IF(kind = 'subscribe', 0L, hlc) AS since,
          coalesce(lead(hlc) OVER (PARTITION BY subscription ORDER BY hlc), {FOREVER}) AS until
        FROM {{records}} WHERE kind IN ('subscribe', 'confined') AND permitted IS NOT NULL
        """,
        records=records.select("kind", "subscription", "permitted", "hlc"),
    )


def readable(stretches: DataFrame) -> list[tuple[str, str]]:
    """The key and the text of each different tree; of one that cannot be read it is NULL, which
    matches nothing."""
    found = []
    for row in stretches.select("permitted_key", "permitted").distinct().collect():
        try:
            condition(parse_tree(row["permitted"]))
        except TreeError:
            continue
        found.append((row["permitted_key"], row["permitted"]))
    return sorted(found)


def with_policy(
    spark: SparkSession,
    pairs: DataFrame,
    hits: DataFrame,
    stretches: DataFrame,
    keys: Sequence[str],
) -> DataFrame:
    """The `pairs` with the standing that the policy leaves them. `hits` are the events that each
    tree selects, by its place in `keys`."""
    listed = json.dumps(list(keys))  # hashes: no text of a user is in it
    return in_one_task(
        spark.sql(
            f"""
            WITH seen AS (
              SELECT p.event, p.subscription, bool_or(h.event IS NOT NULL) AS may,
                     bool_and(h.event IS NOT NULL) AS must
              FROM {{pairs}} p JOIN {{stretches}} c ON p.subscription = c.subscription
                AND p.at > c.since - {SETTLE} AND p.at < c.until
                                                         + IF(c.until < {FOREVER}, {SETTLE}, 0)
              LEFT JOIN {{hits}} h ON p.event = h.event
                AND c.permitted_key = from_json('{listed}', 'array<string>')[h.tree]
              GROUP BY p.event, p.subscription)
            SELECT p.event, p.subscription, p.published, p.at,
              CASE WHEN seen.must OR seen.may IS NULL OR p.standing = 'over' THEN p.standing
                   WHEN seen.may THEN IF(p.standing = 'expected', 'changing', p.standing)
                   WHEN p.standing = 'expected' THEN 'withheld'
                   ELSE 'outside' END AS standing
            FROM {{pairs}} p LEFT JOIN seen
              ON p.event = seen.event AND p.subscription = seen.subscription
            """,
            pairs=pairs,
            hits=hits,
            stretches=few(stretches),
        )
    )
