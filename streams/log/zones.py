"""The zone map of a chunk: the least and the greatest value of each attribute of its rows.

A reading with a selector skips a chunk without decoding its rows if none can match. A zone map may
be too wide but never too narrow: an attribute without a zone may have any value, unless the map is
`complete`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from matching import Value
from streams.log.batches import Row

ATTRIBUTES_MOST: Final = 64
"""The limit of attributes of a zone map: the first ones in the rows; the others have no zone.
Guess: rows of feeds have 10 to 30."""

TEXTS_MOST: Final = 16
"""Different texts that a zone lists; of more it has only the least and the greatest."""

TEXT_LENGTH: Final = 64
"""The limit of characters of a text in a zone map. An attribute with a longer one has no zone."""


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


_NUMBERS: Final = frozenset((int, float))
_DECODER: Final = msgspec.msgpack.Decoder(ZoneMap)


def zone_map(rows: Iterable[Row]) -> ZoneMap:
    """The zone map of these rows."""
    shapes: dict[tuple[str, ...], list[Iterable[Value | None]]] = {}
    total = 0
    for row in rows:  # rows of one producer mostly have the same attributes in the same order
        attributes = row.attributes
        shapes.setdefault(tuple(attributes), []).append(attributes.values())
        total += 1
    columns: dict[str, list[Value | None]] = {}
    complete = True
    for shape, values in shapes.items():
        for name, column in zip(shape, zip(*values, strict=True), strict=True):
            if (known := columns.get(name)) is not None:
                known.extend(column)
            elif len(columns) < ATTRIBUTES_MOST:
                columns[name] = list(column)
            else:
                complete = False
    zones = {name: _zone(values, total) for name, values in columns.items()}
    known_zones = {name: zone for name, zone in zones.items() if zone is not None}
    return ZoneMap(known_zones, complete and len(known_zones) == len(zones))


def _zone(values: list[Value | None], rows: int) -> Zone | None:
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        numbers: list[Any] = values
        return Zone(len(values) < rows, (min(numbers), max(numbers)), (), False, ())
    is_text = kinds == {str}
    numbers = [] if is_text else [v for v in values if type(v) in _NUMBERS]
    texts: set[Any] = set(values) if is_text else {v for v in values if isinstance(v, str)}
    booleans = () if is_text else tuple(sorted({v for v in values if isinstance(v, bool)}))
    if texts and max(map(len, texts)) > TEXT_LENGTH:
        return None
    ranged = len(texts) > TEXTS_MOST
    listed = (min(texts), max(texts)) if ranged else tuple(sorted(texts))
    span = (min(numbers), max(numbers)) if numbers else None
    absent = len(values) < rows or type(None) in kinds
    return Zone(absent, span, listed, ranged, booleans)


def encode_zones(zones: ZoneMap) -> bytes:
    """The bytes of a zone map in a chunk."""
    return msgspec.msgpack.encode(zones)


def decode_zones(data: bytes) -> ZoneMap | None:
    """The zone map of a chunk; None if it has none, or one that does not decode: a reading may not
    skip the chunk then."""
    try:
        return _DECODER.decode(data) if data else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
