"""CloudEvents 1.0 in structured JSON, recognised by `specversion`.

The attributes are the scalar fields of its JSON `data` and the context attributes, which win where
both have a name. The payload is: for an object its nested and overridden fields as an object; for
other data the text itself if it has a content type that is not JSON, else JSON; for `data_base64`
the decoded bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from canopy.feeds.drafts import (
    BadEventError,
    Faulty,
    check_fields,
    check_nested,
    is_attribute,
    set_type,
    show,
    split_fields,
)
from canopy.feeds.jsontext import JSON, dump, is_json_type
from matching import Value
from overlay.client import Draft

REQUIRED: Final = ("id", "source", "type")
"""Context attributes that every CloudEvent has, beside `specversion` (CloudEvents 1.0, section
3.1.1)."""


def is_cloudevent(fields: Mapping[str, Any]) -> bool:
    """Whether an object has a `specversion`, and so is a CloudEvent."""
    return isinstance(fields.get("specversion"), str)


def cloudevent_draft(fields: Mapping[str, Any]) -> Draft:
    """The event in a structured CloudEvent. Raises BadEventError."""
    if isinstance(fields, Faulty):
        raise BadEventError(fields.fault)
    context = _context(fields)
    data = fields.get("data")
    if data is not None and fields.get("data_base64") is not None:
        raise BadEventError("both data and data_base64; CloudEvents allows one of them")
    attributes: dict[str, Value | None] = {}
    rest: dict[str, Any] = {}
    if isinstance(data, Mapping):
        check_fields(data)
        attributes, rest = split_fields(data)
        for name, value in rest.items():
            check_nested(name, value)
        for name, value in context.items():
            if name in attributes:
                overridden = attributes[name]
                if (type(overridden), overridden) != (type(value), value):
                    rest[name] = overridden
    elif data is not None:
        check_nested("data", data)
    attributes.update(context)
    set_type(attributes, rest)
    payload, payload_type = _payload(fields, rest)
    return Draft(attributes, payload=payload, payload_type=payload_type)


def _context(fields: Mapping[str, Any]) -> dict[str, Value]:
    """The context attributes; null is as absent (CloudEvents JSON format 1.0, section 2.2)."""
    context = {
        name: value
        for name, value in fields.items()
        if name not in ("data", "data_base64") and value is not None
    }
    check_fields(context)
    missing = next((name for name in REQUIRED if not context.get(name)), None)
    if missing is not None:
        raise BadEventError(f"not a CloudEvent: it has no {missing}")
    for name, value in context.items():
        if not is_attribute(name, value):
            raise BadEventError(
                f"{show(name)} is not allowed as a context attribute by CloudEvents"
            )
    return context


def _payload(fields: Mapping[str, Any], rest: dict[str, Any]) -> tuple[bytes, str]:
    """The payload and its media type; `rest` are the fields of an object that are no attributes."""
    content = fields.get("datacontenttype")
    content = content if isinstance(content, str) else ""
    data, encoded = fields.get("data"), fields.get("data_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise BadEventError("data_base64 is not a text")
        try:
            raw = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise BadEventError("data_base64 is not valid Base64") from None
        return raw, content or "application/octet-stream"
    if data is None or isinstance(data, Mapping):
        return (dump(rest), JSON) if rest else (b"", "")
    if isinstance(data, str) and content and not is_json_type(content):
        return data.encode("utf-8"), content
    return dump(data), JSON
