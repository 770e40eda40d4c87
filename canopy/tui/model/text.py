"""Values, times, counts and names as the screens show them. Pure functions."""

from __future__ import annotations

import json
from datetime import datetime

from canopy.tui.constants import HEX_DUMP, PAYLOAD_CHARACTERS
from matching import Value
from overlay.phrases import visible


def show_value(value: Value | None) -> str:
    """Return a value for a table: strings without quotes, on one line; NULL for None."""
    if value is None:
        return "NULL"
    if value is True or value is False:
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return visible(value)
    return repr(value)


def show_time(seconds: float) -> str:
    """Return the local time of day with milliseconds."""
    if not seconds:
        return ""
    try:
        return datetime.fromtimestamp(seconds).strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, OSError, ValueError):
        return "?"  # publishers may send any number


def show_duration(seconds: float) -> str:
    """Return a duration: ``4 s``, ``3 min 20 s``, ``2 h 05 min``, ``3 d 4 h``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def short(identity: str, length: int = 8) -> str:
    """Return the beginning of a node id or key; 8 digits distinguish a few thousand."""
    return identity[:length]


def fit(text: str, width: int) -> str:
    """Cut `text` with an ellipsis to `width` characters."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def show_payload(payload: bytes) -> str:
    """Return a payload as text, cut to a bound: JSON indented, other texts unchanged, bytes as a
    hex dump."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _hex_dump(payload)
    try:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = "\n".join(visible(line) for line in text.splitlines())
    return text if len(text) <= PAYLOAD_CHARACTERS else text[:PAYLOAD_CHARACTERS] + "\n… (cut)"


def _hex_dump(payload: bytes) -> str:
    lines = []
    for at in range(0, min(len(payload), HEX_DUMP), 16):
        part = payload[at : at + 16]
        readable = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {readable}")
    if len(payload) > HEX_DUMP:
        lines.append(f"… {len(payload) - HEX_DUMP:,} more bytes")
    return "\n".join(lines)
