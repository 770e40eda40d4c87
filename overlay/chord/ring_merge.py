"""Two rings that meet become one: the smaller id wins (docs/design/clusters.md, *Merging two
rings*).

Two founders that did not reach each other, or a healed partition, leave two rings with clusters,
subscribers and publishers each. While they become one:

* the ring with the smaller id goes on, and nothing changes in it;
* every key has one owner whom a node asks: that of its own ring until the ring has ended, that of
  the other one afterwards, never both;
* no acknowledged registration is lost, and none misses an event that is published where it was
  registered: the losing ring serves until the winner's owners have acknowledged all that is
  registered in it, and its nodes go over when it serves no more.

The losing ring's clusters therefore go through the phases UNITED, STOPPED and ENDED together
(`phase` says what holds in each). A phase begins when all have reached the one before; the cluster
with the smallest key *leads*: it walks around the ring and asks all of them, again and again.

The first two phases are the work of `RegistryMerge` (overlay/upper_tree/owner/registrations). If
one takes too long all go on as before, and begin again after a while. A node that learns of the
winning ring informs a primary of the losing one (RingMet). A node outside of all clusters goes over
by itself if its ring has no leaders.

Where nodes have keys an id alone wins nothing, since anybody can claim one (`backing`). A ring goes
over to one in which more voters serve, counted up to three; of two with as many the smaller id
wins. Each primary of the losing ring looks at that itself, whoever leads the merge, and so does who
hears that its ring has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from overlay.bounded import BoundedDict
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.constants import (
    BACKERS_MOST,
    BACKING_AGAIN,
    BACKING_HOLDS,
    CONTRADICTIONS_MOST,
    MERGE_HEARD_WITHIN,
    MERGE_INFORM_EVERY,
    MERGE_PHASE_MOST,
    MERGE_REST,
    MERGE_ROUND,
    RING_DOUBTED_FOR,
    RING_END_FAN_OUT,
    RING_END_WITNESSES,
    RING_LEADERLESS_AFTER,
    RING_MET_FAN_OUT,
    RING_UNBACKED_AFTER,
    RINGS_MOST,
)
from overlay.chord.events import MergePhaseWanted, OtherRing, RingWalked
from overlay.chord.membership.cluster_merge import OtherChanges
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.messages import (
    Cluster,
    Contact,
    Merge,
    MergePhase,
    MergeReply,
    Moved,
    RingEnded,
    RingMet,
)
from overlay.chord.ring.ring import Ring
from overlay.chord.role import ClusterRole, RecruitingView
from overlay.machine import Key, NodeId, NodeRoles, Peer, Port, Timer, by_id

# --- how many voters say that they serve in a ring, where nodes have keys ---
#
# That another ring is there, and its id, is the word of whoever founded it: any voter can found
# one, under the smallest id there can be. So a ring that is heard of counts for as many as serve in
# it by their own word, each over a link that shows its certificate; more than `BACKERS_MOST` are no
# more than that, so that of two rings with whole clusters the smaller id decides as ever. A voter
# alone, whatever ids it claims, is one.


class Backing:
    """Recent statements of nodes about the ring in which they serve."""

    def __init__(self, port: Port, roles: NodeRoles) -> None:
        self._port = port
        self._roles = roles
        self._asked: BoundedDict[NodeId, float] = BoundedDict(CONTRADICTIONS_MOST)
        self._since: BoundedDict[str, float] = BoundedDict(RINGS_MOST)  # when asking began
        self._heard: BoundedDict[str, dict[NodeId, float]] = BoundedDict(RINGS_MOST)

    def ask(self, ring: str, nodes: Iterable[Peer]) -> None:
        """Ask these nodes in which ring they serve, each at most once in `BACKING_AGAIN`
        seconds."""
        now = self._port.now
        self._since.setdefault(ring, now)
        for peer in nodes:
            asked = now - self._asked.get(peer.id, float("-inf")) < BACKING_AGAIN
            if peer.id != self._port.me.id and not asked:
                self._asked.renew(peer.id, now)
                self._port.send(peer, Contact(self._port.me.id))

    def asked_for(self, ring: str) -> float:
        """The seconds for which it has been asked who serves in a ring; 0.0: it has not been
        asked."""
        since = self._since.get(ring)
        return 0.0 if since is None else self._port.now - since

    def forget(self, ring: str) -> None:
        """Ask again the next time."""
        self._since.pop(ring, None)
        self._heard.pop(ring, None)

    def heard(self, sender: Peer, cluster: Cluster) -> None:
        """Count a node that has answered for the ring in which it serves, and for no other."""
        for nodes in self._heard.values():
            nodes.pop(sender.id, None)
        if cluster.has_member(sender.id) and self._roles.votes(sender.id) is True:
            self._heard.setdefault(cluster.ring, {})[sender.id] = self._port.now

    def backers(self, ring: str) -> int:
        """Return how many nodes say that they serve in a ring, at most `BACKERS_MOST`."""
        since = self._port.now - BACKING_HOLDS
        heard = self._heard.get(ring, {})
        return min(sum(at >= since for at in heard.values()), BACKERS_MOST)


class MergeRound(Timer, frozen=True):
    """Time to see how far the merge is."""


@dataclass(eq=False)
class Merging:
    """One node's part in a merge of two rings."""

    role: ClusterRole
    ring: Ring
    view: RecruitingView
    heartbeat: Heartbeat
    members: ClusterMembers
    arc_changes: Sequence[OtherChanges]
    """Changes of arcs that have to end before this cluster takes part."""

    def __post_init__(self) -> None:
        self.state = self.ring.state
        self.port = self.role.port
        self.into: Cluster | None = None  # of the better ring, as last heard of
        self._met = float("-inf")  # since when this node knows a better ring
        self._led = float("-inf")  # when a primary of the own ring was last heard
        # When primaries last heard of the better ring from this node.
        self._informed_at = float("-inf")
        self._alone = False  # the other clusters of this ring have gone over already
        self._tree_users: tuple[Peer, ...] = ()  # who used the trees of this cluster
        # By ring, who has said that it has ended.
        self._end_heard: BoundedDict[str, dict[NodeId, None]] = BoundedDict(RINGS_MOST)
        # Where nodes have keys: who serves in which ring, the primaries of rings that are not
        # better and until when, and whether somebody believed says that the own ring has ended.
        self._backing = Backing(self.port, self.state.roles)
        self._doubted: BoundedDict[NodeId, float] = BoundedDict(RINGS_MOST)
        self._end_said = False
        self._forget()
        self._stop_leading()

    def _forget(self) -> None:
        """Forget this cluster's part in a merge."""
        self.phase = MergePhase.NONE  # that this cluster has reached
        self._wanted = MergePhase.NONE
        self._epoch = 0  # under which this node leads its cluster
        self._leader: Peer | None = None
        self._heard = float("-inf")  # when it last spoke

    def _stop_leading(self) -> None:
        """Stop leading the merge."""
        self._leading = MergePhase.NONE  # the phase that is wanted of all
        self._since = 0.0  # when it was first wanted
        self._reached: dict[Key, MergePhase] = {}
        self._clusters: tuple[Cluster, ...] = ()

    @property
    def is_under_way(self) -> bool:
        """Whether this ring is about to end, as far as is known here."""
        return self.into is not None or self._wanted > MergePhase.NONE

    # -- which ring is better ---------------------------------------------------------------------

    def _is_better(self, ring: str) -> bool:
        """Return whether the own ring should move to this one, by the present knowledge."""
        if not self.ring.is_signed():
            return ring < self.state.ring
        theirs, ours = self._backing.backers(ring), self._own_backers()
        return theirs > ours or (theirs == ours and ring < self.state.ring)

    def _may_be_better(self, ring: str) -> bool:
        """Whether it is worth asking."""
        if ring == self.state.ring:
            return False
        return ring < self.state.ring or (
            self.ring.is_signed() and self._own_backers() < BACKERS_MOST
        )

    def _own_backers(self) -> int:
        """Return the number of voters that serve in the own ring, counted as for other rings. A
        primary knows it; other nodes count the statements of nodes known to serve."""
        own = self.role.cluster
        if own is not None and self.role.is_primary:
            return min(len(own.members()), BACKERS_MOST)
        return min(self._backing.backers(self.state.ring) + (own is not None), BACKERS_MOST)

    def _is_settled(self, into: Cluster) -> bool:
        """Whether all have had the time to answer who serves in the other ring, and in the own one
        if this node leads nothing. They are asked."""
        if not self.ring.is_signed():
            return True
        rings = [into.ring]
        self._backing.ask(into.ring, into.members())
        if not self.role.is_primary:
            rings.append(self.state.ring)
            known = self.role.cluster or next(iter(self.state.clusters()), None)
            hints = [hint.primary for hint in self.state.hints()][:1]
            self._backing.ask(self.state.ring, hints if known is None else known.members())
        wait = 2.0 * self.state.settings.lookup_timeout
        enough = self._backing.backers(into.ring) == BACKERS_MOST and self.role.is_primary
        return enough or all(self._backing.asked_for(ring) >= wait for ring in rings)

    def _doubt(self, into: Cluster) -> None:
        """Give up the other ring, which is not better, and look at it again later."""
        self.port.count("rings_doubted")
        self._doubted.renew(into.primary.id, self.port.now + RING_DOUBTED_FOR)
        for ring in (into.ring, self.state.ring):
            self._backing.forget(ring)
        self.into, self._alone, self._end_said = None, False, False

    def _is_doubted(self, node: NodeId) -> bool:
        return self.ring.is_signed() and self._doubted.get(node, 0.0) > self.port.now

    # -- the rings learn of each other -----------------------------------------------------------

    def on_other_ring(self, event: OtherRing) -> None:
        """Decide which of the two rings is better, and inform who should know."""
        ring = self.state.ring
        if event.ring > ring:
            way = self._way()
            if event.cluster is None and way is not None:
                self.port.send(event.peer, RingMet(event.ring, ring, way))
        primary = event.peer if event.cluster is None else event.cluster.primary
        if not self._may_be_better(event.ring) or self._is_doubted(primary.id):
            return
        if self.into is None or self.into.ring not in (event.ring, min(event.ring, self.into.ring)):
            self._met, self._led = self.port.now, self.port.now
        if event.cluster is not None:
            self._learn(event.cluster)
        else:
            self.port.send(event.peer, Contact(self.port.me.id))
        if not self.role.is_primary:
            self._inform_primaries(event.ring, event.peer)

    def _learn(self, cluster: Cluster) -> None:
        if self.into is None or cluster.ring <= self.into.ring:
            is_known = self.into is not None and self.into.ring == cluster.ring
            self.into = cluster
            if self.role.is_primary:
                self.port.set_timer(0.0, MergeRound())
            elif not is_known:  # it may be heard of more often than rounds are
                self.port.set_timer(MERGE_ROUND, MergeRound())

    def _way(self) -> Peer | None:
        """A way into the own ring."""
        newest = self.state.any_cluster() or next(iter(self.state.hints()), None)
        return None if newest is None else newest.primary

    def _inform_primaries(self, better: str, way: Peer) -> None:
        """Inform some primaries of the own ring of the ring `better`, in which `way` serves, unless
        that was done shortly before."""
        if self.port.now - self._informed_at < MERGE_INFORM_EVERY:
            return
        self._informed_at = self.port.now
        own = self.role.cluster
        known = self.state.ways() if own is None else (own,)
        primaries = by_id((one.primary for one in known), besides=self.port.me.id)
        for primary in list(primaries.values())[:RING_MET_FAN_OUT]:
            self.port.send(primary, RingMet(self.state.ring, better, way))

    def on_ring_met(self, sender: Peer, message: RingMet) -> None:
        """A node knows a better ring than ours; or ours has ended already."""
        ended = self.state.ended.get(message.ring)
        if message.ring == self.state.ring:
            if self.role.cluster is not None:
                self.port.send(sender, Moved(self.role.cluster))
            if self._may_be_better(message.better):
                self.state.ring_met(message.better, message.way)
        elif ended is not None:
            self.port.send(sender, RingEnded(message.ring, ended))

    def leader_named(self, sender: Peer, cluster: Cluster, unled: bool) -> None:
        """Note whom `sender` names as the leader of `cluster`; `unled`: it only remembers the
        leader. If it names itself, a primary of the own ring is alive."""
        if cluster.ring == self.state.ring and cluster.primary.id == sender.id and not unled:
            self._led = self.port.now
        if self.ring.is_signed():
            self._backing.heard(sender, cluster)

    # -- rounds ----------------------------------------------------------------------------------

    def on_round(self, timer: MergeRound) -> None:
        """Lead the merge, follow it, or give it up."""
        into, now = self.into, self.port.now
        if into is not None and not self._may_be_better(into.ring):
            self.into = into = None
        settled = into is not None and self._is_settled(into)
        if into is not None and settled and not self._is_better(into.ring):
            if self._leading:
                self._give_up()
            self._doubt(into)
            into = None
        self._check_part()
        if into is not None or self._wanted:
            self.port.set_timer(MERGE_ROUND * (0.75 + self.port.rng.random() / 2), MergeRound())
        if into is None:
            self._stop_leading()
        elif not settled:
            return
        elif self._may_take_part():
            if self._leading and now - self._since > MERGE_PHASE_MOST:
                self._give_up()
            elif now >= self._since or self._leading:
                self.ring.walk()
        elif self.role.cluster is None:
            self._switch_or_inform(into)
        elif self._is_unbacked(into) and not self.role.is_primary:
            self.members.leave_cluster("its ring has fewer voters than another")
            self._switch_ring(into)

    def _switch_or_inform(self, into: Cluster) -> None:
        """At a node that serves in no cluster: move to the other ring if the own one has no
        leaders, else inform some of its leaders."""
        is_leaderless = self.port.now - max(self._met, self._led) > RING_LEADERLESS_AFTER
        if is_leaderless or self._end_said or self._is_unbacked(into):
            self._switch_ring(into)
        else:
            self._inform_primaries(into.ring, into.primary)

    def _is_unbacked(self, into: Cluster) -> bool:
        """Whether more voters serve in the other ring than in this one, and that one was to have
        gone over by now."""
        return (
            self.ring.is_signed()
            and self._backing.backers(into.ring) > self._own_backers()
            and self.port.now - self._met > RING_UNBACKED_AFTER
        )

    def _may_take_part(self) -> bool:
        """Whether this node leads a cluster that has nothing else to do."""
        return (
            self.role.is_primary
            and self.heartbeat.has_lease()
            and not self.role.leaving
            and not any(change.is_under_way for change in self.arc_changes)
        )

    def _check_part(self) -> None:
        """End this cluster's part if its epoch has changed or the leading cluster is silent."""
        if not self._wanted:
            return
        led = self.role.led is not None and self.role.led.epoch == self._epoch
        if not led or self.port.now - self._heard > MERGE_HEARD_WITHIN:
            self._take_no_part()

    def _take_no_part(self) -> None:
        began = self._wanted > 0
        self._forget()
        if began:
            self.port.emit(MergePhaseWanted(None, MergePhase.NONE))

    def _give_up(self) -> None:
        """Give up the merge, since a phase takes too long: all clusters go on as before, and try
        again later."""
        self.port.count("mergings_given_up")
        for cluster in self._clusters:
            if self.into is not None:
                self.port.send(cluster.primary, Merge(self.into, MergePhase.NONE))
        self._stop_leading()
        self._since = self.port.now + MERGE_REST

    # -- the cluster that leads ------------------------------------------------------------------

    def on_collected(self, event: RingWalked) -> None:
        """All clusters of the ring are known: the first one leads."""
        own, into = self.role.cluster, self.into
        if into is None or own is None or not self._may_take_part():
            return
        clusters = (own,) if self._alone else event.clusters
        if not clusters or not (event.complete or self._alone):
            return  # the ring is being mended
        if clusters[0].key != own.key:
            self._stop_leading()
            self.port.send(clusters[0].primary, RingMet(own.ring, into.ring, into.primary))
            return
        if not self._leading:
            self._leading, self._since = MergePhase.UNITED, self.port.now
        self._clusters = clusters
        self._lead(into)

    def _lead(self, into: Cluster) -> None:
        if self._all_reached():
            self._leading, self._since = self._leading.following(), self.port.now
        # This one comes last: it ends when the others know.
        peers = sorted((c.primary for c in self._clusters), key=lambda p: p.id == self.port.me.id)
        for peer in peers:
            self.port.send(peer, Merge(into, self._leading))

    def _all_reached(self) -> bool:
        """Whether every cluster of the ring has reached the phase that this one asks for."""
        reached = (self._reached.get(c.key, MergePhase.NONE) for c in self._clusters)
        return all(phase >= self._leading for phase in reached)

    def on_reply(self, sender: Peer, message: MergeReply) -> None:
        """At the cluster that leads the merge: note how far another is, and order the next phase
        when all are there."""
        if not self._leading or self.into is None:
            return
        before = self._reached.get(message.key, MergePhase.NONE)
        self._reached[message.key] = message.phase
        done = self._all_reached()
        if message.phase > before and done and self._leading < MergePhase.ENDED:
            self._lead(self.into)

    # -- each cluster ----------------------------------------------------------------------------

    def on_merge(self, sender: Peer, message: Merge) -> None:
        """The cluster that leads says how far this one is to go."""
        own = self.role.cluster
        if own is None or not self._may_be_better(message.into.ring) or not self._may_take_part():
            return
        if self.ring.is_signed() and not self.state.leads(sender.id):
            self.port.count("claims_refused")
            return  # it leads no cluster of this ring, so it cannot lead the merge
        self._check_part()
        if not message.phase:
            self._take_no_part()
            return
        if self.ring.is_signed() and not self._follows(message.into):
            return  # who leads says it again
        if self.into is not None and message.into.ring < self.into.ring and self._wanted:
            self._take_no_part()  # what was united is in a ring that ends itself
        if self.into is None or message.into.ring <= self.into.ring:
            self.into = message.into
        self._epoch, self._leader, self._heard = own.epoch, sender, self.port.now
        self._wanted = message.phase
        self.port.set_timer(MERGE_ROUND, MergeRound())
        self._go_on()

    def _follows(self, into: Cluster) -> bool:
        """Whether the other ring is better by what this node has found itself. Else it is asked."""
        if self._is_doubted(into.primary.id) or not self.ring.admits(into):
            return False
        if not self._is_settled(into):
            return False
        if not self._is_better(into.ring):
            self._doubt(into)
            return False
        return True

    def reached(self, phase: MergePhase, tree_users: Iterable[Peer] = ()) -> None:
        """The registry has reached `phase`; `tree_users` used its trees and have to know at once
        when the ring has ended."""
        if self.phase < phase == self.phase.following() <= self._wanted:
            self.phase = phase
            self._tree_users = tuple(tree_users) or self._tree_users
            self._go_on()

    def _go_on(self) -> None:
        own, into, leader = self.role.cluster, self.into, self._leader
        if own is None or into is None or leader is None:
            return
        if self._wanted == MergePhase.ENDED and self.phase == MergePhase.STOPPED:
            self.port.send(leader, MergeReply(own.key, MergePhase.ENDED))
            self._end(own, into)
            return
        self.port.send(leader, MergeReply(own.key, self.phase))
        if self.phase < min(self._wanted, MergePhase.STOPPED):
            self.port.emit(MergePhaseWanted(into, self.phase.following()))

    # -- the end ---------------------------------------------------------------------------------

    def _end(self, own: Cluster, into: Cluster) -> None:
        self.port.count("rings_given_up")
        self._spread(own.ring, into, *own.members(), *self._tree_users)
        self.members.disband("its ring has ended")
        self._switch_ring(into)

    def on_ended(self, sender: Peer, message: RingEnded) -> None:
        """A ring has ended; if it is ours, this node goes over."""
        signed = self.ring.is_signed()
        if message.into.ring == message.ring or (message.into.ring > message.ring and not signed):
            return
        if message.ring not in self.state.ended and not self._believes(sender, message.ring):
            self.port.count("ring_ends_doubted")
            return
        if self.into is not None and self.into.ring == message.ring:
            self.into = message.into
        if signed and message.ring == self.state.ring:
            self._end_claimed(sender, message)
            return
        if signed and message.into.ring != self.state.ring:
            return  # no business of this node's
        if message.ring not in self.state.ended:
            self._spread(message.ring, message.into)
        if self.state.ring == message.ring:
            self._go_over(sender, message.into)

    def _end_claimed(self, sender: Peer, message: RingEnded) -> None:
        """Handle the news, where nodes have keys, that a ring has ended. The nodes of that ring
        check it in the same way as whether another ring is better. Other nodes ignore it."""
        into = message.into
        if self.state.ring != message.ring or self._is_doubted(into.primary.id):
            return
        if not self.ring.admits(into) or not self._may_be_better(into.ring):
            return
        own = self.role.cluster
        if own is not None and not self.role.is_primary:
            if sender.id == own.primary.id:
                self._go_over(sender, into)
            return
        self._end_said, self._alone = True, own is not None
        self._met = min(self._met, self.port.now)
        self._learn(into)

    def _go_over(self, sender: Peer, into: Cluster) -> None:
        """Leave the own ring, which has ended, for the ring of `into`."""
        own = self.role.cluster
        if own is None:
            self._switch_ring(into)
        elif self.role.is_primary:
            self._alone = True  # what is registered here goes the same way
            self.state.ring_met(into.ring, into.primary, into)
        elif sender.id == own.primary.id or self.heartbeat.is_primary_silent():
            self.members.leave_cluster("its ring has ended")
            self._switch_ring(into)

    def _believes(self, sender: Peer, ring: str) -> bool:
        """Whether to believe `sender` that this ring has ended: this node knows it to serve in the
        ring, or others have said the same. So one outsider alone moves no node."""
        if ring == self.state.ring and self.state.serves(sender.id):
            return True
        said = self._end_heard.setdefault(ring, {})
        said[sender.id] = None
        return len(said) >= RING_END_WITNESSES

    def _spread(self, ring: str, into: Cluster, *informed: Peer) -> None:
        """Remember that the ring has ended, and let these and some neighbours know."""
        self.state.ring_ended(ring, into)
        self.view.forget_ring(ring)
        neighbours = list(self.view.peers())
        some = self.port.rng.sample(neighbours, min(RING_END_FAN_OUT, len(neighbours)))
        for peer in by_id((*informed, *some), besides=self.port.me.id).values():
            self.port.send(peer, RingEnded(ring, into))

    def _switch_ring(self, into: Cluster) -> None:
        if self._end_said and self.state.ring not in self.state.ended:
            self._spread(self.state.ring, into)
        self._end_said = False
        self._forget()
        self._stop_leading()
        self.into, self._alone, self._tree_users = None, False, ()
        self.role.release_reservation()
        self.port.trace("cluster", name=into.ring, reason=f"over to this ring: {into.primary.id}")
        self.state.switch_ring(into)
        if self.state.own is None:
            self.port.send(into.primary, Contact(self.port.me.id))  # which may be no primary now
