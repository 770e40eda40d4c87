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


def find_faults(spark: SparkSession, records: DataFrame, published: DataFrame) -> EventFaults:
    """Count the events of each kind of fault."""
    rows = spark.sql(
        """
        SELECT overlay, count_if(times > 1) AS again, count_if(attributes IS NULL) AS unreadable
        FROM {published} GROUP BY overlay
        """,
        published=published,
    ).collect()
    handled = records.where(
        "kind IN ('visit', 'forward', 'arrive') OR kind = 'match' AND recipients > 0"
    )
    known = records.where("kind IN ('publish', 'deliver')").select("event")
    lost = spark.sql(
        """
        SELECT substring_index(h.event, '.', 2) AS run, count(DISTINCT h.event) AS events
        FROM {handled} h LEFT ANTI JOIN {known} k ON h.event = k.event GROUP BY 1
        """,
        handled=handled.select("event"),
        known=known,
    ).collect()
    return EventFaults(
        republished={row["overlay"] or "": row["again"] for row in rows},
        unreadable={row["overlay"] or "": row["unreadable"] for row in rows},
        unpublished={row["run"]: row["events"] for row in lost},
    )
