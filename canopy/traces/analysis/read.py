"""Reads a trace folder: lines that fit the schema become records, all others are kept as corrupt.

Neither an incomplete line nor one of another tool may stop the analysis or falsify it: what is no
record goes with the reason and its file into the partition `kind=corrupt`. This is one pass over
the text (``parsing/``), whose tasks Spark distributes; those of a small run are done in this
process. Everything later reads columns from Parquet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis import parsing
from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.parsing import stretches, tally
from canopy.traces.analysis.parsing.tally import Tally
from canopy.traces.analysis.spark.paths import for_reading
from canopy.traces.analysis.tasks import frame_of_table, is_small, is_small_session
from canopy.traces.analysis.window import ALWAYS, TimeWindow, day_of
from canopy.traces.schema import FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES: Final = (".jsonl", ".jsonl.gz")  # the writer's files, and those that were compressed
PATTERN: Final = "*.{jsonl,jsonl.gz}"  # the same for Hadoop

RECORD: Final = (
    ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items() if name != "kind")
    + ", problem string, line string, file string, kind string"
)
"""The columns of the table of records."""


def trace_files(traces: Path) -> Iterator[Path]:
    """The trace files below `traces` as Spark finds them, without hidden folders."""
    for path in sorted(traces.rglob(f"*{SUFFIXES[0]}*")):
        if is_trace_file(path.relative_to(traces)) and path.is_file():
            yield path


def is_trace_file(inner: Path) -> bool:
    """Whether a file has this path below a folder of traces, and lies in no hidden folder there."""
    hidden = any(part.startswith((".", "_")) for part in inner.parts)
    return inner.name.endswith(SUFFIXES) and not hidden


def text_bytes(path: Path) -> int:
    """Return the bytes of text in a trace file; of a compressed one as its trailer has it (RFC
    1952, modulo 2^32)."""
    size = path.stat().st_size
    if path.suffix != ".gz" or size < 4:
        return size
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def files_within(traces: Path, window: TimeWindow = ALWAYS) -> list[Path]:
    """The trace files that may have records of the `window`. Raises AnalysisError if there are
    none."""
    if not traces.is_dir():
        what = "is a file" if traces.exists() else "does not exist"
        raise AnalysisError(
            f"the trace folder {traces} {what}: name the folder that contains date=…/node=…/ "
            "(a node writes it below its data folder, `traces` unless configured)"
        )
    every = [path for path in trace_files(traces) if path.stat().st_size]
    if not every:
        raise AnalysisError(
            f"the trace folder {traces} has no trace records (*.jsonl below date=…/node=…/): "
            "were the nodes started with tracing on, and have they stopped or flushed?"
        )
    found = [path for path in every if window.meets(day_of(path.relative_to(traces)))]
    if not found:
        days = [day for path in every if (day := day_of(path.relative_to(traces)))]
        raise AnalysisError(
            f"the trace folder {traces} has no files of that time: its days are {_span(days)}"
        )
    return found


def _span(days: Sequence[date]) -> str:
    first, last = min(days), max(days)
    return f"{first}" if first == last else f"{first} to {last}"


def check_folder(traces: Path, window: TimeWindow = ALWAYS) -> int:
    """The size of the traces of the `window` in bytes. Raises AnalysisError if there are none."""
    return sum(text_bytes(path) for path in files_within(traces, window))


def store_records(
    spark: SparkSession, files: Sequence[Path], table: Path, window: TimeWindow = ALWAYS
) -> tuple[DataFrame, Tally]:
    """Write the lines of these files that are within the `window` to the Parquet folder `table`, by
    kind. Returns the table read back, and the tally. A file that cannot be read to its end has a
    corrupt line."""
    table.mkdir(parents=True)
    sizes = [(path.parent.resolve() / path.name, text_bytes(path)) for path in files]
    shares = stretches.shared_out(sizes)
    bounds = stretches.Bounds(window.since, window.until)
    if is_small_session(spark):
        return _here(spark, shares, table, bounds)
    found = distribute(spark, shares, table, bounds)
    return spark.read.schema(RECORD).parquet(for_reading(table)), found


def _here(
    spark: SparkSession, shares: Sequence[Any], table: Path, bounds: stretches.Bounds
) -> tuple[DataFrame, Tally]:
    """Do the tasks of a small run in this process, and hand the records to Spark."""
    import pyarrow as pa

    rows = pa.concat_tables(stretches.records_of(share, bounds) for share in shares)
    found = Tally(*stretches.store(rows, str(table.resolve()), "part-00000"))
    columns = [*(name for name in rows.column_names if name != "kind"), "kind"]
    return frame_of_table(spark, rows.select(columns)), found


def distribute(
    spark: SparkSession, shares: Sequence[Any], table: Path, bounds: stretches.Bounds
) -> Tally:
    """Run the tasks of these `shares` in Spark's workers, which need not have Canopy."""
    import pyarrow as pa
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(parsing)  # type: ignore[no-untyped-call]
    work = stretches.task(str(table.resolve()), bounds)
    plain = [[tuple(each) for each in share] for share in shares]
    tasks: Any = spark.sparkContext.parallelize(plain, len(plain))
    found = tasks.mapPartitionsWithIndex(work).collect()
    return Tally(*(pa.concat_tables(each) for each in zip(*found, strict=True)))


def counted(records: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of the tally of these `records`. Spark counts those of a large run: its ways
    to hand whole rows to Python need Pandas."""
    if is_small(records):
        return list(tally.tally(tally.by_kind(records.select(*tally.FIELDS).toArrow())).to_pylist())
    from pyspark.sql.functions import col, count, lit, when
    from pyspark.sql.functions import max as most
    from pyspark.sql.functions import min as least
    from pyspark.sql.functions import sum as total

    apart: dict[str, list[str]] = {}
    for kind, names in tally.APART.items():
        for name in names:
            apart.setdefault(name, []).append(kind)
    groups = [col(name) for name in tally.BY]
    groups += [when(col("kind").isin(of), col(name)).alias(name) for name, of in apart.items()]
    ways = {"min": least, "max": most, "sum": total, "count": count}
    made = [
        (count(lit(1)) if how == "count_all" else ways[how](field)).alias(to)
        for to, (field, how) in tally.MADE.items()
    ]
    return [row.asDict() for row in records.groupBy(*groups).agg(*made).collect()]
