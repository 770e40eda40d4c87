"""Rows as Arrow batches, options, and filters as selectors; no Spark session."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from canopy.spark.blocks import Block, blocks
from canopy.spark.columns import EXTRAS, MIXED, BatchColumns, infer
from canopy.spark.options import sink_options, source_options
from canopy.spark.pushed_filters import PushedBounds, pushed
from canopy.spark.rows import SparkSourceError
from canopy.spark.source import fields_of, schema_of
from matching import compile_selector
from overlay.client import PackedEvents
from streams.log.batches import Row, encode_rows


class PlacedRow(NamedTuple):
    """A row and its place; `time` in seconds."""

    shard: int
    offset: int
    time: float
    attributes: dict[str, Any]
    payload: bytes
    payload_type: str


def rows_of(block: Block) -> list[PlacedRow]:
    offsets, times = block.offsets.tolist(), (block.times / 1e9).tolist()
    columns = (offsets, times, block.attributes(), *block.payloads())
    return [PlacedRow(block.shard, *each) for each in zip(*columns, strict=True)]


def row(offset: int = 0, payload: bytes = b"", **attributes: Any) -> PlacedRow:
    return PlacedRow(0, offset, 1.5, attributes, payload, "")


def piece(*rows: PlacedRow) -> PackedEvents:
    """These rows of one time, as a node hands them over."""
    first = rows[0].offset
    encoded = encode_rows(Row(*row[3:]) for row in rows)
    places = [row.offset - first for row in rows[1:]]
    follow = places == list(range(1, len(rows)))
    time = round(rows[0].time * 1e9)
    return PackedEvents(0, time, first, len(rows), () if follow else tuple(places), encoded)


def block(*rows: PlacedRow) -> Block:
    return Block([piece(*rows)])


def test_columns_are_inferred_from_the_values_that_occur() -> None:
    rows = [
        row(n=1, f=1.5, s="a", b=True, mixed=1, empty=None, either=1),
        row(n=None, f=2, s="b", b=False, mixed="x", either=2.5, N=3),
    ]
    found = infer([block(*rows)])
    kinds = {field.name: field.type for field in found}
    assert kinds.pop("n") == pa.int64()
    assert kinds.pop("f") == kinds.pop("either") == pa.float64()
    assert kinds.pop("s") == kinds.pop("mixed") == kinds.pop("empty") == pa.string()
    assert kinds.pop("b") == pa.bool_()
    assert list(kinds) == ["_shard", "_offset", "_time"], "N is n, to Spark"
    assert {f.name for f in found if MIXED in (f.metadata or {})} == {"mixed"}
    assert "_payload" in infer([block(row(payload=b"x"))]).names
    assert infer([]).names == ["_shard", "_offset", "_time"]
    there = fields_of(schema_of(found))
    assert there == found
    assert [f.metadata for f in there] == [f.metadata for f in found]
    batch = BatchColumns(found).batch(block(*rows))
    assert batch.to_pylist()[1] | {"_time": None} == {
        "n": None,
        "f": 2.0,
        "s": "b",
        "b": False,
        "mixed": "x",
        "empty": None,
        "either": 2.5,
        "_shard": 0,
        "_offset": 0,
        "_time": None,
    }
    assert batch.column("mixed").to_pylist() == ["1", "x"]


def test_a_value_that_its_column_cannot_have_is_an_error_that_names_it_or_null() -> None:
    fields = pa.schema([("n", pa.int32()), ("f", pa.float64()), ("_attributes", pa.string())])
    wrong: dict[str, Any] = {"n": 2**40}
    for each in (wrong, {"n": "3"}, {"n": True}, {"n": 1.5}):
        with pytest.raises(SparkSourceError, match=r"n is .* at shard 0, offset 7, and its column"):
            BatchColumns(fields).batch(block(row(n=1), row(7, **each)))
    batch = BatchColumns(fields, "permissive").batch(
        block(row(n=1, f=2**60 + 1), row(1, **wrong, f="x"))
    )
    assert batch.column("n").to_pylist() == [1, None]
    assert batch.column("f").to_pylist() == [float(2**60 + 1), None]
    assert batch.column("_attributes").to_pylist()[1] == '{"n": 1099511627776, "f": "x"}'
    for name, kind in (("n", pa.list_(pa.int64())), ("_offset", pa.string())):
        with pytest.raises(SparkSourceError, match=f"the column {name} is"):
            BatchColumns(pa.schema([(name, kind)]))


NAMES = st.sampled_from(["n", "s", 'we"ird', "b\\s", "ä", "_n"])
ROWS = st.builds(
    lambda attributes, payload: (attributes, payload, "t" if payload else ""),
    st.dictionaries(
        NAMES,
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text()
        ),
    ),
    st.binary(max_size=3),
)


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 3), ROWS), min_size=1, max_size=4), max_size=5),
    st.lists(NAMES, unique=True),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_a_block_has_the_rows_of_its_range_with_their_values(
    runs: list[Any], names: list[str], begin: int, end: int
) -> None:
    offset, rows, pieces = 0, [], []
    for number, run in enumerate(runs):
        placed = []
        for step, (attributes, payload, kind) in run:
            offset += step
            placed.append(PlacedRow(0, offset, 1.0 + number, attributes, payload, kind))
        pieces.append(piece(*placed))
        rows += placed
    wanted = [each for each in rows if begin <= each.offset < end]
    found = list(blocks(pieces, begin, end))
    assert repr([each for block in found for each in rows_of(block)]) == repr(wanted)
    columns = [
        [value for block in found for value in block.columns(names)[place]]
        for place in range(len(names))
    ]
    assert repr(columns) == repr([[each.attributes.get(name) for each in wanted] for name in names])
    fields = pa.schema([(name, EXTRAS[name]) for name in ("_offset", "_time", "_payload")])
    there = [
        each
        for batch in BatchColumns(fields).batches(pieces, begin, end)
        for each in batch.to_pylist()
    ]
    assert [(each["_offset"], each["_time"].timestamp(), each["_payload"]) for each in there] == [
        (each.offset, each.time, each.payload) for each in wanted
    ]


def test_options_are_checked_before_anything_is_read() -> None:
    given = {"stream": "s", "startingOffsets": '{"1": 7}', "maxRowsPerTrigger": "5"}
    options = source_options(given, is_stream=True)
    assert options.start.offsets == ((1, 7),)
    assert options.trigger_rows == 5
    assert source_options({"stream": "s"}, is_stream=True).start.kind == "new"
    assert source_options({"stream": "s"}, is_stream=False).start.kind == "first"
    for wrong, said in (
        ({}, "name the stream"),
        ({"stream": "s", "slector": "x = 1"}, "no option slector"),
        ({"stream": "s", "selector": "x ="}, "selector"),
        ({"stream": "s", "startingOffsets": '{"0": "x"}'}, "SHARD"),
        ({"stream": "s", "startingOffsets": "soon"}, "startingOffsets"),
        ({"stream": "s", "endingOffsets": "first"}, "endingOffsets"),
        ({"stream": "s", "rowsPerPartition": "0"}, "from 1 on"),
        ({"stream": "s", "timeout": "nan"}, "seconds"),
        ({"stream": "s", "mode": "drop"}, "failfast"),
        ({"stream": "s", "failOnDataLoss": "perhaps"}, "true or false"),
        ({"stream": "s", "node": "a", "path": "b"}, "one of the two"),
    ):
        with pytest.raises(SparkSourceError, match=said):
            source_options(wrong, is_stream=False)
    for wrong, said in (({}, "stream"), ({"stream": "s", "producer": "p"}, "go together")):
        with pytest.raises(SparkSourceError, match=said):
            sink_options(wrong)


SCHEMA = pa.schema(
    [
        *(("n", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ('we"ird', pa.string())),
        pa.field("mixed", pa.string(), metadata={MIXED: b"1"}),
        *(pa.field(name, EXTRAS[name]) for name in ("_shard", "_offset", "_time")),
    ]
)
VALUES = st.one_of(st.integers(-3, 3), st.sampled_from(["", "a", "a%b", "a'_", "!"]))
KINDS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def holds(each: Any, value: Any) -> bool:
    """What Spark says of a value of the column's type; null is never true."""
    if isinstance(each, IsNotNull):
        return value is not None
    if value is None:
        return False
    if isinstance(each, In):
        return value in each.value
    if isinstance(each, StringStartsWith):
        return bool(value.startswith(each.value))
    compare = {"=": "__eq__", ">": "__gt__", ">=": "__ge__", "<": "__lt__", "<=": "__le__"}
    name = compare[
        {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<"}.get(
            type(each), "<="
        )
    ]
    return getattr(value, name)(each.value) is True


