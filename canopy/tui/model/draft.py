"""A test event from typed text: a flat JSON object (docs/reference/formats.md).

Nested values become the payload; an event without an `id` is given one, so that it can be explained
afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from canopy.tui.constants import DRAFT_CHARACTERS
from matching import Value, check_value
from overlay.client import Draft


class DraftError(ValueError):
    """The text is not a valid event; the message says why."""


def parse_draft(text: str, assigned_id: str) -> Draft:
    """The event that `text` describes. Raises DraftError."""
    if len(text) > DRAFT_CHARACTERS:
        raise DraftError(f"longer than {DRAFT_CHARACTERS:,} characters")
    try:
        fields = json.loads(text, object_pairs_hook=_once, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise DraftError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise DraftError("nested too deeply") from None
    except ValueError as error:
        raise DraftError(str(error)) from error
    if not isinstance(fields, dict):
        raise DraftError('an event is a JSON object: {"name": value, …}')
    attributes: dict[str, Value | None] = {}
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict | list):
            nested[name] = value
            continue
        reason = None if value is None else check_value(value)
        if reason is not None:
            raise DraftError(f"{name!r}: {reason}")
        attributes[name] = value
    attributes.setdefault("id", assigned_id)
    if not isinstance(attributes.get("type"), str):
        attributes["type"] = "event"
    if not nested:
        return Draft(attributes)
    return Draft(attributes, json.dumps(nested, ensure_ascii=False).encode(), "application/json")


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise DraftError(f"{name!r} is given twice")
        fields[name] = value
    return fields


def _constant(word: str) -> None:
    raise DraftError(f"{word} is not a value")
