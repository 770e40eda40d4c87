"""Gathered events on the control socket: encoded once, once per client, decoded on demand."""

from __future__ import annotations

import msgspec
import pytest

from canopy.client.frames import CLIENT_FRAMES, GatheredOpaque, OpaqueEvent
from canopy.wire.transport.framing import CONTROL_LIMIT, REPLY_FRAMES, FrameReader
from overlay.client import Event, Gathered, Subscribed

EVENTS = tuple(
    Event(
        "p" * 16, 2, number, 5.5, {"x": number, "s": "é", "n": None, "ok": True}, b"\x00\xff", "t"
    )
    for number in range(50)
)


@pytest.mark.parametrize("piece", [1, 7, 1_000_000])
def test_an_opaque_event_is_the_event_however_the_bytes_are_cut(piece: int) -> None:
    data = REPLY_FRAMES.encode(Gathered(0, EVENTS)) * 2 + REPLY_FRAMES.encode(Subscribed(1, "s"))
    reader = FrameReader(CLIENT_FRAMES)
    found = [
        frame
        for start in range(0, len(data), piece)
        for frame in reader.feed(data[start : start + piece])
    ]
    assert reader.error is None
    assert sum(size for _, size in found) == len(data)
    first, second, last = [frame for frame, _ in found]
    assert isinstance(first, GatheredOpaque)
    assert isinstance(second, GatheredOpaque)
    assert tuple(event.whole() for event in first.events) == EVENTS
    assert [event.identity for event in second.events] == [event.identity for event in EVENTS]
    assert first.events[3].attributes == EVENTS[3].attributes
    assert last == Subscribed(1, "s")


def test_the_fields_are_those_of_an_event_in_the_same_order() -> None:
    mine = ["attributes" if name == "encoded" else name for name in OpaqueEvent.__struct_fields__]
    assert tuple(mine) == Event.__struct_fields__
    assert CLIENT_FRAMES.limit == CONTROL_LIMIT


def test_attributes_that_are_none_are_found_out_when_they_are_asked_for() -> None:
    body = REPLY_FRAMES.encode(Gathered(0, EVENTS[:1])).replace(b"\xa1x", b"\xcc\x05")
    ((frame, size),) = FrameReader(CLIENT_FRAMES).feed(body)
    assert size == len(body)
    assert isinstance(frame, GatheredOpaque)
    with pytest.raises(msgspec.ValidationError):
        _ = frame.events[0].attributes
