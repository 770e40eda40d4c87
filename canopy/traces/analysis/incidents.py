"""What happened to nodes and clusters while the run went on: losses, elections, recoveries (P8).

Each node writes an ``incident`` for what it saw itself, so that the loss of one node is told by all
that talked to it. Here what several nodes saw of one thing at about the same time becomes one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS: Final = ("lost", "silent", "elected", "fenced", "member lost", "back")
"""Those that the report shows, in the order of their lanes. `role` and `joined` are no news to
somebody who reads of a whole run."""

TOGETHER: Final = 10.0
"""Seconds within which nodes see the same thing: a silent peer counts as dead after six."""

MOST: Final = 200
"""Rows in a report (wild guess); the first are shown."""


def incidents(spark: SparkSession, records: DataFrame) -> list[dict[str, Any]]:
    """time (when it was first seen), what, node (whom it befell), cluster, epoch, reason, seen (by
    how many nodes); in the order of time."""
    kinds = ", ".join(f"'{kind}'" for kind in KINDS)
    frame = spark.sql(
        f"""
        WITH told AS (
          SELECT time, node, what, peer, coalesce(name, '') AS cluster,
                 coalesce(epoch, 0) AS epoch, reason,
                 time - lag(time, 1, -1e18D) OVER (
                   PARTITION BY what, peer, coalesce(epoch, 0) ORDER BY time
                 ) > {TOGETHER!r}D AS begins
          FROM {{records}} WHERE kind = 'incident' AND what IN ({kinds})
        ), numbered AS (
          SELECT *, sum(CAST(begins AS INT)) OVER (
                   PARTITION BY what, peer, epoch ORDER BY time
                 ) AS number
          FROM told
        )
        SELECT min(time) AS time, what, peer AS node, max(cluster) AS cluster, epoch,
               min_by(reason, time) AS reason, count(DISTINCT node) AS seen
        FROM numbered GROUP BY what, peer, epoch, number
        ORDER BY time, what, peer LIMIT {MOST}
        """,
        records=records,
    )
    return [row.asDict() for row in frame.collect()]
