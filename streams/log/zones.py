"""The zone map of a chunk: what its rows have at least and at most, attribute by attribute.

Whoever replays with a selector skips a chunk without decoding its rows where none can match. So a
zone map says too much rather than too little: an attribute that has no zone while the map is not
`complete` may have any value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from matching import Value
from streams.log.batches import Row

ATTRIBUTES_MOST: Final = 64
"""Attributes of a zone map at most; the others, in the order of their coming, have no zone. Guess:
rows of feeds have 10 to 30."""

TEXTS_MOST: Final = 16
"""Different texts that are listed; of more, only the least and the greatest are."""

TEXT_LENGTH: Final = 64
"""Characters of a text in a zone map at most. An attribute with a longer one has no zone."""


class Zone(msgspec.Struct, frozen=True, array_like=True):
    """The values of one attribute in a chunk."""

    absent: bool  # some row has none, or null
    numbers: tuple[int | float, int | float] | None  # the least and the greatest
    texts: tuple[str, ...]  # all of them in order; if `ranged` the least and the greatest
    ranged: bool
    booleans: tuple[bool, ...]  # those that occur


class ZoneMap(msgspec.Struct, frozen=True, array_like=True):
    """The zones of a chunk. `complete`: an attribute without a zone is absent in all rows."""

    zones: dict[str, Zone]
    complete: bool


_DECODER: Final = msgspec.msgpack.Decoder(ZoneMap)


def zone_map(rows: Iterable[Row]) -> ZoneMap:
    """The zone map of these rows."""
    columns: dict[str, list[Value]] = {}
    total, complete = 0, True
    for row in rows:
        total += 1
        for name, value in row.attributes.items():
            if value is None:
                continue
            column = columns.get(name)
            if column is None:
                if len(columns) == ATTRIBUTES_MOST:
                    complete = False
                    continue
                column = columns[name] = []
            column.append(value)
    zones = {name: _zone(values, total) for name, values in columns.items()}
    known = {name: zone for name, zone in zones.items() if zone is not None}
    return ZoneMap(known, complete and len(known) == len(zones))


def _zone(values: list[Value], rows: int) -> Zone | None:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    texts = sorted({v for v in values if isinstance(v, str)})
    booleans = tuple(sorted({v for v in values if isinstance(v, bool)}))
    if any(len(text) > TEXT_LENGTH for text in texts):
        return None
    ranged = len(texts) > TEXTS_MOST
    listed = (texts[0], texts[-1]) if ranged else tuple(texts)
    span = (min(numbers), max(numbers)) if numbers else None
    return Zone(len(values) < rows, span, listed, ranged, booleans)


def encode_zones(zones: ZoneMap) -> bytes:
    """As a chunk has it."""
    return msgspec.msgpack.encode(zones)


def decode_zones(data: bytes) -> ZoneMap | None:
    """The zone map of a chunk; None if it has none, or one that cannot be read: then nothing can be
    skipped."""
    try:
        return _DECODER.decode(data) if data else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
