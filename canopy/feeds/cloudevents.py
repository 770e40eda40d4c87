"""CloudEvents 1.0 in structured JSON, recognised by `specversion`.

The attributes are the context attributes and the scalar fields of its JSON `data`; the context wins
if both have a name. The payload is the data itself, with `datacontenttype` as its type: a JSON
value, a text, or the bytes of `data_base64`. ``structured`` makes the same CloudEvent of the event.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from canopy.feeds.context import CONTEXT, fault_of
from canopy.feeds.datatypes import Form, encoded, payload_type
from canopy.feeds.drafts import (
    BadEventError,
    Faulty,
    check_fields,
    check_nested,
    show,
    split_fields,
)
from canopy.feeds.jsontext import JSON, dump, is_json_type
from matching import Value
from overlay.client import Draft

REQUIRED: Final = ("id", "source", "type")
"""Context attributes that every CloudEvent has, beside `specversion` (CloudEvents 1.0, section
"REQUIRED Attributes")."""

BYTES: Final = "application/octet-stream"


def is_cloudevent(fields: Mapping[str, Any]) -> bool:
    """Return whether an object has a `specversion`, and so is a CloudEvent."""
    return isinstance(fields.get("specversion"), str)


def cloudevent_draft(fields: Mapping[str, Any]) -> Draft:
    """Return the event in a structured CloudEvent. Raises BadEventError."""
    if isinstance(fields, Faulty):
        raise BadEventError(fields.fault)
    data = {name: fields[name] for name in ("data", "data_base64") if name in fields}
    if data.get("data_base64") is None:
        data.pop("data_base64", None)
    elif data.pop("data", None) is not None:
        raise BadEventError("both data and data_base64; CloudEvents allows one of them")
    members = ("data", "data_base64")
    context = context_of({name: value for name, value in fields.items() if name not in members})
    content = str(context.get("datacontenttype", ""))
    if "data_base64" in data:
        return event_draft(context, _decoded(data["data_base64"]), content or BYTES, "bytes")
    value = data.get("data")
    if not data or (value is None and content and not is_json_type(content)):
        return event_draft(context)
    check_data(value)
    if not content or is_json_type(content):
        return event_draft(context, dump(value), content or JSON, "json", value)
    if not isinstance(value, str):
        raise BadEventError(f"data is no text, as the datacontenttype {show(content)} asks for")
    return event_draft(context, encoded(value, content), content, "text")


def check_data(data: Any) -> None:
    """Raise BadEventError for JSON data that cannot be an event's."""
    if not isinstance(data, Mapping):
        check_nested("data", data)
        return
    check_fields(data)
    for name, value in data.items():
        check_nested(name, value)


def event_draft(
    context: Mapping[str, Value],
    payload: bytes | None = None,
    content: str = "",
    form: Form = "bytes",
    data: Any = None,
) -> Draft:
    """Return the event of valid context attributes and data. `payload`: the data, of the media type
    `content`; None: there is none. `data`: the value of JSON data, which was checked."""
    attributes: dict[str, Value | None] = {}
    both: list[str] = []
    if isinstance(data, Mapping):
        attributes, _ = split_fields(data)
        both = [
            name
            for name in attributes.keys() & context.keys()
            if name not in CONTEXT and same(attributes[name], context[name])
        ]
    attributes.update(context)
    if payload is None:
        return Draft(attributes)
    return Draft(attributes, payload, payload_type(payload, content, form, both))


def same(one: object, other: object) -> bool:
    """Return whether two values are equal and of the same type."""
    return type(one) is type(other) and one == other


def context_of(fields: Mapping[str, Any]) -> dict[str, Value]:
    """Return the context attributes; null counts as absent (CloudEvents JSON format 1.0, section
    2.2). Raises BadEventError."""
    context = {name: value for name, value in fields.items() if value is not None}
    missing = next((name for name in REQUIRED if context.get(name) in (None, "")), None)
    if missing is not None:
        raise BadEventError(f"not a CloudEvent: it has no {missing}")
    for name, value in context.items():
        if fault := fault_of(name, value):
            raise BadEventError(
                f"{show(name)} is not allowed as a context attribute by CloudEvents: {fault}"
            )
    return context


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise BadEventError("data_base64 is not a text")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadEventError("data_base64 is not valid Base64") from None
