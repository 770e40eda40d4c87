"""The work of each node: data-plane messages, matches, deliveries, and the rest.

The `stop` record of a node has the numbers of messages that it sent. A node that was killed has
none, and then its data-plane messages are counted from its records: every `walk_hop`, `visit` and
`forward` is one message. A node that was killed and started again has both, so that each run
of its process is counted separately.

Counted records are of the sampled events only, counters of all (`sample` in the first record of
each file says what share of the events is traced).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA_KINDS = "('walk_hop', 'visit', 'forward')"
"""The kinds of records that are one data-plane message each."""

WORK: Final = ("data_messages", "deliveries", "matches")
"""The columns of the load table of which `spread_of` says how evenly they are distributed."""


def spread_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """`mean`, `variance` (of all nodes, not of a sample) and standard `deviation` of each kind of
    `WORK` over the nodes of the load table; None without nodes."""
    spread: dict[str, dict[str, float | None]] = {}
    for kind in WORK:
        values = [float(row[kind]) for row in rows]
        mean = fmean(values) if values else None
        variance = pvariance(values) if values else None
        deviation = None if variance is None else variance**0.5
        spread[kind] = {"mean": mean, "variance": variance, "deviation": deviation}
    return spread


def load_table(spark: SparkSession, records: DataFrame, since: float = 0.0) -> DataFrame:
    """One row per node that wrote anything. Of a run that began before `since` (seconds) there may
    be few of its earlier records, and its counters, which are of all, are not taken.

    node, name, address, published, matches, deliveries, arrivals, drops, refused, data_messages,
    other_messages, bytes, runs, counted (whether data_messages had to be counted from records,
    at least for one run), first and last (seconds), sample, routing.
    """
    return spark.sql(
        f"""
        WITH counted AS (
          SELECT node, run, min(time) AS first, max(time) AS last,
            max(name) FILTER (WHERE kind = 'start') AS name,
            max(address) FILTER (WHERE kind = 'start') AS address,
            max(routing) FILTER (WHERE kind = 'start') AS routing,
            min(sample) FILTER (WHERE kind = 'file') AS sample,
            count_if(kind = 'publish') AS published,
            count_if(kind = 'match')
              + coalesce(sum(size) FILTER (WHERE kind = 'unmatched'), 0) AS matches,
            count_if(kind = 'deliver') AS deliveries,
            count_if(kind = 'arrive') AS arrivals,
            count_if(kind = 'drop') AS drops,
            count_if(kind = 'refused') AS refused,
            count_if(kind IN {DATA_KINDS}) AS steps,
            max(data_messages) FILTER (WHERE kind = 'stop') AS all_messages,
            max(other_messages) FILTER (WHERE kind = 'stop') AS all_other,
            max(bytes) FILTER (WHERE kind = 'stop') AS all_bytes
          FROM {{records}} WHERE kind <> 'corrupt' GROUP BY node, run),
        runs AS (
          SELECT *, IF(first >= {since}, all_messages, NULL) AS data_messages,
            IF(first >= {since}, all_other, NULL) AS other_messages,
            IF(first >= {since}, all_bytes, NULL) AS bytes
          FROM counted)
        SELECT node, max_by(name, run) FILTER (WHERE name IS NOT NULL) AS name,
          max_by(address, run) FILTER (WHERE address IS NOT NULL) AS address,
          sum(published) AS published, sum(matches) AS matches, sum(deliveries) AS deliveries,
          sum(arrivals) AS arrivals, sum(drops) AS drops, sum(refused) AS refused,
          sum(coalesce(data_messages, steps)) AS data_messages,
          coalesce(sum(other_messages), 0) AS other_messages, coalesce(sum(bytes), 0) AS bytes,
          count(*) AS runs, bool_or(data_messages IS NULL) AS counted,
          min(first) AS first, max(last) AS last, min(sample) AS sample, max(routing) AS routing
        FROM runs GROUP BY node
        """,
        records=records,
    )
