"""Losses, elections and recoveries of nodes and clusters during the run (P8).

Each node writes an ``incident`` record for what it saw itself, so that the loss of one node is
reported by all that communicated with it. Here the reports of several nodes within
`INCIDENT_WINDOW` become one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.constants import INCIDENT_WINDOW, INCIDENTS_SHOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INCIDENT_KINDS: Final = (
    "link down",
    "silent",
    "elected",
    "fenced",
    "member gone",
    "identity conflict",
    "back",
)
"""The kinds that the report shows, in the order of their lanes; `role` and `joined` are left out,
since every run has many of them."""


def incidents(spark: SparkSession, records: DataFrame) -> list[dict[str, Any]]:
    """Rows in the order of time: time (when it was first seen), what, node (the one concerned),
    cluster, epoch, reason, seen (by how many nodes)."""
    kinds = ", ".join(f"'{kind}'" for kind in INCIDENT_KINDS)
    frame = spark.sql(
        f"""
        WITH reported AS (
          SELECT time, node, what, peer, coalesce(name, '') AS cluster,
                 coalesce(epoch, 0) AS epoch, reason,
                 time - lag(time, 1, -1e18D) OVER (
                   PARTITION BY what, peer, coalesce(epoch, 0) ORDER BY time
                 ) > {INCIDENT_WINDOW!r}D AS begins
          FROM {{records}} WHERE kind = 'incident' AND what IN ({kinds})
        ), numbered AS (
          SELECT *, sum(CAST(begins AS INT)) OVER (
                   PARTITION BY what, peer, epoch ORDER BY time
                 ) AS number
          FROM reported
        )
        SELECT min(time) AS time, what, peer AS node, max(cluster) AS cluster, epoch,
               min_by(reason, time) AS reason, count(DISTINCT node) AS seen
        FROM numbered GROUP BY what, peer, epoch, number
        ORDER BY time, what, peer LIMIT {INCIDENTS_SHOWN}
        """,
        records=records,
    )
    return [row.asDict() for row in frame.collect()]
