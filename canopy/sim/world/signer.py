"""Signatures in a simulated world, where nobody uses another node's secret and looking is cheap."""

from __future__ import annotations

from hashlib import blake2b

from overlay.links.signing import Chain, Signature
from overlay.machine import NodeId
from overlay.rights import Role

AUTHORITY = "authority"


class SimulatedSigner:
    """Signs as one node, by a secret that follows from the world's: a `Signer`. Its chain is only
    for nodes that the world has; whoever lies may make a signer, and has no use of that."""

    def __init__(
        self, node: NodeId, world: str, certified: bool = True, role: Role = Role.VOTER
    ) -> None:
        """`certified`: nobody is taken for a node whom the world has not certified; `role`: in the
        node's certificate."""
        self._certified = certified
        self._role = role
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
        return (self._certificate(self._node, self._role),)

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """Whether the world has certified this node, as one that may do what is asked."""
        least = Role.VOTER if votes else Role.MEMBER
        roles = [role for role in Role if role >= least]
        return not self._certified or chain in [(self._certificate(node, one),) for one in roles]

    def _certificate(self, node: NodeId, role: Role) -> bytes:
        return self._seal(AUTHORITY, f"{node} {role.name}".encode())

    def _seal(self, node: NodeId, said: bytes) -> bytes:
        return blake2b(node.encode() + said, digest_size=16, key=self._world).digest()
