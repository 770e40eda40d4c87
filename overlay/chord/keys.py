"""Places on the ring: SHA-1 keys in hexadecimal, so that string order is ring order (P2)."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha1

from overlay.chord.constants import KEYS_KEPT
from overlay.machine import Key


def key_of(name: str) -> Key:
    """The key of a name such as ``attr:magnitude`` or ``cluster:NODE``: 40 hex digits."""
    return sha1(name.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=KEYS_KEPT)
def attribute_key(attribute: str) -> Key:
    """The key on the ring under which an attribute's tree is owned."""
    return key_of("attr:" + attribute)


def in_arc(key: Key, start: Key, end: Key) -> bool:
    """Whether `key` is in (start, end] going clockwise; the whole ring where both are equal."""
    if start < end:
        return start < key <= end
    return key > start or key <= end
