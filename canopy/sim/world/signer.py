"""Signatures in a simulated world, where nobody uses another node's secret and looking is cheap."""

from __future__ import annotations

from hashlib import blake2b

from overlay.links.signing import Chain, Signature
from overlay.machine import NodeId

AUTHORITY = "authority"


class SimulatedSigner:
    """Signs as one node, by a secret that follows from the world's: a `Signer`. Its chain is only
    for nodes that the world has; whoever lies may make a signer, and has no use of that."""

    def __init__(self, node: NodeId, world: str, certified: bool = True) -> None:
        """`certified`: nobody is taken for a node whom the world has not certified."""
        self._certified = certified
        self._node = node
        self._world = world.encode()[:64]

    def sign(self, statement: bytes) -> Signature:
        """This node says so."""
        return Signature(self._node, b"", 0, self._seal(self._node, statement))

    def holds(self, signature: Signature, statement: bytes) -> bool:
        """Whether the node that is named has signed this statement."""
        return signature.seal == self._seal(signature.signer, statement)

    def chain(self) -> Chain:
        """The world's seal of this node, for its certificate."""
        return (self._seal(AUTHORITY, self._node.encode()),)

    def vouches(self, node: NodeId, chain: Chain) -> bool:
        """Whether the world has certified this node."""
        return not self._certified or chain == (self._seal(AUTHORITY, node.encode()),)

    def _seal(self, node: NodeId, said: bytes) -> bytes:
        return blake2b(node.encode() + said, digest_size=16, key=self._world).digest()
