"""A JSON parser whose errors name reason and place.

It accepts NaN and repeated names, because one invalid feature must not refuse a whole file; the
checks in `drafts` then refuse single events. Numbers keep their type: 1 is an integer, 1.0 a float,
integers are exact.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from canopy.feeds.drafts import BadEventError, check_nested, fields_of, object_of
from matching import Value
from overlay.client import Draft

JSON = "application/json"


class IncompleteError(BadEventError):
    """A text is not a JSON value because it ends too early: further lines may complete it."""


_decoder = json.JSONDecoder(object_pairs_hook=object_of)
_loose_decoder = json.JSONDecoder(
    object_pairs_hook=object_of, parse_int=lambda text: int(text) if len(text) < 4000 else math.inf
)
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


SPACE: Final = " \t\r\n"
NO_SPACE: Final = re.compile(f"[^{SPACE}]")


def parse(raw: bytes, *, loosely: bool = False) -> Any:
    """Return the value in `raw`. `loosely`: an integer that is too long to be read becomes an
    infinity. Raises BadEventError with the reason and the place."""
    text = _decoded(raw).strip(SPACE)
    value, end = _value_at(text, 0, _loose_decoder if loosely else _decoder)
    if text[end:].strip(SPACE):
        raise BadEventError(f"not JSON: more text after the value, at column {end + 1}")
    return value


def values(raw: bytes) -> Iterator[Any]:
    """Yield the values in `raw`, one after another, with or without space between them. Raises
    BadEventError with the reason and the place."""
    text = _decoded(raw)
    at = 0
    while (begin := NO_SPACE.search(text, at)) is not None:
        value, at = _value_at(text, begin.start())
        yield value


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadEventError(f"invalid UTF-8 at byte {error.start + 1}") from None


def _value_at(text: str, at: int, decoder: json.JSONDecoder = _decoder) -> tuple[Any, int]:
    """Return the value that begins at `at`, and where it ends."""
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        is_cut = error.msg.startswith("Expecting") and not text[error.pos :].strip(SPACE)
        kind = IncompleteError if is_cut else BadEventError
        place = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else ""
        place = place or f"column {error.colno}"
        raise kind(f"not JSON: {error.msg[0].lower()}{error.msg[1:]} at {place}") from None
    except RecursionError:
        raise BadEventError("nested too deeply") from None
    except ValueError:  # only integers longer than the interpreter converts (4,300 digits)
        raise BadEventError("the integer does not fit in 64 bits") from None


def is_json_type(content: str) -> bool:
    """Return whether a media type is JSON: `application/json`, `…+json`."""
    kind = content.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def draft_of(attributes: dict[str, Value | None], rest: dict[str, Any]) -> Draft:
    """Return an event with `rest`, if it is not empty, as its payload. Raises BadEventError."""
    if not rest:
        return Draft(attributes)
    return Draft(attributes, payload=dump(rest), payload_type=JSON)


def flat_draft(fields: Mapping[str, Any]) -> Draft:
    """Return the event in a flat JSON object: scalars become attributes, other fields the payload.
    Raises BadEventError."""
    return draft_of(*fields_of(fields))


def dump(value: Any) -> bytes:
    """Return `value` as compact JSON in UTF-8. Raises BadEventError for values that JSON cannot
    represent."""
    check_nested("payload", value)
    return _encoder.encode(value).encode("utf-8")
