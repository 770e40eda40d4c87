"""Admits what a program publishes, by an event's attributes, its size and its schema.

Nearly all is admissible, and what a program publishes together looks alike. So a batch is checked
attribute by attribute, in a few calls for all its events; only where that does not settle it each
event is checked by itself.

The driver knows the schemas (`Port.schemas`, an `EventSchemas`); nobody else looks at what is in
them. Where it has none, events cost nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import Literal, NamedTuple, Protocol

from matching import check_value
from matching.columnar import MIN_EVENTS, columns_of, hand_on
from matching.values import INT_MAX, INT_MIN
from overlay.client import Draft
from overlay.machine import Port
from overlay.operator_commands import EventSchema
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
    bare = Draft(dict.fromkeys(columns))
    if refusal(bare) is not None:
        return None
    size = weigh_event(bare) + max([len(draft.payload) for draft in drafts])
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
    if fault is None and (size := weigh_event(draft)) > ITEM_MOST:
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


Otherwise = Literal["refuse", "park", "count"]


class EventSchemas(Protocol):
    """The schemas that a node has been given, by type of event."""

    otherwise: Otherwise
    """The treatment of others: they are refused; published as a parked event in their place; or
    published, and counted."""

    def fault(self, draft: Draft) -> str:
        """Return where and why an event does not conform to the schema of its type; "" if it
        conforms or there is no schema."""
        ...

    def parked(self, draft: Draft, fault: str) -> Draft:
        """The event that is published in the place of another one, and has it as its payload."""
        ...

    def listed(self) -> tuple[EventSchema, ...]:
        """All schemas, in the order of the types of their events."""
        ...


def schemas_of(port: Port) -> EventSchemas | None:
    """The schemas of a node; None: it has none."""
    found: EventSchemas | None = port.schemas
    return found


def fits(port: Port, drafts: Sequence[Draft]) -> bool:
    """Whether all events are what their schemas say."""
    schemas = schemas_of(port)
    return schemas is None or not any(map(schemas.fault, drafts))


def settled(port: Port, draft: Draft) -> tuple[Draft, str | None]:
    """Return the draft to publish for an event, and the reason if it is refused (None: it is
    not)."""
    schemas = schemas_of(port)
    fault = "" if schemas is None else schemas.fault(draft)
    if schemas is None or not fault:
        return draft, None
    if schemas.otherwise == "refuse":
        port.count("schema_refuse")
        return draft, fault
    if schemas.otherwise == "park":
        port.count("schema_park")
        return schemas.parked(draft, fault), None
    port.count("schema_count")
    return draft, None


def foreseen(port: Port, draft: Draft) -> str:
    """Return why an event would be refused if it were published; "" if it would not."""
    schemas = schemas_of(port)
    if schemas is None or schemas.otherwise != "refuse":
        return ""
    return schemas.fault(draft)


def row_refusal(port: Port, draft: Draft) -> str:
    """Return why an event cannot be appended; "" if it can. Rows of a stream have fixed places
    which another event cannot take, so an event that would be parked is refused."""
    schemas = schemas_of(port)
    fault = "" if schemas is None else schemas.fault(draft)
    if schemas is None or not fault:
        return ""
    if schemas.otherwise == "count":
        port.count("schema_count")
        return ""
    port.count("schema_refuse")
    return fault
