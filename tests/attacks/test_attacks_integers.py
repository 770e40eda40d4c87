"""Numbers and frames that no honest node sends are refused before anything is done with them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from canopy.wire.constants import FRAME_LIMIT, HANDSHAKE_LIMIT
from canopy.wire.transport.codec import MESSAGES, WireCodec
from canopy.wire.transport.framing import NODE_FRAMES, FrameReader
from matching import Interval
from overlay.client import Event
from overlay.links.messages import PROTOCOL, AnyFrame, Batch, Frame, Hello, Welcome
from overlay.machine import Peer, ProtocolError
from overlay.upper_tree.host_load import VirtualNodeLoad
from overlay.upper_tree.inspection_messages import AskMatches

CODEC = WireCodec()
FRAMES = {frame.__name__: frame for frame in AnyFrame.__args__}  # type: ignore[attr-defined]
TOO_LARGE = (2**64 - 1, 2**63)
ONLY_COMPARED = {
    "boot",
    "clock",
    "time",
    "at",
    "keep_bytes",
    "max_bytes",
    "digest",
    "cached",
    "copies",
}
"""Fields that may need more than 53 bits: nothing is computed from them that has to fit."""


VALUES = {(Event, "attributes"), (AskMatches, "attributes"), (VirtualNodeLoad, "places")}
"""Fields with users' values, of which all are possible."""


def plain(kind: inspect.Type) -> Any:
    """Some value of a type, as it is in MessagePack."""
    match kind:
        case inspect.StructType(cls=cls) if cls is Interval:
            return [[0, False, 0], [3, 0, 0]]
        case inspect.StructType(cls=cls, fields=fields):
            values = [plain(field.type) for field in fields]
            if not cls.__struct_config__.array_like:
                return {f.encode_name: v for f, v in zip(fields, values, strict=True)}
            tag = cls.__struct_config__.tag
            return values if tag is None else [tag, *values]
        case inspect.UnionType(types=types):
            return plain(types[0])
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [plain(item)]
        case inspect.TupleType(item_types=items):
            return [plain(item) for item in items]
        case inspect.DictType():
            return {}
        case inspect.IntType(ge=least):
            return least or 0
        case inspect.FloatType(ge=least):
            return float(least or 0.0)
        case inspect.StrType(min_length=least):
            return "a" * (least or 1)
        case inspect.BytesType():
            return b""
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
    return False if isinstance(kind, inspect.BoolType) else None


