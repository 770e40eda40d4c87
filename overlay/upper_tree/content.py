"""A digest of an event's content, by which the records of its publication and of its deliveries are
held against each other (docs/design/traces.md)."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import msgspec

from overlay.client import Event

ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode


def digest_of(event: Event) -> int:
    """The CRC-32 of its attributes as JSON with sorted names (the upper 32 of 63 bits), and that of
    its payload without the last bit. It finds what went wrong by accident; who writes a false
    record can write a false digest, too. Costs 1.4 µs with eight attributes and 400 bytes."""
    return (crc32(ENCODE(event.attributes)) << 31) | (crc32(event.payload) >> 1)
