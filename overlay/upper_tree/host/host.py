"""The host's side of the trees: virtual nodes, and events that come by (C6 to C9).

An event enters at any host of the tree. If one of the host's own virtual nodes contains the value,
the event is matched there (visit_handler.py) and sent to the interested nodes; else it goes on
towards the virtual node that contains it (partition.py). Either way the publisher hears which hosts
have accepted the event, so that the next one goes there directly. A host that does not serve the
tree, or has no serving lease from its owner (orphaned_trees.py), answers `TreeMoved`."""

from __future__ import annotations

from matching import GroupedIndex, Predicate
from overlay.bounded import BoundedDict
from overlay.chord.events import RingKnown, RingLeft
from overlay.chord.keys import attribute_key, in_arc
from overlay.chord.ring.ring import Ring
from overlay.incidents import FAULT, contain
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
    ProtocolError,
    Timer,
)
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH, in_batches, weigh_text
from overlay.upper_tree.compiled_selectors import compiled
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.holding import Holding
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.host.acceptances import Acceptances, AcceptancesDue
from overlay.upper_tree.host.constants import (
    EPOCHS_MOST,
    FORMER_FOR,
    HOP_BOUND,
    LEAVES_MOST,
    LIVES_MOST,
    RETAKEN,
)
from overlay.upper_tree.host.dry_matching import dry_matches
from overlay.upper_tree.host.hosted_tree import HostedTree, SharedIndex
from overlay.upper_tree.host.orphaned_trees import OrphanedTrees, ServingLeases
from overlay.upper_tree.host.queue_sharing import QueueSharing
from overlay.upper_tree.host.served_loads import SampledTree
from overlay.upper_tree.host.shard_gatherings import ShardGathering
from overlay.upper_tree.host.trees_together import KnownTogether, TreesTogether
from overlay.upper_tree.host.visit_handler import (
    VisitHandler,
    check_visit,
    is_from_host,
)
from overlay.upper_tree.host.visit_scheduler import MatchDue, VisitScheduler
from overlay.upper_tree.inspection_messages import AskMatches
from overlay.upper_tree.messages import (
    Assign,
    Assigned,
    EventsRefused,
    Install,
    Installed,
    Registration,
    ServingBeat,
    ServingReply,
    TreesHosted,
    Uninstall,
    Visit,
)
from overlay.upper_tree.owner_claims import ClaimsDue, OwnerClaims
from overlay.upper_tree.sliced_inbox import AT_ONCE, ENDS, SlicedInbox
from overlay.upper_tree.visits import select_events, trees_of


class InstallDue(Timer, frozen=True):
    """Time to install more of what owners have sent."""


class FormerOver(Timer, frozen=True):
    """Trees that were taken away from this host were not given back: drop what they had."""


