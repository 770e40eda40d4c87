"""Reads a trace folder: lines that fit the schema become records, all others are kept as corrupt.

A killed node leaves an incomplete line, and other tools may have written lines that are not
records. Neither may stop the analysis or falsify it, so each line is read as text, parsed by
Spark's JSON parser, and checked: it is a record of a kind in the schema, with the fields that
identify what it is about, or it goes with the reason and its file into the partition
`kind=corrupt`. This is one pass over the text; everything later reads columns from Parquet.

Of a line longer than `LINE_BYTES` Hadoop's reader keeps that much, and it is corrupt.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.constants import LINE_BYTES, LINE_CHARACTERS
from canopy.traces.analysis.errors import AnalysisError
from canopy.traces.analysis.spark.paths import for_reading, for_writing
from canopy.traces.analysis.tasks import in_one_task, kept
from canopy.traces.analysis.window import ALWAYS, Window, covering, day_of
from canopy.traces.schema import FIELDS, KINDS, VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT: Final = "corrupt"
"""The partition of lines that are not records; no kind of the schema has this name."""

SUFFIXES: Final = (".jsonl", ".jsonl.gz")  # the writer's files, and those that were compressed
PATTERN: Final = "*.{jsonl,jsonl.gz}"  # the same for Hadoop

COLUMNS: Final = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items())

NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "event": (
        *("publish", "visit", "match", "forward", "arrive", "duplicate"),
        *("recheck_failed", "deliver"),
    ),
    "subscription": ("subscribe", "suback", "unsubscribe", "deliver"),
    "walk": ("walk_start", "walk_hop", "walk_blocked", "walk_recovered", "walk_hit", "walk_miss"),
    "attribute": ("walk_start", "walk_hit", "walk_miss", "located", "absent"),
    **dict.fromkeys(("overlay", "part", "sample", "written", "lost"), ("file",)),
}
"""The fields that records of these kinds must have."""


def trace_files(traces: Path) -> Iterator[Path]:
    """The trace files below `traces` as Spark finds them, without hidden folders."""
    for path in sorted(traces.rglob(f"*{SUFFIXES[0]}*")):
        inner = path.relative_to(traces).parts
        hidden = any(part.startswith((".", "_")) for part in inner)
        if path.name.endswith(SUFFIXES) and path.is_file() and not hidden:
            yield path


def text_bytes(path: Path) -> int:
    """The bytes of text in a trace file; of a compressed one what its end says (RFC 1952, which
    counts modulo 2^32)."""
    size = path.stat().st_size
    if path.suffix != ".gz" or size < 4:
        return size
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def files_within(traces: Path, window: Window = ALWAYS) -> list[Path]:
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


def check_folder(traces: Path, window: Window = ALWAYS) -> int:
    """The size of the traces of the `window` in bytes. Raises AnalysisError if there are none."""
    return sum(text_bytes(path) for path in files_within(traces, window))


def _lines(spark: SparkSession, places: Sequence[Path]) -> DataFrame:
    """value and file of each line, also of the empty ones."""
    reader = spark.read.option("recursiveFileLookup", True).option("pathGlobFilter", PATTERN)
    found = reader.text([for_reading(place) for place in places])
    return found.selectExpr("value", "_metadata.file_path AS file")


def checked_lines(lines: DataFrame) -> DataFrame:
    """One row per line: the record's fields, or `kind` = corrupt with `problem`, `line`, `file`."""
    parsed = lines.where("trim(value) <> ''").selectExpr(
        "value",
        "file",
        f"from_json(value, '{COLUMNS}, `_corrupt` string', "
        "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_corrupt', "
        "'allowNonNumericNumbers', 'false')) AS r",
    )
    checked = parsed.selectExpr("value", "file", "r", f"{_problem()} AS problem")
    fields = [f"r.`{name}` AS `{name}`" for name in FIELDS if name != "kind"]
    return checked.selectExpr(
        *fields,
        "problem",
        f"CASE WHEN problem IS NOT NULL THEN substr(value, 1, {LINE_CHARACTERS}) END AS line",
        "file",
        f"CASE WHEN problem IS NOT NULL THEN '{CORRUPT}' ELSE r.kind END AS kind",
    )


def _problem() -> str:
    """SQL: why the line `value`, parsed as `r`, is not a record; NULL if it is one."""
    kinds = _texts(KINDS)
    cases = [
        f"WHEN octet_length(value) >= {LINE_BYTES} THEN 'longer than {LINE_BYTES >> 20} MB'",
        "WHEN NOT is_valid_utf8(value) THEN 'invalid UTF-8'",
        # Nodes' lines begin so, and need no regular expression.
        r"WHEN NOT startswith(value, '{') AND value NOT RLIKE '\\A\\s*\\{' "
        "THEN 'not a JSON object'",
        r"WHEN r._corrupt IS NOT NULL AND value NOT RLIKE '\\}\\s*\\z' THEN 'cut off'",
        "WHEN r._corrupt IS NOT NULL THEN 'not a JSON object with the fields of a record'",
        "WHEN r.v IS NULL OR r.kind IS NULL THEN 'not a trace record'",
        f"WHEN r.v <> {VERSION} THEN concat('schema version ', r.v, ', not {VERSION}')",
        f"WHEN r.kind NOT IN ({kinds}) THEN concat('unknown kind ', substr(r.kind, 1, 40))",
        "WHEN r.node IS NULL OR r.time IS NULL THEN 'no node or no time'",
        "WHEN r.run IS NULL OR r.kind <> 'file' AND (r.n IS NULL OR r.hlc IS NULL) "
        "THEN 'no run, number or hybrid logical clock'",
    ]
    for field, needing in NEEDED.items():
        cases.append(
            f"WHEN r.`{field}` IS NULL AND r.kind IN ({_texts(needing)}) "
            f"THEN concat('no {field} in a record of kind ', r.kind)"
        )
    return "CASE " + " ".join(cases) + " END"


def _texts(values: Iterable[str]) -> str:
    """SQL: a list of these names."""
    return ", ".join(f"'{value}'" for value in values)


RECORD: Final = (
    ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items() if name != "kind")
    + ", problem string, line string, file string, kind string"
)
"""The columns of the table of records."""


def places_to_read(traces: Path, window: Window) -> list[Path]:
    """The folders and files below `traces` that have the files of the `window`, and no others."""
    if not window.is_bounded:
        return [traces]
    return covering(traces, files_within(traces, window), list(trace_files(traces)))


def store_records(
    spark: SparkSession, places: Sequence[Path], table: Path, window: Window = ALWAYS
) -> DataFrame:
    """Write the checked lines of these folders and files, as far as they are of the `window`, to
    the Parquet folder `table`, by kind, and read them back."""
    lines = in_one_task(checked_lines(_lines(spark, places)).where(window.condition()))
    lines.write.partitionBy("kind").parquet(for_writing(table))
    return kept(spark.read.schema(RECORD).parquet(for_reading(table)))
