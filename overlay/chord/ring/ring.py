"""The ring machine (P2): what every node knows and asks of the ring, and what primaries do for it.

Table of contents: `place` holds the state, `lookups` finds owners, `repair` keeps the pointers of
primaries right, `collecting` walks around. `clusters` tells this machine by `serve` and `belong`
what this node's part is; above, the trees ask `owner`, `find` and `learn`.
"""

from __future__ import annotations

from itertools import islice

from overlay.chord.events import ClusterMoved, RingKnown
from overlay.chord.messages import (
    AskNeighbourhood,
    Cluster,
    Contact,
    Find,
    FindReply,
    Moved,
    Neighbourhood,
    Rectify,
    Rejoin,
    Stabilise,
)
from overlay.chord.ring.lookups import Lookups, LookupTimeout
from overlay.chord.ring.place import Place
from overlay.chord.ring.ring_walk import Collecting, CollectTimeout
from overlay.chord.ring.stabilisation import FingerRound, Stabilisation, StabiliseRound
from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.events import RingHintReceived
from overlay.machine import Handlers, Key, Machine, Peer, Port, Version
from overlay.settings import RingSettings


class Ring(Machine):
    """Chord over clusters, seen from one node."""

    def __init__(self, port: Port, settings: RingSettings) -> None:
        super().__init__(port)
        self.settings = settings
        self.place = Place(port, settings)
        self.lookups = Lookups(self.place)
        self.repair = Stabilisation(self.place, self.lookups)
        self.collecting = Collecting(self.place)

    def handlers(self) -> Handlers:
        """Messages, timers and events of the ring."""
        return {
            Find: self.lookups.on_find,
            FindReply: self.lookups.on_find_reply,
            Stabilise: self.repair.on_stabilise,
            AskNeighbourhood: self.repair.on_ask_neighbourhood,
            Rectify: self.repair.on_rectify,
            Neighbourhood: self.on_neighbourhood,
            Moved: self.on_moved,
            Contact: self.on_contact,
            Rejoin: self.on_rejoin,
            LookupTimeout: self.lookups.on_timeout,
            StabiliseRound: self.repair.on_stabilise_round,
            FingerRound: self.repair.on_finger_round,
            CollectTimeout: self.collecting.on_timeout,
            RingHintReceived: self.on_ring_heard,
            RingKnown: self.on_ring_known,
            LinkUp: self.on_link_up,
            LinkDown: self.on_link_down,
        }

    # -- asked from above ------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The ring's id, "" while none is known."""
        return self.place.ring

    def known(self) -> bool:
        """Whether a way into the ring is known."""
        return self.place.knows_ring()

    def find(self, key: Key) -> None:
        """Ask the ring who owns `key`: one OwnerFound or OwnerUnknown follows, however often it
        was asked meanwhile."""
        self.lookups.find(key)

    def owner(self, key: Key) -> Cluster | None:
        """Who owned `key` when it was last heard of; costs no message and may be out of date. None
        as well while its primary does not answer: to be looked up, there may be another."""
        own = self.place.own
        found = own if own is not None and own.owns(key) else self.place.known.owner(key)
        if found is not None and found.primary.id == self.port.me.id and not self.place.serving:
            return None  # this node led before it was started again
        if found is not None and not self.place.known.reachable(found.primary, self.port.now):
            return None
        return found

    def learn(self, cluster: Cluster) -> None:
        """Take a description that came with another message. Older ones change nothing."""
        self.place.learn(cluster)

    def forget(self, key: Key, version: Version) -> None:
        """The cluster `key` of `version` (or older) was no use: ask anew."""
        self.place.known.forget(key, version)

    def collect(self) -> None:
        """Walk around the ring; answered by RingCollected."""
        self.collecting.collect()

    # -- told by clusters ------------------------------------------------------------------------

    def serve(
        self,
        cluster: Cluster,
        predecessor: Cluster | None = None,
        successors: tuple[Cluster, ...] = (),
    ) -> None:
        """This node is the primary of `cluster`, which is new or has changed. The neighbours count
        only when it was not its primary before."""
        place = self.place
        anew = not place.serving or place.own is None or place.own.key != cluster.key
        place.serving = False  # so that the cache takes what is said of our own cluster, too
        place.learn(cluster)
        place.own, place.serving = cluster, True
        if anew:
            for known in (predecessor, *successors):
                if known is not None:
                    place.learn(known)
            place.pointers.begin(cluster.key, predecessor, successors)
            self.repair.begin()
            self.repair.announce()
        self.lookups.served()

    def split_off(self, arc: Cluster) -> None:
        """The first part of our arc is a cluster of its own now, directly before us."""
        place = self.place
        place.learn(arc)
        place.pointers.predecessor = arc
        self.repair.begin()

    def belong(self, cluster: Cluster | None) -> None:
        """This node is another member of `cluster`, or of none. A primary that handed over tells
        its ring neighbours who serves now."""
        place = self.place
        if place.serving:
            self.repair.end()
        if place.own is not None:
            place.former = None if place.serving else place.own
        place.serving, place.own = False, cluster
        if cluster is not None:
            place.learn(cluster)
        self.lookups.led()

    def handed_over(self, cluster: Cluster) -> None:
        """The former primary of `cluster` tells the ring neighbours who serves now."""
        place = self.place
        told = (place.pointers.predecessor, *place.pointers.successors)
        self.belong(None)
        place.former = cluster
        place.learn(cluster)
        for neighbour in told:
            if neighbour is not None and neighbour.primary.id != self.port.me.id:
                self.port.send(neighbour.primary, Moved(cluster))

    def rejoin(self, cluster: Cluster, lost: Peer) -> None:
        """This node has taken the place of the primary `lost` (perhaps its own, before it was
        started again): the neighbours, as far as they are known here, hear of it at once
        (REJOIN)."""
        known = self.place.known
        if lost.id != self.port.me.id:
            known.shun(lost.id, self.port.now)
        self.lookups.lose(lost.id)
        near = [*islice(known.before(cluster.key), 2), *islice(known.after(cluster.key), 2)]
        for peer in {c.primary.id: c.primary for c in near if c.key != cluster.key}.values():
            if peer.id not in (lost.id, self.port.me.id):
                self.port.send(peer, Rejoin(cluster))

    def on_rejoin(self, sender: Peer, message: Rejoin) -> None:
        """What waited for the lost primary goes to the new one."""
        before = self.place.known.get(message.cluster.key)
        self.place.learn(message.cluster)
        if before is not None and before.primary.id != message.cluster.primary.id:
            self.lookups.lose(before.primary.id)

    # -- messages and events ---------------------------------------------------------------------

    def on_neighbourhood(self, sender: Peer, message: Neighbourhood) -> None:
        """For repair, and for a walk around the ring."""
        self.repair.on_neighbourhood(sender, message)
        self.collecting.on_neighbourhood(sender, message)

    def on_moved(self, sender: Peer, message: Moved) -> None:
        """Somebody whom we took for a primary knows better."""
        self.place.learn(message.cluster)
        if message.cluster.primary.id != sender.id:
            self.place.known.forget_primary(sender.id)  # whatever we took it for the primary of
            self.repair.lose(sender.id)
        self.port.emit(ClusterMoved(message.cluster, sender))
        self.collecting.on_moved(sender, message.cluster)

    def on_contact(self, sender: Peer, message: Contact) -> None:
        """A way in for who asks; also how a member that was cut off learns how things stand."""
        newest = self.place.newest()
        if newest is not None:
            self.port.send(sender, Moved(newest))

    def on_ring_heard(self, event: RingHintReceived) -> None:
        """Gossip."""
        self.place.hear(event.hint)

    def on_ring_known(self, event: RingKnown) -> None:
        """Lookups that waited for a way in begin."""
        self.lookups.way_opened()

    def on_link_up(self, event: LinkUp) -> None:
        """Whoever was unreachable answers."""
        self.place.known.trust(event.peer.id)

    def on_link_down(self, event: LinkDown) -> None:
        """Ways through this node are taken last; whatever waited for it goes another way."""
        node = event.peer.id
        self.place.known.shun(node, self.port.now)
        self.repair.lose(node)
        self.lookups.lose(node, event.lost)
        self.collecting.lose(node)
