"""Who was found dead, and when, in shuffles (C1: dead entries leave by failed contact).

Others have not noticed yet and go on naming the dead. Hearsay about a node is believed only if it
is younger than the node's death here; ages are counted in shuffles, and all nodes shuffle at about
the same rate, so `age` shuffles ago is comparable. Direct contact ends a burial at once.
"""

from __future__ import annotations

from overlay.machine import NodeId

MAX_TOMBSTONES = 1_024
"""Graves kept, the oldest is given up first: more than die within one entry's life. Wild guess."""


class Tombstones:
    """Nodes by the shuffle in which they were found dead."""

    def __init__(self) -> None:
        self._died_in: dict[NodeId, int] = {}

    def add(self, peer_id: NodeId, now: int) -> None:
        """`peer_id` does not answer, in shuffle `now`."""
        self._died_in.pop(peer_id, None)
        self._died_in[peer_id] = now
        if len(self._died_in) > MAX_TOMBSTONES:
            del self._died_in[next(iter(self._died_in))]

    def remove(self, peer_id: NodeId) -> None:
        """It was heard of directly."""
        self._died_in.pop(peer_id, None)

    def covers(self, peer_id: NodeId, age: int, now: int) -> bool:
        """Whether hearsay of this age is older than the death."""
        died = self._died_in.get(peer_id)
        return died is not None and now - age <= died
