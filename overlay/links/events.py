"""Events of links for the machines above, what links need from below, what their parts share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final, Protocol

from overlay.links.hybrid_clock import HybridClock
from overlay.links.messages import Frame, ProcessName
from overlay.machine import LocalEvent, Message, Peer
from overlay.settings import LinkSettings

ConnectionId = int
"""A driver's number of one transport connection. Never used twice within a process."""

REFUSED: Final = "connection refused"
"""The driver's reason for a dial that ended because no process listens there, while the machine
answers (ECONNREFUSED)."""


TOO_LARGE: Final = "message too large"
"""Why a message is dropped that no frame can carry."""


class SessionEnd(Enum):
    """The meaning of the end of a session for the state of the peer."""

    UNREACHABLE = auto()  # it is silent, or does not answer dials, or broke the protocol
    GONE = auto()  # its process ended: the dial was refused, or another node has its address
    RESET = auto()  # it is alive, but has forgotten the session: it gave this node up, or restarted


class LinkUp(LocalEvent, frozen=True):
    """The session with `peer` is CONNECTED. `fresh`: it is a new session, so the peer may have
    restarted and lost earlier messages. `incarnation`: the incarnation of its process; 0:
    unknown."""

    peer: Peer
    fresh: bool
    incarnation: int = 0


class LinkDown(LocalEvent, frozen=True):
    """The session with `peer` has ended, as `end` says; `left`: the peer said that it leaves.

    `lost` are the messages that were queued or not acknowledged, in the order of sending: they may
    or may not have arrived.
    """

    peer: Peer
    reason: str
    left: bool
    lost: tuple[Message, ...] = ()
    end: SessionEnd = SessionEnd.UNREACHABLE


class LinkSuspected(LocalEvent, frozen=True):
    """`peer` does not acknowledge within the retransmission time-out: it is paused, or the link is
    broken. Messages sent to it may still arrive; if nothing is heard for `links.dead_after`,
    LinkDown follows. (The suspicion of SWIM, section 4.2, from the link's own traffic.)

    `unacknowledged` are messages that were not named before in this suspicion. The event is emitted
    again during the suspicion if there are further ones.
    """

    peer: Peer
    unacknowledged: tuple[Message, ...]


class LinkRecovered(LocalEvent, frozen=True):
    """A peer for which LinkSuspected was emitted acknowledges again."""

    peer: Peer


class LinkCongested(LocalEvent, frozen=True):
    """More waits for credit on the link to `peer` than should (links/constants.py): what can wait
    elsewhere had better not be sent. Emitted again as the link drains, step by step; LinkRelieved
    or LinkDown follows."""

    peer: Peer


class LinkRelieved(LocalEvent, frozen=True):
    """Less waits again on the link to `peer`, for which LinkCongested was emitted."""

    peer: Peer


class MessageDropped(LocalEvent, frozen=True):
    """A message was not sent at all, for `reason`: it is too large, or the queue is full, or there
    are too many sessions."""

    peer: Peer
    message: Message
    reason: str


class LocalStall(LocalEvent, frozen=True):
    """This node was `seconds` late with its own timers: the process was paused, or is overloaded.
    Silence of others during that time says nothing about them (Lifeguard, Dadgar et al. 2017)."""

    seconds: float


class IdentityConflict(LocalEvent, frozen=True):
    """Another process has this node's id: its data folder was copied, or an old copy was restored.

    `peer` has its address. `must_stop`: it was started later, so that the peers take its word and
    not this node's, which has to end; else it is the other one that has to.
    """

    peer: Peer
    incarnation: int
    must_stop: bool


class SeedReached(LocalEvent, frozen=True):
    """A node answered at an address of the peer list."""

    address: str
    peer: Peer


class SeedFailed(LocalEvent, frozen=True):
    """An attempt to reach an address of the peer list failed; it will be tried again."""

    address: str
    reason: str


class Transport(Protocol):
    """The transport of frames: TCP, or the simulator's virtual network. Methods queue and
    return."""

    def dial(self, address: str) -> ConnectionId:
        """Begin to connect to "host:port". `Links.on_opened` or `Links.on_closed` follows, in a
        later turn."""

    def write(self, connection: ConnectionId, frame: Frame) -> None:
        """Send one frame. Frames of a connection stay in order."""

    def close(self, connection: ConnectionId, reason: str) -> None:
        """Close after the written frames have left, or give up dialling. No `on_closed` follows."""


class Detours(Protocol):
    """Connections by way of other nodes, to peers whose link is silent (P3,
    overlay/lower_random/relays.py). They are open at once. Their numbers are negative."""

    def open(self, peer: Peer) -> Sequence[ConnectionId]:
        """Some connections to `peer`, each by another node, or none. Whether the peer is there, and
        by which of the nodes it is reached, its answers show."""

    def write(self, connection: ConnectionId, frame: Frame) -> None:
        """Send one frame; it may be lost. Those that arrive are in order."""

    def close(self, connection: ConnectionId, reason: str) -> None:
        """Forget the connection at this end. The peer is not told."""


class Codec(Protocol):
    """Messages to bytes and back (canopy/wire/transport/codec). Pure."""

    def encode(self, messages: Sequence[Message]) -> bytes:
        """A list of messages as the body of a batch."""

    def encode_one(self, message: Message) -> bytes:
        """Encode one message, to be joined with others by `join`."""

    def join(self, encoded: Sequence[bytes]) -> bytes:
        """Messages that were encoded one by one as the body of one batch."""

    def decode(self, body: bytes) -> list[Message]:
        """The messages of a body. Raises ProtocolError unless it is a list of known messages."""


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The node, its settings, clock and generator, and the functions by which a part of the links
    emits events, counts and traces. Handed to each part at construction."""

    me: Peer
    process: ProcessName  # grows with each start of the process
    overlay: str  # nodes of two overlays never link
    settings: LinkSettings
    rng: Random
    clock: Callable[[], float]  # monotonic seconds
    hybrid: HybridClock  # whose time frames carry from node to node
    emit: Callable[[LocalEvent], None]
    count: Callable[[str, int], None]
    trace: Callable[..., None]
