"""One line for each day: how much was published, what became of it, and how fast it came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canopy.traces.analysis.window import DAY_OF_EVENT, DAY_OF_PAIR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def trends(spark: SparkSession, published: DataFrame, judged: DataFrame) -> list[dict[str, Any]]:
    """By day (UTC, of the publication): day, events, expected, delivered, missing (with what was
    dropped or discarded), spurious (with
    unknown and corrupted), duplicates, unjudged, p50_ms and p99_ms (None
    without deliveries)."""
    frame = spark.sql(
        f"""
        WITH pairs AS (
          SELECT {DAY_OF_PAIR} AS day,
            count_if(verdict IN ('delivered', 'missing', 'dropped', 'discarded', 'corrupted'))
              AS expected,
            count_if(verdict = 'delivered') AS delivered,
            count_if(verdict IN ('missing', 'dropped', 'discarded')) AS missing,
            count_if(verdict IN ('spurious', 'unknown', 'corrupted')) AS spurious,
            coalesce(sum(copies - 1) FILTER (WHERE copies > 1), 0) AS duplicates,
            count_if(verdict = 'unjudged') AS unjudged,
            percentile(latency_ms, array(0.5, 0.99)) AS latency
          FROM {{judged}} GROUP BY 1),
        events AS (SELECT {DAY_OF_EVENT} AS day, count(*) AS events FROM {{published}} GROUP BY 1)
        SELECT day, coalesce(events, 0) AS events, coalesce(expected, 0) AS expected,
          coalesce(delivered, 0) AS delivered, coalesce(missing, 0) AS missing,
          coalesce(spurious, 0) AS spurious, coalesce(duplicates, 0) AS duplicates,
          coalesce(unjudged, 0) AS unjudged, latency[0] AS p50_ms, latency[1] AS p99_ms
        FROM pairs FULL JOIN events USING (day) WHERE day IS NOT NULL ORDER BY day
        """,
        published=published.select("published"),
        judged=judged.select("published", "delivered", "verdict", "copies", "latency_ms"),
    )
    return [row.asDict() for row in frame.collect()]