def numbers(
    wanted: type, kind: inspect.Type, path: tuple[Any, ...] = (), name: str = ""
) -> Iterator[Any]:
    """Of each integer, or float, in a type: its path in `plain`'s value, its field's name, its
    type."""
    match kind:
        case inspect.StructType(cls=cls) if cls is Interval:
            return  # a place in the order of values is checked by itself
        case inspect.StructType(cls=cls, fields=fields):
            config = cls.__struct_config__
            first = 0 if config.tag is None else 1
            for at, field in enumerate(fields, first):
                key = at if config.array_like else field.encode_name
                if (cls, field.name) not in VALUES:
                    yield from numbers(wanted, field.type, (*path, key), field.name)
        case inspect.UnionType(types=types):
            yield from numbers(wanted, types[0], path, name)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            yield from numbers(wanted, item, (*path, 0), name)
        case inspect.TupleType(item_types=items):
            for at, item in enumerate(items):
                yield from numbers(wanted, item, (*path, at), name)
        case inspect.IntType() | inspect.FloatType() if isinstance(kind, wanted):
            yield path, name, kind


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """`value` with another one at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def frame(value: Any) -> bytes:
    payload = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(payload)) + payload


@pytest.mark.parametrize("name", MESSAGES)
def test_every_integer_of_every_message_is_bounded(name: str) -> None:
    """Attacks 2, 3, 5: an epoch of 2^64-1 ended whoever counted on from it."""
    kind = inspect.type_info(MESSAGES[name])
    honest = plain(kind)
    assert len(CODEC.decode(msgspec.msgpack.encode([honest]))) == 1
    for path, field, number in numbers(inspect.IntType, kind):
        most = number.lt - 1 if number.le is None and number.lt is not None else number.le
        assert most is not None, f"{name}: {field} has no bound"
        assert most <= 2**53 or field in ONLY_COMPARED, f"{name}: {field} may be {most}"
        least = 0 if number.ge is None else number.ge
        assert least >= -1, f"{name}: {field} may be {least}"
        for value in (*TOO_LARGE, least - 1):
            with pytest.raises(ProtocolError):
                CODEC.decode(msgspec.msgpack.encode([changed(honest, path, value)]))


@pytest.mark.parametrize("name", MESSAGES)
def test_every_time_of_every_message_is_one(name: str) -> None:
    """With NaN no timer is due; at infinity, or the time 1e300, a calendar ends who shows it."""
    kind = inspect.type_info(MESSAGES[name])
    honest = plain(kind)
    for path, field, number in numbers(inspect.FloatType, kind):
        assert number.le is not None, f"{name}: {field} has no bound"
        for value in (float("nan"), float("inf"), 1e300, (number.ge or 0.0) - 1.0):
            with pytest.raises(ProtocolError):
                CODEC.decode(msgspec.msgpack.encode([changed(honest, path, value)]))


@pytest.mark.parametrize("name", FRAMES)
def test_every_integer_of_every_frame_is_bounded(name: str) -> None:
    kind = inspect.type_info(FRAMES[name])
    honest = plain(kind)
    assert len(FrameReader(NODE_FRAMES).feed(frame(honest))) == 1
    for path, _, _ in numbers(inspect.IntType, kind):
        for value in (*TOO_LARGE, -1):
            reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
            assert reader.feed(frame(changed(honest, path, value))) == []
            assert reader.error is not None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_serving_lease_without_an_end_is_refused(value: float) -> None:
    beat = ["ServingBeat", "0", "1", 1, 1, 0, value]
    with pytest.raises(ProtocolError):
        CODEC.decode(msgspec.msgpack.encode([beat]))


def test_a_place_of_load_that_no_order_has_is_refused() -> None:
    """The owner sorts such places with true ones, and comparing them was its end."""
    node = ["x", [[0, False, 0], [3, 0, 0]], 0.1, 0.1, [[1, 5, 0], [1, "a", 0]]]
    for places, fits in ((node[4][:1], True), (node[4], False)):
        load = [0.1, [[*node[:4], places]]]
        body = msgspec.msgpack.encode([["ServingReply", "1", 1, load]])
        if fits:
            assert len(CODEC.decode(body)) == 1
        else:
            with pytest.raises(ProtocolError):
                CODEC.decode(body)


ME = Peer("00000000000000ff", "127.0.0.1:9")
LARGE = NODE_FRAMES.encode(Batch(0, 0, 0, 0, False, b"x" * (HANDSHAKE_LIMIT + 1)))


@pytest.mark.parametrize("session", [0, 1])
def test_a_hello_does_not_lift_the_limit_of_frames(session: int) -> None:
    """Attack 7: anybody can say Hello, with a session or without."""
    reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    hello = Hello(PROTOCOL, "canopy", ME, 1, 0, 0, 1 << 20, "", session)
    assert reader.feed(NODE_FRAMES.encode(hello)) == [hello]
    assert reader.feed(LARGE) == []
    assert reader.error is not None
    assert reader.buffered == 0


def test_the_answer_that_opens_a_session_lifts_it() -> None:
    name = Welcome(PROTOCOL, "canopy", ME, 1, 0, 0, 1 << 20)
    reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    reader.feed(NODE_FRAMES.encode(name))
    assert reader.feed(LARGE) == []
    reader = FrameReader(NODE_FRAMES)
    opened = msgspec.structs.replace(name, session=1)
    assert len(reader.feed(NODE_FRAMES.encode(opened) + LARGE)) == 2
    assert reader.feed(struct.pack(">I", FRAME_LIMIT + 1)) == []
    assert reader.error is not None
