"""The data source `canopy`: Spark's interfaces, in the driver and in its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from canopy.spark.blocks import Block, behind, blocks
from canopy.spark.columns import MIXED, BatchColumns, infer
from canopy.spark.node import NodeRows
from canopy.spark.options import SourceOptions, sink_options, source_options
from canopy.spark.pushed_filters import PushedBounds, pushed
from canopy.spark.rows import RowRange, Rows, RowsLostError, SparkSourceError, check_same
from canopy.spark.segments import folder_rows
from canopy.spark.sink import JobWriter, StreamWriter
from overlay.client import PackedEvents


class CanopySource(DataSource):
    """`spark.read.format("canopy")`, `readStream`, `write` and `writeStream`
    (docs/guide/spark.md)."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "canopy"

    def schema(self) -> StructType:
        """The columns of the rows at both ends of each shard."""
        options = source_options(self.options, is_stream=False)
        return schema_of(infer(_sampled(options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the rows that exist now."""
        options = source_options(self.options, is_stream=False)
        kind = PushingReader if options.pushes else Reader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return a reader that follows the stream."""
        return CanopyStreamReader(source_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Appends the rows of a job."""
        if overwrite:
            raise SparkSourceError('rows are appended to a stream: .mode("append") is wanted')
        return JobWriter(sink_options(self.options), schema)

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Appends the rows of micro-batches, each once."""
        if overwrite:
            raise SparkSourceError('rows are appended: .outputMode("append") or "update" is wanted')
        return StreamWriter(sink_options(self.options), schema)


def schema_of(fields: pa.Schema) -> StructType:
    """Return Spark's form of these columns. Metadata marks the columns with values of several
    types."""
    schema = from_arrow_schema(fields)
    for field, known in zip(schema.fields, fields, strict=True):
        field.metadata = {MIXED.decode(): True} if MIXED in (known.metadata or {}) else {}
    return schema


def fields_of(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema that `schema_of` made."""
    fields = to_arrow_schema(schema, timezone="UTC")
    for place, known in enumerate(schema.fields):
        if (known.metadata or {}).get(MIXED.decode()):
            fields = fields.set(place, fields.field(place).with_metadata({MIXED: b"1"}))
    return fields


def rows_of(options: SourceOptions) -> Rows:
    """The rows of the stream that the options name: of log folders, or of a node."""
    if options.folders:
        return folder_rows(options.folders, options.stream)
    return NodeRows(options.node, options.stream, options.timeout)


def _sampled(options: SourceOptions) -> Iterator[Block]:
    """Rows at both ends of each shard."""
    rows = rows_of(options)
    for shard, (first, end) in rows.ends().items():
        middle = min(end, first + options.sample)
        for begin, until in ((first, middle), (max(middle, end - options.sample), end)):
            yield from blocks(rows.read(RowRange(shard, begin, until), ""), begin, until)


class TaskSpan(InputPartition):
    """The range of rows, and the selector, of one task."""

    def __init__(self, wanted: RowRange, selector: str) -> None:
        self.wanted = wanted
        self.selector = selector


class SourceReading:
    """The common part of the readers of a batch and of a stream."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        BatchColumns(fields_of(schema), options.mode)  # or an error, before any task begins
        self._open: Rows | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}  # a task has its own

    @property
    def rows(self) -> Rows:
        """The source of rows of this process, opened at its first use."""
        if self._open is None:
            self._open = rows_of(self._options)
        return self._open

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in batches. Carried out by a worker."""
        if not isinstance(partition, TaskSpan):  # what Spark makes where there are none
            return iter(())
        fields = fields_of(self._schema)
        plain = pa.schema([field.with_metadata(None) for field in fields])
        wanted = partition.wanted
        found = self._read(wanted, partition.selector)
        batches = BatchColumns(fields, self._options.mode).batches(found, wanted.begin, wanted.end)
        return (batch.replace_schema_metadata(None).cast(plain) for batch in batches)

    def _read(self, wanted: RowRange, selector: str) -> Iterator[PackedEvents]:
        begin = wanted.begin
        try:
            for piece in self.rows.read(wanted, selector):
                begin = behind(piece)
                yield piece
        except RowsLostError as error:
            if self._options.fails_on_loss:
                raise RowsLostError(
                    f'{error}. .option("failOnDataLoss", "false") goes on without them'
                ) from None
            there = self.rows.ends().get(wanted.shard)
            if there is not None and begin < there.first < wanted.end:
                yield from self._read(wanted._replace(begin=there.first), selector)

    def spans(
        self,
        begins: Mapping[int, int],
        ends: Mapping[int, int],
        selector: str,
        stream: str = "",
        losses: Callable[[int], tuple[int, int]] = lambda shard: (-1, -1),
    ) -> list[TaskSpan]:
        """Return the partitions of these ranges of offsets, the same for the same ranges. `stream`:
        the id that the stream must have; "": any. `losses`: of a shard, as in `RowRange`."""
        size, until = self._options.partition_rows, self._until()
        return [
            TaskSpan(
                RowRange(shard, at, min(end, at + size), until, stream, losses(shard)), selector
            )
            for shard, end in sorted(ends.items())
            for at in range(begins.get(shard, 0), end, size)
        ]

    def _until(self) -> float | None:
        end = self._options.end
        return end.at / 1e9 if end.kind == "time" else None

    def begins(self) -> dict[int, int]:
        """By shard the offset at which a query without a checkpoint begins."""
        start = self._options.start
        if start.kind == "time":
            return self.rows.at_time(start.at)
        there = self.rows.ends()
        check_same(start.stream, self.rows.stream_id)
        if start.kind == "new":
            return {shard: ends.next for shard, ends in there.items()}
        begins = {shard: ends.first for shard, ends in there.items()}
        if start.kind == "offset":
            begins = dict.fromkeys(begins, start.at)
        begins.update(start.offsets)
        if strange := [shard for shard in begins if shard not in there]:
            raise SparkSourceError(f"startingOffsets: the stream has no shard {strange[0]}")
        return begins


class Reader(SourceReading, DataSourceReader):
    """Reads the rows that exist when the query is planned."""

    _conditions: Sequence[str] = ()
    _bounds = PushedBounds()

    def partitions(self) -> Sequence[InputPartition]:
        """One for each piece of a shard."""
        begins, there = self.begins(), self.rows.ends()
        ends = {shard: each.next for shard, each in there.items()}
        end = self._options.end
        if end.kind == "offset":
            ends = {shard: min(each, end.at) for shard, each in ends.items()}
        for shard, offset in end.offsets:
            ends[shard] = min(ends.get(shard, 0), offset)
        bounds = self._bounds
        begins = {shard: max(begin, bounds.least) for shard, begin in begins.items()}
        ends = {
            shard: min(each, bounds.before)
            for shard, each in ends.items()
            if bounds.shard in (None, shard)
        }
        conditions = [self._options.selector, *self._conditions]
        selector = " AND ".join(f"({each})" for each in conditions if each)
        return self.spans(begins, ends, selector, self.rows.stream_id)


class PushingReader(Reader):
    """A `Reader` that omits rows which the query's filters exclude. (Spark does not plan it while
    spark.sql.python.filterPushdown.enabled is false.)"""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
        """Take filters in; all are applied again by Spark."""
        conditions, self._bounds = pushed(filters, fields_of(self._schema))
        self._conditions = conditions
        return filters


class CanopyStreamReader(SourceReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads trigger by trigger. An offset is {shard: offset} and the stream's id: another stream of
    the same name is refused."""

    _stop: dict[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Return the offset at which a query without a checkpoint begins."""
        return self._offset(self.begins())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Return the number of offsets that one trigger reads at most (option
        `maxRowsPerTrigger`)."""
        return ReadMaxRows(self._options.trigger_rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's
        """The end of the stream."""
        return self._offset(self._ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Set the end of the query: the present end of the stream, reached in several triggers if
        need be."""
        self._stop = self._ends()

    def latestOffset(  # noqa: N802 - Spark's
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Return the end of the next trigger, which takes an equal share of the unread rows of each
        shard."""
        ends = self._ends() if self._stop is None else self._stop
        begins = self._shards_of(start)
        left = {shard: max(0, end - begins.get(shard, 0)) for shard, end in ends.items()}
        total = sum(left.values())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        assert isinstance(limit, ReadMaxRows | ReadAllAvailable), f"an unknown limit: {limit}"
        if total > most:
            share = most
            for shard, n in left.items():
                left[shard] = min(-(-n * most // total), share)
                share -= left[shard]
        return self._offset({s: begins.get(s, 0) + n for s, n in left.items()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The pieces of a trigger, which are the same when it is done again."""
        begins, ends = self._shards_of(start), self._shards_of(end)

        def losses(shard: int) -> tuple[int, int]:
            before, behind = (o.get("losses", {}).get(str(shard), 0) for o in (start, end))
            return before, behind

        return self.spans(begins, ends, self._options.selector, end["stream"], losses)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for rows before `end` again. The checkpoint has that; the stream's
        retention follows its own rules."""

    def _ends(self) -> dict[int, int]:
        rows = self.rows
        if isinstance(rows, NodeRows):
            return rows.new()
        return {shard: each.next for shard, each in rows.ends().items()}

    def _offset(self, shards: Mapping[int, int]) -> dict[str, Any]:
        offsets = {str(shard): offset for shard, offset in sorted(shards.items())}
        found: dict[str, Any] = {"stream": self.rows.stream_id, "shards": offsets}
        if losses := {str(s): n for s, n in getattr(self.rows, "losses", {}).items() if n}:
            found["losses"] = losses
        return found

    def _shards_of(self, offset: dict[str, Any]) -> dict[int, int]:
        if self.rows.stream_id:
            check_same(offset["stream"], self.rows.stream_id)
        return {int(shard): place for shard, place in offset["shards"].items()}
