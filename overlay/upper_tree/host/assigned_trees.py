"""The trees that owners have assigned to this host: what they order, and until when it holds.

An owner says which intervals of a tree are served here and what is registered there, and lets the
host serve the tree while its lease lasts. Much that comes at once is done in slices. An owner of an
older epoch than the latest that is known of a tree is fenced: nothing that it orders is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random

import msgspec

from matching import Attributes, GroupedIndex, Predicate
from overlay.bounded import BoundedDict
from overlay.chord.events import RingKnown, RingLeft
from overlay.chord.keys import attribute_key, in_arc
from overlay.chord.ring.ring import Ring
from overlay.client import Event
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.messages import AccessPoint
from overlay.machine import (
    Alarm,
    Handler,
    Handlers,
    Key,
    Machine,
    Message,
    NodeId,
    Peer,
    Port,
    Timer,
)
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH, in_batches, weigh_text
from overlay.upper_tree.compiled_selectors import compiled
from overlay.upper_tree.host.constants import (
    EPOCHS_MOST,
    FORMER_FOR,
    LEAVES_MOST,
    LIVES_MOST,
    PLACES_LEAST,
    PLACES_MOST,
    RETAKEN,
    TOGETHER_MOST,
)
from overlay.upper_tree.host.hosted_tree import HostedTree, SharedIndex
from overlay.upper_tree.host.orphaned_trees import OrphanedTrees, ServingLeases
from overlay.upper_tree.host.served_loads import SampledTree, ServedLoads
from overlay.upper_tree.messages import (
    Assign,
    Assigned,
    Install,
    Installed,
    Registration,
    ServingBeat,
    ServingReply,
    TreesHosted,
    Uninstall,
)
from overlay.upper_tree.owner_claims import ClaimsDue, OwnerClaims
from overlay.upper_tree.sliced_inbox import AT_ONCE, ENDS, SlicedInbox


class InstallDue(Timer, frozen=True):
    """Time to install more of what owners have sent."""


class FormerOver(Timer, frozen=True):
    """Fires when trees taken away from this host were not given back: drop their registrations."""


class OwnerEpochs:
    """The highest epoch of an owner of each tree that this host has heard of."""

    def __init__(self) -> None:
        self._trees: BoundedDict[str, int] = BoundedDict(EPOCHS_MOST)
        """By attribute."""
        self._arcs: BoundedDict[Key, tuple[Key, int]] = BoundedDict(EPOCHS_MOST)
        """By an arc's end its start and the highest epoch of an owner that named its trees."""

    def heard(self, attribute: str, epoch: int) -> None:
        """Note that an owner of the tree has this epoch."""
        self._trees.renew(attribute, epoch)

    def heard_of_arc(self, start: Key, key: Key, epoch: int) -> None:
        """Note that an owner of this epoch has named the trees of an arc."""
        if epoch >= self._arcs.get(key, ("", 0))[1]:
            self._arcs[key] = (start, epoch)

    def of_tree(self, attribute: str) -> int:
        """The highest epoch of an owner that gave an order about the tree; 0: none did."""
        return self._trees.get(attribute, 0)

    def known(self, attribute: str, key: Key) -> int:
        """The highest epoch of an owner that spoke of the tree with this key, or of its arc."""
        highest = self._trees.get(attribute, 0)
        for end, (start, epoch) in self._arcs.items():
            if epoch > highest and in_arc(key, start, end):
                highest = epoch
        return highest


class FormerTrees(Machine):
    """Trees that were taken away from this host. Their registrations are kept for a while, since
    an owner may give them back."""

    def __init__(self, port: Port, trees: dict[str, HostedTree]) -> None:
        """`trees`: the host's; those that are dropped here are taken out."""
        super().__init__(port)
        self._trees = trees
        self._until: dict[str, float] = {}
        """When what they had is dropped, in this order."""
        self._alarm = Alarm(port, FormerOver())

    def add(self, attribute: str) -> None:
        """Remember for `FORMER_FOR` seconds that the tree was taken away."""
        self._until.pop(attribute, None)
        self._until[attribute] = self.port.now + FORMER_FOR
        self._alarm.within(FORMER_FOR)

    def clear(self) -> None:
        """Forget all trees, which have ended."""
        self._until.clear()

    def on_former_over(self, timer: FormerOver) -> None:
        """Drop some of what no owner has given this host again."""
        self._alarm.rang()
        now, left = self.port.now, AT_ONCE * ENDS
        for attribute, until in list(self._until.items()):
            tree = self._trees.get(attribute)
            if tree is None or tree.served.intervals:
                del self._until[attribute]
            elif until > now:
                self._alarm.within(until - now)
                break
            else:
                before = len(tree.former)
                if tree.drop_former(left):
                    del self._until[attribute]
                    if not tree.registrations:
                        del self._trees[attribute]
                left -= before
                if left <= 0:
                    self._alarm.within(0.0)
                    break


