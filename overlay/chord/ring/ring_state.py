"""A node's knowledge of the ring, and the next step towards any key (P2).

A node is one of three: a *primary*, which takes part in the ring with pointers of its own; another
*member* of a cluster, which leaves routing to its primary; an *outsider*, which enters through any
cluster it has heard of. All three keep a cache of descriptions (`known_clusters`), and
`RingState.route` is the one rule by which they pass a lookup on: to the owner by the newest
description, else to the closest cluster before the key, which knows more of that part of the ring.

There is one ring. A second one (two founders, a healed partition) is noticed here; a node stays in
its ring until that has ended (`ring_merge`), whatever it hears of others.
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
from overlay.chord.keys import in_arc
from overlay.chord.messages import Cluster, Contact, Stabilise
from overlay.chord.ring.claims import Claims, is_plausible
from overlay.chord.ring.known_clusters import KnownClusters, overlaps, replaces
from overlay.links.statements import Signer
from overlay.lower_random.messages import RingHint
from overlay.machine import AnyNode, Key, NodeId, NodeRoles, Peer, Port
from overlay.settings import RingSettings

# --- a primary's pointers: predecessor and successor list (P2, Zave's corrected Chord) ---
#
# The original protocol (SIGCOMM 2001) adopts a new successor on another node's word and keeps the
# rest of its list; Zave ("Reasoning about identifier spaces: How to make Chord correct", IEEE TSE
# 2017) shows that this loses the ring. The rules here are the corrected ones:
#
# * a cluster becomes our first successor only by its own reply, never by what others say of it, and
#   its list replaces the rest of ours **in the same step**, so that a list is always what one live
#   cluster said of itself and its followers;
# * a better predecessor is adopted at once; a worse one only after the present one was found dead;
# * an entry leaves when its primary does not answer, and the next one takes its place.
#
# The pointers only route. Who owns a key is decided by the arcs (`Cluster.owns`), so a wrong
# pointer costs time, never an event.


def between(key: Key, start: Key, end: Key) -> bool:
    """Whether `key` is strictly inside (start, end); anything but `start` where both are equal."""
    return key not in (start, end) and in_arc(key, start, end)


class Pointers:
    """Pure state: the caller does the talking."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.own: Key = ""
        self.predecessor: Cluster | None = None
        self.successors: tuple[Cluster, ...] = ()

    def begin(self, own: Key, predecessor: Cluster | None, successors: tuple[Cluster, ...]) -> None:
        """Serve at `own` from now on, knowing this much."""
        self.own = own
        self.predecessor = predecessor
        self.successors = self._list(successors)

    def first(self) -> Cluster | None:
        """Our successor. In a ring of two the predecessor is the successor as well."""
        return self.successors[0] if self.successors else self.predecessor

    def adopt(self, cluster: Cluster, followers: tuple[Cluster, ...]) -> bool:
        """`cluster` has sent its followers. False if our first successor is another, and closer."""
        first = self.first()
        if cluster.key == self.own or (
            first is not None
            and cluster.key != first.key
            and not between(cluster.key, self.own, first.key)
        ):
            return False
        self.successors = self._list((cluster, *followers))
        return True

    def better_successor(self, candidate: Cluster | None) -> bool:
        """Whether `candidate` (our successor's predecessor) comes before our first successor. It
        has to speak for itself before it is adopted."""
        first = self.first()
        return (
            candidate is not None
            and first is not None
            and between(candidate.key, self.own, first.key)
        )

    def rectify(self, cluster: Cluster) -> bool:
        """`cluster` takes itself for our predecessor. False if ours is closer: then ours has to be
        checked, since a dead one would shut out the living."""
        present = self.predecessor
        if cluster.key == self.own:
            return False
        if (
            present is None
            or cluster.key == present.key
            or between(cluster.key, present.key, self.own)
        ):
            self.predecessor = cluster
            return True
        return False

    def set_predecessor(self, cluster: Cluster) -> None:
        """Set the predecessor to `cluster`, which was split off from the own one."""
        self.predecessor = cluster

    def refresh(self, cluster: Cluster) -> None:
        """Replace the description of a cluster, if it is among the pointers, by a newer one."""
        if self.predecessor is not None and self.predecessor.key == cluster.key:
            self.predecessor = cluster
        self.successors = tuple(
            cluster if known.key == cluster.key else known for known in self.successors
        )

    def peer_lost(self, node: NodeId) -> bool:
        """The primary `node` does not answer. True if a pointer left."""
        before = (self.predecessor, len(self.successors))
        if self.predecessor is not None and self.predecessor.primary.id == node:
            self.predecessor = None
        self.successors = tuple(c for c in self.successors if c.primary.id != node)
        return before != (self.predecessor, len(self.successors))

    def forget(self, key: Key) -> None:
        """Drop the ended cluster `key` from the pointers."""
        if self.predecessor is not None and self.predecessor.key == key:
            self.predecessor = None
        self.successors = tuple(c for c in self.successors if c.key != key)

    def _list(self, clusters: tuple[Cluster, ...]) -> tuple[Cluster, ...]:
        """Clockwise from us, cut where it comes around to us again."""
        kept: list[Cluster] = []
        last = self.own
        for cluster in clusters[: self.length]:
            if cluster.key == self.own or not between(cluster.key, last, self.own):
                break
            kept.append(cluster)
            last = cluster.key
        return tuple(kept)


