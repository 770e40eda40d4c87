"""A seed: an address of the peer list, and what became of the attempts to reach it (C1)."""

from __future__ import annotations

from overlay.links.deadlines import HasDeadline
from overlay.machine import NodeId, Peer


class Seed(HasDeadline):
    """An address of the peer list. Its deadline is the next attempt to reach it."""

    __slots__ = ("_attempts", "address", "is_dialled", "is_reached", "peer")

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.is_dialled = False  # a connection asks who is there
        self.peer: NodeId | None = None  # that answered there last
        self.is_reached = False
        self._attempts = 0  # that failed since it was reached last

    @property
    def is_sought(self) -> bool:
        """Whether it is to be dialled."""
        return not (self.is_reached or self.is_dialled)

    def leads_to(self, peer: Peer) -> bool:
        """Whether `peer` answered there, or has this address."""
        return self.peer == peer.id or self.address == peer.address

    def attached(self) -> None:
        """Note that a connection to this address asks which node is there."""
        self.is_dialled = True

    def detached(self) -> None:
        """The connection has ended, or has found a node."""
        self.is_dialled = False

    def answered(self, peer: NodeId) -> None:
        """Note that `peer` has answered at this address, and is not connected yet."""
        self.peer = peer

    def reached(self, peer: NodeId) -> None:
        """Note that `peer` is reached at this address and connected."""
        self.peer = peer
        self.is_reached = True
        self._attempts = 0

    def lost(self) -> None:
        """Note that no node to which this address leads is connected any more."""
        self.is_reached = False

    def failed(self) -> int:
        """An attempt failed, or its session ended. Returns how many failed before."""
        self.is_reached = False
        self._attempts += 1
        return self._attempts - 1
