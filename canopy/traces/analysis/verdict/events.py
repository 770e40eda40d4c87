"""Events whose own records are wrong or absent, whoever was to get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class EventFaults:
    """Numbers of events, by overlay or by the run (`node.run`) of their publisher."""

    republished: dict[str, int]  # by overlay: of more than one publish record
    unreadable: dict[str, int]  # by overlay: whose attributes are no JSON object
    unpublished: dict[str, int]
    """By run: without a publish record and without a delivery, though nodes handled them."""


def find_faults(spark: SparkSession, published: DataFrame, lost: dict[str, int]) -> EventFaults:
    """Count the events of each kind of fault; the `lost` ones are `unpublished`."""
    rows = spark.sql(
        """
        SELECT overlay, count_if(times > 1) AS again,
          count_if(attributes IS NULL AND NOT redacted) AS unreadable
        FROM {published} GROUP BY overlay
        """,
        published=published,
    ).collect()
    return EventFaults(
        republished={row["overlay"] or "": row["again"] for row in rows},
        unreadable={row["overlay"] or "": row["unreadable"] for row in rows},
        unpublished=lost,
    )


def unpublished(spark: SparkSession, records: DataFrame) -> dict[str, int]:
    """By run of the publisher the events without a publish record and without a delivery, though
    nodes handled them."""
    lost = spark.sql(
        """
        SELECT substring_index(event, '.', 2) AS run, count(*) AS events FROM (
          SELECT event, bool_or(kind IN ('publish', 'deliver')) AS known,
            bool_or(kind IN ('visit', 'forward', 'arrive') OR recipients > 0) AS handled
          FROM {records}
          WHERE kind IN ('publish', 'deliver', 'visit', 'forward', 'arrive', 'match')
          GROUP BY event)
        WHERE handled AND NOT known GROUP BY 1
        """,
        records=records,
    ).collect()
    return {row["run"]: row["events"] for row in lost}
