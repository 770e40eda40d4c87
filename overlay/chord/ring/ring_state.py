"""What a node knows of the ring, and the next step towards any key (P2).

A node is one of three: a *primary*, which takes part in the ring with pointers of its own; another
*member* of a cluster, which leaves routing to its primary; an *outsider*, which enters through any
cluster it has heard of. All three keep a cache of descriptions (`known_clusters`), and
`RingState.route` is the one rule by which they pass a lookup on: to the owner by the newest
description, else to the closest cluster before the key, which knows more of that part of the ring.

There is one ring. A second one (two founders, a healed partition) is noticed here; a node stays in
its ring until that has ended (`merging`), whatever it hears of others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from overlay.bounded import BoundedDict
from overlay.chord.constants import (
    CONTRADICTION_AGAIN,
    CONTRADICTIONS_MOST,
    RING_MET_AGAIN,
    RINGS_MOST,
)
from overlay.chord.epochs import fork_count
from overlay.chord.events import ClusterForked, Fenced, OtherRing, RingKnown, RingLeft
from overlay.chord.messages import Cluster, Contact, Stabilise
from overlay.chord.ring.known_clusters import KnownClusters, overlaps, replaces
from overlay.chord.ring.pointers import Pointers, between
from overlay.lower_random.messages import RingHint
from overlay.machine import Key, NodeId, Peer, Port
from overlay.settings import RingSettings


class RingState:
    """What lookups, stabilisation and walks share. Only its own methods write it."""

    def __init__(
        self,
        port: Port,
        settings: RingSettings,
        votes: Callable[[NodeId], bool | None] = lambda node: True,
    ) -> None:
        """`votes`: whether a node may lead clusters; None: that is not known."""
        self.votes = votes
        self.port = port
        self.settings = settings
        self.known = KnownClusters(settings.known_clusters)
        self.pointers = Pointers(settings.successors)
        self.ring = ""  # id of our ring, "" while none is known
        self.own: Cluster | None = None  # of which this node is a member
        self.led: Cluster | None = None  # the same if this node is its primary
        self.former: Cluster | None = None  # of which it was a member
        # Rings that are no more, and a cluster of the next one.
        self.ended = BoundedDict[str, Cluster](RINGS_MOST)
        # whom gossip named, and when it was last asked
        self._asked = BoundedDict[NodeId, float](CONTRADICTIONS_MOST)
        # other rings, and when their news was last passed on
        self._others = BoundedDict[str, float](RINGS_MOST)

    def knows_ring(self) -> bool:
        """Whether any way into the ring is known."""
        return bool(self.own is not None or len(self.known) or self.known.hints())

    def serves(self, node: NodeId) -> bool:
        """Whether this node serves in a cluster of the ring, as far as is known here."""
        own = () if self.own is None else (self.own,)
        return any(cluster.has_member(node) for cluster in (*own, *self.known)) or any(
            hint.primary.id == node for hint in self.known.hints()
        )

    def learn(self, cluster: Cluster) -> bool:
        """Take a description from any node. True if it was news. Emits Fenced where it
        contradicts the own cluster under a higher epoch.

        Where nodes have keys, a primary that may not lead is not believed, and one of which nothing
        is known fences nobody: it is asked, and what it says of itself counts."""
        votes = self.votes(cluster.primary.id)
        if votes is False:
            self.port.count("claims_refused")
            return False
        if votes is None and self._contradicts(cluster):
            self.port.send(cluster.primary, Contact(self.port.me.id))
            return False
        if not self._same_ring(cluster.ring, cluster.primary, cluster):
            return False
        if self.led is not None:
            if overlaps(cluster, self.led) and cluster.epoch > self.led.epoch:
                self.port.emit(Fenced(cluster))
            if cluster.key == self.led.key:
                return False  # its primary knows this cluster best
        elif self.own is not None and replaces(cluster, self.own):
            self.port.emit(Fenced(cluster))
        if cluster.merged:  # it owns nothing, so there is no way through it
            self.known.forget(cluster.key, cluster.version)
            return False
        before = self.known.get(cluster.key)
        if not self.known.learn(cluster):
            return False
        epoch = cluster.epoch
        if fork_count(epoch) and (before is None or before.epoch != epoch):
            self.port.emit(ClusterForked(cluster))
        if self.former is not None and self.former.key == cluster.key:
            self.former = max(self.former, cluster, key=lambda c: c.version)
        self.pointers.refresh(cluster)
        return True

    def _contradicts(self, cluster: Cluster) -> bool:
        """Whether this node would serve no more, if the description is true."""
        led, own = self.led, self.own
        if led is not None:
            return overlaps(cluster, led) and cluster.epoch > led.epoch
        return own is not None and replaces(cluster, own)

    def learn_hint(self, hint: RingHint) -> None:
        """Take a way into the ring from gossip. Where nodes have keys, one of whose primary nothing
        is known is a way, and no news of who leads a cluster."""
        votes = self.votes(hint.primary.id)
        if votes is False:
            return
        if hint.primary.id == self.port.me.id or not self._same_ring(hint.ring, hint.primary):
            return
        if self.led is not None:
            self._check_for_conflict(self.led, hint)
        before = self.known.get(hint.key)
        self.known.learn_hint(hint, displaces=votes is True)
        if before is not None and fork_count(hint.version[0]) > fork_count(before.epoch):
            self.port.send(hint.primary, Contact(self.port.me.id))  # what has become of its arc?
        own = self.own
        if own is not None and hint.key == own.key and hint.version[0] > own.epoch:
            self.port.send(hint.primary, Contact(self.port.me.id))  # are we fenced, or forgotten?

    def _check_for_conflict(self, own: Cluster, hint: RingHint) -> None:
        """Let the primary that `hint` names know of us, if its cluster contradicts our own or our
        pointers pass it by: after a partition two rings may run through the same keys, and no node
        of the one asks a node of the other. It answers with what it is."""
        first = self.pointers.first()
        doubtful = hint.primary.id != self.port.me.id and (
            own.owns(hint.key)
            or (hint.key != own.key and first is None)
            or (first is not None and between(hint.key, own.key, first.key))
        )
        now = self.port.now
        asked_at = self._asked.get(hint.primary.id, float("-inf"))
        if not doubtful or now - asked_at < CONTRADICTION_AGAIN:
            return
        self._asked.renew(hint.primary.id, now)
        self.port.send(hint.primary, Stabilise(own))

    def become_primary(self, cluster: Cluster) -> bool:
        """Note that this node leads `cluster`, which is new or has changed. Returns whether it did
        not lead before."""
        anew = self.led is None or self.led.key != cluster.key
        self.led = None  # so that the cache takes what is said of our own cluster, too
        self.learn(cluster)
        self.own = self.led = cluster
        return anew

    def become_member(self, cluster: Cluster | None) -> None:
        """Note that this node is a member of `cluster` but not its primary, or of no cluster
        (None)."""
        if self.own is not None:
            self.former = None if self.led else self.own
        if self.led is not None:  # its description names this node, which leads it no more
            self.known.forget(self.led.key, self.led.version)
        self.led, self.own = None, cluster
        if cluster is not None:
            self.learn(cluster)

    def set_former(self, cluster: Cluster) -> None:
        """Note that this node has handed `cluster` over: nodes that still take it for the primary
        get this newer description."""
        self.former = cluster
        self.learn(cluster)

    def owns(self, key: Key) -> bool:
        """Whether this node is the primary of the key's owner."""
        return self.led is not None and self.led.owns(key)

    def any_cluster(self) -> Cluster | None:
        """A way into the ring for a node that asks: the own cluster, or any."""
        return self.own or next(iter(self.redirects()), None) or next(iter(self.known), None)

    def redirects(self) -> tuple[Cluster, ...]:
        """The clusters to name to a node that takes this node for a primary that it is not (any
        more)."""
        own = () if self.own is None else (self.own,)
        if self.former is None or (self.own is not None and self.own.key == self.former.key):
            return own
        return (self.former, *own)

    def route(self, key: Key, avoid: Container[NodeId] = ()) -> Peer | None:
        """The next node on the way of `key` to its owner, not in `avoid` and not ourselves; None if
        there is none. Nodes that lately did not answer are taken only when there is no other
        way."""
        spare: Peer | None = None
        for peer in self._ways(key, avoid):
            if peer.id == self.port.me.id or peer.id in avoid:
                continue
            if self.is_reachable(peer):
                return peer
            spare = spare or peer
        return spare

    def later_clusters(self) -> Iterator[Cluster]:
        """Clusters after ours as far as known: successors first, then what the cache has."""
        yield from self.pointers.successors
        yield from self.known.after(self.pointers.own)

    def awaits_primary(self, key: Key) -> bool:
        """Whether the own cluster owns the key and waits for another primary to be elected."""
        own = self.own
        if own is None or self.led or not own.owns(key):
            return False
        return not self.is_reachable(own.primary)

    def is_reachable(self, peer: Peer) -> bool:
        """Whether `peer` answered, as far as is known, when it was asked last."""
        return self.known.reachable(peer, self.port.now)

    def newest(self, key: Key) -> Cluster | None:
        """The newest description that is known of the cluster `key`."""
        return self.known.get(key)

    def clusters(self) -> tuple[Cluster, ...]:
        """The newest descriptions of all clusters that are known, in ring order."""
        return tuple(self.known)

    def ways(self) -> tuple[Cluster | RingHint, ...]:
        """All that is known of the ring: descriptions of clusters, then hints."""
        return (*self.known, *self.known.hints())

    def hints(self) -> tuple[RingHint, ...]:
        """Ways into the ring from gossip, the longest known first."""
        return self.known.hints()

    def _ways(self, key: Key, avoid: Container[NodeId]) -> Iterator[Peer]:
        """Ways towards `key`, the best first."""
        led = self.led is not None
        if self.own is not None and not led:
            yield self.own.primary
        predecessor = self.pointers.predecessor if led else None
        if predecessor is not None and predecessor.owns(key):
            yield predecessor.primary
        owner = self.known.owner(key)
        if owner is not None:
            primary = owner.primary
            yield primary
            if primary.id in avoid or not self.is_reachable(primary):
                yield from owner.others()  # who will know the next one, or be it
        for cluster in self.known.before(key):
            if led and not between(cluster.key, self.pointers.own, key):
                break  # going backwards around the ring, past ourselves: no progress
            yield cluster.primary
        if led:
            for cluster in self.later_clusters():
                yield cluster.primary
        for hint in self.known.hints():
            yield hint.primary

    def ring_met(self, ring: str, peer: Peer, cluster: Cluster | None = None) -> None:
        """Another ring was heard of, in which `peer` serves, perhaps with a description of its
        `cluster`. The smaller id wins, so one of the two rings has to hear of it (OtherRing)."""
        now = self.port.now
        if cluster is None and now - self._others.get(ring, float("-inf")) < RING_MET_AGAIN:
            return  # gossip repeats itself
        if ring not in self._others:
            self.port.count("other_rings_met")
            self.port.trace("cluster", name=ring, reason=f"another ring met: {peer.id}")
        self._others.renew(ring, now)
        self.port.emit(OtherRing(ring, peer, cluster))

    def ring_ended(self, ring: str, into: Cluster) -> None:
        """`ring` is no more; its nodes go over to the one of `into`."""
        self.ended[ring] = into

    def switch_ring(self, into: Cluster) -> None:
        """This node, which serves nowhere, belongs to the ring of `into` from now on."""
        left, self.ring = self.ring, into.ring
        self.known.clear()
        self.former = None
        self.learn(into)
        self.port.emit(RingLeft(left, into.ring))
        self.port.emit(RingKnown(into.ring))

    def _same_ring(self, ring: str, peer: Peer, cluster: Cluster | None = None) -> bool:
        """Whether `ring` is ours; the first that is heard of becomes ours."""
        if self.own is None and not self.knows_ring():
            self.ring = ""  # every way into the former one is gone
        if ring != self.ring and ring in self.ended:
            return False
        if not self.ring:
            self.ring = ring
            self.port.emit(RingKnown(ring))
        if ring == self.ring:
            return True
        self.ring_met(ring, peer, cluster)
        return False
