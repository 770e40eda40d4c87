"""Schema-less MessagePack in files and pipes: one map after another.

Values that cannot be attributes (nested values, binary, extensions) are in the payload as a
MessagePack map, so that binary stays binary. Malformed bytes end the reading, because the start of
the next map is then unknown; an inadmissible map refuses one event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from canopy.feeds.constants import EVENT_LIMIT, MSGPACK_READ
from canopy.feeds.drafts import (
    BadEventError,
    FeedEvent,
    Item,
    Refusal,
    fields_of,
    object_of,
)
from canopy.feeds.source import FeedSource
from overlay.client import Draft

MSGPACK: Final = "application/msgpack"
BROKEN: Final = "invalid UTF-8"


def maps(stream: FeedSource) -> Iterator[Item]:
    """Yield the events and refusals of a stream as they are read, numbered from 1."""
    unpacker = msgpack.Unpacker(
        raw=False,
        strict_map_key=False,  # checked later, to refuse one event
        unicode_errors="surrogateescape",  # likewise
        object_pairs_hook=object_of,
        max_buffer_size=EVENT_LIMIT + 2 * MSGPACK_READ,
    )
    number = fed = end = 0  # maps read, bytes given to the unpacker, where the last map ended
    while data := stream.read1(MSGPACK_READ):  # what is there, without waiting for a full chunk
        fed += len(data)
        try:
            unpacker.feed(data)
            for value in unpacker:
                number += 1
                size, end = unpacker.tell() - end, unpacker.tell()
                yield _item(value, number, size)
        except (ValueError, msgpack.UnpackException, msgpack.BufferFull, RecursionError) as error:
            what = str(error) or type(error).__name__
            yield Refusal(number + 1, f"not MessagePack ({what}); the rest is not read")
            return
        if fed - end > EVENT_LIMIT + MSGPACK_READ:
            yield Refusal(number + 1, f"larger than {EVENT_LIMIT} bytes; the rest is not read")
            return
    if _in_the_middle(unpacker):
        yield Refusal(number + 1, "cut off in the middle of a map")


def begins_with_map(source: FeedSource) -> bool:
    """Return whether a stream begins with a map that is empty or whose first key is a text. No
    UTF-8 text does: a first byte that could begin a character would announce a map beyond all
    limits."""
    first = source.ahead(1)
    if not first or not (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF)):
        return False
    size = {0xDE: 2, 0xDF: 4}.get(first[0], 0)  # bytes that count the map's pairs
    head = source.ahead(2 + size)
    if head[0] == 0x80 or not any(head[1 : 1 + size] or b"\1"):
        return True
    if len(head) < 2 + size:
        return not size or head[1:2] < b"\x80"
    key = head[-1]
    return (not size or head[1] < 0x80) and (0xA0 <= key <= 0xBF or 0xD9 <= key <= 0xDB)


def _in_the_middle(unpacker: msgpack.Unpacker) -> bool:
    """Return whether the stream ended within a map: a further nil is then not a value by itself."""
    try:
        unpacker.feed(b"\xc0")
        return next(unpacker, False) is not None
    except (ValueError, msgpack.UnpackException, msgpack.BufferFull):
        return True


def _item(value: Any, number: int, size: int) -> Item:
    try:
        if not isinstance(value, dict):
            raise BadEventError("not a map")
        if size > EVENT_LIMIT:
            raise BadEventError(f"larger than {EVENT_LIMIT} bytes")
        return FeedEvent(number, map_draft(value), number)
    except BadEventError as error:
        return Refusal(number, str(error).replace("the string has a lone surrogate", BROKEN))


def map_draft(fields: dict[Any, Any]) -> Draft:
    """Return the event in one map. Raises BadEventError."""
    attributes, rest = fields_of(fields, json=False)
    if not rest:
        return Draft(attributes)
    payload: bytes = msgpack.packb(rest, unicode_errors="surrogateescape")
    return Draft(attributes, payload=payload, payload_type=MSGPACK)
