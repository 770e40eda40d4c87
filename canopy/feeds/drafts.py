"""From a user's fields to the draft of an event: the rules of all formats.

docs/reference/formats.md has them in full:

- scalars (booleans, numbers, strings) and null are attributes; other values (objects, arrays,
  bytes) are in the payload, as an object of their names and values. Nothing of a valid event is
  lost.
- every event has `id` (its own, else one that `read_feed` makes of its place) and `type` (its own
  if that is a string, else "event"); an `id` or `type` of its own that cannot be an attribute is in
  the payload.
- names that begin with `$` are reserved (C9) and are in the payload, as is the empty name.
- an inadmissible value (NaN, an infinity, an integer beyond 64 bits, a broken string) refuses the
  whole event with a reason: without the attribute it might match other selectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from canopy.feeds.constants import EVENT_LIMIT, NESTING_LIMIT
from matching import Value, check_value
from overlay.client import Draft


class FeedEvent(msgspec.Struct, frozen=True):
    """An event of the feed; `number` is its line (or its position, from 1). `place`: the suffix of
    the `id` that it gets if it has none, unique in the feed; "": it gets none."""

    number: int
    draft: Draft
    place: int | str = ""


class Refusal(msgspec.Struct, frozen=True):
    """A line (or item) of the feed that is not a valid event, and why."""

    number: int
    reason: str


Item: TypeAlias = FeedEvent | Refusal


class BadEventError(ValueError):
    """The input is not a valid event; the message gives the reason."""


class Faulty(dict[Any, Any]):
    """An object with invalid names; `fault` gives the reason. It replaces the object, so that a
    parser's hook can report the fault without ending the parsing. `twice`: names that occur more
    than once; the object has their last values."""

    fault: str = ""
    twice: frozenset[str] = frozenset()


def object_of(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a dict, or a `Faulty` if a name is repeated or not a scalar: the parsers' hook."""
    try:
        found = dict(pairs)
    except TypeError:  # MessagePack: a list or a map as a name
        return faulty("a name is not a text")
    if len(found) == len(pairs):
        return found
    names = Counter(name for name, _ in pairs)
    twice = [name for name, count in names.items() if count > 1]
    doubled = faulty(f"the name {show(twice[0])} is given twice")
    doubled.update(found)
    doubled.twice = frozenset(twice)
    return doubled


def faulty(fault: str) -> Faulty:
    """Return a `Faulty` with the reason `fault`."""
    found = Faulty()
    found.fault = fault
    return found


def show(name: object) -> str:
    """Return a name for a message: quoted, printable, at most 60 characters."""
    text = ascii(name) if not isinstance(name, str) or not name.isprintable() else f'"{name}"'
    return text if len(text) <= 60 else text[:57] + '…"'


def is_scalar(value: object) -> bool:
    """Return whether a value can be the value of an attribute; null can."""
    return value is None or isinstance(value, bool | int | float | str)


def is_attribute(name: str, value: object) -> bool:
    """Return whether a field becomes an attribute; if not, it goes to the payload."""
    return is_scalar(value) and name != "" and not name.startswith("$")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise BadEventError if an event cannot have a name or a scalar of `fields`."""
    if isinstance(fields, Faulty):
        raise BadEventError(fields.fault)
    for name, value in fields.items():
        if not isinstance(name, str):
            raise BadEventError(f"the name {show(name)} is not a text")
        reason = check_value(name)
        if reason is not None:
            raise BadEventError(f"the name {show(name)}: {reason}")
        if value is not None and is_scalar(value):
            reason = check_value(value)
            if reason is not None:
                raise BadEventError(f"{show(name)}: {reason}")


def check_nested(name: str, value: Any, level: int = 0, *, json: bool = True) -> None:
    """Raise BadEventError if a nested value has repeated names, more than `NESTING_LIMIT` levels,
    or, with `json`, values that JSON cannot represent."""
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


def split_fields(fields: Mapping[str, Any]) -> tuple[dict[str, Value | None], dict[str, Any]]:
    """Split checked `fields` into (attributes, fields for the payload)."""
    attributes: dict[str, Value | None] = {}
    rest: dict[str, Any] = {}
    for name, value in fields.items():
        if is_attribute(name, value):
            attributes[name] = value
        else:
            rest[name] = value
    return attributes, rest


def fields_of(
    fields: Mapping[str, Any], *, json: bool = True
) -> tuple[dict[str, Value | None], dict[str, Any]]:
    """Return an event's attributes and the fields for its payload. Raises BadEventError."""
    check_fields(fields)
    attributes, rest = split_fields(fields)
    for name, value in rest.items():
        check_nested(name, value, json=json)
    set_type(attributes, rest)
    return attributes, rest


def set_type(attributes: dict[str, Value | None], rest: dict[str, Any]) -> None:
    """Give the event a `type` if it has none; a value that is not a text moves to `rest`."""
    own = attributes.get("type")
    if not isinstance(own, str):
        if own is not None:
            rest["type"] = own
        attributes["type"] = "event"


def weight(draft: Draft) -> int:
    """Return an upper estimate of a draft's size on the wire in bytes, to bound batches."""
    total = len(draft.payload) + len(draft.payload_type)
    for name, value in draft.attributes.items():
        total += 4 * len(name) + 16
        if isinstance(value, str):
            total += 4 * len(value)  # UTF-8 takes up to four bytes for a character
    return total


def check_size(draft: Draft) -> None:
    """Raise BadEventError for a draft that is larger than `EVENT_LIMIT`."""
    if weight(draft) <= EVENT_LIMIT:
        return
    size = len(draft.payload) + len(draft.payload_type)
    for name, value in draft.attributes.items():
        size += len(name.encode("utf-8")) + 9
        size += len(value.encode("utf-8")) if isinstance(value, str) else 0
    if size > EVENT_LIMIT:
        raise BadEventError(f"larger than {EVENT_LIMIT} bytes")


def id_text(value: Value | None) -> str:
    """Return the `id` attribute as the text that deliveries and commands show."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(value)
