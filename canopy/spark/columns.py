"""Rows of a stream as columns: the inference of columns, and Arrow batches.

An attribute is a column of its name. What a row has beside its attributes are columns that begin
with an underscore (`EXTRAS`). An attribute that is absent or null is null.

A value that its column cannot have is an error, which names the row (mode *failfast*), or null
(*permissive*). Nothing is converted but numbers that are exact in the column's type, and integers
in columns of floating-point numbers. A column of texts whose field is marked `MIXED`, as it is
inferred where values of several types occur, has the other values as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from canopy.spark.blocks import EVERYTHING, Block, Column, blocks
from canopy.spark.options import Mode
from canopy.spark.rows import SparkSourceError
from matching import Value
from overlay.client import PackedEvents

MIXED: Final = b"canopy.mixed"
"""In the metadata of a field: the column has values of several types, as JSON."""

EXTRAS: Final[dict[str, pa.DataType]] = {
    "_shard": pa.int32(),
    "_offset": pa.int64(),
    "_time": pa.timestamp("us", tz="UTC"),
    "_payload": pa.binary(),
    "_payload_type": pa.string(),
    "_attributes": pa.string(),
}
"""Columns that any stream has: a row's place, when it was appended, its payload, and all attributes
as a JSON object."""

PLACES: Final = ("_shard", "_offset", "_time")

_ALLOWED: Final[dict[pa.DataType, frozenset[type]]] = {
    pa.bool_(): frozenset((bool, type(None))),
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), frozenset((int, type(None)))),
    **dict.fromkeys((pa.float32(), pa.float64()), frozenset((int, float, type(None)))),
    pa.string(): frozenset((str, type(None))),
}
"""The exact types of values that a column of this type takes."""


class BatchColumns:
    """Makes Arrow batches with the fields of a schema."""

    def __init__(self, schema: pa.Schema, mode: Mode = "failfast") -> None:
        """Raises SparkSourceError for a field whose type no value of a stream has."""
        self._schema = schema
        self._fails = mode == "failfast"
        self._mixed = {field.name for field in schema if MIXED in (field.metadata or {})}
        for field in schema:
            wanted = EXTRAS.get(field.name)
            if wanted is not None and field.type != wanted:
                raise SparkSourceError(f"the column {field.name} is {wanted}, not {field.type}")
            if wanted is None and field.type not in _ALLOWED:
                kinds = "boolean, tinyint to bigint, float, double or string"
                raise SparkSourceError(
                    f"the column {field.name} is {field.type}: {kinds} is wanted"
                )

    def batches(
        self, pieces: Iterable[PackedEvents], begin: int = 0, end: int = EVERYTHING
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the rows of a shard from the offset `begin` to before `end`."""
        return (self.batch(block) for block in blocks(pieces, begin, end) if len(block))

    def batch(self, block: Block) -> pa.RecordBatch:
        """These rows. Raises SparkSourceError for a value that its column cannot have."""
        names = [field.name for field in self._schema if field.name not in EXTRAS]
        found = dict(zip(names, block.columns(names), strict=True))
        arrays = [
            self._column(field, found.pop(field.name), block)
            if field.name in found
            else _extra(field.name, block)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field, values: Column, block: Block) -> pa.Array:
        if field.name in self._mixed:
            return pa.array([_text(value) for value in values], pa.string())
        allowed = _ALLOWED[field.type]
        if not allowed.issuperset(set(map(type, values))):
            values = self._without(values, lambda value: type(value) in allowed, field, block)
        try:
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, OverflowError):  # out of the type's range, or not exact in it
            if pa.types.is_floating(field.type):
                return pa.array([v if v is None else float(v) for v in values], field.type)
            least, greatest = -(2 ** (field.type.bit_width - 1)), 2 ** (field.type.bit_width - 1)
            values = self._without(
                values, lambda v: v is None or (least <= v < greatest), field, block
            )
            return pa.array(values, field.type)

    def _without(
        self,
        values: Column,
        fits: Callable[[Any], bool],
        field: pa.Field,
        block: Block,
    ) -> Column:
        """Return the values with null in the place of those that do not fit. Raises the error in
        mode *failfast*."""
        for value, offset in zip(values, block.offsets, strict=True):
            if self._fails and not fits(value):
                raise SparkSourceError(
                    f"the attribute {field.name} is {value!r} at shard {block.shard}, offset "
                    f"{offset}, and its column is {field.type}: give a schema that has room "
                    'for it, or .option("mode", "permissive"), which makes it null'
                )
        return [value if fits(value) else None for value in values]


def _text(value: Value | None) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _extra(name: str, block: Block) -> pa.Array:
    kind = EXTRAS[name]
    if name == "_shard":
        return pa.array(np.full(len(block), block.shard, np.int32))
    if name == "_offset":
        return pa.array(block.offsets, kind)
    if name == "_time":
        return pa.array(block.times // 1000, pa.int64()).cast(kind)
    if name == "_attributes":
        return pa.array([json.dumps(each, ensure_ascii=False) for each in block.attributes()], kind)
    return pa.array(block.payloads()[name == "_payload_type"], kind)


def infer(there: Iterable[Block]) -> pa.Schema:
    """The columns of rows like these: attributes in the order of their coming, then the places, and
    the payload where some row has one."""
    kinds: dict[str, set[type]] = {}
    has_payload = False
    for block in there:
        payloads, payload_types = block.payloads()
        has_payload = has_payload or any(payloads) or any(payload_types)
        shapes: dict[tuple[str, ...], list[Iterable[Value | None]]] = {}
        for row in block.attributes():  # most rows have the same attributes in the same order
            shapes.setdefault(tuple(row), []).append(row.values())
        for names, rows in shapes.items():
            for name, values in zip(names, zip(*rows, strict=True), strict=True):
                kinds.setdefault(name, set()).update(map(type, values))
    taken = {name.lower() for name in EXTRAS}
    fields: list[pa.Field] = []
    for name, found in kinds.items():
        if name.lower() not in taken:  # Spark does not tell names apart by case
            taken.add(name.lower())
            fields.append(_field(name, found - {type(None)}))
    extras = [*PLACES, *(("_payload", "_payload_type") if has_payload else ())]
    return pa.schema([*fields, *(pa.field(name, EXTRAS[name]) for name in extras)])


def _field(name: str, kinds: set[type]) -> pa.Field:
    for data_type in (pa.bool_(), pa.int64(), pa.float64(), pa.string()):
        if kinds and _ALLOWED[data_type].issuperset(kinds):
            return pa.field(name, data_type)
    return pa.field(name, pa.string(), metadata={MIXED: b"1"} if kinds else None)
