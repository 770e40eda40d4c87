"""What a change is in a stream, which rows are in, whole transactions, and few statements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canopy.sync.assembler import Assembler, TransactionPart
from canopy.sync.changes import (
    ABORT,
    DELETE,
    END,
    INSERT,
    SCHEMA,
    SNAPSHOT,
    TRUNCATE,
    UPDATE,
    Change,
    ChangeDrafts,
    Column,
    Commit,
    Table,
    change_of,
    check_table,
    merged,
)
from canopy.sync.conversions import canonical, to_checked_json
from canopy.sync.dialects import DUCKDB, GENERAL, MARIADB, POSTGRESQL, SQLITE, Dialect
from canopy.sync.errors import MalformedError, SchemaError, UnfitError
from canopy.sync.folded import fold
from canopy.sync.row_filter import RowFilter
from canopy.sync.stream import last_commit, shapes
from canopy.sync.values import ABSENT, NativeText, pack, unpack, unpacking
from matching import SelectorError
from overlay.upper_tree.publisher.admission import refusal
from tests.support.databases.memory import MemoryStream

ORDERS = Table(
    "orders",
    (
        Column("id", "int", "INTEGER", False),
        Column("item", "text", "TEXT"),
        Column("total", "decimal", "NUMERIC(10,2)"),
    ),
    (0,),
    "sqlite",
)
TABLES = {"orders": ORDERS}
ANY = unpacking(list[Any])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.just(ABSENT),
    st.builds(NativeText, st.text()),
)


def same(one: Any, other: Any) -> bool:
    exactly = type(one) in (time, datetime) or repr(one) == repr(other)  # no database knows `fold`
    return type(one) is type(other) and (one is other or one == other) and exactly


@given(st.lists(VALUES))
def test_a_row_comes_back_as_it_was(row: list[Any]) -> None:
    after = unpack(pack(1, tuple(row)), ANY)[1]
    assert len(after) == len(row)
    assert all(same(one, other) for one, other in zip(row, after, strict=True))


def test_the_hard_values_come_back() -> None:
    row = (2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**60, Decimal("1.10"), Decimal("NaN"))
    more = (math.inf, -0.0, "a\0b", b"\0\xff", time(1, 2, 3, 999_999), date(1, 1, 1), "", None)
    zoned = (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(9999, 12, 31, 23, 59, 59))
    for one, other in zip(
        row + more + zoned, unpack(pack(0, row + more + zoned), ANY)[1], strict=True
    ):
        assert repr(one) == repr(other)
    assert math.isnan(unpack(pack(0, (math.nan,)), ANY)[1][0])


def test_what_no_stream_can_carry_is_refused() -> None:
    with pytest.raises(UnfitError, match="no UTF-8"):
        pack(0, ("\udcff",))
    with pytest.raises(UnfitError, match="complex"):
        pack(0, (1j,))
    for junk in (b"", b"\xc1", b"\x01", msgspec.msgpack.encode([1, 2, 3]), pack(1, (1,))):
        with pytest.raises(MalformedError):
            change_of(junk)
    with pytest.raises(MalformedError, match="kind 99"):
        unpack(msgspec.msgpack.encode([msgspec.msgpack.Ext(99, b"")]), ANY)


def test_an_event_has_what_selectors_look_at_and_the_payload_has_all() -> None:
    commit = Commit(7, 9, 1.5, "db")
    change = Change(UPDATE, "orders", (1, ABSENT, None), (1, "x" * 300, Decimal("2.50")))
    draft = ChangeDrafts().draft(msgspec.structs.replace(change, schema=ORDERS), commit)
    assert draft.attributes == {"_table": "orders", "_op": "update", "id": 1}
    assert refusal(draft) is None
    assert change_of(draft.payload) == msgspec.structs.replace(change, commit=commit)
    barrier = Change(SCHEMA, "orders", schema=ORDERS)
    assert change_of(ChangeDrafts().draft(barrier).payload) == barrier
    strange = Table("t", (Column("$x", "int", ""), Column("_op", "int", "")), (0,))
    assert ChangeDrafts().draft(Change(INSERT, "t", None, (1, 2), strange)).attributes == {
        "_table": "t",
        "_op": "insert",
    }


def test_a_table_needs_a_key() -> None:
    with pytest.raises(SchemaError, match="no primary key"):
        check_table(msgspec.structs.replace(ORDERS, key=()))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((1, "a", 5), (1, "b", 50), (INSERT, None, (1, "b", 50))),  # enters
        ((1, "a", 50), (1, "b", 5), (DELETE, (1, "a", 50), None)),  # leaves
        ((1, "a", 50), (1, "b", 60), (UPDATE, (1, "a", 50), (1, "b", 60))),
        ((1, "a", 5), (1, "b", 6), None),
        ((1, "a", 50), (1, "b", None), (DELETE, (1, "a", 50), None)),  # unknown is not true
        (None, (1, "b", Decimal("20.5")), (INSERT, None, (1, "b", Decimal("20.5")))),
        ((1, "a", Decimal("9.9")), None, None),
        ((1, "a", 50), None, (DELETE, (1, "a", 50), None)),
    ],
)
def test_rows_enter_and_leave_a_filter(before: Any, after: Any, expected: Any) -> None:
    chosen = RowFilter({"orders": "total > 10"})
    chosen.learn(ORDERS)
    op = UPDATE if before and after else INSERT if after else DELETE
    found = chosen.admit(Change(op, "orders", before, after))
    assert (found and (found.op, found.before, found.after)) == expected
    other = Change(INSERT, "others", None, (1,))
    assert chosen.admit(other) is other


def test_a_filter_that_cannot_be_decided_is_an_error() -> None:
    with pytest.raises(SelectorError):
        RowFilter({"orders": "total >"})
    with pytest.raises(SchemaError, match="colour"):
        RowFilter({"orders": "colour = 'red'"}).learn(ORDERS)
    chosen = RowFilter({"orders": "total > 10"})
    chosen.learn(ORDERS)
    for before in (None, (1, ABSENT, ABSENT)):
        with pytest.raises(SchemaError, match="REPLICA IDENTITY FULL"):
            chosen.admit(Change(UPDATE, "orders", before, (1, "b", 50)))


def change(number: int, last: bool = False, op: int = INSERT) -> Change:
    commit = Commit(number, number, 0.0, "db") if last else None
    return Change(op, "orders", None, (number, "x", None), commit=commit)


def parts(assembler: Assembler, *changes: Change) -> list[TransactionPart]:
    return list(assembler.feed(enumerate(changes, assembler._next)))


def numbers(part: TransactionPart) -> list[int]:
    return [each.after[0] for each in part.changes if each.after]


def test_whole_transactions_are_handed_on_together_and_the_rest_is_kept() -> None:
    assembler = Assembler()
    found = parts(assembler, change(0), change(1, True), change(2, True), change(3))
    assert [(numbers(p), p.next, p.whole) for p in found] == [([0, 1, 2], 3, True)]
    found = parts(assembler, change(4, True))
    assert [(numbers(p), p.next, p.whole) for p in found] == [([3, 4], 5, True)]


def test_a_long_transaction_comes_in_parts_and_can_be_taken_back() -> None:
    assembler = Assembler(3)
    found = parts(assembler, change(0, True), *(change(n) for n in range(1, 6)))
    assert [(numbers(p), p.next, p.whole) for p in found] == [
        ([0], 1, True),
        ([1, 2, 3], 4, False),
    ]
    found = parts(assembler, change(6, op=ABORT), change(7, True))
    assert [(numbers(p), p.whole, p.undo) for p in found] == [([], False, True), ([7], True, False)]
    assert found[-1].next == 8


def test_a_snapshot_takes_back_what_was_open_and_an_abort_of_nothing_is_nothing() -> None:
    assembler = Assembler()
    found = parts(assembler, change(0, True), change(1), change(2, op=SNAPSHOT), change(3, True))
    assert [numbers(p) for p in found] == [[0], [2, 3]]
    assert parts(assembler, change(4, op=ABORT)) == []
    assert parts(assembler, change(5), change(6, op=ABORT)) == []


@given(
    st.lists(st.sampled_from(["row", "last", "abort"]), max_size=60), st.integers(1, 9), st.data()
)
def test_however_it_is_cut_what_is_committed_is_the_same(
    kinds: list[str], most: int, data: st.DataObject
) -> None:
    ops = [
        change(n, op=ABORT) if kind == "abort" else change(n, kind == "last")
        for n, kind in enumerate(kinds)
    ]
    expected: list[int] = []
    open_: list[int] = []
    for n, kind in enumerate(kinds):
        open_ = [] if kind == "abort" else [*open_, n]
        if kind == "last":
            expected, open_ = expected + open_, []
    assembler = Assembler(most)
    committed: list[int] = []
    applied: list[int] = []
    at = 0
    while at < len(ops):
        step = data.draw(st.integers(1, 7))
        for part in assembler.feed(list(enumerate(ops))[at : at + step]):
            applied = [] if part.undo else applied + numbers(part)
            if part.whole:
                committed, applied = committed + applied, []
                assert part.next == committed[-1] + 1
        at += step
    assert committed == expected


KEYS = st.integers(0, 4)


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """What a table's changes may be: known rows only are updated and deleted."""
    rows: dict[int, tuple[Any, ...]] = {}
    found = []
    for number in range(draw(st.integers(0, 25))):
        key, kind = draw(KEYS), draw(st.sampled_from("iiuuudkt"))
        if kind == "t":
            rows.clear()
            found.append(Change(TRUNCATE, "orders"))
        elif key not in rows:
            rows[key] = (key, f"n{number}", number)
            found.append(Change(INSERT, "orders", None, rows[key]))
        elif kind == "d":
            found.append(Change(DELETE, "orders", (key, ABSENT, ABSENT)))
            del rows[key]
        else:
            old = rows.pop(key)
            to = draw(KEYS) if kind == "k" else key
            to = key if to in rows else to
            hidden = draw(st.booleans())
            rows[to] = (to, old[1] if hidden else f"u{number}", number)
            shown = (to, ABSENT if hidden else rows[to][1], number)
            full = draw(st.booleans())
            before = old if full else (key, ABSENT, ABSENT) if to != key else None
            found.append(Change(UPDATE, "orders", before, shown))
    return found


