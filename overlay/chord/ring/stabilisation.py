"""Keeping the pointers right: stabilise, rectify, fingers (P2; Zave's corrected version).

Every primary regularly asks its successor who is before and who comes after it (*stabilise*). If
somebody better stands between the two, that one is asked itself, and adopted with its own list
when it answers. Then the primary tells its successor that it exists (*rectify*). A predecessor is
replaced by a worse one only after it was found dead; being asked is how that is found out.

Fingers shorten lookups: one of the far keys (own key + 2^i) is looked up per round; its owner is
learnt like any description. In a ring of few clusters the cache holds all of them and fingers
change nothing, so only those beyond the successor list are refreshed.
"""

from __future__ import annotations

from overlay.chord.messages import (
    AskNeighbourhood,
    Cluster,
    Contact,
    Moved,
    Neighbourhood,
    Rectify,
    Stabilise,
)
from overlay.chord.ring.lookups import Lookups
from overlay.chord.ring.place import Place
from overlay.machine import Key, NodeId, Peer, Timer

RING_BITS = 160
"""SHA-1."""


class StabiliseRound(Timer, frozen=True):
    """Time to ask the successor."""


class FingerRound(Timer, frozen=True):
    """Time to look up the next finger."""


def finger_key(own: Key, bit: int) -> Key:
    """The key 2^`bit` after `own`."""
    return f"{(int(own, 16) + (1 << bit)) % (1 << RING_BITS):040x}"


class Stabilisation:
    """The maintenance that a primary does for the ring."""

    def __init__(self, place: Place, lookups: Lookups) -> None:
        self.place = place
        self.port = place.port
        self.lookups = lookups
        self._bit = RING_BITS - 1

    def begin(self) -> None:
        """This node is a primary now, or its pointers changed: talk to the neighbours at once."""
        self.port.set_timer(self._jitter(self.place.settings.fix_fingers), FingerRound())
        self.watch()
        self._stabilise()

    def end(self) -> None:
        """This node takes no part in the ring any more."""
        self.port.cancel_timer(StabiliseRound())
        self.port.cancel_timer(FingerRound())
        self.port.watch("ring", ())

    def announce(self) -> None:
        """Tell the cluster before us that we are its successor, without waiting to be found."""
        place = self.place
        predecessor = place.pointers.predecessor
        if place.own is not None and predecessor is not None:
            self.port.send(predecessor.primary, self._neighbourhood(place.own))

    def lose(self, node: NodeId) -> None:
        """A pointer's primary does not answer: the next one takes its place."""
        if self.place.pointers.lose(node) and self.place.serving:
            self.watch()
            self._stabilise()

    def watch(self) -> None:
        """Miss the silence of those that the pointers lead to."""
        pointers = self.place.pointers
        before = () if pointers.predecessor is None else (pointers.predecessor,)
        peers = [cluster.primary for cluster in (*before, *pointers.successors)]
        self.port.watch("ring", tuple({peer.id: peer for peer in peers}.values()))

    def on_stabilise_round(self, timer: StabiliseRound) -> None:
        """Regular maintenance."""
        self._stabilise()

    def on_finger_round(self, timer: FingerRound) -> None:
        """Refresh one finger, from the far half of the ring down to where our list ends."""
        pointers = self.place.pointers
        reach = pointers.successors[-1] if pointers.successors else None
        self.port.set_timer(self._jitter(self.place.settings.fix_fingers), FingerRound())
        if reach is None or len(pointers.successors) < pointers.length:
            return  # the list goes all the way around
        span = (int(reach.key, 16) - int(pointers.own, 16)) % (1 << RING_BITS)
        self._bit = self._bit - 1 if (1 << self._bit) > span else RING_BITS - 1
        self.lookups.find(finger_key(pointers.own, self._bit), wanted=False)

    def on_stabilise(self, sender: Peer, message: Stabilise) -> None:
        """Our predecessor, or somebody who takes us for its successor, asks."""
        self.place.learn(message.cluster)
        self._answer(sender)

    def on_ask_neighbourhood(self, sender: Peer, message: AskNeighbourhood) -> None:
        """Anybody asks."""
        self._answer(sender)

    def on_rectify(self, sender: Peer, message: Rectify) -> None:
        """Somebody believes that it is our predecessor."""
        place = self.place
        place.learn(message.cluster)
        if not place.serving or place.own is None:
            self._answer(sender)
        elif message.cluster.ring != place.own.ring or place.own.owns(message.cluster.key):
            self.port.count("ring_conflicts")  # nobody else can stand inside our own arc
        elif place.pointers.rectify(message.cluster):
            self.watch()
        elif place.pointers.predecessor:
            self.port.send(place.pointers.predecessor.primary, AskNeighbourhood())

    def on_neighbourhood(self, sender: Peer, message: Neighbourhood) -> None:
        """A cluster speaks for itself, and gives hints about its neighbours."""
        place = self.place
        for cluster in (message.cluster, message.predecessor, *message.successors):
            if cluster is not None:
                place.learn(cluster)
        own = place.own
        if not place.serving or own is None or message.cluster.ring != own.ring:
            return
        if not place.pointers.adopt(message.cluster, message.successors):
            return
        candidate = message.predecessor
        self.watch()
        if (
            candidate is not None
            and place.pointers.better_successor(candidate)
            and place.known.reachable(candidate.primary, self.port.now)
        ):
            self.port.send(candidate.primary, Stabilise(own))
        elif candidate is None or candidate.key != own.key or candidate.version < own.version:
            self.port.send(message.cluster.primary, Rectify(own))

    def _stabilise(self) -> None:
        place = self.place
        if not place.serving or place.own is None:
            return
        self.port.set_timer(self._jitter(place.settings.stabilise), StabiliseRound())
        if place.pointers.first() is not None:
            for member in place.own.members()[1:]:  # who takes our place has to know whom to tell
                self.port.send(member, self._neighbourhood(place.own))
        first = place.pointers.first()
        if first is None:  # alone, or every successor was lost at once: the cache is what remains
            first = next((c for c in place.known.after(place.own.key)), None)
        if first is not None and first.primary.id != self.port.me.id:
            self.port.send(first.primary, Stabilise(place.own))
        elif first is None:  # gossip may know of somebody, who then introduces itself
            hints = [h for h in place.known.hints() if h.key != place.own.key]
            if hints:
                hint = self.port.rng.choice(hints)
                self.port.send(hint.primary, Contact(self.port.me.id))

    def _answer(self, sender: Peer) -> None:
        if self.place.serving and self.place.own is not None:
            self.port.send(sender, self._neighbourhood(self.place.own))
            return
        newest = self.place.newest()
        for cluster in self.place.what_became() or (() if newest is None else (newest,)):
            self.port.send(sender, Moved(cluster))

    def _neighbourhood(self, own: Cluster) -> Neighbourhood:
        pointers = self.place.pointers
        return Neighbourhood(own, pointers.predecessor, pointers.successors)

    def _jitter(self, period: float) -> float:
        """Rounds of different nodes shall not fall together: ±25 %; wild guess."""
        return period * (0.75 + self.port.rng.random() / 2)
