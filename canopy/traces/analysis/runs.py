"""The runs of a node: one per start of its process.

A run begins with a `start` record and has all records of its node up to the next one; what comes
before the first `start` is run 0. Subscriptions end with the run in which they were made, and
counters begin anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_runs(spark: SparkSession, records: DataFrame) -> DataFrame:
    """`records` with the column `run`, the number of their node's run, counted from 1.

    Needs the columns node, kind and time.
    """
    return spark.sql(
        """
        WITH starts AS (
          SELECT node, collect_list(time) AS times FROM {records}
          WHERE kind = 'start' GROUP BY node)
        SELECT coalesce(size(filter(s.times, x -> x <= r.time)), 0) AS run, r.*
        FROM {records} r LEFT JOIN starts s ON r.node = s.node
        """,
        records=records,
    )
