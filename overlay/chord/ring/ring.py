"""The ring machine (P2): lookups for every node, and pointer maintenance for primaries.

`ring_state` holds the state, `lookups` finds owners, `stabilisation` keeps the pointers of
primaries right, `ring_walk` visits all clusters. `Clusters` says what this node is
(`serve_as_primary`, `serve_as_member`); the trees above call `owner`, `find` and `learn`.
"""

from __future__ import annotations

from itertools import islice

from overlay.chord.constants import WALK_STEPS_MOST
from overlay.chord.events import ClaimBelieved, ClusterMoved, RingKnown, RingWalked
from overlay.chord.messages import AskNeighbourhood, Cluster, Contact, Moved, Neighbourhood, Rejoin
from overlay.chord.ring.lookups import Lookups
from overlay.chord.ring.ring_state import RingState
from overlay.chord.ring.stabilisation import Stabilisation
from overlay.links.events import LinkDown, LinkRecovered, LinkUp
from overlay.links.statements import Signer
from overlay.lower_random.messages import RingHintReceived
from overlay.machine import (
    Handlers,
    Key,
    Machine,
    NodeId,
    NodeRoles,
    Peer,
    Port,
    Timer,
    by_id,
    handlers_of,
)
from overlay.settings import RingSettings

# Walking around the ring, from each cluster to its successor by its own word (`canopy ring`).
#
# Every step asks the next cluster's primary for its neighbourhood; the walk is complete when it
# comes back to where it began and the arcs fit together without gap. Where a cluster does not
# answer in time the walk goes on with the one after it, as far as the successor lists reach.


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
        """Take the answer of the walk's next cluster and go on to its successor."""
        if self._asked is None or sender.id != self._asked.id:
            return
        self._found[message.cluster.key] = message.cluster
        self._following = message.successors
        if message.predecessor is not None and not message.successors:
            self._following = (message.predecessor,)  # a ring of two
        self._go_on()

    def moved(self, sender: Peer, cluster: Cluster) -> None:
        """Handle that the node asked is no longer a primary, but knows the present one."""
        if self._asked is not None and sender.id == self._asked.id:
            if cluster.primary.id not in (sender.id, self.port.me.id):
                self._following = (cluster, *self._following)
            self._go_on()

    def peer_lost(self, node: NodeId) -> None:
        """Go on with the next cluster if the node that was asked is unreachable."""
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


