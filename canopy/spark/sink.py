"""Writing to a stream: each row of a micro-batch, or of a job, once.

A task appends as the named producer (query, partition), and the batch is the step of that
producer's work (`Client.producer`): whoever does the batch again begins where it began, what of it
is appended already is passed over, and a task of an earlier batch that was taken for dead is
fenced. So nothing has to be written to the checkpoint.

What is passed over is counted. So the same rows have to come in the same order when a batch is done
again. Rows that fit into one append are all there or none of them, in each shard, and any order
will do. If there are more, they are put into the order of their bytes, unless the user says that
the query keeps an order of its own (option `order`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from canopy.client.errors import ControlError, EventRefusedError
from canopy.spark.columns import EXTRAS
from canopy.spark.node import client_of, find_stream
from canopy.spark.options import SinkOptions
from canopy.spark.rows import SparkSourceError
from overlay.client import Draft

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Spark's properties of a task: the query's id, which its checkpoint keeps, and the batch's
number."""

ATOMIC_BYTES: Final = 512 * 1024
"""Bytes of rows that are appended at once: below the 896 KiB that one append may have."""

VALUES: Final = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string")
"""Types of columns that are attributes."""

ROW_BYTES: Final = 32
"""Bytes of a row beside its values, about."""


@dataclass
class TaskWritten(WriterCommitMessage):
    """The number of rows that one task has appended."""

    rows: int


class _Writer:
    """The common part of both kinds of writers, in a task."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Raises SparkSourceError for columns that no event can have."""
        self._options = options
        self._names = [field.name for field in schema.fields]
        self._attributes = [name for name in self._names if name not in EXTRAS]
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if field.name == "_payload" and kind == "binary":
                continue
            if kind not in VALUES and field.name not in EXTRAS:
                raise SparkSourceError(
                    f"the column {field.name} is {kind}: an attribute is one of "
                    f"{', '.join(VALUES)}; cast it, or leave it out"
                )

    def _append(
        self, batches: Iterator[pa.RecordBatch], producer: str, step: int
    ) -> WriterCommitMessage:
        drafts: list[Draft] = []
        size = 0
        for batch in batches:
            drafts += self._drafts(batch)
            size += self._size(batch)
        options = self._options
        if not drafts:
            return TaskWritten(0)
        is_small = size <= ATOMIC_BYTES
        if not is_small and not options.keeps_order:
            drafts.sort(key=msgspec.msgpack.encode)
        client = client_of(options.node, options.timeout)
        try:
            producing = (options.stream, producer)
            appending = client.producer(*producing, step=step, timeout=options.timeout)
            appending.append(drafts, atomic=is_small, timeout=options.timeout)
        except (ControlError, EventRefusedError) as error:
            raise SparkSourceError(f"stream {options.stream}: {error}") from error
        return TaskWritten(len(drafts))

    def _size(self, batch: pa.RecordBatch) -> int:
        """An upper bound, in bytes, of what the events of a batch take in the log. It depends on
        the batch alone, so that a batch that Spark sends again is cut in the same way."""
        size: int = batch.num_rows * (ROW_BYTES + sum(len(name) + 10 for name in self._attributes))
        for name in self._attributes:
            column = batch.column(name)
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                size += 4 * (pc.sum(pc.utf8_length(column)).as_py() or 0)
        if "_payload" in self._names:
            size += pc.sum(pc.binary_length(batch.column("_payload"))).as_py() or 0
        return size

    def _drafts(self, batch: pa.RecordBatch) -> Iterator[Draft]:
        """The events of a batch: columns are attributes, those of `EXTRAS` are not."""
        names = self._attributes
        columns = [batch.column(name).to_pylist() for name in names]
        payloads = self._extra(batch, "_payload", b"")
        types = self._extra(batch, "_payload_type", "")
        values: Any = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
        for row, payload, payload_type in zip(values, payloads, types, strict=True):
            yield Draft(dict(zip(names, row, strict=True)), payload, payload_type)

    def _extra(self, batch: pa.RecordBatch, name: str, nothing: Any) -> list[Any]:
        if name not in self._names:
            return [nothing] * batch.num_rows
        return [nothing if each is None else each for each in batch.column(name).to_pylist()]


def _partition() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a writer writes within a task"
    return context


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Appends the rows of micro-batches, those of a batch that is done again once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one partition of a batch. Carried out by a worker."""
        task = _partition()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise SparkSourceError(f"this Spark does not say which batch it writes ({BATCH})")
        return self._append(iterator, f"spark.{query}.{task.partitionId()}", int(batch) + 1)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: all partitions of the batch are written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the rows that a failed batch has written stay, and are skipped when the batch
        is repeated."""


class JobWriter(_Writer, DataSourceArrowWriter):
    """Appends the rows of a batch job."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        find_stream(client_of(options.node, options.timeout), options.stream, options.timeout)
        self._producer = options.producer or f"spark.{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append the rows of one partition. Carried out by a worker."""
        partition = _partition().partitionId()
        return self._append(iterator, f"{self._producer}.{partition}", self._options.batch + 1)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are written."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the rows that were written stay. A repetition with the options producer and
        batch continues after them."""
