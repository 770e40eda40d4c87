"""The host's side of the trees: virtual nodes, and events that come by (C6 to C9).

An event enters at any host of the tree. If one of the host's own virtual nodes holds the value it
is matched there (visiting.py), and sent to the interested nodes; else it goes on towards the
virtual node that holds it (partition.py). Either way the publisher hears who has taken the event,
and where, so that the next one goes there directly. A host that does not serve the tree, or has no
serving lease from its owner (serving.py), answers *moved*.
"""

from __future__ import annotations

from matching import GroupedIndex
from overlay.chord.events import ClusterForked, RingKnown, RingLeft
from overlay.chord.keys import attribute_key, in_arc
from overlay.chord.messages import Cluster
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.messages import AccessPoint
from overlay.machine import Alarm, Handler, Handlers, Key, Machine, Message, Peer, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.compiled_selectors import compiled
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.host.directions import Directions
from overlay.upper_tree.host.hosted_tree import HostedTree, Joint
from overlay.upper_tree.host.installer import Installing
from overlay.upper_tree.host.intake import Intake, MatchDue
from overlay.upper_tree.host.serving_leases import LeasesHeld
from overlay.upper_tree.host.visiting import VisitInHand, check_visit
from overlay.upper_tree.messages import (
    Assign,
    Assigned,
    Install,
    Installed,
    ServingBeat,
    ServingReply,
    StillHosting,
    TreesHosted,
    Uninstall,
    Visit,
)

HOP_BOUND = 64
"""Messages on a tree path after which an event is given back to its publisher as *moved*: far over
any tree's height (2^64 virtual nodes), so only a loop between stale slices meets it."""


EPOCHS_KEPT = 4_096
"""Attributes whose owner's epoch a host remembers, also of trees that it serves no more, and arcs;
as many as a publisher's cached locations. Wild guess."""


FORKS_KEPT = 64
"""Clusters in the place of lost ones that a host remembers, the last heard of; wild guess."""


class LeaseLook(Timer, frozen=True):
    """Does the owner that we serve for still count on us, now that another leads its cluster?"""