class Ring(Machine):
    """Chord over clusters, seen from one node."""

    def __init__(
        self,
        port: Port,
        settings: RingSettings,
        roles: NodeRoles | None = None,
        signer: Signer | None = None,
    ) -> None:
        """`roles`: say whether a node may lead clusters. `signer`: where nodes have
        keys, signs this node's descriptions of its cluster."""
        super().__init__(port)
        self.settings = settings
        self.state = RingState(port, settings, roles, signer)
        self.lookups = Lookups(self.state)
        self.stabilisation = Stabilisation(self.state, self.lookups)
        self.ring_walk = RingWalk(self.state)

    def handlers(self) -> Handlers:
        """The handlers of this machine and of its parts."""
        parts = (self.lookups, self.stabilisation, self.ring_walk, self.state.claims)
        return handlers_of(self, *parts)

    # -- asked from above ------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The ring's id, "" while none is known."""
        return self.state.ring

    def is_known(self) -> bool:
        """Whether a way into the ring is known."""
        return self.state.knows_ring()

    def find(self, key: Key) -> None:
        """Ask the ring who owns `key`: one OwnerFound or OwnerUnknown follows, however often it
        was asked meanwhile."""
        self.lookups.find(key)

    def owner(self, key: Key) -> Cluster | None:
        """Return the last known owner of `key`. Sends no message, and may be out of date. None also
        while its primary does not answer: the key should then be looked up, since it may have
        another owner."""
        state, own = self.state, self.state.own
        found = own if own is not None and own.owns(key) else state.known.owner(key)
        if found is None or not state.is_reachable(found.primary):
            return None
        if found.primary.id == self.port.me.id and not state.led:
            return None  # this node led before it was started again
        return found

    def covering(self, key: Key) -> Cluster | None:
        """Return the known cluster whose arc contains `key`, whether or not its primary answers.
        Sends no message, and may be out of date."""
        own = self.state.own
        return own if own is not None and own.owns(key) else self.state.known.owner(key)

    def newest(self, key: Key) -> Cluster | None:
        """The newest description that is known of the cluster `key`."""
        return self.state.newest(key)

    def neighbours(self) -> tuple[Cluster | None, tuple[Cluster, ...]]:
        """The predecessor and the successors of the cluster that this node leads."""
        return self.state.pointers.predecessor, self.state.pointers.successors

    def successor(self) -> Cluster | None:
        """The cluster after the one that this node leads, by the newest description that is known;
        None: there is none."""
        first = self.state.pointers.first()
        if first is None or first.primary.id == self.port.me.id:
            return None
        newest = self.state.newest(first.key)
        return first if newest is None or newest.version < first.version else newest

    def learn(self, cluster: Cluster) -> None:
        """Take a description that came with another message. Older ones change nothing."""
        self.state.learn(cluster)

    def admits(self, cluster: Cluster) -> bool:
        """Return whether a description that came with another message may be acted on: it is
        proven, or not doubted (`claims`)."""
        return self.state.admits(cluster)

    def is_signed(self) -> bool:
        """Return whether nodes have keys, and sign their descriptions of clusters."""
        return self.state.claims.signer is not None

    def settles(self, cluster: Cluster) -> bool:
        """At a primary that a majority follows: whether a claim of its arc is believed by now."""
        return self.state.settles(cluster)

    def is_refused(self, cluster: Cluster) -> bool:
        """Whether it was decided lately that a claim is not believed."""
        return self.state.claims.is_refused(cluster)

    def is_followed(self, cluster: Cluster) -> bool:
        """Whether another member than its primary has granted what `cluster` claims."""
        return self.state.claims.is_followed(cluster)

    def walk(self) -> None:
        """Walk around the ring; answered by RingWalked."""
        self.ring_walk.walk()

    # -- what this node is, as Clusters says ------------------------------------------------------

    def serve_as_primary(
        self,
        cluster: Cluster,
        predecessor: Cluster | None = None,
        successors: tuple[Cluster, ...] = (),
    ) -> None:
        """Serve as the primary of `cluster`, which is new or has changed. The neighbours count only
        if this node was not its primary before."""
        state = self.state
        if state.become_primary(cluster):
            for known in (predecessor, *successors):
                if known is not None:
                    state.learn(known)
            state.pointers.begin(cluster.key, predecessor, successors)
            self.stabilisation.begin()
            self.stabilisation.announce()
        self.lookups.arc_changed()

    def sealed(self, cluster: Cluster) -> Cluster:
        """`cluster`, signed if this node is named as its primary, where nodes have keys."""
        return self.state.claims.sealed(cluster)

    def split_off(self, arc: Cluster) -> None:
        """Note that the first part of the own arc is a cluster of its own now, directly before this
        one."""
        state = self.state
        state.split_off(arc)
        state.pointers.set_predecessor(arc)
        self.stabilisation.begin()

    def took(self, arc: Cluster) -> None:
        """Note that the arc of the preceding cluster is now part of this one, and that cluster has
        ended."""
        self.state.known.forget(arc.key, arc.version)
        self.state.pointers.forget(arc.key)
        self.stabilisation.begin()

    def serve_as_member(self, cluster: Cluster | None) -> None:
        """Serve as a member of `cluster` other than its primary, or of no cluster."""
        state = self.state
        if state.led:
            self.stabilisation.end()
        state.become_member(cluster)
        self.lookups.primary_changed()

    def handed_over(self, cluster: Cluster) -> None:
        """Inform the ring neighbours who serves now. Called at the former primary of `cluster`."""
        predecessor, successors = self.neighbours()
        self.serve_as_member(None)
        self.state.set_former(cluster)
        for neighbour in (predecessor, *successors):
            if neighbour is not None and neighbour.primary.id != self.port.me.id:
                self.port.send(neighbour.primary, Moved(cluster))

    def rejoin(self, cluster: Cluster, lost: Peer) -> None:
        """Tell the known neighbours at once (REJOIN) that this node has taken the place of the
        primary `lost`, which may be this node before a restart."""
        known = self.state.known
        if lost.id != self.port.me.id:
            known.mark_unreachable(lost.id, self.port.now)
        self.lookups.peer_lost(lost.id)
        near = [*islice(known.before(cluster.key), 2), *islice(known.after(cluster.key), 2)]
        primaries = (c.primary for c in near if c.key != cluster.key)
        for peer in by_id(primaries, besides=self.port.me.id).values():
            if peer.id != lost.id:
                self.port.send(peer, Rejoin(cluster))

    def on_rejoin(self, sender: Peer, message: Rejoin) -> None:
        """REJOIN: what waited for the lost primary goes to the new one."""
        before = self.state.newest(message.cluster.key)
        if not self.state.admits(message.cluster):
            return
        self.state.learn(message.cluster)
        if before is not None and before.primary.id != message.cluster.primary.id:
            self.lookups.peer_lost(before.primary.id)

    # -- messages and events ---------------------------------------------------------------------

    def on_neighbourhood(self, sender: Peer, message: Neighbourhood) -> None:
        """An answer for stabilisation, or for a walk around the ring."""
        if not self.state.admits(message.cluster):
            return
        self.stabilisation.answered(message)
        self.ring_walk.answered(sender, message)

    def on_moved(self, sender: Peer, message: Moved) -> None:
        """Learn the cluster that a node names, which was wrongly taken for its primary."""
        if self.state.roles.votes(message.cluster.primary.id) is False:
            self.port.count("claims_refused")
            return
        self.state.heard(sender, message.cluster, message.unled)
        if not self.state.admits(message.cluster):
            return
        self.state.learn(message.cluster)
        # One that serves in another ring stays known where nodes have keys: it may be the only way,
        # and without one a node takes the first ring that it hears of.
        is_other = self.is_signed() and message.cluster.ring != self.state.ring
        if message.cluster.primary.id != sender.id and not is_other:
            self.state.known.forget_primary(sender.id)  # whatever we took it for the primary of
            self.stabilisation.peer_lost(sender.id)
        self.port.emit(ClusterMoved(message.cluster, sender, message.unled))
        self.ring_walk.moved(sender, message.cluster)

    def on_claim_believed(self, event: ClaimBelieved) -> None:
        """Handle that a description which contradicted the known state is now believed."""
        self.state.learn(event.cluster)
        self.lookups.claim_believed(event.cluster)

    def on_contact(self, sender: Peer, message: Contact) -> None:
        """Answer with a way into the ring. Members that were cut off ask in the same way how
        things stand."""
        newest = self.state.any_cluster()
        if newest is not None:
            self.port.send(sender, Moved(newest, self.state.is_unled(newest)))

    def on_ring_heard(self, event: RingHintReceived) -> None:
        """Learn of a ring, or of a newer state of one, from a hint that came with gossip."""
        self.state.learn_hint(event.hint)

    def on_ring_known(self, event: RingKnown) -> None:
        """Lookups that waited for a way into the ring begin."""
        self.lookups.ring_became_known()

    def on_link_up(self, event: LinkUp) -> None:
        """A node that was unreachable answers. If it turns out that it may not lead clusters, those
        that it was said to lead are forgotten."""
        if self.state.roles.votes(event.peer.id) is False:
            self.state.known.forget_primary(event.peer.id)
        self.state.known.mark_reachable(event.peer.id)

    def on_link_recovered(self, event: LinkRecovered) -> None:
        """A node that was silent answers, perhaps by way of another one."""
        self.state.known.mark_reachable(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """Avoid this node for a while; what waited for its answer goes another way."""
        node = event.peer.id
        self.state.known.mark_unreachable(node, self.port.now)
        self.stabilisation.peer_lost(node)
        self.lookups.peer_lost(node, event.lost)
        self.ring_walk.peer_lost(node)
