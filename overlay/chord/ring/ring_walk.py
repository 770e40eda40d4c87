"""Walking around the ring, from each cluster to its successor by its own word (`canopy ring`).

Every step asks the next cluster's primary for its neighbourhood; the walk is complete when it comes
back to where it began and the arcs fit together without gap. Where a cluster does not answer in
time the walk goes on with the one after it, as far as the successor lists reach.
"""

from __future__ import annotations

from overlay.chord.constants import WALK_STEPS_MOST
from overlay.chord.events import RingWalked
from overlay.chord.messages import AskNeighbourhood, Cluster, Neighbourhood
from overlay.chord.ring.ring_state import RingState
from overlay.machine import Key, NodeId, Peer, Timer


class RingWalkTimeout(Timer, frozen=True):
    """The cluster that was asked did not answer."""


class RingWalk:
    """At most one walk at a time; callers that ask meanwhile get the same answer."""

    def __init__(self, state: RingState) -> None:
        self.state = state
        self.port = state.port
        self._found: dict[Key, Cluster] = {}
        self._asked: Peer | None = None
        self._following: tuple[Cluster, ...] = ()  # after the one that was asked, as that one said
        self._steps = 0

    def walk(self) -> None:
        """Start a walk, unless one is under way. Answered by RingWalked."""
        if self._asked is not None:
            return
        self._found, self._following, self._steps = {}, (), 0
        own, led = self.state.own, self.state.led
        if led is not None:
            self._found[led.key] = led
            self._following = tuple(self.state.later_clusters())
            self._go_on()
            return
        peer = self.state.route(own.key if own is not None else "")
        if peer is None:
            self._finish()
        else:
            self._ask(peer)

    def answered(self, sender: Peer, message: Neighbourhood) -> None:
        """The walk's next cluster answers: go on to its successor."""
        if self._asked is None or sender.id != self._asked.id:
            return
        self._found[message.cluster.key] = message.cluster
        self._following = message.successors
        if message.predecessor is not None and not message.successors:
            self._following = (message.predecessor,)  # a ring of two
        self._go_on()

    def moved(self, sender: Peer, cluster: Cluster) -> None:
        """The node that was asked is no primary any more, but knows who is."""
        if self._asked is not None and sender.id == self._asked.id:
            if cluster.primary.id not in (sender.id, self.port.me.id):
                self._following = (cluster, *self._following)
            self._go_on()

    def peer_lost(self, node: NodeId) -> None:
        """The node that was asked is unreachable: go on with the next."""
        if self._asked is not None and self._asked.id == node:
            self._go_on()

    def on_timeout(self, timer: RingWalkTimeout) -> None:
        """The node that was asked does not answer: go on with the next."""
        if self._asked is not None:
            self._go_on()

    def _go_on(self) -> None:
        """Ask the next one, unless the walk has come around."""
        self._steps += 1
        if not self._following or self._steps > WALK_STEPS_MOST:
            self._finish()
            return
        first, *rest = self._following
        self._following = tuple(rest)
        if first.key in self._found:
            self._finish()
        else:
            self._ask(first.primary)

    def _ask(self, peer: Peer) -> None:
        self._asked = peer
        self.port.set_timer(self.state.settings.lookup_timeout, RingWalkTimeout())
        self.port.send(peer, AskNeighbourhood())

    def _finish(self) -> None:
        self._asked = None
        self.port.cancel_timer(RingWalkTimeout())
        found = tuple(self._found[key] for key in sorted(self._found))
        complete = bool(found) and all(
            cluster.start == found[at - 1].key for at, cluster in enumerate(found)
        )
        self._found = {}
        self.port.emit(RingWalked(found, complete))