class RingState:
    """The state that lookups, stabilisation and walks share. Only its own methods write it."""

    def __init__(
        self,
        port: Port,
        settings: RingSettings,
        roles: NodeRoles | None = None,
        signer: Signer | None = None,
    ) -> None:
        """`roles`: say whether a node may lead clusters. `signer`: where nodes
        have keys."""
        self.roles = roles or AnyNode()
        self.claims = Claims(port, signer, 2.0 * settings.lookup_timeout)
        self.port = port
        self.settings = settings
        self.known = KnownClusters(settings.known_clusters)
        self.pointers = Pointers(settings.successors)
        self.ring = ""  # id of our ring, "" while none is known
        self.own: Cluster | None = None  # of which this node is a member
        self.led: Cluster | None = None  # the same if this node is its primary
        self.former: Cluster | None = None  # of which it was a member
        self._misses_primary: Callable[[], bool] = bool
        # Rings that have ended, and a cluster of the ring that replaced each.
        self.ended = BoundedDict[str, Cluster](RINGS_MOST)
        # whom gossip named, and when it was last asked
        self._asked = BoundedDict[NodeId, float](CONTRADICTIONS_MOST)
        # other rings, and when their news was last passed on
        self._others = BoundedDict[str, float](RINGS_MOST)

    def ask_for_primary(self, misses: Callable[[], bool]) -> None:
        """Set the function that returns whether the own cluster, as far as this node knows, has no
        leader. Called once, before anything is heard."""
        self._misses_primary = misses

    def is_unled(self, cluster: Cluster) -> bool:
        """Whether this node only remembers `cluster`: it does not serve in it, or nobody leads it
        as far as this node knows."""
        return self.own is None or self.own.key != cluster.key or self._misses_primary()

    def knows_ring(self) -> bool:
        """Whether any way into the ring is known."""
        return bool(self.own is not None or len(self.known) or self.known.hints())

    def serves(self, node: NodeId) -> bool:
        """Whether this node serves in a cluster of the ring, as far as is known here."""
        own = () if self.own is None else (self.own,)
        return any(cluster.has_member(node) for cluster in (*own, *self.known)) or any(
            hint.primary.id == node for hint in self.known.hints()
        )

    def leads(self, node: NodeId) -> bool:
        """Whether this node leads a cluster of the ring, as far as is known here."""
        own = () if self.own is None else (self.own,)
        return any(cluster.primary.id == node for cluster in (*own, *self.known))

    def learn(self, cluster: Cluster) -> bool:
        """Take a description from any node. Return True if it was news. Emits Fenced if it
        contradicts the own cluster under a higher epoch.

        Where nodes have keys, a primary that may not lead is not believed. A cluster about which
        nothing is known fences nobody: its primary is asked, and its own answer counts.
        Descriptions that `admits` rejects are not believed either.
        """
        if not self.admits(cluster):
            return False
        return self._learn(cluster)

    def admits(self, cluster: Cluster) -> bool:
        """Whether a description may be acted on: it is no news, or it is believed (`claims`).
        True where nodes have no keys."""
        claims = self.claims
        if claims.signer is None or cluster.ring != self.ring:
            return claims.signer is None or claims.is_sealed(cluster)
        before = self._newest_of(cluster.key)
        if not is_plausible(cluster, before):
            self.port.count("claims_refused")
            return False
        if before is not None and not cluster.is_newer_than(before):
            self._doubt_known(before, cluster)
            return before.primary.id == cluster.primary.id or before.epoch > cluster.epoch
        if not claims.is_sealed(cluster):
            if cluster.primary.id != self.port.me.id:
                claims.ask_primary(cluster.primary)
            return False
        known = self._contradicted(cluster, before)
        if known is None or (known is self.led and self.led.key == cluster.key):
            return True  # `fence` looks at the proof
        if self._believes(cluster, known):
            return True
        if known is self.led and claims.is_refused(cluster):
            self.port.emit(Fenced(cluster))  # perhaps it has to be outvoted, or is a fork's
        return False

    def _doubt_known(self, known: Cluster, older: Cluster) -> None:
        """Check the known description after an older one named another primary. The known one may
        be false, if it was the first heard of its cluster, so ask the members that the older one
        names."""
        claims = self.claims
        if known.epoch == older.epoch or known is self.own or not claims.is_sealed(older):
            return
        if not self._believes(known, older) and claims.is_refused(known):
            self.known.forget(known.key, known.version)

    def _newest_of(self, key: Key) -> Cluster | None:
        found: Cluster | None = self.known.get(key)
        if self.own is not None and self.own.key == key:
            found = self.own
        return found

    def _contradicted(self, cluster: Cluster, before: Cluster | None) -> Cluster | None:
        """Return the known description that would be outdated if `cluster` were true, apart from
        changes that a primary itself may make to its cluster; None if there is none."""
        if before is not None:
            if before.primary.id != cluster.primary.id or before.epoch != cluster.epoch:
                return before
            if before.start == cluster.start:
                return None
        others: list[Cluster] = list(self.known)
        if self.own is not None:
            others.insert(0, self.own)
        for other in others:
            newer = cluster.epoch > other.epoch and other.ring == cluster.ring
            if newer and other.key != cluster.key and overlaps(cluster, other):
                return other
        return None

    def _learn(self, cluster: Cluster) -> bool:
        votes = self.roles.votes(cluster.primary.id)
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
        self._remember_former(cluster, before)
        if not self.known.learn(cluster):
            return False
        epoch = cluster.epoch
        if fork_count(epoch) and (before is None or before.epoch != epoch):
            self.port.emit(ClusterForked(cluster))
        if self.former is not None and self.former.key == cluster.key:
            self.former = max(self.former, cluster, key=lambda c: c.version)
        self.pointers.refresh(cluster)
        return True

    def _remember_former(self, cluster: Cluster, before: Cluster | None) -> None:
        """Keep what `cluster` takes the place of without its voters' grant."""
        claims = self.claims
        if claims.signer is None or (before is not None and before.epoch >= cluster.epoch):
            return
        for other in self.known:
            if replaces(cluster, other):
                claims.remember(other)
        if before is not None and not claims.is_granted(cluster, before):
            claims.remember(before)

    def heard(self, sender: Peer, said: Cluster, unled: bool) -> None:
        """Handle a node's description of a cluster where claims are in doubt (`claims`)."""
        if said.ring == self.ring:
            self.claims.given_way(sender, said, self._newest_of(said.key))
        self.claims.heard(sender, said, unled)

    def settles(self, cluster: Cluster) -> bool:
        """Return whether to believe a claim of the arc that this primary leads although no grant of
        the voters is known; True at nodes that are no primary. A majority follows this node. The
        members of the claiming cluster, or of the cluster in whose place it is, are asked."""
        own = self.led
        return own is None or self._believes(cluster, own)

    def _believes(self, cluster: Cluster, known: Cluster) -> bool:
        """Whether `cluster` is to be believed against `known`, or not yet."""
        return self.claims.settles(
            cluster, known, self.is_reachable, is_led=not self.is_unled(known)
        )

    def _contradicts(self, cluster: Cluster) -> bool:
        """Return whether this node would no longer serve if the description is true."""
        led, own = self.led, self.own
        if led is not None:
            return overlaps(cluster, led) and cluster.epoch > led.epoch
        return own is not None and replaces(cluster, own)

    def learn_hint(self, hint: RingHint) -> None:
        """Take a way into the ring from gossip. Where nodes have keys, one of whose primary nothing
        is known is a way, and no news of who leads a cluster."""
        votes = self.roles.votes(hint.primary.id)
        if votes is False:
            return
        if hint.primary.id == self.port.me.id or not self._same_ring(hint.ring, hint.primary):
            return
        if self.led is not None:
            self._check_for_conflict(self.led, hint)
        before = self.known.get(hint.key)
        signed = self.claims.signer is not None
        self.known.learn_hint(hint, displaces=votes is True and not signed)
        if before is not None and fork_count(hint.version[0]) > fork_count(before.epoch):
            self.port.send(hint.primary, Contact(self.port.me.id))  # what has become of its arc?
        elif signed and before is not None and hint.version[0] > before.epoch:
            self.claims.ask_primary(hint.primary)  # a hint has no proof: it may
        own = self.own
        if own is not None and hint.key == own.key and hint.version[0] > own.epoch:
            self.port.send(hint.primary, Contact(self.port.me.id))  # are we fenced, or forgotten?

    def _check_for_conflict(self, own: Cluster, hint: RingHint) -> None:
        """Tell the primary named by `hint` about this cluster if its cluster contradicts ours, or
        our pointers pass it by: after a partition two rings may use the same keys, while no node of
        one asks a node of the other. It answers with its own description."""
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
        is_new = self.led is None or self.led.key != cluster.key
        self.led = None  # so that the cache takes what is said of our own cluster, too
        self._learn(cluster)
        self.own = self.led = cluster
        return is_new

    def become_member(self, cluster: Cluster | None) -> None:
        """Note that this node is a member of `cluster` but not its primary, or of no cluster
        (None)."""
        if self.own is not None:
            newest = self.known.get(self.own.key) or self.own
            self.former = None if self.led else max(self.own, newest, key=lambda c: c.version)
        if self.led is not None:  # its description names this node, which no longer leads it
            self.known.forget(self.led.key, self.led.version)
        self.led, self.own = None, cluster
        if cluster is not None:
            self._learn(cluster)

    def set_former(self, cluster: Cluster) -> None:
        """Note that this node has handed `cluster` over: nodes that still take it for the primary
        get this newer description."""
        self.former = cluster
        self._learn(cluster)

    def split_off(self, arc: Cluster) -> None:
        """Note that the first part of the own arc is this new cluster."""
        self._learn(arc)

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
        """Note another ring, in which `peer` serves, perhaps with a description of its `cluster`.
        The smaller id wins, so one of the two rings has to hear of the other (OtherRing)."""
        now = self.port.now
        if cluster is None and now - self._others.get(ring, float("-inf")) < RING_MET_AGAIN:
            return  # gossip repeats itself
        if ring not in self._others:
            self.port.count("other_rings_met")
            self.port.trace("cluster", name=ring, reason=f"another ring met: {peer.id}")
        self._others.renew(ring, now)
        self.port.emit(OtherRing(ring, peer, cluster))

    def ring_ended(self, ring: str, into: Cluster) -> None:
        """Note that the ring `ring` has ended and its nodes move to the ring of `into`."""
        self.ended[ring] = into

    def switch_ring(self, into: Cluster) -> None:
        """Move this node, which serves in no cluster, to the ring of `into`."""
        left, self.ring = self.ring, into.ring
        self.known.clear()
        self.former = None
        self.learn(into)
        self.port.emit(RingLeft(left, into.ring))
        self.port.emit(RingKnown(into.ring))

    def _same_ring(self, ring: str, peer: Peer, cluster: Cluster | None = None) -> bool:
        """Whether `ring` is ours; the first that is heard of becomes ours."""
        is_lost = self.own is None and not self.knows_ring()  # every way into it is gone
        if ring != self.ring and ring in self.ended:
            return False
        if not self.ring or is_lost:
            left, self.ring = self.ring, ring
            if left and left != ring:
                self.port.emit(RingLeft(left, ring))
            self.port.emit(RingKnown(ring))
        if ring == self.ring:
            return True
        self.ring_met(ring, peer, cluster)
        return False
