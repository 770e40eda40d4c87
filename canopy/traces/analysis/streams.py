"""Judges whether each durable consumer consumed the committed rows of its streams once.

Judged by Spark from three kinds of records that different nodes write: *row* by the leader that
commits it, *take* by the node of a program that is handed it, *consume* by that node when a
position is confirmed.

A confirmed stretch (a *consume* record) says that all rows from one offset up to another are done
with. The stretches of a consumer in a shard have to follow on one another: where two overlap, rows
were confirmed twice, and where there is a hole nothing is known (the confirmation of a program that
was killed may have reached the log and no record). Within a stretch each recorded row for which the
selector is true has to have been taken once by the program that has confirmed it, and no other row.

Of many rows nodes keep records of a share: leaders of one, by which a row is recorded or not, and
consumers of another, which a stretch names. A row whose CRC-32 is not below the stretch's share is
owed no record that it was taken.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.read import check_folder, files_within, store_records
from canopy.traces.analysis.selection.job import selected
from canopy.traces.analysis.spark.session import spark_session
from canopy.traces.analysis.tasks import frame_of, is_small_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXACT = "exact"
WRONG = "wrong"
NOT_JUDGED = "not judged"

EVERYTHING = '["cmp","=",["lit",1],["lit",1]]'
"""The tree of a consumer that wants all rows."""


class StreamSummary(msgspec.Struct, frozen=True):
    """The verdict on the streams. Pairs are of a recorded row and a durable consumer."""

    result: str  # exact, wrong, or not judged: no row was confirmed by a durable consumer
    rows: int  # committed, as far as they were recorded
    appended: int  # rows that programs were told to be appended
    consumers: int
    consumed: int  # pairs that were taken once and confirmed
    missing: int  # confirmed, wanted, and not taken by who has confirmed them
    repeated: int  # taken more than once by who has confirmed them
    spurious: int  # taken, and not wanted
    overlaps: int  # stretches that were confirmed although others had confirmed a part of them
    unproved: int  # offsets between stretches, of which nothing is known
    share: float  # the least share of the rows that somebody has recorded
    examples: tuple[str, ...] = ()


def judge_streams(
    traces: Path,
    master: str | None = None,
    *,
    session: SparkSession | None = None,
) -> StreamSummary:
    """Judge the streams of the trace folder `traces`. Raises AnalysisError."""
    files = files_within(traces)
    size = check_folder(traces)
    opened = nullcontext(session) if session else spark_session(master, size)
    with opened as spark, TemporaryDirectory(prefix="canopy-streams-") as scratch:
        records, _ = store_records(spark, files, Path(scratch) / "records")
        return _judged(spark, records)


def _judged(spark: SparkSession, records: DataFrame) -> StreamSummary:
    rows = records.where("kind = 'row'").select("event", "shard", "offset", "attributes")
    rows = rows.dropDuplicates(["event"]).persist()
    stretches = spark.sql(
        f"""
        SELECT DISTINCT shard, name, subscription, offset AS first, until,
          coalesce(tree, '{EVERYTHING}') AS tree, coalesce(share, 1.0D) AS share
        FROM {{records}} WHERE kind = 'consume'
        """,
        records=records,
    ).persist()
    if records.where("kind = 'consume' AND selector LIKE 'redacted:%'").limit(1).count():
        raise AnalysisError(
            "the selectors of consumers are redacted in these traces (trace.redact), so that what "
            "each should have got cannot be judged"
        )
    takes = records.where("kind = 'take'").select("event", "name", "subscription")
    overlaps, unproved = _order(spark, stretches)
    judged = _pairs(spark, rows, stretches, takes).persist()
    counts = {row["what"]: row["count"] for row in judged.groupBy("what").count().collect()}
    wrong = judged.where("what != 'consumed'").orderBy("event", "name").limit(10).collect()
    said = records.where("kind IN ('append', 'row', 'consume')")
    told = said.selectExpr("sum(size) AS size", "min(share) AS share").collect()
    bad = overlaps + sum(counts.get(what, 0) for what in ("missing", "repeated", "spurious"))
    consumed = counts.get("consumed", 0)
    return StreamSummary(
        result=WRONG if bad else EXACT if consumed else NOT_JUDGED,
        rows=rows.count(),
        appended=told[0]["size"] or 0,
        consumers=stretches.select("name", "shard").distinct().count(),
        consumed=consumed,
        missing=counts.get("missing", 0),
        repeated=counts.get("repeated", 0),
        spurious=counts.get("spurious", 0),
        overlaps=overlaps,
        unproved=unproved,
        share=1.0 if told[0]["share"] is None else told[0]["share"],
        examples=tuple(f"{row['event']} {row['what']} by {row['name']}" for row in wrong),
    )


def _order(spark: SparkSession, stretches: DataFrame) -> tuple[int, int]:
    """Count the stretches that overlap with earlier ones, and the offsets between stretches."""
    (found,) = spark.sql(
        """
        SELECT sum(int(first < before)) AS overlaps,
               sum(CASE WHEN first > before THEN first - before ELSE 0 END) AS unproved
        FROM (SELECT first, max(until) OVER (
                PARTITION BY shard, name ORDER BY first, until
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
              FROM {stretches})
        """,
        stretches=stretches,
    ).collect()
    return found["overlaps"] or 0, found["unproved"] or 0


def _pairs(
    spark: SparkSession, rows: DataFrame, stretches: DataFrame, takes: DataFrame
) -> DataFrame:
    """Return event, name, and what happened (`what`; None: not judged), for each recorded row and
    each consumer that has confirmed the row."""
    trees = [row["tree"] for row in stretches.select("tree").distinct().collect()]
    events = rows.selectExpr(
        "event", "0.0D AS published", "offset AS at", "shard AS overlay", "attributes"
    )
    pairs = spark.sql(
        """
        WITH wanted AS (
          SELECT event, text AS tree FROM {selected} JOIN {numbers} ON tree = number),
        done AS (
          SELECT event, name, subscription, tree, share
          FROM {rows} JOIN {stretches} USING (shard) WHERE offset >= first AND offset < until),
        taken AS (
          SELECT event, name, subscription, count(*) AS times FROM {takes}
          GROUP BY event, name, subscription)
        SELECT d.event, d.name,
          CASE WHEN w.event IS NULL AND times IS NULL THEN NULL
               WHEN w.event IS NULL THEN 'spurious'
               WHEN times IS NULL AND crc32(CAST(d.event AS BINARY)) >= share * 4294967296D
                 THEN NULL
               WHEN times IS NULL THEN 'missing'
               WHEN times > 1 THEN 'repeated'
               ELSE 'consumed' END AS what
        FROM done d LEFT JOIN wanted w ON d.event = w.event AND d.tree = w.tree
        LEFT JOIN taken t
          ON d.event = t.event AND d.name = t.name AND d.subscription = t.subscription
        """,
        selected=selected(events, trees, is_small_session(spark)),
        numbers=frame_of(spark, list(enumerate(trees)), "number int, text string"),
        rows=rows,
        stretches=stretches,
        takes=takes,
    )
    return pairs.where("what IS NOT NULL")
