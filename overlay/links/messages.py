"""The frames of a link: the vocabulary of the handshake and of batches.

A frame is one MessagePack value behind a 4-byte length (canopy/wire/transport/framing). The driver
hands each to
`Links.on_frame`; no other machine sees one. The messages of all other folders travel inside
`Batch`.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Meta

from overlay.machine import NodeId, Peer, Uint53, Uint63

PROTOCOL = 11
"""Newest version of the wire protocol that is spoken here. What a change of it has to do:
docs/design/links.md."""

OLDEST_PROTOCOL = 10
"""Oldest version that is spoken here, so that the nodes of an overlay can be upgraded one by one. A
peer whose versions are all older or all newer is refused with a reason."""

CAPABILITIES: Final = ("clocks", "documents", "forks", "groups", "quotas", "refusals")
"""The capabilities of this code beyond those of every node of an overlay: messages that name one of
these (`Message.capability`) go only to peers that have named it as well."""

Capability = Annotated[str, Meta(max_length=32)]
Capabilities = Annotated[tuple[Capability, ...], Meta(max_length=64)]

MAX_BODY = (1 << 20) - 4_096
"""The largest body of a batch, in bytes before compression: with its head a frame stays below the
1 MiB that the framing accepts."""

BATCH_OVERHEAD = 64
"""Bytes that each batch counts beyond its body, so that the window bounds many tiny batches as
well. About what the frame's head and the objects that are kept for it take."""


class ProcessName(NamedTuple):
    """The identity of a process of a node. Of two processes the greater was started later, and only
    its messages count."""

    incarnation: Uint53  # grows with each start from one data folder
    boot: Uint63  # when it was started: two copies of a folder may have one incarnation

    @staticmethod
    def of(me: Peer, incarnation: int, boot: int) -> ProcessName:
        """The name of this process; `boot` 0: it is made of the node's address."""
        return ProcessName(incarnation, boot or crc32(me.address.encode()))


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A unit of transmission on a connection: one of the six kinds below."""


class Hello(Frame, frozen=True):
    """First frame of the side that dialled: asks the peer to open or to resume a session.

    With `to` empty (an address of the peer list) or naming another node it only asks for the peer's
    identity: the answer is a Welcome with session 0, after which a Hello to the right node may
    follow.
    """

    protocol: Uint53  # the oldest version that the sender speaks …
    overlay: str  # name of the overlay; nodes of two overlays never link
    peer: Peer  # the sender
    incarnation: Uint53  # grows with each start of the process: a new one has forgotten the session
    expected: Uint53  # number of the next batch that the sender wants (0: it knows of no session)
    yours: Uint53  # the receiver's incarnation as the sender knows it, 0 if it does not
    credit: Uint53  # bytes that the receiver may have in flight beyond what is acknowledged
    to: NodeId = ""  # the node that is meant
    session: Uint53 = 0  # the sender's number of this session; a greater one: it forgot the last
    your_session: Uint53 = 0  # the receiver's number of it as the sender knows it, 0 if it does not
    dials: Uint53 = (
        0  # Hellos sent in this session so far, to recognise an older one that comes late
    )
    boot: Uint63 = 0  # with the incarnation: the process (`ProcessName`)
    clock: Uint63 = 0  # the sender's hybrid logical clock (overlay/links/hybrid_clock.py)
    newest: Uint53 = 0  # … and the newest; 0, from version 10: that one only
    capabilities: Capabilities = ()

    @property
    def process(self) -> ProcessName:
        """The name (incarnation, boot) of the process that sends this frame."""
        return ProcessName(self.incarnation, self.boot)


class Welcome(Frame, frozen=True):
    """Answer to Hello, with the same facts about the other side: both are CONNECTED now.

    With session 0 it only names the node that answers, and the handshake goes on with another
    Hello.
    """

    protocol: Uint53
    overlay: str
    peer: Peer
    incarnation: Uint53
    expected: Uint53
    yours: Uint53
    credit: Uint53
    session: Uint53 = 0
    your_session: Uint53 = 0
    dials: Uint53 = 0
    boot: Uint63 = 0
    clock: Uint63 = 0
    newest: Uint53 = 0
    capabilities: Capabilities = ()

    @property
    def process(self) -> ProcessName:
        """The name (incarnation, boot) of the process that sends this frame."""
        return ProcessName(self.incarnation, self.boot)


class Superseded(Frame, frozen=True):
    """A later process has the receiver's id: the receiver's messages no longer count.

    Sent to a process that acts as a node of which the sender knows a later process. After an
    ordinary restart the former process is no longer there to receive it.
    """

    peer: Peer  # the receiver's id, with the address of the later process
    incarnation: Uint53
    boot: Uint63


class Batch(Frame, frozen=True):
    """Messages in order, with a cumulative acknowledgement of the other direction."""

    number: Uint53  # counted from 0 per session and direction
    acknowledged: Uint53  # every batch before this number was received and consumed
    credit: Uint53  # bytes that may be in flight beyond that
    digest: Uint53  # CRC-32 of `body` as it was sent
    compressed: bool  # with zlib
    body: bytes  # the codec's list of messages
    clock: Uint63 = 0  # the sender's hybrid logical clock when it was written


class Ack(Frame, frozen=True):
    """Cumulative acknowledgement without a batch; also the keep-alive of a link that is watched."""

    acknowledged: Uint53
    credit: Uint53
    gap: Uint53 = 0  # this batch was received, those from `acknowledged` up to it were not; 0: no
    # gap
    asks: Uint53 = 0  # the number of a question to the peer what it has: it answers at once
    answers: Uint53 = 0  # the question that this answers: what was sent before it, and is not
    # acknowledged here, is lost


class Bye(Frame, frozen=True):
    """The connection ends, with a reason for a person to read.

    Without `final` and `rest` the sender has closed the session, and a new one may begin.
    """

    reason: str
    final: bool = False  # the sender leaves, or will never accept this peer: do not redial
    rest: bool = False  # the link was idle: the session is kept, and resumes when it is needed


def agreed_version(greeting: Hello | Welcome, newest: int) -> int:
    """The newest version that both sides speak, where this one speaks `OLDEST_PROTOCOL` to
    `newest`; 0: there is none. Both sides compute the same."""
    agreed = min(newest, max(greeting.protocol, greeting.newest))
    return agreed if agreed >= max(OLDEST_PROTOCOL, greeting.protocol) else 0


AnyFrame = Hello | Welcome | Superseded | Batch | Ack | Bye
"""Every kind of frame, as a type that can be decoded."""
