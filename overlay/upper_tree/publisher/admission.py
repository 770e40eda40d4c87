"""Admits what a program publishes, by an event's attributes, their values and its size.

Nearly all is admissible, and what a program publishes together looks alike. So a batch is checked
attribute by attribute, in a few calls for all its events; only where that does not settle it each
event is checked by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from matching import check_value
from matching.columnar import MIN_EVENTS, columns_of, hand_on
from matching.values import INT_MAX, INT_MIN
from overlay.client import Draft
from overlay.upper_tree.batches import ITEM_MOST, KINDS, weigh_event
from overlay.upper_tree.publisher.constants import MAX_ATTRIBUTES, MAX_NAME

FLOATS, TEXTS, TRUTHS, INTEGERS = {float}, {str}, {bool}, {int}


class UniformBatch(NamedTuple):
    """The properties that all events of an admissible batch share."""

    names: tuple[str, ...]
    """All have these attributes, each with a value."""
    largest: int
    """Upper bound of the events' size in bytes."""


def uniform_batch(drafts: Sequence[Draft]) -> UniformBatch | None:
    """The batch as `UniformBatch` if its events have the same attributes, each with a value, and
    are all admissible; None if they are few, or would have to be checked one by one."""
    if len(drafts) < MIN_EVENTS:
        return None
    batch = [draft.attributes for draft in drafts]
    columns = columns_of(batch)
    if columns is None:
        return None
    hand_on(batch, columns)
    bare = dict.fromkeys(columns)
    if refusal(Draft(bare)) is not None:
        return None
    size = weigh_event(bare, b"") + max([len(draft.payload) for draft in drafts])
    for column in columns.values():
        kinds = set(map(type, column))
        if kinds == FLOATS:
            if not isfinite(sum(column)):  # a NaN or an infinity stays one; or it is too large
                return None
        elif kinds == TEXTS:
            if not "".join(column).isascii():
                return None
            size += max(map(len, column))
        elif kinds == INTEGERS:
            if min(column) < INT_MIN or max(column) > INT_MAX:
                return None
        elif kinds != TRUTHS:
            return None
    return UniformBatch(tuple(columns), size) if size <= ITEM_MOST else None


def refusal(draft: Draft) -> str | None:
    """Return why an event cannot be admitted, or None."""
    attributes = draft.attributes
    fault = name_fault(tuple(attributes))
    if fault is None and (size := weigh_event(attributes, draft.payload)) > ITEM_MOST:
        fault = f"about {size:,} bytes; at most {ITEM_MOST:,} fit on a link"
    if fault is not None:
        return fault
    for name, value in attributes.items():
        kind = type(value)
        if kind is float and isfinite(value):  # type: ignore[arg-type]  # as most are
            continue
        if value is not None and (reason := check_value(value)) is not None:
            return f"attribute {name!r}: {reason}"
    return None


@lru_cache(maxsize=KINDS)
def name_fault(names: tuple[str, ...]) -> str | None:
    """Return why an event cannot have attributes with these names, or None."""
    if len(names) > MAX_ATTRIBUTES:
        return f"{len(names)} attributes; at most {MAX_ATTRIBUTES} are allowed"
    for name in names:
        if not name or name.startswith("$"):
            return f"the attribute name {name!r} is reserved"
        if len(name) > MAX_NAME:
            return f"an attribute name of {len(name)} characters; at most {MAX_NAME} are allowed"
    return None
