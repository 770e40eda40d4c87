"""The data of a CloudEvent as a payload, and back: JSON, a text or bytes.

The media type nearly always decides. If it does not, or if an extension attribute and a field of
the data are equal, the payload's type gets a parameter, so that the event can be reproduced:
``application/yaml;canopyform=text``, ``application/json;canopycontext=a.b``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, Literal, NamedTuple

from canopy.feeds.drafts import BadEventError, check_nested
from canopy.feeds.jsontext import is_json_type, parse

Form = Literal["json", "text", "bytes"]

FORM: Final = re.compile(r";canopyform=(json|text|bytes)")
BOTH: Final = re.compile(r";canopycontext=([a-z0-9.]+)")

CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([\w\-]+)"?', re.IGNORECASE)
CHARSETS: Final = {
    **dict.fromkeys(("iso-8859-1", "latin1"), "latin-1"),
    **dict.fromkeys(("us-ascii", "ascii"), "ascii"),
    **{name: name for name in ("utf-16", "utf-16le", "utf-16be", "windows-1252")},
}
"""Encodings of texts other than UTF-8, by their names."""


class Data(NamedTuple):
    """The data of an event. `value`: the JSON value, the text, or the bytes. `both`: names that are
    a field of the data and an extension attribute with the same value."""

    form: Form
    value: Any
    both: frozenset[str] = frozenset()


def usual_form(payload: bytes, media_type: str) -> Form:
    """Return the form of a payload by its media type and its contents: JSON or text that cannot be
    read is bytes."""
    if is_json_type(media_type):
        return "json" if _json(payload) is not None else "bytes"
    kind = media_type.partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind.endswith(("/xml", "+xml")):
        return "text" if _text(payload, media_type) is not None else "bytes"
    return "bytes"


def payload_type(payload: bytes, media_type: str, form: Form, both: Collection[str] = ()) -> str:
    """Return the type of a payload: its media type, with parameters for facts that it does not
    imply."""
    said = f"{media_type};canopyform={form}" if form != usual_form(payload, media_type) else ""
    shared = f";canopycontext={'.'.join(sorted(both))}" if both else ""
    return (said or media_type) + shared


def media_type_of(payload_type: str) -> str:
    """Return the media type in the type of a payload."""
    return BOTH.sub("", FORM.sub("", payload_type))


def data_of(payload: bytes, payload_type: str) -> Data:
    """Return the value in a payload, by its media type and the `canopyform` parameter in it."""
    media_type = media_type_of(payload_type)
    said, shared = FORM.search(payload_type), BOTH.search(payload_type)
    form = said[1] if said else usual_form(payload, media_type)
    both = frozenset(shared[1].split(".")) if shared else frozenset()
    if form == "json" and (found := _json(payload)) is not None:
        return Data("json", found[0], both)
    if form == "text" and (text := _text(payload, media_type)) is not None:
        return Data("text", text)
    return Data("bytes", payload)


def encoded(text: str, media_type: str) -> bytes:
    """Encode a text by the charset of its media type. Raises BadEventError."""
    charset = _charset(media_type)
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        raise BadEventError(f"the data is no text in {charset}") from None


def _json(payload: bytes) -> tuple[Any] | None:
    try:
        value = parse(payload)
        check_nested("data", value)
    except BadEventError:
        return None
    return (value,)


def _text(payload: bytes, media_type: str) -> str | None:
    try:
        return payload.decode(_charset(media_type))
    except UnicodeDecodeError:
        return None


def _charset(media_type: str) -> str:
    found = CHARSET.search(media_type)
    return CHARSETS.get(found[1].lower(), "utf-8") if found else "utf-8"
