"""Tombstones: which nodes were found dead, and when, in shuffles (C1).

Other nodes have not noticed yet and go on naming the dead. What others say about a node is ignored
if it is older than the node's tombstone. Ages are counted in shuffles; all nodes shuffle at about
the same rate, so an age from elsewhere can be compared. Direct contact removes a tombstone at once.
"""

from __future__ import annotations

from overlay.bounded import BoundedDict
from overlay.lower_random.constants import MAX_TOMBSTONES
from overlay.machine import NodeId


class Tombstones:
    """Nodes by the shuffle in which they were found dead. At most `MAX_TOMBSTONES`; the oldest is
    forgotten first."""

    def __init__(self) -> None:
        self._died_in: BoundedDict[NodeId, int] = BoundedDict(MAX_TOMBSTONES)

    def add(self, peer_id: NodeId, now: int) -> None:
        """Remember that contact with `peer_id` failed in the shuffle with number `now`."""
        self._died_in.renew(peer_id, now)

    def remove(self, peer_id: NodeId) -> None:
        """Forget that contact failed: `peer_id` itself was heard, so it is alive."""
        self._died_in.pop(peer_id, None)

    def covers(self, peer_id: NodeId, age: int, now: int) -> bool:
        """Whether second-hand news of `peer_id` that is `age` shuffles old, in shuffle `now`, is
        from before its death."""
        died = self._died_in.get(peer_id)
        return died is not None and now - age <= died
