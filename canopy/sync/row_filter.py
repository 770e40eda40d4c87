"""Decides by a selector over a table's columns which rows belong to a sync, as they change.

A row that begins to match is an insert for the destination, and one that ceases to match a delete,
whatever the source has done to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from canopy.sync.changes import DELETE, INSERT, UPDATE, Change, Table
from canopy.sync.conversions import words
from canopy.sync.errors import SchemaError
from canopy.sync.values import ABSENT, Row, Value
from matching import Predicate, compile_selector


class _Needed(NamedTuple):
    predicate: Predicate
    places: tuple[tuple[str, int], ...]  # name and place of the columns that it looks at


class RowFilter:
    """The rows of some tables that match; all of a table without a selector."""

    def __init__(self, selectors: Mapping[str, str]) -> None:
        """`selectors`: by table. Raises SelectorError."""
        self._predicates = {name: compile_selector(text) for name, text in selectors.items()}
        self._tables: dict[str, _Needed] = {}

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables from which a selector chooses rows."""
        return tuple(self._predicates)

    def learn(self, table: Table) -> None:
        """Give rows of this table this shape from here on. Raises SchemaError when the selector
        asks for a column that it lacks."""
        predicate = self._predicates.get(table.name)
        if predicate is None:
            return
        lacking = [name for name in predicate.attributes if name not in table.names]
        if lacking:
            raise SchemaError(f"the filter of {table.name} asks for {lacking[0]}, no column of it")
        places = tuple((name, table.names.index(name)) for name in predicate.attributes)
        self._tables[table.name] = _Needed(predicate, places)

    def wants(self, table: str, row: Row) -> bool:
        """Return whether a row is selected. Raises SchemaError if a value that the selector needs
        is ABSENT."""
        needed = self._tables.get(table)
        if needed is None:
            return True
        return needed.predicate.matches(
            {name: _attribute(table, name, row[place]) for name, place in needed.places}
        )

    def admit(self, change: Change) -> Change | None:
        """Return the change to apply at the destination for `change`; None: nothing."""
        needed = self._tables.get(change.table)
        if needed is None or change.op not in (INSERT, UPDATE, DELETE):
            return change
        was = change.before is not None and self.wants(change.table, change.before)
        now = change.after is not None and self.wants(change.table, change.after)
        if change.op == UPDATE and change.before is None:
            raise SchemaError(_no_image(change.table))
        if was and now:
            return change
        if now:
            return msgspec.structs.replace(change, op=INSERT, before=None)
        if was:
            return msgspec.structs.replace(change, op=DELETE, after=None)
        return None


def _attribute(table: str, name: str, value: Value) -> Any:
    """`value` as selectors compare it: a decimal as the nearest float, dates and times as their ISO
    text, which has their order."""
    kind = type(value)
    if value is ABSENT:
        raise SchemaError(_no_image(f"{table} ({name})"))
    if kind in (bool, str):
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else float(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is Decimal:
        return float(value) if value.is_finite() else None
    return words(value) if kind in (datetime, date, time) else None


def _no_image(what: str) -> str:
    return (
        f"the source does not say what a row of {what} was before: a filtered table needs "
        f"ALTER TABLE … REPLICA IDENTITY FULL"
    )