class Hosting(Machine):
    """Serves virtual nodes of any number of trees."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        access_points: AccessPoints,
        ring: Ring,
        relays: Relays,
        notices: GapNotices,
        is_confined: bool = False,
        is_keyed: bool = False,
    ) -> None:
        """`relays` and `notices` are the node's (delivery/); `is_confined`: it is of a tenant;
        `is_keyed`: nodes have keys, so that who gives orders can be looked at."""
        super().__init__(port)
        self.counting = settings.tree.routing == "counting"
        self._is_confined = is_confined
        self._leaves: BoundedDict[NodeId, None] = BoundedDict(LEAVES_MOST)
        self._room = settings.tree.host_entries
        self.copies = CopyBudget(settings.tree.fan_out, window=settings.tree.order_hold)
        """How many copies of an event may leave this node, also as publisher and delegate (C11)."""
        self._lives: BoundedDict[NodeId, int] = BoundedDict(LIVES_MOST)
        """The newest incarnation of a node that has registered something here."""
        self.holding = Holding(
            port,
            settings,
            relays,
            notices,
            self,
        )
        """What is for nodes out of reach, as whatever this node owes it: host or delegate."""
        self.access_points = access_points
        self.trees: dict[str, HostedTree] = {}
        self.index: SharedIndex | None = None if self.counting else GroupedIndex()
        self.scheduler = VisitScheduler(port, settings.tree, self.trees, self)
        from_owners: dict[type[Message], Handler] = {
            Assign: self.on_assign,
            TreesHosted: self.on_trees_hosted,
            Install: self.on_install,
            Uninstall: self.on_uninstall,
            ServingBeat: self.on_serving_beat,
        }
        self._former: dict[str, float] = {}
        """Trees that were taken away, and when what they had is dropped, in this order."""
        self._drop_former = Alarm(port, FormerOver())
        self._installed: dict[tuple[NodeId, str], tuple[Peer, list[str]]] = {}
        """By owner and tree, what this turn has installed."""
        self.inbox = SlicedInbox(port, InstallDue(), from_owners, self._say_installed)
        self.claims = (
            OwnerClaims(port, ring, self.inbox.take, from_owners, ClaimsDue()) if is_keyed else None
        )
        self.orphans = OrphanedTrees(port, self.trees, self, ring, settings.tree.serving_most)
        self.gathering = ShardGathering(port, self.trees, self.scheduler)
        self.sharing = QueueSharing(port, self.trees, self.copies)
        self.leases = ServingLeases()
        self._together = KnownTogether(port.rng)
        self.loads = self.scheduler.served_loads()
        """What virtual nodes ask of this host."""
        self._acceptances = Acceptances(port, self.scheduler)
        self._ring = ""  # that this node belongs to
        self._epochs: BoundedDict[str, int] = BoundedDict(EPOCHS_MOST)
        """By attribute, the highest epoch of an owner."""
        self._arc_epochs: BoundedDict[Key, tuple[Key, int]] = BoundedDict(EPOCHS_MOST)
        """By an arc's end its start and the highest epoch of an owner that named its trees."""

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            **super().handlers(),
            **self.inbox.handlers(),  # takes over what owners say
            **(self.claims.handlers() if self.claims else {}),  # … after a look at who says it
            **self.orphans.handlers(),
            **self.gathering.handlers(),
            MatchDue: self.scheduler.on_match_due,
            AcceptancesDue: self._acceptances.on_due,
        }

    def start(self) -> None:
        """Begin to look for trees whose owners were lost (`OrphanedTrees`)."""
        self.orphans.start()

    @property
    def ring(self) -> str:
        """That this node belongs to; "" while none is known."""
        return self._ring

    # --- what owners say ---

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

    def is_leaf(self, node: NodeId) -> bool:
        """Whether the node is known, by its registrations here, to do nothing for others."""
        return node in self._leaves

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
            self._together.forget()
            tree.assign(message, sender, self.port.now)
            if not message.intervals:
                self.access_points.withdraw(message.attribute)
                self._former.pop(message.attribute, None)
                if tree.former:
                    self._former[message.attribute] = self.port.now + FORMER_FOR
                    self._drop_former.within(FORMER_FOR)
                else:
                    del self.trees[message.attribute]
            else:
                self.orphans.tree_assigned()
                self.access_points.serve(self._access_point(tree))
        self.port.send(sender, Assigned(message.attribute, message.version))

    def on_former_over(self, timer: FormerOver) -> None:
        """Drop some of what no owner has given this host again."""
        self._drop_former.rang()
        now, left = self.port.now, AT_ONCE * ENDS
        for attribute, until in list(self._former.items()):
            tree = self.trees.get(attribute)
            if tree is None or tree.intervals:
                del self._former[attribute]
            elif until > now:
                self._drop_former.within(until - now)
                break
            else:
                before = len(tree.former)
                if tree.drop_former(left):
                    del self._former[attribute]
                    if not tree.registrations:
                        del self.trees[attribute]
                left -= before
                if left <= 0:
                    self._drop_former.within(0.0)
                    break

    def _tree(self, attribute: str) -> HostedTree:
        tree = self.trees.get(attribute)
        if tree is None:
            tree = self.trees[attribute] = HostedTree(attribute, self.index, self.port.rng)
        return tree

    def on_trees_hosted(self, sender: Peer, message: TreesHosted) -> None:
        """Drop the trees of an arc that its owner does not list as hosted here: they ended while
        this node was out of reach, or a former primary assigned them without a majority. The epoch
        is noted, so that later orders of that primary are refused."""
        if self._ring and message.ring not in ("", self._ring):
            return  # of a ring that has not ended yet; it has nothing here
        self._together.forget()
        if message.epoch >= self._arc_epochs.get(message.key, ("", 0))[1]:
            self._arc_epochs[message.key] = (message.start, message.epoch)
        listed = dict.fromkeys(message.attributes)
        ended = [
            attribute
            for attribute, tree in self.trees.items()
            if attribute not in listed
            and in_arc(attribute_key(attribute), message.start, message.key)
            and max(tree.version[0], self._epochs.get(attribute, 0)) <= message.epoch
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
        """Which of the events that came lie where in which tree."""
        self._together.hand_over()
        return [SampledTree(tree.intervals, tree.visits) for tree in self.trees.values()]

    def known_epoch(self, tree: HostedTree) -> int:
        """The epoch of the tree's owner, the latest that this host heard of."""
        known = max(tree.version[0], self._epochs.get(tree.attribute, 0))
        return max(known, self._arc_epoch(tree.key))

    def has_lease(self, tree: HostedTree) -> bool:
        """Whether the tree's owner lets this host serve it now."""
        return self.leases.covers(tree.key, self.known_epoch(tree), self.port.now)

    def _leased_until(self, tree: HostedTree) -> float:
        return self.leases.until(tree.key, self.known_epoch(tree), self.port.now)

    def served_for_others(self) -> list[HostedTree]:
        """The trees that this host serves and another node owns."""
        return [
            tree
            for tree in self.trees.values()
            if tree.intervals
            and tree.owner is not None
            and tree.owner.id != self.port.me.id
            and self.has_lease(tree)
        ]

    def _arc_epoch(self, key: Key) -> int:
        """The highest epoch of an owner that named which trees of its arc are here."""
        highest = 0
        for end, (start, epoch) in self._arc_epochs.items():
            if epoch > highest and in_arc(key, start, end):
                highest = epoch
        return highest

    def on_ring_known(self, event: RingKnown) -> None:
        """Only access points of this ring's trees are of use, and gossiped."""
        self._ring = event.ring
        self.access_points.enter_ring(event.ring)
        served = [tree for tree in self.trees.values() if tree.intervals]
        self.access_points.set_local(list(map(self._access_point, served)))

    def on_ring_left(self, event: RingLeft) -> None:
        """Drop everything: owners of another ring count their epochs again, and know of no tree
        here."""
        self.inbox.clear()
        for tree in self.trees.values():
            tree.empty()
        self.trees.clear()
        self._former.clear()
        self._epochs.clear()
        self._arc_epochs.clear()
        self.orphans.ring_left()
        self.leases = ServingLeases()

    def _is_fenced(self, attribute: str, epoch: int) -> bool:
        """Whether a message of this epoch is from a former primary."""
        known = max(self._epochs.get(attribute, 0), self._arc_epoch(attribute_key(attribute)))
        self._epochs.renew(attribute, max(known, epoch))
        if epoch > known:
            self._together.forget()
        if epoch < known:
            self.port.count("hosting_fenced")
        return epoch < known

    def _access_point(self, tree: HostedTree) -> AccessPoint:
        ring = self.access_points.ring
        return AccessPoint(tree.attribute, self.port.me, tree.version, 0, ring)

    # --- events ---

    @property
    def load(self) -> int:
        """Per cent of what this node can host that is asked of it, in time or in room for
        registrations, whichever is scarcer; 100 at most."""
        if not self.trees:
            return 0
        taken = sum([len(tree.registrations) for tree in self.trees.values()])
        return min(100, int(100 * max(self.loads.busy, taken / self._room)))

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

    def on_visit(self, sender: Peer, message: Visit) -> None:
        """Events to be matched, now or when it is their turn (visit_scheduler.py). Where nodes have
        keys, those that a node has passed on that hosts none of these trees are given back."""
        if sender.id != self.port.me.id:
            check_visit(message)
            if (
                self.claims is not None
                and sender.id != message.origin.id
                and not is_from_host(message, sender.id, self.trees)
            ):
                self.port.count("visits_refused", len(message.events))
                self._handler(message).give_back_all()
                return
        self.scheduler.take(message)

    def on_ask_matches(self, sender: Peer, message: AskMatches) -> None:
        """Say whom these events would be sent to, without sending them."""
        if self.index is not None:
            self.port.count("dry_runs_matched", len(message.events))
            self.port.send(sender, dry_matches(self.index, self.trees, self.has_lease, message))

    def _handler(self, message: Visit) -> VisitHandler:
        return VisitHandler(
            self.port,
            message,
            self.index,
            self.trees,
            self.copies,
            self.holding,
            self.gathering,
            self._acceptances,
            self._is_confined,
        )

    @property
    def is_held_back(self) -> bool:
        """Whether interested nodes take their deliveries more slowly than they come, just now."""
        return self.holding.holds_back

    def serve(self, visit: Visit, came: float) -> int:
        """Match, pass on, or give back, for each attribute, what came at this time. How many events
        were matched here."""
        if self.sharing.pass_on(visit, came):
            return 0
        try:
            return self._match(visit)
        except ProtocolError:
            raise
        except Exception as error:
            return self._match_apart(visit, error)

    def _match_apart(self, message: Visit, error: Exception) -> int:
        """Matching has failed: match the events one by one, and refuse the one that is to blame, so
        that its publisher does not bring it to other hosts."""
        if len(message.events) > 1:
            apart = [select_events(message, [place]) for place in range(len(message.events))]
            return sum([self.serve(one, self.port.now) for one in apart])
        for event in message.events:
            contain(self.port, f"matching {event.identity}", error)
            refused = EventsRefused(event.incarnation, (event.sequence,), 0, FAULT)
            self.port.send(message.origin, refused)
        return 0

    def _match(self, message: Visit) -> int:
        visit = self._handler(message)
        together = self._visited_together(message)
        if together is not None:
            visit.accept_all(together.trees)
            together.visited(message.events, self.port.rng)
        else:
            self._accept_each(visit, message)
        visit.match()
        visit.finish()
        return visit.matched

    def _visited_together(self, visit: Visit) -> TreesTogether | None:
        """The trees that all events of the visit visit, if all of these are served here, whole;
        None: else, or they are to be looked at one by one."""
        if visit.apart or visit.part is not None or visit.hop > HOP_BOUND:
            return None
        now, names = self.port.now, visit.attributes
        together = self._together.get(names, now)
        if together is None:
            trees = {name: tree for name in names if (tree := self.trees.get(name)) is not None}
            if len(trees) == len(names) and all(tree.is_whole for tree in trees.values()):
                until = min([self._leased_until(tree) for tree in trees.values()], default=now)
                if until > now:
                    self._together.add(names, trees, until)
                    together = self._together.get(names, now)
        return together

    def _accept_each(self, visit: VisitHandler, message: Visit) -> None:
        for attribute in trees_of(message):
            tree = self.trees.get(attribute)
            if tree is None or not tree.intervals or message.hop > HOP_BOUND:
                visit.give_back(attribute)
            elif not self.has_lease(tree):
                self.port.count("visits_without_lease", len(message.events))
                visit.give_back(attribute)
            elif message.part is not None:
                visit.accept_part(attribute, tree, message.part)
            else:
                visit.accept(attribute, tree)
        for attribute, events, trees in visit.accepted():
            self.trees[attribute].visits.visited(events, trees)
