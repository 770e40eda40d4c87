"""The messages between a node without a valid certificate and its issuer.

They use the port of the nodes, after `PREAMBLE` and inside TLS in which only the issuer presents a
certificate. The issuer begins: with a nonce that the other side has to sign, and the roots, so that
a new node can compare them with its token before it sends its secret (join.py). Frames are as
everywhere (canopy/wire/transport/framing.py).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from canopy.wire.transport.framing import FrameFormat
from overlay.machine import Uint53

PREAMBLE: Final = b"canopy-join 1\n"
"""The first bytes of such a connection. TLS begins with 0x16, so one port serves both."""

FRAME_MOST: Final = 64 * 1024 + 1024 * 512
"""The largest frame: a chain, two roots, and a full list of revocations."""

REQUEST_MOST: Final = 16 * 1024
"""The largest request, in bytes; anybody can send one."""

Pem = Annotated[bytes, msgspec.Meta(max_length=16 * 1024)]
Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]


class Word(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base of the messages between issuer and newcomer, one frame each."""


class Greeting(Word, frozen=True):
    """The issuer's first message: a nonce to sign, and roots to compare with the token."""

    nonce: Annotated[bytes, msgspec.Meta(min_length=16, max_length=64)]
    roots: Pem


class Enrol(Word, frozen=True):
    """A new node asks for a certificate. `signature`: of `claim`, by `key`."""

    invitation: Annotated[str, msgspec.Meta(max_length=64)]
    secret: Annotated[bytes, msgspec.Meta(max_length=64)]
    key: Key
    signature: Signature


class RenewCertificate(Word, frozen=True, tag="Renew"):
    """A node asks for its next certificate, perhaps with the next generation of its id."""

    certificate: Pem
    generation: Uint53
    key: Key
    signature: Signature


class Issued(Word, frozen=True):
    """The node's certificate with the issuer's; the roots, and the list of revocations."""

    chain: Pem
    roots: Pem
    revocations: bytes


class Denied(Word, frozen=True):
    """The request is refused; `reason` is for people."""

    reason: Annotated[str, msgspec.Meta(max_length=400)]


REQUESTS: Final[FrameFormat[Enrol | RenewCertificate]] = FrameFormat(
    Enrol | RenewCertificate, REQUEST_MOST, REQUEST_MOST
)
"""Frames from a node to its issuer."""

ANSWERS: Final[FrameFormat[Greeting | Issued | Denied]] = FrameFormat(
    Greeting | Issued | Denied, FRAME_MOST, FRAME_MOST
)
"""Frames from the issuer."""


def claim(nonce: bytes, key: bytes, generation: int) -> bytes:
    """Return the statement that a node signs to show that the key is its own."""
    return b"canopy enrolment 1\n" + nonce + key + generation.to_bytes(8, "big")
