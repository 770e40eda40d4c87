"""From a user's fields to a draft of an event (DESIGN.md, section 6, Events).

The rules that all formats share:

- scalars (booleans, numbers, strings) and null are attributes; what is not (objects, arrays, bytes)
  travels in the payload as an object of its own, under its name. Nothing of a valid event is lost.
- every event has `id` (its own, else its number in the feed, as text) and `type` (its own if that
  is a string, else "event"); an `id` or `type` of its own that could not be kept as attribute
  travels in the payload.
- names that begin with `$` are reserved (C9) and travel in the payload, as does the empty name.
- a value that is none (NaN, an infinity, an integer beyond 64 bits, a broken string) refuses the
  whole event, with a reason: half an event would match what the whole does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from matching import Value, check_value
from overlay.client import Draft

EVENT_LIMIT: Final = 512 * 1024
"""Bytes of one event as it stands in the feed: half of the largest frame on the wire (1 MiB,
DESIGN.md, section 6, Wire), because a batch carries more than the event itself."""

NESTING_LIMIT: Final = 200
"""Levels of a nested value; the interpreter's own stack ends at a thousand. Wild guess."""


class Entry(msgspec.Struct, frozen=True):
    """An event of the feed; `number` is its line (or its place, from 1)."""

    number: int
    draft: Draft


class Refusal(msgspec.Struct, frozen=True):
    """Something in the feed that is no event, and why."""

    number: int
    reason: str


Item: TypeAlias = Entry | Refusal


class BadEventError(ValueError):
    """What was read is no admissible event; the text says why."""


class Faulty(dict[Any, Any]):
    """An object that is none, because of its names; kept so that the reason can be told."""

    fault: str = ""


def object_of(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The hook of the parsers: a dict, or a `Faulty` when a name comes twice or is no scalar."""
    try:
        found = dict(pairs)
    except TypeError:  # MessagePack: a list or a map as a name
        return faulty("a name is no text")
    if len(found) == len(pairs):
        return found
    seen: dict[Any, None] = {}
    for name, _ in pairs:
        if name in seen:
            return faulty(f"the name {show(name)} is given twice")
        seen[name] = None
    return found


def faulty(fault: str) -> Faulty:
    """An empty object with its fault."""
    found = Faulty()
    found.fault = fault
    return found


def show(name: object) -> str:
    """A name for a message, quoted, printable and short."""
    text = ascii(name) if not isinstance(name, str) or not name.isprintable() else f'"{name}"'
    return text if len(text) <= 60 else text[:57] + '…"'


def is_scalar(value: object) -> bool:
    """Whether a value has a place among the attributes; null has."""
    return value is None or isinstance(value, bool | int | float | str)


def is_attribute(name: str, value: object) -> bool:
    """Whether a field is an attribute, or else travels in the payload."""
    return is_scalar(value) and name != "" and not name.startswith("$")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise BadEventError if a name or a scalar of `fields` cannot be an event's."""
    if isinstance(fields, Faulty):
        raise BadEventError(fields.fault)
    for name, value in fields.items():
        if not isinstance(name, str):
            raise BadEventError(f"the name {show(name)} is no text")
        reason = check_value(name)
        if reason is not None:
            raise BadEventError(f"the name {show(name)}: {reason}")
        if value is not None and is_scalar(value):
            reason = check_value(value)
            if reason is not None:
                raise BadEventError(f"{show(name)}: {reason}")


def check_nested(name: str, value: Any, level: int = 0, *, json: bool = True) -> None:
    """Raise BadEventError for what a nested value may not hold: repeated names, too many levels,
    and, if it has to survive as JSON, what JSON cannot say."""
    if level > NESTING_LIMIT:
        raise BadEventError(f"{show(name)} is nested deeper than {NESTING_LIMIT} levels")
    if isinstance(value, Mapping):
        if isinstance(value, Faulty):
            raise BadEventError(f"{show(name)}: {value.fault}")
        for key, inner in value.items():
            check_nested(name, key, level + 1, json=json)
            check_nested(name, inner, level + 1, json=json)
    elif isinstance(value, list | tuple):
        for inner in value:
            check_nested(name, inner, level + 1, json=json)
    elif json and isinstance(value, float | str) and check_value(value) is not None:
        raise BadEventError(f"{show(name)}: {check_value(value)}")


def split(fields: Mapping[str, Any]) -> tuple[dict[str, Value | None], dict[str, Any]]:
    """Checked `fields` as (attributes, what has to travel in the payload)."""
    attributes: dict[str, Value | None] = {}
    rest: dict[str, Any] = {}
    for name, value in fields.items():
        if is_attribute(name, value):
            attributes[name] = value
        else:
            rest[name] = value
    return attributes, rest


def name_event(
    attributes: dict[str, Value | None], rest: dict[str, Any], number: int
) -> dict[str, Value | None]:
    """Give the event its `id` and `type`; what had to give way goes to `rest`."""
    if attributes.get("id") is None:
        attributes["id"] = str(number)
    own = attributes.get("type")
    if not isinstance(own, str):
        if own is not None:
            rest["type"] = own
        attributes["type"] = "event"
    return attributes


def weight(draft: Draft) -> int:
    """Roughly how many bytes a draft takes on the way, at least; to bound batches."""
    total = len(draft.payload) + len(draft.payload_type)
    for name, value in draft.attributes.items():
        total += 4 * len(name) + 16
        if isinstance(value, str):
            total += 4 * len(value)  # UTF-8 takes up to four bytes for a character
    return total


def id_text(value: Value | None) -> str:
    """A user's id as the text by which deliveries and commands name it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(value)
