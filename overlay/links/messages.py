"""The wire vocabulary of links: frames. All other folders' messages travel inside `Batch`.

A frame is one MessagePack value behind a 4-byte length. Frames are read by hand-over of the driver
(wire/) to the `Links` machine; they never reach another machine.
"""

from __future__ import annotations

import msgspec

from overlay.machine import NodeId, Peer

PROTOCOL = 3
"""Version of the wire protocol; another version is refused with a reason."""

BODY_MOST = (1 << 20) - 4_096
"""The largest body of a batch, in bytes before compression: a frame and its head stay under the
1 MiB of DESIGN.md, section 6."""


OVERHEAD = 64
"""Bytes that each batch is reckoned at beyond its body, so that many tiny batches are bounded,
too. About what the frame's head and the kept objects take."""


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What travels on a connection."""


class Hello(Frame, frozen=True):
    """First frame of the side that dialled (M5: CONNECTING).

    With `to` empty (an address of the peer list) or of another node it only asks for a name: the
    answer is a Welcome with session 0, after which a Hello to the right node may follow.
    """

    protocol: int
    overlay: str  # name of the overlay; two overlays never link
    peer: Peer  # who I am
    incarnation: int  # grows with each start of the process: a new one has forgotten the session
    expected: int  # next batch number that I want from you (0: I know of no session)
    yours: int  # your incarnation as I know it, 0 if I do not
    credit: int  # bytes that you may send beyond what I acknowledged
    to: NodeId = ""  # whom I mean to reach
    session: int = 0  # my number of this session; a greater one means that I forgot the last
    your_session: int = 0  # your number of it as I know it, 0 if I do not
    dials: int = 0  # how many Hellos I have sent in this session: an older one comes too late


class Welcome(Frame, frozen=True):
    """Answer to Hello: the same facts about the other side. Both are CONNECTED now.

    With session 0 it only says who is here, and the handshake goes on with another Hello.
    """

    protocol: int
    overlay: str
    peer: Peer
    incarnation: int
    expected: int
    yours: int
    credit: int
    session: int = 0
    your_session: int = 0
    dials: int = 0


class Batch(Frame, frozen=True):
    """Messages in order. `digest` is the CRC-32 of `body` as sent (V3)."""

    number: int  # counted from 0 per session and direction
    acknowledged: int  # everything before this number was received and consumed (M3)
    credit: int  # bytes that may be under way beyond that
    digest: int
    compressed: bool
    body: bytes  # codec-encoded list of messages


class Ack(Frame, frozen=True):
    """Cumulative acknowledgement without a batch; also the heartbeat of a link that is watched."""

    acknowledged: int
    credit: int
    gap: int = 0  # this batch is here, and what comes before it from `acknowledged` on is missing
    asks: bool = False  # are you there? Whoever is, answers with a frame of any kind


class Bye(Frame, frozen=True):
    """The link ends, with a reason for a person.

    Without `final` and `rest`: I have forgotten the session, a new one may begin.
    """

    reason: str
    final: bool = False  # the node leaves or will never talk to you: do not redial
    rest: bool = False  # nobody used the link: the session is kept, redial when there is a need