# --- the trees that events visit together here, decided once for all events ---
#
# Events of one shape visit the same trees here, one visit after the other. Whether all of these are
# served, whole and under a lease depends on what owners say, not on the events: it is kept, by the
# names of the trees, until an owner says anything that could change it. So a visit of a single
# event costs one lookup in place of a dozen decisions for each of its ten trees.


class TreesTogether(msgspec.Struct, eq=False):
    """Trees that are all served here, whole. Counts events for the samples of all of them
    (`VisitSample`), so that an event is counted and drawn once."""

    trees: dict[str, HostedTree]
    until: float
    """When the first lease of these trees ends; the Port's seconds."""
    events: int = 0
    stride: int = 1
    until_next: int = 0
    drawn: int = 0  # with this stride
    samples: deque[Attributes] = msgspec.field(default_factory=lambda: deque(maxlen=PLACES_MOST))
    """The events that were drawn, until they are handed over."""

    def visited(self, events: Sequence[Event], rng: Random) -> None:
        """Count and sample events that have visited all of these trees."""
        self.events += len(events)
        self.until_next -= len(events)
        while self.until_next < 0:
            self.samples.append(events[self.until_next].attributes)
            self.drawn += 1
            if self.drawn == PLACES_LEAST:  # many come since the last measurement
                self.stride, self.drawn = 2 * self.stride, 0
            self.until_next += 1 + rng.randrange(2 * self.stride - 1)

    def hand_over(self) -> None:
        """Add the counted events to the samples of the trees."""
        for tree in self.trees.values():
            tree.visits.count(self.events, len(self.trees))
            tree.visits.draw(self.samples)
        self.events = 0
        self.samples.clear()