@given(st.data())
def test_a_filter_leaves_out_no_row_that_it_is_true_for(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["n", "f", "s", 'we"ird']))
    values: Any = VALUES.filter(lambda v: isinstance(v, str) == (name not in ("n", "f")))
    kind = data.draw(st.sampled_from([*KINDS, In, IsNotNull, StringStartsWith]))
    each: Filter
    if kind is In:
        each = In((name,), tuple(data.draw(st.lists(values, min_size=1, max_size=3))))
    elif kind is IsNotNull:
        each = IsNotNull((name,))
    elif kind is StringStartsWith:
        name = "s"
        each = StringStartsWith((name,), data.draw(VALUES.filter(lambda v: isinstance(v, str))))
        values = VALUES.filter(lambda v: isinstance(v, str))
    else:
        each = kind((name,), data.draw(values))
    conditions, bounds = pushed([each], SCHEMA)
    (text,) = conditions
    assert bounds == PushedBounds()
    predicate = compile_selector(text)
    for value in data.draw(st.lists(st.one_of(st.none(), values), max_size=5)):
        assert predicate.matches({name: value}) == holds(each, value)


def test_filters_on_places_are_bounds_and_what_is_not_exact_is_left_to_spark() -> None:
    filters = [
        GreaterThan(("_offset",), 6),
        LessThan(("_offset",), 10),
        EqualTo(("_shard",), 2),
        EqualTo(("mixed",), "1"),
        Not(EqualTo(("n",), 1)),
        EqualTo(("s", "part"), "x"),
        EqualTo(("other",), "x"),
        EqualTo(("f",), float("nan")),
    ]
    assert pushed(filters, SCHEMA) == ([], PushedBounds(7, 10, 2))
