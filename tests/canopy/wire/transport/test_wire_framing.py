"""Frames: whatever way the bytes are cut, the same frames; nothing beyond a limit is kept."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.wire.transport.framing import (
    COMMAND_FRAMES,
    FRAME_LIMIT,
    HANDSHAKE_LIMIT,
    NODE_FRAMES,
    REPLY_FRAMES,
    FrameReader,
)
from overlay.client import Draft, GetStatus, Publish, Subscribe, Subscribed
from overlay.links.messages import Ack, Batch, Bye, Frame, Hello, Welcome
from overlay.machine import Peer

PEER = Peer("00000000000000aa", "127.0.0.1:1")
FRAMES: list[Frame] = [
    Hello(1, "canopy", PEER, 1, 0, 0, 4096),
    Welcome(1, "canopy", PEER, 2, 5, 1, 4096),
    Batch(7, 3, 4096, 12345, False, bytes(range(256)) * 50),
    Ack(9, 4096, 7, 1),
    Bye("enough", True),
]


@given(
    st.lists(st.sampled_from(FRAMES), max_size=8),
    st.lists(st.integers(min_value=1, max_value=30_000), min_size=1, max_size=30),
)
@settings(max_examples=100, deadline=None)
def test_frames_do_not_depend_on_how_the_stream_is_cut(
    sent: list[Frame], pieces: list[int]
) -> None:
    stream = b"".join(NODE_FRAMES.encode(frame) for frame in sent)
    reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    received: list[Frame] = []
    at = turn = 0
    while at < len(stream):
        size = pieces[turn % len(pieces)]
        received += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert received == sent
    assert reader.error is None
    assert reader.buffered == 0


def test_the_length_is_four_bytes_big_endian() -> None:
    payload = msgspec.msgpack.encode(Ack(1, 2))
    assert NODE_FRAMES.encode(Ack(1, 2)) == struct.pack(">I", len(payload)) + payload


def test_an_oversized_frame_is_refused_before_anything_of_it_is_kept() -> None:
    reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    assert reader.feed(struct.pack(">I", HANDSHAKE_LIMIT + 1)) == []
    assert reader.error is not None
    assert str(HANDSHAKE_LIMIT) in reader.error
    assert reader.feed(b"x" * 60_000) == []
    assert reader.buffered == 0


def test_the_limit_is_smaller_before_a_session() -> None:
    large = NODE_FRAMES.encode(Batch(0, 0, 0, 0, False, b"x" * (HANDSHAKE_LIMIT + 1)))
    before: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    assert before.feed(large) == []
    assert before.error is not None
    after: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    opened = Welcome(1, "canopy", Peer("n", "h:1"), 1, 0, 0, 0, session=1)
    assert len(after.feed(NODE_FRAMES.encode(opened) + large)) == 2
    assert after.error is None
    assert after.feed(struct.pack(">I", FRAME_LIMIT + 1)) == []
    assert after.error is not None


BAD = {
    "an unknown type": msgspec.msgpack.encode(["Nonsense", 1]),
    "a message": msgspec.msgpack.encode(["Walk", 1]),
    "a wrong type": msgspec.msgpack.encode(["Ack", "x", 2]),
    "too few fields": msgspec.msgpack.encode(["Ack"]),
    "trailing bytes": msgspec.msgpack.encode(Ack(1, 2)) + b"\x00",
    "nothing": b"",
    "depth": b"\x91" * 60_000,
    "a huge claim": b"\x94\xa3Bye\xdb\xff\xff\xff\xff",
    "no UTF-8": b"\x93\xa3Bye\xa2\xff\xfe\xc2",
    "random bytes": b"\xc1\x07GET / HTTP/1.1\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_garbage_ends_the_stream_after_the_good_frames_before_it(name: str) -> None:
    good = NODE_FRAMES.encode(Ack(1, 2))
    bad = struct.pack(">I", len(BAD[name])) + BAD[name]
    reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    assert reader.feed(good + bad + good) == [Ack(1, 2)]
    assert reader.error is not None
    assert len(reader.error) < 250
    assert reader.feed(good) == []


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_frames_or_a_reason(data: bytes) -> None:
    reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
    frames = reader.feed(data)
    assert all(isinstance(frame, Frame) for frame in frames)
    assert reader.buffered <= len(data)


def test_an_own_frame_beyond_the_limit_is_an_own_fault() -> None:
    with pytest.raises(ValueError, match="more than"):
        NODE_FRAMES.encode(Batch(0, 0, 0, 0, False, b"x" * FRAME_LIMIT))


def test_commands_and_replies_do_not_mix() -> None:
    command = COMMAND_FRAMES.encode(Subscribe(1, "a = 1", "name"))
    assert FrameReader(COMMAND_FRAMES).feed(command) == [Subscribe(1, "a = 1", "name")]
    replies = FrameReader(REPLY_FRAMES)
    assert replies.feed(command) == []
    assert replies.error is not None
    assert FrameReader(REPLY_FRAMES).feed(REPLY_FRAMES.encode(Subscribed(1, "s"))) == [
        Subscribed(1, "s")
    ]


def test_wrapping_what_is_encoded_gives_the_same_frame() -> None:
    encoded = msgspec.msgpack.encode(GetStatus(3))
    assert COMMAND_FRAMES.join([encoded[:1], encoded[1:]], len(encoded)) == COMMAND_FRAMES.encode(
        GetStatus(3)
    )
    with pytest.raises(ValueError, match="more than"):
        COMMAND_FRAMES.join([bytes(COMMAND_FRAMES.limit), b"."], COMMAND_FRAMES.limit + 1)


VALUES = st.none() | st.booleans() | st.text(max_size=9) | st.floats(allow_nan=False) | st.integers(
    min_value=-(2**63), max_value=2**63 - 1
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=6), st.binary(max_size=30))
@settings(max_examples=100, deadline=None)
def test_a_draft_crosses_the_control_socket_unaltered(
    attributes: dict[str, bool | int | float | str | None], payload: bytes
) -> None:
    draft = Draft(attributes, payload, "text/plain", 12.5)
    (publish,) = FrameReader(COMMAND_FRAMES).feed(COMMAND_FRAMES.encode(Publish(1, (draft,))))
    assert isinstance(publish, Publish)
    assert repr(publish.events) == repr((draft,))  # repr: 1, 1.0 and True differ
