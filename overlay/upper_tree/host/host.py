"""The host's side of the trees: virtual nodes, and events that come by (C6 to C9).

An event enters at any host of the tree. If one of the host's own virtual nodes contains the value,
the event is matched there (visit_handler.py) and sent to the interested nodes; else it goes on
towards the virtual node that contains it (partition.py). Either way the publisher hears which hosts
have accepted the event, so that the next one goes there directly. A host that does not serve the
tree, or has no serving lease from its owner (orphaned_trees.py), answers `TreeMoved`."""

from __future__ import annotations

from collections.abc import Mapping

from overlay.chord.ring.ring import Ring
from overlay.incidents import FAULT, contain
from overlay.lower_random.access_points import AccessPoints
from overlay.machine import Handlers, Machine, Peer, Port, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.holding import Holding
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.host.acceptances import Acceptances, AcceptancesDue
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.host.constants import HOP_BOUND
from overlay.upper_tree.host.dry_match import dry_matches
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.shard_gatherings import ShardGathering
from overlay.upper_tree.host.shared_queue import QueueSharing
from overlay.upper_tree.host.visit_handler import VisitHandler, check_visit, is_from_host
from overlay.upper_tree.host.visit_scheduler import MatchDue, VisitScheduler
from overlay.upper_tree.inspection_messages import AskMatches
from overlay.upper_tree.messages import EventsRefused, Visit
from overlay.upper_tree.visits import select_events, trees_of


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
        self._is_keyed = is_keyed
        self._room = settings.tree.host_entries
        self.copies = CopyBudget(settings.tree.fan_out, window=settings.tree.order_hold)
        """How many copies of an event may leave this node, also as publisher and delegate (C11)."""
        trees: dict[str, HostedTree] = {}
        self.scheduler = VisitScheduler(port, settings.tree, trees, self)
        self.assigned = AssignedTrees(
            port,
            settings,
            access_points,
            ring,
            trees,
            self.scheduler.served_loads(),
            is_keyed,
        )
        self.trees: Mapping[str, HostedTree] = trees
        self.index = self.assigned.index
        self.holding = Holding(port, settings, relays, notices, self.assigned)
        """What is for nodes out of reach, as whatever this node owes it: host or delegate."""
        self.gathering = ShardGathering(port, trees, self.scheduler)
        self.sharing = QueueSharing(port, trees, self.copies)
        self._acceptances = Acceptances(port, self.scheduler)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            **super().handlers(),
            **self.assigned.handlers(),
            **self.gathering.handlers(),
            MatchDue: self.scheduler.on_match_due,
            AcceptancesDue: self._acceptances.on_due,
        }

    def start(self) -> None:
        """Begin to look for trees whose owners were lost."""
        self.assigned.start()

    @property
    def load(self) -> int:
        """Per cent of what this node can host that is asked of it, in time or in room for
        registrations, whichever is scarcer; 100 at most."""
        if not self.trees:
            return 0
        taken = sum([len(tree.registrations) for tree in self.trees.values()])
        return min(100, int(100 * max(self.assigned.loads.busy, taken / self._room)))

    def on_visit(self, sender: Peer, message: Visit) -> None:
        """Events to be matched, now or when it is their turn (visit_scheduler.py). Where nodes have
        keys, those that a node has passed on that hosts none of these trees are given back."""
        if sender.id != self.port.me.id:
            check_visit(message)
            if (
                self._is_keyed
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
            self.port.send(
                sender, dry_matches(self.index, self.trees, self.assigned.has_lease, message)
            )

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
        together = None
        if not message.apart and message.part is None and message.hop <= HOP_BOUND:
            together = self.assigned.served_together(message.attributes)
        if together is not None:
            visit.accept_all(together.trees)
            together.visited(message.events, self.port.rng)
        else:
            self._accept_each(visit, message)
        visit.match()
        visit.finish()
        return visit.matched

    def _accept_each(self, visit: VisitHandler, message: Visit) -> None:
        for attribute in trees_of(message):
            tree = self.trees.get(attribute)
            if tree is None or not tree.intervals or message.hop > HOP_BOUND:
                visit.give_back(attribute)
            elif not self.assigned.has_lease(tree):
                self.port.count("visits_without_lease", len(message.events))
                visit.give_back(attribute)
            elif message.part is not None:
                visit.accept_part(attribute, tree, message.part)
            else:
                visit.accept(attribute, tree)
        for attribute, events, trees in visit.accepted():
            self.trees[attribute].visits.visited(events, trees)
