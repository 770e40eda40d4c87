"""Whole events as JSON objects: `canopy sub --raw` writes them, and `canopy pub` reads them
unchanged.

An object with the reserved name `$attributes`, which has all attributes (`id` and `type` among
them, if the event has any), and for a payload `$payload` (its text) or `$payload_base64`, with
`$payload_type`. Nothing is added: neither an `id` nor a `type`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from canopy.feeds.drafts import BadEventError, Faulty, check_fields, is_attribute, show
from overlay.client import Draft

if TYPE_CHECKING:
    from overlay.client import Event

ATTRIBUTES: Final = "$attributes"
TEXT: Final = "$payload"
BASE64: Final = "$payload_base64"
TYPE: Final = "$payload_type"
NAMES: Final = (ATTRIBUTES, TEXT, BASE64, TYPE)

BEGIN: Final = b'{"$attributes"'
"""The prefix of a line of `canopy sub --raw`."""

CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that JSON writes with six bytes. A payload that has some is written in Base64."""


def is_raw(fields: Mapping[str, Any]) -> bool:
    """Return whether an object is a whole event."""
    return ATTRIBUTES in fields


def raw_object(event: Event | Draft) -> dict[str, Any]:
    """Return the object for an event, which `raw_draft` reads back."""
    found: dict[str, Any] = {ATTRIBUTES: event.attributes}
    if event.payload:
        try:
            text = event.payload.decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if CONTROLS.search(text):
            found[BASE64] = base64.b64encode(event.payload).decode("ascii")
        else:
            found[TEXT] = text
    if event.payload_type:
        found[TYPE] = event.payload_type
    return found


def raw_draft(fields: Mapping[str, Any]) -> Draft:
    """Return the event in an object of `raw_object`. Raises BadEventError."""
    if isinstance(fields, Faulty):
        raise BadEventError(fields.fault)
    unknown = next((name for name in fields if name not in NAMES), None)
    if unknown is not None:
        raise BadEventError(f"{show(unknown)} beside $attributes; expected {', '.join(NAMES)}")
    attributes = fields[ATTRIBUTES]
    if not isinstance(attributes, Mapping):
        raise BadEventError("$attributes is not an object")
    check_fields(attributes)
    wrong = next(
        (name for name, value in attributes.items() if not is_attribute(name, value)), None
    )
    if wrong is not None:
        raise BadEventError(f"{show(wrong)} cannot be an attribute: a reserved name, or no scalar")
    kind = fields.get(TYPE, "")
    if not isinstance(kind, str):
        raise BadEventError(f"{TYPE} is not a text")
    return Draft(dict(attributes), payload=_payload(fields), payload_type=kind)


def _payload(fields: Mapping[str, Any]) -> bytes:
    text, encoded = fields.get(TEXT, ""), fields.get(BASE64, "")
    if not isinstance(text, str) or not isinstance(encoded, str):
        raise BadEventError(f"{TEXT} or {BASE64} is not a text")
    if text and encoded:
        raise BadEventError(f"both {TEXT} and {BASE64}")
    try:
        return base64.b64decode(encoded, validate=True) if encoded else text.encode("utf-8")
    except (binascii.Error, ValueError):
        raise BadEventError(f"{BASE64 if encoded else TEXT} is not valid") from None
