"""Trees at a host that nobody lets it serve: does their owner know of them? (C6, P5)

A host that a lost owner or a fork has left behind drops its trees when it hears who took the place
(`ClusterForked` in hosting.py). It may hear of that too early, or only by gossip. Such a tree
serves nothing, since it has no lease, but it would be kept, and named to publishers, for ever. So a
tree that had no lease at two looks is asked about (`StillHosting`); the owner answers with what it
knows to be here (`TreesHosted`). A fork that is gone may have been higher than whoever has its arc
now, and this host listens to nobody lower: so it says which epoch that one has to have.
"""

from __future__ import annotations

from overlay.chord.keys import attribute_key
from overlay.machine import Alarm, Handlers, Key, Machine, NodeId, Peer, Port, Timer
from overlay.upper_tree.cluster_view import RingView
from overlay.upper_tree.host.hosting import Hosting
from overlay.upper_tree.messages import StillHosting

LOOK = 5.0
"""Seconds between two looks: an election ends, and its leases are granted, within that. Wild
guess."""


class LeftoversDue(Timer, frozen=True):
    """Time to look."""


class OrphanedTrees(Machine):
    """At every host."""

    def __init__(self, port: Port, ring: RingView, hosting: Hosting) -> None:
        super().__init__(port)
        self.ring = ring
        self.hosting = hosting
        self._due = Alarm(port, LeftoversDue())
        self._idle: dict[str, int] = {}  # attributes without a lease at the last look

    def handlers(self) -> Handlers:
        """A timer."""
        return {LeftoversDue: self.on_due}

    def start(self) -> None:
        """Look from now on."""
        self._due.within(LOOK)

    def on_due(self, timer: LeftoversDue) -> None:
        """Ask the owners of what had no lease at the last look either."""
        self._due.rang()
        self._due.within(LOOK)
        idle = self.hosting.idle()
        asked: dict[tuple[NodeId, Key], tuple[Peer, int]] = {}
        for attribute, epoch in idle.items():
            if attribute in self._idle:
                key = attribute_key(attribute)
                owner = self.ring.owner(key)
                if owner is None:
                    self.ring.find(key)  # for the next look
                else:
                    _, highest = asked.get((owner.primary.id, owner.key), (None, 0))
                    asked[owner.primary.id, owner.key] = owner.primary, max(epoch, highest)
        for (_, cluster), (peer, epoch) in asked.items():
            self.port.send(peer, StillHosting(cluster, epoch))
        self._idle = idle