def applied(rows: dict[Any, Any], changes: Sequence[Change]) -> dict[Any, Any]:
    """The rows after `changes`, one by one."""
    for each in changes:
        if each.op == TRUNCATE:
            rows.clear()
            continue
        key = (each.before or each.after or ())[0]
        old = rows.pop(key, None)
        if each.after is not None:
            rows[each.after[0]] = merged(old or each.after, each.after)
    return rows


@given(histories(), st.integers(0, 25))
def test_folded_changes_come_to_the_same_rows(changes: list[Change], cut: int) -> None:
    rows = applied({}, changes[:cut])
    expected = applied(dict(rows), changes[cut:])
    for step in fold(changes[cut:], TABLES):
        if step.clear:
            rows.clear()
        for (key,) in step.deletes:
            rows.pop(key, None)
        for row in step.upserts:
            rows[row[0]] = row
        for (key,), row in step.updates:
            rows[row[0]] = merged(rows.pop(key), row)
    assert rows == expected


def test_types_and_values_of_one_database_in_another() -> None:
    declared = [SQLITE.type_of(ORDERS, c) for c in ORDERS.columns]
    assert declared == ["INTEGER", "TEXT", "NUMERIC(10,2)"]
    assert [POSTGRESQL.type_of(ORDERS, c) for c in ORDERS.columns] == [
        *("bigint", "text", "numeric"),
    ]
    to_postgres = [each.one for each in POSTGRESQL.fittings(ORDERS)]
    assert [fit(v) for fit, v in zip(to_postgres, (1, "x", 2.5), strict=True)] == [
        *(1, "x", Decimal("2.5")),
    ]
    for place, value in ((0, "one"), (0, 1.5), (0, 2**63), (1, "a\0b"), (1, b"x"), (2, "12 EUR")):
        with pytest.raises(UnfitError):
            to_postgres[place](value)
    theirs = msgspec.structs.replace(ORDERS, dialect="postgresql")
    to_sqlite = [each.one for each in SQLITE.fittings(theirs)]
    values = (2**70, math.nan, Decimal("1.10"))
    assert [fit(v) for fit, v in zip(to_sqlite, values, strict=True)] == [
        *(str(2**70), "NaN", "1.10"),
    ]
    assert to_sqlite[2](datetime(2026, 1, 2, 3, 4, 5, 6)) == "2026-01-02 03:04:05.000006"
    assert canonical(Decimal("1.10")) == canonical(Decimal("1.1")) == "1.1"
    assert canonical(-0.0) == canonical(0.0)
    assert canonical(Decimal(10**40)) == str(10**40)


