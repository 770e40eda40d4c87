"""Traces without values: which fields of a record are replaced, and by what (`trace.redact`).

Kept is all that says what was done with an event: its identity, the names of its attributes, nodes,
times, hops, sizes. So losses on the way, duplicates, walks, latencies and the order of things are
judged as ever. What depends on a selector's truth is *unjudged*, since neither values nor selectors
are there.

A text that stands for a value is a hash under a key that this process makes and never writes: equal
values of one run are seen to be equal, and nobody can try values until a hash agrees.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

MARK: Final = "redacted:"
"""What texts begin with that stand for values."""

HASHED: Final = ("id", "selector", "lo", "hi")
"""Fields with values, or with selectors, as texts."""

DROPPED: Final = ("tree", "permitted", "digest")
"""Fields that are left out: a digest would agree with a guess of the content."""

KEY_BYTES: Final = 32


class Redaction:
    """Replaces values in records, under a key of its own."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)

    def apply(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields as they are written. Of attributes the names are kept, as a JSON array, of
        trees and digests nothing; the reason for which an event was refused may quote it."""
        kept = dict(fields)
        for name in HASHED:
            if kept.get(name) is not None:
                kept[name] = self._hash(str(kept[name]))
        for name in DROPPED:
            kept.pop(name, None)
        attributes = kept.get("attributes")
        if attributes is not None:
            found = msgspec.json.decode(attributes)
            names = sorted(found) if isinstance(found, dict) else []
            kept["attributes"] = msgspec.json.encode(names).decode()
        if kind == "refused":
            kept["reason"] = MARK.rstrip(":")
        return kept

    def _hash(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return MARK + blake2b(data, digest_size=8, key=self._key).hexdigest()
