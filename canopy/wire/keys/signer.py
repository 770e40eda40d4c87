"""Signatures with this node's key: an `overlay.links.statements.Signer`."""

from __future__ import annotations

from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from canopy.wire.keys.certificates import node_id, raw_key
from overlay.links.statements import Chain, Signature
from overlay.machine import NodeId


class Vouching(Protocol):
    """Knows which nodes the overlay has certified (canopy/wire/process/security)."""

    def chain(self) -> Chain:
        """Return this node's certificate, and those that vouch for it (DER)."""

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """See `overlay.links.statements.Signer`."""


class KeySigner:
    """Signs with a node's Ed25519 key. The signer of a signature follows from the key in it, since
    ids are hashes of keys; verifying it needs no certificate."""

    def __init__(
        self, key: Ed25519PrivateKey, generation: int, vouching: Vouching | None = None
    ) -> None:
        """`vouching`: None if no certificates are checked."""
        self._vouching = vouching
        self._key = key
        self._raw = raw_key(key.public_key())
        self._generation = generation
        self._node = node_id(self._raw, generation)

    def sign(self, statement: bytes) -> Signature:
        """Sign a statement as this node."""
        return Signature(self._node, self._raw, self._generation, self._key.sign(statement))

    def holds(self, signature: Signature, statement: bytes) -> bool:
        """Return whether the named node has signed this statement."""
        if node_id(signature.key, signature.generation) != signature.signer:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(signature.key).verify(signature.seal, statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    def chain(self) -> Chain:
        """Return this node's certificate, with those that vouch for it."""
        return () if self._vouching is None else self._vouching.chain()

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """Return whether the overlay has certified this node, and has not revoked it."""
        return self._vouching is not None and self._vouching.vouches(node, chain, votes)
