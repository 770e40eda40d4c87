"""The rules of CloudEvents 1.0 for context attributes: their names, types and values.

They hold in both directions: an incoming CloudEvent that violates them is refused, and attributes
of other events that violate them become data when the event leaves as a CloudEvent.
"""

from __future__ import annotations

import re
from calendar import monthrange
from typing import Final

NAME: Final = re.compile(r"[a-z0-9]+")
"""The names of context attributes (section "Naming Conventions")."""

NO_CHARACTERS: Final = "\ufdd0-\ufdef" + "".join(
    chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF)
)
FORBIDDEN: Final = re.compile(f"[\0-\x1f\x7f-\x9f\ud800-\udfff{NO_CHARACTERS}]")
"""Control characters, surrogates, and noncharacters. A text of CloudEvents (section "Type System")
must not have them, nor should one of MQTT (5.0, 1.5.4)."""

LARGEST: Final = 1 << 31
"""The bound of CloudEvents' integers, which have 32 bits with their sign."""

VERSION: Final = "1.0"
CONTEXT: Final = (
    *("specversion", "id", "source", "type", "subject", "time"),
    *("dataschema", "datacontenttype"),
)
"""The attributes that CloudEvents itself defines; all others are extensions."""

_CODED: Final = "%[0-9A-Fa-f]{2}"
_PART: Final = rf"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|{_CODED})"
_NO_COLON: Final = rf"(?:[A-Za-z0-9\-._~!$&'()*+,;=@]|{_CODED})"
_HOST: Final = rf"(?:\[[0-9A-Za-z:.!$&'()*+,;=\-_~]+\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|{_CODED})*)"
_USER: Final = rf"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|{_CODED})*@)?"
_ABSOLUTE: Final = rf"//{_USER}{_HOST}(?::[0-9]*)?(?:/{_PART}*)*|/(?:{_PART}+(?:/{_PART}*)*)?"
_TAIL: Final = rf"(?:\?(?:{_PART}|[/?])*)?(?:#(?:{_PART}|[/?])*)?"
URI: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.\-]*:(?:{_ABSOLUTE}|{_PART}+(?:/{_PART}*)*|){_TAIL}")
RELATIVE: Final = re.compile(rf"(?:{_ABSOLUTE}|{_NO_COLON}+(?:/{_PART}*)*|){_TAIL}")
"""A URI, and a relative reference (RFC 3986, sections 3 and 4.2)."""

TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))"
)
"""A timestamp (RFC 3339, section 5.6)."""

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
MEDIA: Final = re.compile(
    rf'{_TOKEN}/{_TOKEN}(?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|"(?:[^"\\]|\\.)*"))*\s*;?'
)
"""A media type with its parameters (RFC 2045, section 5.1)."""


def fault_of(name: str, value: object) -> str:
    """Return why this cannot be a context attribute; "" if it can."""
    if not NAME.fullmatch(name):
        return "names of context attributes have letters a to z and digits only"
    if name == "data":
        return "the name is reserved"
    if isinstance(value, str):
        found = FORBIDDEN.search(value)
        if found:
            return f"the character U+{ord(found[0]):04X} is not allowed in it"
    elif name in CONTEXT:
        return "it has to be a text"
    elif isinstance(value, bool):
        return ""
    elif not isinstance(value, int) or not -LARGEST <= value < LARGEST:
        return "it is no text, boolean or integer of 32 bits"
    return _text_fault(name, value) if isinstance(value, str) else ""


def _text_fault(name: str, value: str) -> str:
    """Return why a text cannot be the value of a context attribute that CloudEvents defines; "" if
    it can."""
    if name in CONTEXT and not value:
        return "it is empty"
    match name:
        case "specversion" if value != VERSION:
            return f"version {VERSION} of CloudEvents is known"
        case "source" if not (URI.fullmatch(value) or RELATIVE.fullmatch(value)):
            return "it is no URI reference (RFC 3986)"
        case "dataschema" if not URI.fullmatch(value):
            return "it is no URI (RFC 3986)"
        case "time" if not is_time(value):
            return "it is no timestamp (RFC 3339), such as 2026-01-31T12:00:00Z"
        case "datacontenttype" if not MEDIA.fullmatch(value):
            return "it is no media type (RFC 2046)"
    return ""


def is_time(text: str) -> bool:
    """Return whether a text is a timestamp of RFC 3339; a second may be 60."""
    found = TIME.fullmatch(text)
    if found is None:
        return False
    year, month, day, hour, minute, second, *zone = (int(part or 0) for part in found.groups())
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year or 4, month)[1]:
        return False
    return hour < 24 and minute < 60 and second <= 60 and zone[0] < 24 and zone[1] < 60