class KnownTogether:
    """By their names, trees that events visit together. Bounded: those that were found longest ago
    are found again."""

    def __init__(self) -> None:
        self._known: BoundedDict[tuple[str, ...], TreesTogether] = BoundedDict(
            TOGETHER_MOST, lambda _, together: together.hand_over()
        )

    def get(self, names: tuple[str, ...], now: float) -> TreesTogether | None:
        """Trees that were found; None: they are to be looked at."""
        found = self._known.get(names)
        return found if found is not None and found.until > now else None

    def add(self, names: tuple[str, ...], trees: Mapping[str, HostedTree], until: float) -> None:
        """Note that these trees are served here as a whole until `until`, unless an owner says
        otherwise."""
        before = self._known.pop(names, None)
        if before is not None:
            before.hand_over()
        stride = 1 if before is None else before.stride
        skipped = 0 if before is None else before.until_next
        self._known[names] = TreesTogether(dict(trees), until, 0, stride, skipped)

    def hand_over(self) -> None:
        """Add the counted events to the samples of the trees."""
        for together in self._known.values():
            together.stride, together.drawn = max(1, together.events // PLACES_LEAST), 0
            together.hand_over()

    def forget(self) -> None:
        """Forget what is served, because an owner has changed something; keep the counting."""
        for together in self._known.values():
            together.until = float("-inf")


class AssignedTrees(Machine):
    """The trees of this host, as their owners say."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        access_points: AccessPoints,
        ring: Ring,
        trees: dict[str, HostedTree],
        loads: ServedLoads,
        is_keyed: bool = False,
    ) -> None:
        """`trees`: by attribute, changed only here; `loads`: what virtual nodes ask of this host;
        `is_keyed`: nodes have keys, so that who gives orders can be looked at."""
        super().__init__(port)
        self.trees = trees
        self.index: SharedIndex | None = (
            None if settings.tree.routing == "counting" else GroupedIndex()
        )
        self.loads = loads
        self.access_points = access_points
        self.leases = ServingLeases()
        self.together = KnownTogether()
        from_owners: dict[type[Message], Handler] = {
            Assign: self.on_assign,
            TreesHosted: self.on_trees_hosted,
            Install: self.on_install,
            Uninstall: self.on_uninstall,
            ServingBeat: self.on_serving_beat,
        }
        self.inbox = SlicedInbox(port, InstallDue(), from_owners, self._say_installed)
        self.claims = (
            OwnerClaims(port, ring, self.inbox.take, from_owners, ClaimsDue()) if is_keyed else None
        )
        self._orphans = OrphanedTrees(port, trees, self, ring, settings.tree.serving_most)
        self._former = FormerTrees(port, trees)
        self._installed: dict[tuple[NodeId, str], tuple[Peer, list[str]]] = {}
        """By owner and tree, what this turn has installed."""
        self._lives: BoundedDict[NodeId, int] = BoundedDict(LIVES_MOST)
        """The newest incarnation of a node that has registered something here."""
        self._leaves: BoundedDict[NodeId, None] = BoundedDict(LEAVES_MOST)
        self.ring = ""
        """The ring of this node; "" while none is known."""
        self._epochs = OwnerEpochs()

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            **super().handlers(),
            **self.inbox.handlers(),  # takes over what owners say
            **(self.claims.handlers() if self.claims else {}),  # … after a look at who says it
            **self._orphans.handlers(),
            **self._former.handlers(),
        }

    def start(self) -> None:
        """Begin to look for trees whose owners were lost (`OrphanedTrees`)."""
        self._orphans.start()

    # --- what owners order ---

    def on_install(self, sender: Peer, message: Install) -> None:
        """Match these registrations; they may come before the interval is assigned. Answered for
        all of this turn together."""
        if self._is_fenced(message.attribute, message.epoch):
            return
        tree = self._tree(message.attribute)
        fresh: list[tuple[Registration, Predicate]] = []
        process = ""
        for registration in message.registrations:
            made_by = registration.id.rpartition(".")[0]
            if made_by != process:  # mostly all are of one
                process = made_by
                node, life = registration.subscriber.id, registration.life
                if life > self._lives.get(node, 0):
                    self._lives.renew(node, life)
            if registration.confined is not None:
                self._leaves.renew(registration.subscriber.id, None)
            if not tree.retake(registration):
                fresh.append((registration, compiled(registration.selector)))
        tree.install(fresh)
        retaken = len(message.registrations) - len(fresh)
        self.inbox.charge(-(retaken * RETAKEN // (RETAKEN + 1)))
        _, ids = self._installed.setdefault((sender.id, message.attribute), (sender, []))
        ids += [registration.id for registration in message.registrations]

    def _say_installed(self) -> None:
        installed, self._installed = self._installed, {}
        for (_, attribute), (owner, ids) in installed.items():
            for some in in_batches(ids, weigh_text, MAX_BATCH):
                self.port.send(owner, Installed(attribute, some))

    def on_uninstall(self, sender: Peer, message: Uninstall) -> None:
        """Drop these registrations of a tree; a message of an earlier epoch than the tree's is
        ignored."""
        if self._is_fenced(message.attribute, message.epoch):
            return
        tree = self.trees.get(message.attribute)
        if tree is not None:
            for id_ in message.ids:
                tree.uninstall(id_)

    def on_assign(self, sender: Peer, message: Assign) -> None:
        """Serve these intervals from this version on; an older version than the last is ignored."""
        if self._is_fenced(message.attribute, message.version[0]):
            return
        tree = self._tree(message.attribute)
        if message.version >= tree.version:
            self.together.forget()
            tree.assign(message, sender, self.port.now)
            if not message.intervals:
                self.access_points.withdraw(message.attribute)
                if tree.former:
                    self._former.add(message.attribute)
                else:
                    del self.trees[message.attribute]
            else:
                self._orphans.tree_assigned()
                self.access_points.serve(self._access_point(tree))
        self.port.send(sender, Assigned(message.attribute, message.version))

    def _tree(self, attribute: str) -> HostedTree:
        tree = self.trees.get(attribute)
        if tree is None:
            tree = self.trees[attribute] = HostedTree(attribute, self.index, self.port.rng)
        return tree

    def on_trees_hosted(self, sender: Peer, message: TreesHosted) -> None:
        """Drop the trees of an arc that its owner does not list as hosted here: they ended while
        this node was out of reach, or a former primary assigned them without a majority. The epoch
        is noted, so that later orders of that primary are refused."""
        if self.ring and message.ring not in ("", self.ring):
            return  # of a ring that has not ended yet; it has nothing here
        self.together.forget()
        self._epochs.heard_of_arc(message.start, message.key, message.epoch)
        listed = dict.fromkeys(message.attributes)
        ended = [
            attribute
            for attribute, tree in self.trees.items()
            if attribute not in listed
            and in_arc(attribute_key(attribute), message.start, message.key)
            and max(tree.version[0], self._epochs.of_tree(attribute)) <= message.epoch
        ]
        for attribute in ended:
            self.trees.pop(attribute).empty()
            self.access_points.withdraw(attribute)
        if ended:
            self.port.count("trees_dropped", len(ended))

    def on_serving_beat(self, sender: Peer, message: ServingBeat) -> None:
        """An owner grants a serving lease, or renews it."""
        self.leases.take(sender.id, message, self.port.now)
        self.loads.measure(self.samples)
        load = self.loads.report(
            lambda name: (
                in_arc(self.trees[name].key, message.start, message.key)
                if name in self.trees
                else False
            )
        )
        reply = ServingReply(message.key, message.number, load, self.port.processors)
        self.port.send(sender, reply)

    def samples(self) -> list[SampledTree]:
        """Return, for each tree, its intervals and a sample of the places of the events that
        came."""
        self.together.hand_over()
        return [SampledTree(tree.served.intervals, tree.visits) for tree in self.trees.values()]

    def _is_fenced(self, attribute: str, epoch: int) -> bool:
        """Whether a message of this epoch is from a former primary."""
        known = self._epochs.known(attribute, attribute_key(attribute))
        self._epochs.heard(attribute, max(known, epoch))
        if epoch > known:
            self.together.forget()
        if epoch < known:
            self.port.count("hosting_fenced")
            self._orphans.order_refused(attribute, known)
        return epoch < known

    def _access_point(self, tree: HostedTree) -> AccessPoint:
        ring = self.access_points.ring
        return AccessPoint(tree.attribute, self.port.me, tree.version, 0, ring)

    # --- what may be served ---

    def known_epoch(self, tree: HostedTree) -> int:
        """The epoch of the tree's owner, the latest that this host heard of."""
        return max(tree.version[0], self._epochs.known(tree.attribute, tree.key))

    def has_lease(self, tree: HostedTree) -> bool:
        """Whether the tree's owner lets this host serve it now."""
        return self.leases.covers(tree.key, self.known_epoch(tree), self.port.now)

    def served_together(self, names: tuple[str, ...]) -> TreesTogether | None:
        """The trees of these names, if all of them are served here, whole, under a lease; None:
        they are to be looked at one by one."""
        now = self.port.now
        together = self.together.get(names, now)
        if together is None:
            trees = {name: tree for name in names if (tree := self.trees.get(name)) is not None}
            if len(trees) == len(names) and all(tree.served.is_whole for tree in trees.values()):
                leases = [
                    self.leases.until(tree.key, self.known_epoch(tree), now)
                    for tree in trees.values()
                ]
                until = min(leases, default=now)
                if until > now:
                    self.together.add(names, trees, until)
                    together = self.together.get(names, now)
        return together

    def served_for_others(self) -> list[HostedTree]:
        """The trees that this host serves and another node owns."""
        return [
            tree
            for tree in self.trees.values()
            if tree.served.intervals
            and tree.owner is not None
            and tree.owner.id != self.port.me.id
            and self.has_lease(tree)
        ]

    # --- whose registrations these are ---

    def has_registrations(self, node: NodeId) -> bool:
        """Whether a node has registrations in some tree here."""
        if self.index is not None:
            return node in self.index.groups()
        return any(
            registration.subscriber.id == node
            for tree in self.trees.values()
            for registration, _ in tree.registrations.values()
        )

    def life_of(self, node: NodeId) -> int:
        """The newest incarnation of a node that has registered something here; 0: not known."""
        return self._lives.get(node, 0)

    def is_leaf(self, node: NodeId) -> bool:
        """Whether the node is known, by its registrations here, to do nothing for others."""
        return node in self._leaves

    # --- the ring ---

    def on_ring_known(self, event: RingKnown) -> None:
        """Only access points of this ring's trees are of use, and gossiped."""
        self.ring = event.ring
        self.access_points.enter_ring(event.ring)
        served = [tree for tree in self.trees.values() if tree.served.intervals]
        self.access_points.set_local(list(map(self._access_point, served)))

    def on_ring_left(self, event: RingLeft) -> None:
        """Drop everything: owners of another ring count their epochs again, and know of no tree
        here."""
        self.inbox.clear()
        for tree in self.trees.values():
            tree.empty()
        self.trees.clear()
        self._former.clear()
        self._epochs = OwnerEpochs()
        self._orphans.ring_left()
        self.leases = ServingLeases()