class Hosting(Machine):
    """Serves virtual nodes of any number of trees."""

    def __init__(self, port: Port, settings: Settings, access_points: AccessPoints) -> None:
        super().__init__(port)
        self.counting = settings.tree.routing == "counting"
        self.copies = CopyBudget(
            settings.tree.fan_out
        )  # of this node, also as publisher and delegate
        self.access_points = access_points
        self.trees: dict[str, HostedTree] = {}
        self.joint: Joint | None = None if self.counting else GroupedIndex()
        self.intake = Intake(port, settings.tree, self.trees, self._serve)
        owners_words: dict[type[Message], Handler] = {
            Assign: self.on_assign, TreesHosted: self.on_trees_hosted,
            Install: self.on_install, Uninstall: self.on_uninstall,
            ServingBeat: self.on_serving_beat,
        }  # fmt: skip
        self.installing = Installing(port, owners_words)
        self.directions = Directions()
        self.leases = LeasesHeld()
        self._ring = ""  # that this node belongs to
        self._epochs: dict[str, int] = {}  # highest epoch of an owner, by attribute
        self._reigns: dict[
            Key, tuple[Key, int]
        ] = {}  # (start, epoch) of arcs that told their trees
        self._forks: dict[Key, Cluster] = {}  # clusters that lead in the place of lost ones
        self._look = Alarm(port, LeaseLook())
        self._look_every = settings.tree.serving_most  # a lease that is not renewed is over by then

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            **self.installing.handlers(),
            ClusterForked: self.on_cluster_forked,
            RingKnown: self.on_ring_known,
            RingLeft: self.on_ring_left,
            LeaseLook: self.on_lease_look,
            Visit: self.on_visit,
            MatchDue: self.intake.on_match_due,
        }

    # --- what the owner says ---

    def on_install(self, sender: Peer, message: Install) -> None:
        """Registrations may come before the interval is assigned."""
        if self._is_fenced(message.attribute, message.epoch):
            return
        tree = self._tree(message.attribute)
        for registration in message.registrations:
            tree.install(registration, compiled(registration.selector))
        ids = tuple(registration.id for registration in message.registrations)
        self.port.send(sender, Installed(message.attribute, ids))

    def on_uninstall(self, sender: Peer, message: Uninstall) -> None:
        """Registrations that ended."""
        if self._is_fenced(message.attribute, message.epoch):
            return
        tree = self.trees.get(message.attribute)
        if tree is not None:
            for id_ in message.ids:
                tree.uninstall(id_)

    def on_assign(self, sender: Peer, message: Assign) -> None:
        """Serve these intervals at this version; an older word than the last is ignored."""
        if self._is_fenced(message.attribute, message.version[0]):
            return
        tree = self._tree(message.attribute)
        if message.version >= tree.version:
            tree.assign(message)
            tree.forget_foreign()
            if not message.intervals:
                del self.trees[message.attribute]
            elif self._forks:
                self._look.within(self._look_every)
            self._publish_access_points()
        self.port.send(sender, Assigned(message.attribute, message.version))

    def _tree(self, attribute: str) -> HostedTree:
        tree = self.trees.get(attribute)
        if tree is None:
            tree = self.trees[attribute] = HostedTree(attribute, self.joint)
        return tree

    def on_trees_hosted(self, sender: Peer, message: TreesHosted) -> None:
        """Drop what the owner does not know to be here: it ended while this node was not heard, or
        a former primary gave it without a majority. What that one has still under way comes too
        late."""
        if self._ring and message.ring not in ("", self._ring):
            return  # of a ring that has not ended yet; it has nothing here
        if message.epoch >= self._reigns.get(message.key, ("", 0))[1]:
            self._reigns[message.key] = (message.start, message.epoch)
            if len(self._reigns) > EPOCHS_KEPT:
                del self._reigns[next(iter(self._reigns))]
        listed = dict.fromkeys(message.attributes)
        ended = [
            attribute
            for attribute, tree in self.trees.items()
            if attribute not in listed
            and in_arc(attribute_key(attribute), message.start, message.key)
            and max(tree.version[0], self._epochs.get(attribute, 0)) <= message.epoch
        ]
        for attribute in ended:
            tree = self.trees.pop(attribute)
            tree.assign(Assign(attribute, tree.version, (), 0, ()))
            tree.forget_foreign()
        if ended:
            self.port.count("trees_dropped", len(ended))
            self._publish_access_points()

    def on_serving_beat(self, sender: Peer, message: ServingBeat) -> None:
        """The owner counts on us."""
        self.leases.take(sender.id, message, self.port.now)
        self.port.send(sender, ServingReply(message.key, message.number))

    def idle(self) -> dict[str, int]:
        """Attributes whose trees no owner lets us serve now, with the epoch that it has to have."""
        trees = self.trees.items()
        return {a: self._highest(tree) for a, tree in trees if not self._has_lease(tree)}

    def _highest(self, tree: HostedTree) -> int:
        """The epoch of its owner, the latest that we heard of."""
        known = max(tree.version[0], self._epochs.get(tree.attribute, 0))
        return max(known, self._reign(tree.key))

    def _has_lease(self, tree: HostedTree) -> bool:
        """Whether that one lets us serve."""
        return self.leases.covers(tree.key, self._highest(tree), self.port.now)

    def _reign(self, key: Key) -> int:
        """The epoch of the last owner who told what of its arc is here."""
        reign = 0
        for end, (start, epoch) in self._reigns.items():
            if epoch > reign and in_arc(key, start, end):
                reign = epoch
        return reign

    def on_cluster_forked(self, event: ClusterForked) -> None:
        """Whoever leads in the place of a lost owner may not know that we serve trees of it."""
        cluster = event.cluster
        self._forks.pop(cluster.key, None)
        self._forks[cluster.key] = cluster
        if len(self._forks) > FORKS_KEPT:
            del self._forks[next(iter(self._forks))]
        if self._of_before(cluster):
            self.port.send(cluster.primary, StillHosting(cluster.key))
            self._look.within(self._look_every)

    def on_lease_look(self, timer: LeaseLook) -> None:
        """Whoever was led all the time may go on beside a fork, for a while, and give us trees
        after we asked. When its leases end, ask again."""
        self._look.rang()
        for cluster in self._forks.values():
            trees = self._of_before(cluster)
            if not all(map(self._has_lease, trees)):
                self.port.send(cluster.primary, StillHosting(cluster.key))
            if trees:
                self._look.within(self._look_every)

    def _of_before(self, cluster: Cluster) -> list[HostedTree]:
        """Trees of an arc that we serve as somebody told us who led it before."""
        epoch = cluster.version[0]
        return [
            tree
            for tree in self.trees.values()
            if cluster.owns(tree.key) and tree.version[0] < epoch
        ]

    def on_ring_known(self, event: RingKnown) -> None:
        """Only ways into the trees of this ring are of use, and told."""
        self._ring = event.ring
        self.access_points.enter_ring(event.ring)
        self._publish_access_points()

    def on_ring_left(self, event: RingLeft) -> None:
        """Owners of another ring count their epochs anew, and know of no tree here."""
        self.installing.clear()
        for tree in self.trees.values():
            tree.assign(Assign(tree.attribute, tree.version, (), 0, ()))
            tree.forget_foreign()
        self.trees.clear()
        self._epochs.clear()
        self._reigns.clear()
        self._forks.clear()
        self._look.cancel()
        self.leases = LeasesHeld()

    def _is_fenced(self, attribute: str, epoch: int) -> bool:
        """Whether a former primary speaks, which does not know that it is one."""
        known = max(self._epochs.pop(attribute, 0), self._reign(attribute_key(attribute)))
        self._epochs[attribute] = max(known, epoch)
        if len(self._epochs) > EPOCHS_KEPT:
            del self._epochs[next(iter(self._epochs))]
        if epoch < known:
            self.port.count("hosting_fenced")
        return epoch < known

    def _publish_access_points(self) -> None:
        self.access_points.set_local(
            [
                AccessPoint(attribute, self.port.me, tree.version, 0, self.access_points.ring)
                for attribute, tree in self.trees.items()
                if tree.intervals
            ]
        )

    # --- events ---

    def on_visit(self, sender: Peer, message: Visit) -> None:
        """Events to be matched, now or when it is their turn (intake.py)."""
        if sender.id != self.port.me.id:
            check_visit(message)
        self.intake.take(message)

    def _serve(self, message: Visit) -> None:
        """Match, pass on, or give back, for each attribute."""
        pace = self.intake.pace
        known = self.directions.known_to(message.origin.id, self.port.now)
        visit = VisitInHand(self.port, message, self.joint, self.trees, self.copies, known, pace)
        for attribute in message.attributes:
            tree = self.trees.get(attribute)
            if tree is None or not tree.intervals or message.hop > HOP_BOUND:
                visit.give_back(attribute)
            elif not self._has_lease(tree):
                self.port.count("visits_without_lease", len(message.events))
                visit.give_back(attribute)
            else:
                visit.take(attribute, tree)
        visit.match()
        visit.finish()
