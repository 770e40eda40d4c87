"""A stream's rows as Parquet files, which Spark reads by itself, with the stream behind them.

A file has rows of one shard in the order of their offsets, and its name says which offsets were
looked at for it: ``SHARD-FIRST-NEXT.parquet``, from FIRST to before NEXT. So the files of a shard
follow on one another, and the stream goes on where the last one ends, whether a selector chose
among the rows or not. Each file is written as a whole. Its metadata names the stream and the
selector.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet

from canopy.spark.blocks import Block, blocks
from canopy.spark.columns import BatchColumns, infer
from canopy.spark.rows import RowRange, Rows, SparkSourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE: Final = re.compile(r"(\d{1,6})-(\d{1,16})-(\d{1,16})\.parquet", re.ASCII)

FILE_OFFSETS: Final = 200_000
"""Offsets of one file at most: its rows are in memory while it is written."""

STREAM: Final = b"canopy.stream"
SELECTOR: Final = b"canopy.selector"


def history_ends(folder: Path) -> dict[int, int]:
    """Return by shard the offset after the last row in the files of a folder. Raises
    SparkSourceError if there is a gap, or two files overlap."""
    found = sorted(
        tuple(map(int, match.groups()))
        for path in folder.glob("*.parquet")
        if (match := FILE.fullmatch(path.name))
    )
    ends: dict[int, int] = {}
    for shard, first, behind in found:
        if ends.get(shard, first) != first:
            raise SparkSourceError(
                f"{folder}: the files of shard {shard} end at offset {ends[shard]} and go on at "
                f"{first}: one is missing, or is there twice"
            )
        ends[shard] = behind
    return ends


def export_history(
    rows: Rows,
    folder: Path,
    selector: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write the rows that a stream has, and the folder has not, as files. Returns how many rows.
    `progress` hears how many offsets of how many are done.

    Raises SparkSourceError if the folder is of another stream or selector, if an attribute has
    values that its column in the files cannot have, or rows in between are no longer kept.
    """
    there = rows.ends()
    known, fields = history_ends(folder), _fields(folder, rows.stream_id, selector)
    begins = {shard: known.get(shard, ends.first) for shard, ends in there.items()}
    total = sum(max(0, ends.next - begins[shard]) for shard, ends in there.items())
    folder.mkdir(parents=True, exist_ok=True)
    done = count = 0
    for shard, ends in there.items():
        for at in range(begins[shard], ends.next, FILE_OFFSETS):
            wanted = RowRange(shard, at, min(at + FILE_OFFSETS, ends.next))
            found = list(blocks(rows.read(wanted, selector), wanted.begin, wanted.end))
            fields = _extended(fields, infer(found))
            _write(folder, wanted, found, fields, {STREAM: rows.stream_id, SELECTOR: selector})
            count += sum(map(len, found))
            done += wanted.end - wanted.begin
            progress(done, total)
    return count


def _fields(folder: Path, stream: str, selector: str) -> pa.Schema:
    """The columns of the files that are there."""
    fields = pa.schema([])
    for path in sorted(folder.glob("*.parquet")):
        schema = parquet.read_schema(path)
        metadata = schema.metadata or {}
        if metadata.get(STREAM, b"").decode() != stream:
            raise SparkSourceError(f"{path} is not of this stream: name another folder")
        if metadata.get(SELECTOR, b"").decode() != selector:
            raise SparkSourceError(f"{path} was chosen by another selector: name another folder")
        fields = _extended(fields, schema)
    return fields


def _extended(fields: pa.Schema, others: pa.Schema) -> pa.Schema:
    """Return the columns of `fields` and, behind them, those of `others` that it does not have. A
    column of both keeps its type in `fields`."""
    names = {field.name.lower() for field in fields}
    new = [field for field in others if field.name.lower() not in names]
    return pa.schema([*fields, *new])


def _write(
    folder: Path,
    wanted: RowRange,
    found: list[Block],
    fields: pa.Schema,
    metadata: dict[bytes, str],
) -> None:
    name = f"{wanted.shard}-{wanted.begin}-{wanted.end}.parquet"
    draft = folder / f".{name}.{os.getpid()}"  # Spark passes over names with a dot
    columns = BatchColumns(fields)
    batches = [columns.batch(block).replace_schema_metadata(None) for block in found]
    table = pa.Table.from_batches(batches, fields)
    known: Any = {key: value.encode() for key, value in metadata.items()}
    try:
        parquet.write_table(table.replace_schema_metadata(known), draft, compression="zstd")
        os.replace(draft, folder / name)
    finally:
        draft.unlink(missing_ok=True)


def with_history(spark: SparkSession, folder: str | Path, **options: str) -> DataFrame:
    """The rows of a stream: those that are files in `folder`, read by Spark itself, and behind them
    those of the stream, without a row missing or twice. `options` are those of
    `format("canopy")`; the selector is that of the files.

    Raises SparkSourceError if the folder has no files, and Spark's errors as any query.
    """
    path = Path(folder)
    ends = history_ends(path)
    if not ends:
        wanted = "canopy stream export --format parquet"
        raise SparkSourceError(f"{path} has no Parquet files of a stream: {wanted} writes them")
    from canopy.spark.source import schema_of

    fields, selector, stream = pa.schema([]), "", ""
    for each in sorted(path.glob("*.parquet")):
        schema = parquet.read_schema(each)
        fields = _extended(fields, schema)
        selector = (schema.metadata or {}).get(SELECTOR, b"").decode()
        stream = (schema.metadata or {}).get(STREAM, b"").decode()
    columns = schema_of(fields)
    begins = {"stream": stream, **{str(shard): at for shard, at in sorted(ends.items())}}
    given = {"startingOffsets": json.dumps(begins), **options}
    if selector:
        given["selector"] = selector
    files = spark.read.schema(columns).parquet(str(path))
    tail = spark.read.format("canopy").options(**given).schema(columns).load()
    return files.unionByName(tail)
