"""Statements that a node signs, and that others believe whoever passes them on; and tokens, which
it gives to whom it has asked for something.

Where nodes have keys the driver hands over a `Signer`; the cryptography is with it
(canopy/wire/keys), and in the simulator a stand-in that no simulated node can forge. Where there
are none nothing is signed and nothing is asked for.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final, Protocol

import msgspec

from overlay.machine import NodeId, Uint53


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """The proof that `signer` has made the accompanying statement. Its id follows from `key` and
    `generation`, so nothing else need be known about it."""

    signer: NodeId
    key: Annotated[bytes, msgspec.Meta(max_length=32)]
    generation: Uint53
    seal: Annotated[bytes, msgspec.Meta(max_length=64)]


Chain = Annotated[
    tuple[Annotated[bytes, msgspec.Meta(max_length=1_024)], ...], msgspec.Meta(max_length=4)
]
"""A node's certificate, and those that vouch for it, as the driver has them."""


TOKEN_BYTES: Final = 16

Token = Annotated[bytes, msgspec.Meta(max_length=TOKEN_BYTES)]
"""Secret of a delivery: a node that shows it has it from the node that made it, or from one that
has it; b"": nodes have no keys."""


class Signer(Protocol):
    """Signs as this node, and looks at what others have signed."""

    def sign(self, statement: bytes) -> Signature:
        """Return this node's signature of a statement."""

    def holds(self, signature: Signature, statement: bytes) -> bool:
        """Whether the node that is named has signed this statement. Anybody can make keys, and so
        ids that sign: that there is such a node is another question."""

    def chain(self) -> Chain:
        """The certificates which prove to others that this node belongs to the overlay."""

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """Whether the overlay has certified this node, as one that others may rely on (`votes`: as
        one that may serve in clusters), and has not revoked it."""


class Tokens:
    """Makes tokens: 16 bytes that nobody knows to whom this node has not given them, and the same
    ones whenever they are made again. (Ed25519 signs a statement in one way only.)"""

    def __init__(self, signer: Signer | None) -> None:
        """`signer`: None where nodes have no keys; then all tokens are empty."""
        seal = b"" if signer is None else signer.sign(statement("tokens")).seal
        self._secret = blake2b(seal).digest() if seal else b""

    def make(self, kind: str, *parts: object, serial: int = 0) -> bytes:
        """The token for this. Of two with the same parts that with the greater `serial`, up to
        2^56, is the greater one."""
        if not self._secret:
            return b""
        said = statement(f"token {kind}", *parts, serial)
        rest = blake2b(said, key=self._secret, digest_size=TOKEN_BYTES - 7).digest()
        return serial.to_bytes(7, "big") + rest


def serial_of(token: bytes) -> int:
    """The `serial` with which a token was made."""
    return int.from_bytes(token[:7], "big")


def statement(kind: str, *parts: object) -> bytes:
    """The bytes that are signed: no statement of one kind can be taken for one of another."""
    return msgspec.msgpack.encode((f"canopy {kind}", *parts))
