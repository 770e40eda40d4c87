"""Keeping the pointers right: stabilise, rectify, fingers (P2; Zave's corrected version).

Every primary regularly asks its successor who is before and who comes after it (*stabilise*). If
a cluster stands between the two, that one is asked itself, and adopted with its own list
when it answers. Then the primary tells its successor that it exists (*rectify*). A predecessor is
replaced by a worse one only after it was found dead; being asked is how that is found out.

A predecessor that is no longer heard, though no link was lost, may lead no more, and nobody
leads in its place: then no other cluster would notice that keys have no owner. So the cluster
after it looks for it as for one that is lost (`recovery`).

Fingers shorten lookups: one of the far keys (own key + 2^i) is looked up per round; its owner is
learnt like any description. In a ring of few clusters the cache holds all of them and fingers
change nothing, so only those beyond the successor list are refreshed.
"""

from __future__ import annotations

from overlay.chord.constants import UNHEARD_FOR
from overlay.chord.events import PredecessorUnheard
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
from overlay.chord.ring.ring_state import RingState
from overlay.machine import Key, NodeId, Peer, Timer, by_id

RING_BITS = 160
"""Bits of a key: SHA-1."""


class StabiliseRound(Timer, frozen=True):
    """Time for a primary to ask its successor for its pointers (Zave's *stabilize*)."""


class FingerRound(Timer, frozen=True):
    """Time to look up the next finger."""


def finger_key(own: Key, bit: int) -> Key:
    """The key 2^`bit` after `own` on the ring of 160-bit keys: where the finger of that number
    starts."""
    return f"{(int(own, 16) + (1 << bit)) % (1 << RING_BITS):040x}"


