"""The host's side of the trees: virtual nodes, and events that come by (C6 to C9).

An event enters at any host of the tree. If one of the host's own virtual nodes contains the value,
the event is matched there (visit_handler.py) and sent to the interested nodes; else it goes on
towards the virtual node that contains it (partition.py). Either way the publisher hears which hosts
have accepted the event, so that the next one goes there directly. A host that does not serve the
tree, or has no serving lease from its owner (orphaned_trees.py), answers `TreeMoved`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from matching import Value, place
from overlay.chord.ring.ring import Ring
from overlay.incidents import FAULT, contain
from overlay.lower_random.access_points import AccessPoints
from overlay.machine import Handlers, Machine, NodeId, Peer, Port, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.delivery.constants import COUNTED_MOST
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.host.acceptances import Acceptances, AcceptancesDue
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.host.constants import HOP_BOUND, LISTED_MOST
from overlay.upper_tree.host.hosted_tree import HostedTree, SharedIndex
from overlay.upper_tree.host.shard_gatherings import ShardGathering
from overlay.upper_tree.host.visit_handler import VisitHandler, check_visit, is_from_host
from overlay.upper_tree.host.visit_scheduler import MatchDue, VisitScheduler
from overlay.upper_tree.inspection_messages import (
    AskMatches,
    MatchesFound,
    NodeMatch,
)
from overlay.upper_tree.messages import EVENT_TREE, EventsRefused, Visit, value_in
from overlay.upper_tree.visits import groups_of, select_events, trees_of

# --- what waits when a virtual node gets more hosts is divided among them (C6) ---
#
# A burst finds few hosts. Until the owner has given a virtual node more of them, seconds of work
# may wait at the first ones, while publishers wait for their acceptance and admit no more
# (PendingWindow in publisher/). The new hosts have all registrations as well. So of what came
# before they were there, each host gets its turn, this one among them: a visit costs the price of a
# frame more, and what waited is done n times as soon. What came later is passed on to nobody:
# publishers choose.
#
# A visit is passed on once, and only if all that it visits here has several hosts. (What is not
# served here any more goes along the tree, see visit_handler.py. Values that are cut into shards
# are left to shard_gatherings.py.)


class QueueSharing:
    """Passes visits on to other hosts while too few hosts do the work. `trees` are the host's
    trees. Copies that are sent are counted in the budget `copies`."""

    def __init__(self, port: Port, trees: Mapping[str, HostedTree], copies: CopyBudget) -> None:
        self._port = port
        self._trees = trees
        self._copies = copies
        self._turn = 0

    def pass_on(self, visit: Visit, came: float) -> bool:
        """Whether the visit, which came at this time (the Port's seconds), was sent to another host
        instead of being matched here."""
        if visit.hop > 1 or visit.part is not None:
            return False
        for attribute in trees_of(visit):
            tree = self._trees.get(attribute)
            if tree is None or came >= tree.hosts_grew_at:
                return False  # it came when the tree had these hosts already
        hosts = self._common_hosts(visit)
        self._turn += 1
        if len(hosts) < 2:
            return False
        to = hosts[sorted(hosts)[self._turn % len(hosts)]]
        if to.id == self._port.me.id:
            return False
        hop = visit.hop + 1
        self._copies.add(visit.events)
        for event in self._port.sampled(visit.events):
            self._port.trace(
                "visit", event=event.identity, attribute=visit.attributes[0], hop=hop, peer=to.id
            )
        self._port.count("visits_shared", len(visit.events))
        # `to` knows this host by its slice of the tree, as it serves the same.
        self._port.send(to, msgspec.structs.replace(visit, hop=hop, tokens=()))
        return True

    def _common_hosts(self, visit: Visit) -> dict[NodeId, Peer]:
        """The hosts that serve all that the visit's events ask for here."""
        found: dict[NodeId, Peer] | None = None
        for trees, events in groups_of(visit):
            for attribute in trees:
                served = self._trees[attribute].served
                for event in events:
                    value = value_in(event, attribute)
                    span = None if value is None or served.shards else served.span(place(value))
                    there = {host.id: host for host in served.hosts[span]} if span else {}
                    kept = there if found is None else found
                    found = {node: host for node, host in kept.items() if node in there}
                    if len(found) < 2:
                        return {}
        return found or {}


# --- matching without delivering: what a host answers for `canopy pub --dry-run` (C9) ---
#
# The index is asked as for a visit (visit_handler.py), and nothing else happens: no delivery, no
# record in the traces, nothing that a publisher would remember. Under counting routing a host sees
# only single constraints and not whole conjunctions, so the asker does not ask at all
# (../clients/dry_run.py).


def dry_matches(
    index: SharedIndex,
    trees: Mapping[str, HostedTree],
    is_served: Callable[[HostedTree], bool],
    message: AskMatches,
) -> MatchesFound:
    """The answer to an `AskMatches`. `is_served`: whether the owner lets this host serve a tree."""
    if len(message.attributes) != len(message.events):
        raise ProtocolError("a dry run has not the attributes of each event")
    attributes_of = dict(zip(message.events, message.attributes, strict=True))
    visited: dict[int, dict[str, None]] = {number: {} for number in message.events}
    moved: list[tuple[str, tuple[int, ...]]] = []
    for attribute, numbers in message.trees:
        tree = trees.get(attribute)
        if tree is not None and not is_served(tree):
            tree = None
        elsewhere = []
        for number in numbers:
            if number not in visited:
                raise ProtocolError("a dry run names an event that it has not")
            value = True if attribute == EVENT_TREE else attributes_of[number].get(attribute)
            if value is None:
                raise ProtocolError("a dry run names the tree of an attribute that an event lacks")
            if tree is not None and tree.served.serves_some(place(value)):
                visited[number][attribute] = None
            else:
                elsewhere.append(number)
        if elsewhere:
            moved.append((attribute, tuple(elsewhere)))
    room = LISTED_MOST
    counts: list[int] = []
    listed: list[tuple[NodeMatch, ...]] = []
    for number, mine in visited.items():
        found = _by_node(index, trees, attributes_of[number], mine) if mine else {}
        rows: list[NodeMatch] = []
        for peer, ids in found.values():
            if room <= 0:
                break
            names = tuple(ids)[:room]
            room -= 1 + len(names)
            rows.append(NodeMatch(peer, len(ids), names))
        counts.append(len(found))
        listed.append(tuple(rows))
    return MatchesFound(message.number, tuple(visited), tuple(counts), tuple(listed), tuple(moved))


def _by_node(
    index: SharedIndex,
    trees: Mapping[str, HostedTree],
    attributes: Mapping[str, Value | None],
    visited: Mapping[str, None],
) -> dict[NodeId, tuple[Peer, dict[str, None]]]:
    """The nodes whose registrations in the visited trees match, with their subscriptions' ids."""
    found: dict[NodeId, tuple[Peer, dict[str, None]]] = {}
    for attribute, id_ in index.match(attributes):
        if attribute in visited:
            peer = trees[attribute].registrations[id_][0].subscriber
            subscription = id_.partition("/")[0]
            found.setdefault(peer.id, (peer, {}))[1][subscription] = None
    return found


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
        self.copies = CopyBudget(settings.tree.fan_out, COUNTED_MOST, settings.tree.order_hold)
        """The budget of copies of an event that may leave this node, also as publisher and delegate
        (C11)."""
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
        """Deliveries for nodes out of reach, whether this node owes them as host or as delegate."""
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

    def serve(self, visit: Visit, came: float) -> int:
        """Match, pass on, or give back, for each attribute, what came at this time. How many events
        were matched here."""
        if self.sharing.pass_on(visit, came):
            return 0
        try:
            handler = self._handler(visit)
            self._accept(handler, visit)
            matched = handler.match()
            handler.finish()
            return matched
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

    def _accept(self, visit: VisitHandler, message: Visit) -> None:
        """Accept, pass on or give back, for each tree that the visit names."""
        if not message.apart and message.part is None and message.hop <= HOP_BOUND:
            together = self.assigned.served_together(message.attributes)
            if together is not None:
                visit.accept_all(together.trees)
                together.visited(message.events, self.port.rng)
                return
        for attribute in trees_of(message):
            tree = self.trees.get(attribute)
            if tree is None or not tree.served.intervals or message.hop > HOP_BOUND:
                visit.give_back(attribute)
            elif not self.assigned.has_lease(tree):
                self.port.count("visits_without_lease", len(message.events))
                visit.give_back(attribute)
            elif message.part is not None:
                visit.accept_part(attribute, tree, message.part)
            else:
                visit.accept(attribute, tree)
        for attribute, events, trees in visit.accepted.by_tree():
            self.trees[attribute].visits.visited(events, trees)