@pytest.mark.parametrize(
    ("text", "fits"),
    [('{"a": 1e999}', True), ('"\\ud800"', True), ("", False), ("NaN", False), ("[1,]", False)],
)
def test_what_is_no_json_is_refused_where_only_json_is_kept(text: str, fits: bool) -> None:
    if fits:
        assert to_checked_json(text) == text
    else:
        with pytest.raises(UnfitError):
            to_checked_json(text)


HARD: list[Any] = [0, 2**63, -(2**70), 1.5, float("nan"), True, Decimal("1.50"), "a", "a\0b", b"\0",
                   date(2026, 1, 2), time(1, 2), datetime(2026, 1, 2), "[1]", "7"]  # fmt: skip


@pytest.mark.parametrize(
    "destination", [SQLITE, DUCKDB, POSTGRESQL, MARIADB, GENERAL], ids=lambda one: one.name
)
def test_columns_are_made_fit_as_their_values_are(destination: Dialect) -> None:
    names = (
        "int",
        "float",
        "decimal",
        "bool",
        "text",
        "bytes",
        "date",
        "time",
        "timestamp",
        "json",
    )
    for dialect in ("sqlite", "postgresql", "mariadb"):
        table = Table("t", tuple(Column(n, n, "") for n in names), (0,), dialect)
        for column in destination.fittings(table):
            for value in HARD:
                try:
                    expected = [None, column.one(value)]
                except UnfitError:
                    with pytest.raises(UnfitError):
                        column.many([None, value])
                else:
                    assert repr(list(column.many([None, value]))) == repr(expected)


def test_shapes_of_what_was_not_finished_do_not_count() -> None:
    stream, drafting = MemoryStream(), ChangeDrafts()
    commit = Commit(1, 1, 0.0, "s")
    wider = Table("orders", (*ORDERS.columns, Column("more", "int", "INTEGER")), (0,), "sqlite")
    for change in (
        Change(SNAPSHOT),
        Change(SCHEMA, "orders", schema=ORDERS),
        Change(END, commit=commit),
        Change(SCHEMA, "orders", schema=wider),
    ):
        stream.append([drafting.draft(change)])
    found, unfinished, behind = last_commit(stream)
    assert (found, unfinished, behind) == (commit, SCHEMA, 3)
    assert shapes(stream, behind) == TABLES