class Stabilisation:
    """The maintenance that a primary does for the ring."""

    def __init__(self, state: RingState, lookups: Lookups) -> None:
        self.state = state
        self.port = state.port
        self.lookups = lookups
        self._bit = RING_BITS - 1
        self._start = ""  # where the own arc begins, …
        self._heard_at = 0.0  # … and when a cluster that ends there was last heard

    def begin(self) -> None:
        """Contact the neighbours at once, because this node became a primary or its pointers
        changed."""
        self.port.set_timer(self._jitter(self.state.settings.fix_fingers), FingerRound())
        self.watch()
        self._stabilise()

    def end(self) -> None:
        """Stop taking part in the ring."""
        self.port.cancel_timer(StabiliseRound())
        self.port.cancel_timer(FingerRound())
        self.port.watch("ring", ())

    def announce(self) -> None:
        """Let the cluster before us know that we are its successor."""
        own, predecessor = self.state.led, self.state.pointers.predecessor
        if own is not None and predecessor is not None:
            self.port.send(predecessor.primary, self._neighbourhood(own))

    def peer_lost(self, node: NodeId) -> None:
        """Replace a pointer whose primary does not answer by the next one."""
        if self.state.pointers.peer_lost(node) and self.state.led:
            self.watch()
            self._stabilise()

    def watch(self) -> None:
        """Keep the links to the primaries that the pointers name, to notice their loss."""
        pointers = self.state.pointers
        before = () if pointers.predecessor is None else (pointers.predecessor,)
        peers = by_id(cluster.primary for cluster in (*before, *pointers.successors))
        self.port.watch("ring", tuple(peers.values()))

    def on_stabilise_round(self, timer: StabiliseRound) -> None:
        """Ask the successor for its predecessor and its list, and set the timer for the next
        round."""
        self._stabilise()

    def on_finger_round(self, timer: FingerRound) -> None:
        """Refresh one finger, from the far half of the ring down to where our list ends."""
        pointers = self.state.pointers
        reach = pointers.successors[-1] if pointers.successors else None
        self.port.set_timer(self._jitter(self.state.settings.fix_fingers), FingerRound())
        if reach is None or len(pointers.successors) < pointers.length:
            return  # the list goes all the way around
        span = (int(reach.key, 16) - int(pointers.own, 16)) % (1 << RING_BITS)
        self._bit = self._bit - 1 if (1 << self._bit) > span else RING_BITS - 1
        self.lookups.find(finger_key(pointers.own, self._bit), wanted=False)

    def on_stabilise(self, sender: Peer, message: Stabilise) -> None:
        """The predecessor, or a node that takes us for its successor, asks for our neighbours."""
        self.state.learn(message.cluster)
        if message.cluster.key == self._start:
            self._heard_at = self.port.now
        self._answer(sender)

    def on_ask_neighbourhood(self, sender: Peer, message: AskNeighbourhood) -> None:
        """Answer any node with this cluster's neighbours on the ring."""
        self._answer(sender)

    def on_rectify(self, sender: Peer, message: Rectify) -> None:
        """Take the sender's cluster as predecessor if it is nearer; else check that the present one
        lives (Zave's *rectify*)."""
        state = self.state
        if not state.admits(message.cluster):
            return
        state.learn(message.cluster)
        if state.led is None:
            self._answer(sender)
        elif message.cluster.ring != state.led.ring or state.led.owns(message.cluster.key):
            self.port.count("ring_conflicts")  # no other cluster can stand inside our own arc
        elif state.pointers.rectify(message.cluster):
            self.watch()
        elif state.pointers.predecessor:
            self.port.send(state.pointers.predecessor.primary, AskNeighbourhood())

    def answered(self, message: Neighbourhood) -> None:
        """Take a cluster's description of itself and its neighbours: adopt it as the successor if
        it is one, and ask the cluster that stands between."""
        state = self.state
        for cluster in (message.cluster, message.predecessor, *message.successors):
            if cluster is not None:
                state.learn(cluster)
        own = state.led
        if own is None or message.cluster.ring != own.ring:
            return
        successors = tuple(filter(state.admits, message.successors))
        if not state.pointers.adopt(message.cluster, successors):
            return
        candidate = message.predecessor
        if candidate is not None and not state.admits(candidate):
            candidate = None
        self.watch()
        if (
            candidate is not None
            and state.pointers.better_successor(candidate)
            and state.is_reachable(candidate.primary)
        ):
            self.port.send(candidate.primary, Stabilise(own))
        elif candidate is None or candidate.key != own.key or candidate.version < own.version:
            self.port.send(message.cluster.primary, Rectify(own))

    def _stabilise(self) -> None:
        state, own = self.state, self.state.led
        if own is None:
            return
        self.port.set_timer(self._jitter(state.settings.stabilise), StabiliseRound())
        self._look_back(own)
        first = state.pointers.first()
        if first is not None:
            for member in own.others():  # who takes our place has to know the neighbours
                self.port.send(member, self._neighbourhood(own))
        else:  # alone, or every successor was lost at once: the cache is what remains
            first = next(state.known.after(own.key), None)
        if first is not None and first.primary.id != self.port.me.id:
            self.port.send(first.primary, Stabilise(own))
        elif first is None:  # gossip may know of a cluster, which then introduces itself
            hints = [h for h in state.hints() if h.key != own.key]
            if hints:
                hint = self.port.rng.choice(hints)
                self.port.send(hint.primary, Contact(self.port.me.id))

    def _look_back(self, own: Cluster) -> None:
        """Look for the cluster before the own one if it was not heard for long."""
        now, state = self.port.now, self.state
        if own.start != self._start or own.start == own.key:
            self._start, self._heard_at = own.start, now
        if now < self._heard_at + UNHEARD_FOR:
            return
        self._heard_at = now
        predecessor, newest = state.pointers.predecessor, state.newest(own.start)
        start = own.key if newest is None or newest.owns(own.key) else newest.start
        if predecessor is not None and predecessor.key != own.start:
            start = predecessor.key  # it lives, and its arc ends there
        elif predecessor is not None:  # another replaces it if it no longer leads
            self.port.send(predecessor.primary, AskNeighbourhood())
        version = own.version if newest is None else max(own.version, newest.version)
        self.port.count("predecessors_unheard")
        # Of this node, since nobody else can say that it leads there.
        gap = state.claims.sealed(Cluster(own.ring, own.start, start, version, self.port.me))
        self.port.emit(PredecessorUnheard(gap))

    def _answer(self, sender: Peer) -> None:
        if self.state.led is not None:
            self.port.send(sender, self._neighbourhood(self.state.led))
            return
        newest = self.state.any_cluster()
        for cluster in self.state.redirects() or (() if newest is None else (newest,)):
            self.port.send(sender, Moved(cluster))

    def _neighbourhood(self, own: Cluster) -> Neighbourhood:
        pointers = self.state.pointers
        return Neighbourhood(own, pointers.predecessor, pointers.successors)

    def _jitter(self, period: float) -> float:
        """The period, up to 25 % longer or shorter, so that nodes do not act in step."""
        return period * (0.75 + self.port.rng.random() / 2)
