"""The frames that a program reads, and gathered events whose attributes are decoded on access.

A program that takes a hundred thousand events per second mostly wants their payload or their
number. Building the dictionary of attributes is most of the cost of decoding an event, so the
attributes of gathered events stay encoded until `attributes` is read.
"""

from __future__ import annotations

from typing import Any, Final, Union

import msgspec

from canopy.wire.constants import CONTROL_LIMIT
from canopy.wire.transport.framing import PREFIX, FrameFormat
from matching import Value
from overlay.client import Event, Gathered, Reply
from overlay.client_types import REPLIES

_ATTRIBUTES: Final = msgspec.msgpack.Decoder(dict[str, Value | None])


class OpaqueEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An `Event` whose attributes are not decoded; the same fields in the same order."""

    publisher: str
    incarnation: int
    sequence: int
    time: float
    encoded: msgspec.Raw
    payload: bytes = b""
    payload_type: str = ""
    proof: bytes | None = None
    traced: bool = True

    @property
    def attributes(self) -> dict[str, Value | None]:
        """The attributes, decoded at each access: keep the result if it is needed twice."""
        return _ATTRIBUTES.decode(self.encoded)

    @property
    def identity(self) -> str:
        """``publisher.incarnation.sequence``, as traces and `canopy why` name it."""
        return f"{self.publisher}.{self.incarnation}.{self.sequence}"

    def whole(self) -> Event:
        """Return the event with decoded attributes."""
        return Event(
            self.publisher,
            self.incarnation,
            self.sequence,
            self.time,
            self.attributes,
            self.payload,
            self.payload_type,
            self.proof,
            self.traced,
        )


class GatheredOpaque(Reply, frozen=True, tag="Gathered"):
    """The reply `Gathered` with opaque events, as the program's side decodes it."""

    events: tuple[OpaqueEvent, ...]


_OTHERS: Final = tuple(kind for kind in REPLIES.__args__ if kind is not Gathered)
_UNION: Final[Any] = Union[(*_OTHERS, GatheredOpaque)]


Sized = tuple[Reply, int]
"""A reply with the length of its frame in bytes, by which credit is counted."""


class SizedFormat(FrameFormat[Sized]):
    """Frames with their lengths. An opaque event is a view of its frame's bytes (msgspec.Raw), so
    each frame is copied before it is decoded."""

    def decode(self, payload: bytes | memoryview) -> Sized:
        """Return the reply in `payload` with its size; raises one of `framing.MALFORMED`."""
        reply: Any = self._decoder.decode(bytes(payload))
        return reply, PREFIX + len(payload)


CLIENT_FRAMES: Final = SizedFormat(_UNION, CONTROL_LIMIT, CONTROL_LIMIT)
"""Frames from a node to a program, as the program reads them."""
