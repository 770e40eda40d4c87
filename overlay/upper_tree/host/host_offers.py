"""A node as a host for clusters in which it does not serve (C6).

A primary whose trees ask for more than its members can serve asks other nodes (owner/host_pool.py).
A node agrees if it may serve (`cluster.serve`), does not leave and has time left. It names others
that serve nowhere, those first that are near the region in which a host is looked for (M2), so that
a primary finds more nodes than its view has. A host that leaves says so
to the owners of its trees and goes on serving until they have moved them.
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.regions import distance
from overlay.settings import Settings
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.host.constants import LEAVE_WITHIN, OFFER_BUSY, STOP_AGAIN
from overlay.upper_tree.messages import OTHERS_MOST, AskToHost, HostAnswer, StopsHosting


class StopAgainDue(Timer, frozen=True):
    """Time to tell owners again that this host leaves."""


class HostOffers(Machine):
    """Answers primaries that look for hosts; leaves the owners that it has."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        assigned: AssignedTrees,
        idle_peers: Callable[[], tuple[Peer, ...]],
    ) -> None:
        """`idle_peers`: neighbours that serve in no cluster."""
        super().__init__(port)
        self._serves = settings.cluster.serve
        self._assigned = assigned
        self._idle_peers = idle_peers
        self._leaves_by: float | None = None  # it leaves, by then whatever it hosts
        self._again = Alarm(port, StopAgainDue())

    def on_ask_to_host(self, sender: Peer, message: AskToHost) -> None:
        """A primary may give this node virtual nodes, or not."""
        willing = (
            self._serves
            and self._leaves_by is None
            and self._assigned.loads.busy < OFFER_BUSY
            and self._assigned.ring in ("", message.ring)
        )
        others = [peer for peer in self._idle_peers() if peer.id != sender.id]
        if message.region:
            others.sort(key=lambda peer: distance(message.region, peer.region))
        named = tuple(others[:OTHERS_MOST])
        self.port.send(sender, HostAnswer(message.key, willing, named, self.port.processors))

    def leave(self) -> None:
        """Have the virtual nodes of this node moved to other hosts, because it leaves."""
        if self._leaves_by is None:
            self._leaves_by = self.port.now + LEAVE_WITHIN
            self._stop()

    @property
    def hosted(self) -> int:
        """Trees of other nodes that this one has still to serve before it may leave."""
        if self._leaves_by is None or self.port.now >= self._leaves_by:
            return 0
        return len(self._assigned.served_for_others())

    def on_stop_again(self, timer: StopAgainDue) -> None:
        """Tell owners again, who may be others by now."""
        self._again.rang()
        self._stop()

    def _stop(self) -> None:
        owners: dict[NodeId, Peer] = {}
        for tree in self._assigned.served_for_others():
            if tree.owner is not None:
                owners[tree.owner.id] = tree.owner
        for owner in owners.values():
            self.port.send(owner, StopsHosting())
        if owners:
            self._again.within(STOP_AGAIN)
