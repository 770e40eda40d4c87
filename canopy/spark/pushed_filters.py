"""Spark's filters as a selector and offsets, which leave out rows before they are read.

What is left out is only what the filter would leave out; Spark applies all filters again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from canopy.spark.columns import EXTRAS, MIXED
from matching import SelectorError, compile_selector

COMPARED: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}

ALTERNATIVES_MOST: Final = 100
"""Values of an IN that become a selector."""


class PushedBounds(NamedTuple):
    """The offsets and shards that the filters leave."""

    least: int = 0
    before: int = 2**63 - 1
    shard: int | None = None


def pushed(filters: Iterable[Filter], schema: pa.Schema) -> tuple[list[str], PushedBounds]:
    """The conditions that follow from these filters on columns, and the bounds of offsets."""
    conditions: list[str] = []
    bounds = PushedBounds()
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        if len(path) != 1:
            continue
        (name,) = path
        if name in EXTRAS:
            bounds = _narrowed(bounds, name, each)
            continue
        place = schema.get_field_index(name)
        if place < 0 or MIXED in (schema.field(place).metadata or {}):
            continue
        condition = _condition(name, each)
        if condition:
            try:
                compile_selector(condition)
            except SelectorError:  # a value or a name that the language does not have
                continue
            conditions.append(condition)
    return conditions, bounds


def _condition(name: str, each: Any) -> str:
    """Return the selector of one filter; "" if the filter has none."""
    column = '"' + name.replace('"', '""') + '"'
    if isinstance(each, IsNotNull):
        return f"{column} IS NOT NULL"
    if isinstance(each, In):
        values = [_literal(value) for value in each.value if value is not None]
        if not all(values) or not 0 < len(values) <= ALTERNATIVES_MOST:
            return ""
        return f"{column} IN ({', '.join(values)})"
    if isinstance(each, StringStartsWith):
        escaped = each.value.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        return f"{column} LIKE {_literal(escaped + '%')} ESCAPE '!'"
    sign = COMPARED.get(type(each))
    value = _literal(each.value) if sign else ""
    return f"{column} {sign} {value}" if sign and value else ""


def _literal(value: Any) -> str:
    """A value in a selector; "": none that an attribute has."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int) or (isinstance(value, float) and value - value == 0.0):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return ""


_STEPS: Final[Mapping[type[Filter], Callable[[PushedBounds, int], PushedBounds]]] = {
    EqualTo: lambda b, n: PushedBounds(max(b.least, n), min(b.before, n + 1), b.shard),
    GreaterThan: lambda b, n: PushedBounds(max(b.least, n + 1), b.before, b.shard),
    GreaterThanOrEqual: lambda b, n: PushedBounds(max(b.least, n), b.before, b.shard),
    LessThan: lambda b, n: PushedBounds(b.least, min(b.before, n), b.shard),
    LessThanOrEqual: lambda b, n: PushedBounds(b.least, min(b.before, n + 1), b.shard),
}


def _narrowed(bounds: PushedBounds, name: str, each: Any) -> PushedBounds:
    value = getattr(each, "value", None)
    if type(value) is not int:
        return bounds
    if name == "_shard" and isinstance(each, EqualTo):
        return bounds._replace(shard=value)
    step = _STEPS.get(type(each)) if name == "_offset" else None
    return step(bounds, value) if step else bounds
