"""Frames: one MessagePack value after a 4-byte big-endian length (docs/reference/wire.md).

Without IO: bytes in, frames out. The length is checked as soon as its four bytes are there, before
any byte of the frame itself is kept, so a peer cannot make this process buffer more than the limit.
Until a connection between nodes carries a session the limit is smaller: anybody who reaches the
port can send that much. A frame is a typed union; anything else ends the stream with a reason.

The same reader serves the links between nodes (`NODE_FRAMES`) and both directions of the control
socket (`COMMAND_FRAMES`, `REPLY_FRAMES`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from canopy.wire.constants import CONTROL_LIMIT, FRAME_LIMIT, HANDSHAKE_LIMIT
from overlay.client import Command, Reply
from overlay.client_types import COMMANDS, REPLIES
from overlay.links.messages import Ack, Batch, Bye, Frame, Hello, Superseded, Welcome

T = TypeVar("T")

LENGTH: Final = struct.Struct(">I")
PREFIX: Final = LENGTH.size

MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)
"""The errors of msgspec for input of another type than expected: text that is not UTF-8, deep
nesting and large numbers have errors of their own."""


def shorten(reason: BaseException) -> str:
    """Return an error's text, at most 200 characters, as a reason for a log line or a Bye."""
    text = str(reason) or type(reason).__name__
    return text if len(text) <= 200 else text[:197] + "..."


class FrameFormat(Generic[T]):
    """The frames of one kind of stream: their types, the limits of their sizes, their encoding.

    `limit`: the largest frame in bytes; `first_limit` applies until a frame is read for which
    `opens` is true, or `FrameReader.open` is called.
    """

    def __init__(
        self,
        union: Any,
        first_limit: int,
        limit: int,
        opens: Callable[[T], bool] = lambda frame: True,
    ) -> None:
        self.first_limit = first_limit
        self.limit = limit
        self.opens = opens
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(union)
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, frame: T) -> bytes:
        """Return `frame` with its length before it. Raises ValueError if it exceeds the limit."""
        payload = self._encoder.encode(frame)
        return LENGTH.pack(self._checked(len(payload))) + payload

    def join(self, parts: Sequence[bytes], size: int) -> bytes:
        """Return an encoded frame, given in `parts` of `size` bytes in total, with its length
        before it.

        Raises ValueError as `encode` does.
        """
        return b"".join([LENGTH.pack(self._checked(size)), *parts])

    def decode(self, payload: bytes | memoryview) -> T:
        """Return the frame in `payload`. Raises one of `MALFORMED` if it is not one."""
        return self._decoder.decode(payload)

    def _checked(self, length: int) -> int:
        if length > self.limit:
            raise ValueError(f"a frame of {length} bytes is more than {self.limit}")
        return length


class FrameReader(Generic[T]):
    """Cuts a stream of bytes into frames of one format.

    After `feed`, `error` is None or says why the stream cannot be read any further; frames before
    the fault are still returned. From then on `feed` returns nothing.
    """

    def __init__(self, format: FrameFormat[T]) -> None:
        self.error: str | None = None
        self._format = format
        self._limit = format.first_limit
        self._buffer = bytearray()

    def open(self) -> None:
        """Accept frames up to the format's `limit` from now on: the stream's peer is accepted."""
        self._limit = self._format.limit

    @property
    def buffered(self) -> int:
        """The bytes kept of an incomplete frame: less than the limit plus one read."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray) -> list[T]:
        """Add `data` to the stream and return the frames that are now complete."""
        frames: list[T] = []
        if self.error is not None:
            return frames
        if self._buffer:
            self._buffer += data
            with memoryview(self._buffer) as view:
                end = self._cut(view, frames)
            del self._buffer[:end]
        else:  # the common case: whole frames, decoded in place
            with memoryview(data) as view:
                end = self._cut(view, frames)
            self._buffer += data[end:]
        return frames

    def _cut(self, view: memoryview, frames: list[T]) -> int:
        """Append all complete frames in `view` to `frames`. Return the end of the consumed
        bytes."""
        start, size = 0, len(view)
        while size - start >= PREFIX:
            (length,) = LENGTH.unpack_from(view, start)
            if length > self._limit:
                self.error = f"a frame of {length} bytes is more than {self._limit}"
                return size
            end = start + PREFIX + length
            if end > size:
                break
            try:
                frame = self._format.decode(view[start + PREFIX : end])
            except MALFORMED as error:
                self.error = f"bad frame: {shorten(error)}"
                return size
            frames.append(frame)
            if self._limit < self._format.limit and self._format.opens(frame):
                self.open()
            start = end
        return start


def opens_session(frame: Frame) -> bool:
    """Return whether the connection carries a session from this frame on: it is the answer to an
    accepted Hello. (A Hello itself may be anybody's.)"""
    return type(frame) is Welcome and frame.session > 0


NODE_FRAMES: Final[FrameFormat[Frame]] = FrameFormat(
    Hello | Welcome | Batch | Ack | Bye | Superseded, HANDSHAKE_LIMIT, FRAME_LIMIT, opens_session
)
"""Frames between two nodes."""

COMMAND_FRAMES: Final[FrameFormat[Command]] = FrameFormat(COMMANDS, CONTROL_LIMIT, CONTROL_LIMIT)
"""Frames from a program to its node."""

REPLY_FRAMES: Final[FrameFormat[Reply]] = FrameFormat(REPLIES, CONTROL_LIMIT, CONTROL_LIMIT)
"""Frames from a node to a program."""
