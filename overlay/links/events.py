"""What links tell the machines above, and what they need from below."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Protocol

from overlay.links.messages import Frame
from overlay.machine import LocalEvent, Message, Peer

Connection = int
"""A driver's name for one transport connection. Never reused within a process."""


REFUSED: Final = "connection refused"
"""The driver's reason for a dial that ended because nobody listens there: the process is gone, or
was never there, while its machine answers."""


class End(Enum):
    """What the end of a session says of the peer."""

    UNHEARD = auto()  # silent, or nobody answers where it is, or it broke the protocol
    GONE = auto()  # nobody listens where it is, or another node does: its process ended
    ALIVE = auto()  # it speaks, but has begun anew: it had given this side up, or restarted


class LinkUp(LocalEvent, frozen=True):
    """A session with `peer` is CONNECTED; `fresh` if it is a new session (the peer may be new
    or restarted and knows nothing of what was said before)."""

    peer: Peer
    fresh: bool


class LinkDown(LocalEvent, frozen=True):
    """The session with `peer` is over, as `end` says; or the peer `left`.

    `lost` are messages that were queued or not acknowledged: they may or may not have arrived.
    """

    peer: Peer
    reason: str
    left: bool
    lost: tuple[Message, ...] = ()
    end: End = End.UNHEARD


class LinkSilent(LocalEvent, frozen=True):
    """What was said to `peer` is not acknowledged for longer than usual: the peer stands still, or
    the link is broken. It may still come; if not, LinkDown follows (`dead_after`).

    `waiting` are messages that were not named before in this silence. Told again while it lasts, as
    often as there are more.
    """

    peer: Peer
    waiting: tuple[Message, ...]


class LinkHeard(LocalEvent, frozen=True):
    """A silence that was told is over: something is acknowledged."""

    peer: Peer


class StoodStill(LocalEvent, frozen=True):
    """This node was so many seconds late with what it should have done: it was paused, or has more
    work than it can do (P3, Lifeguard)."""

    seconds: float


class SeedReached(LocalEvent, frozen=True):
    """Somebody answered at an address of the peer list."""

    address: str
    peer: Peer


class SeedFailed(LocalEvent, frozen=True):
    """Nobody answered at an address of the peer list; it will be tried again."""

    address: str
    reason: str


class Transport(Protocol):
    """What carries frames: TCP in wire/, the virtual network in sim/. Methods queue and return."""

    def dial(self, address: str) -> Connection:
        """Begin to connect. `Links.on_opened` or `Links.on_closed` follows, in a later turn."""

    def write(self, connection: Connection, frame: Frame) -> None:
        """Send one frame, in order."""

    def close(self, connection: Connection, reason: str) -> None:
        """Close after what was written has left, or give up dialling. No `on_closed` follows."""


class Codec(Protocol):
    """Messages to bytes and back (wire/codec). Pure."""

    def encode(self, messages: Sequence[Message]) -> bytes:
        """A list of messages as the body of a batch."""

    def encode_one(self, message: Message) -> bytes:
        """One message, to be joined by `join`."""

    def join(self, encoded: Sequence[bytes]) -> bytes:
        """Bodies of single messages as the body of one batch."""

    def decode(self, body: bytes) -> list[Message]:
        """Raises ProtocolError on anything that is not a list of known messages."""
