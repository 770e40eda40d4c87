"""Faults at the owners of attribute trees: registrations, summaries, placement, adoption."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from bench.mutations.planting import fault, replace
from matching.constraint import Constraint, plain_constraint
from matching.selector.expression import Comparison, Expression, Literal
from overlay.chord.events import Replanted
from overlay.machine import NodeId
from overlay.upper_tree.host.host_offers import HostOffers
from overlay.upper_tree.host.visit_scheduler import VisitScheduler
from overlay.upper_tree.owner.host_supervisor import HostSupervisor
from overlay.upper_tree.owner.owned_tree import OwnedTree, OwnedTrees, PendingRegistration
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.owner.registrations.registration_ends import (
    RegistrationEnds,
    RegistrationLeases,
)
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.owner.registrations.registry_merge import RegistryMerge
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.partition import PartitionMap, tree_children
from overlay.upper_tree.pivots import _by_hash
from overlay.upper_tree.sliced_inbox import SlicedInbox
from overlay.upper_tree.summaries.summary_server import SummaryServer


@fault(
    "I8",
    "tests/upper_tree/summaries/test_tree_summary_server.py",
    "test_a_registration_that_contradicts_waits_for_every_cache_holder",
)
def suback_before_invalidation() -> None:
    """A SUBACK does not wait until no publisher has a cached summary that lacks the
    registration."""

    replace(SummaryServer.is_admitted, lambda self, pending: True)


@fault(
    "I8",
    "tests/upper_tree/summaries/test_tree_cache_holders.py",
    "test_what_a_former_primary_took_and_did_not_acknowledge_waits_likewise",
)
def inherited_summaries_are_trusted() -> None:
    """A new primary acknowledges again what is in the log, though publishers may have summaries
    that the former one did not recall for it."""
    replace(SummaryServer.has_inherited, lambda self, attribute: False)


@fault(
    "I7",
    "tests/upper_tree/owner/test_tree_serving.py",
    "test_a_suback_waits_for_the_end_of_a_lost_hosts_lease",
)
def suback_ignores_serving_leases() -> None:
    """A SUBACK does not wait until a lost host's serving lease has run out."""

    replace(HostSupervisor.has_serving_stale, lambda self, owned: self.has_reachable_stale(owned))


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_registry.py",
    "test_what_is_not_renewed_ends_and_what_is_renewed_stays",
)
def renewals_ignored() -> None:
    """An owner ignores renewals, so that the leases of all registrations lapse."""

    replace(RegistrationEnds.on_renew, lambda self, sender, message: None)


@fault(
    "D4",
    "tests/upper_tree/owner/test_tree_registry.py",
    "test_leases_that_lapse_together_end_a_part_in_each_turn",
)
def leases_never_lapse() -> None:
    """Registrations of dead subscribers never lapse."""

    replace(RegistrationLeases.lapsed, lambda self, tree, now: ())


@fault(
    "C7",
    "tests/upper_tree/test_tree_partition.py",
    "test_the_midpoint_tree_has_one_root_reaches_every_node_and_is_balanced",
)
def midpoint_tree_wrong_right_child() -> None:
    """A right child in a midpoint tree is the next node and not the right part's midpoint."""
    original = tree_children

    def children(size: int, index: int) -> Iterator[int]:
        for child in original(size, index):
            yield child if child < index else index + 1

    replace(original, children)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_silent_hosts.py",
    "test_who_is_given_up_leaves_them_to_the_other",
)
def virtual_nodes_stay_with_dead_hosts() -> None:
    """Virtual nodes stay on hosts that are dead."""
    original = Rebalance._moved

    def _moved(self: Rebalance, owned: OwnedTree, fit: Collection[NodeId]) -> PartitionMap | None:
        moved = original(self, owned, fit)
        if moved is None:
            return None
        before = owned.tree.map.entries
        found = [
            new.hosts if all(self._hosts.is_reachable(host.id) for host in old.hosts) else old.hosts
            for old, new in zip(before, moved.entries, strict=True)
        ]
        if found == [entry.hosts for entry in before]:
            return None
        return owned.tree.map.moved(moved.version, found)

    replace(original, _moved)


@fault(
    "P5",
    "tests/upper_tree/owner/test_tree_adopting.py",
    "test_what_an_older_copy_may_lack_is_waited_for",
)
def replanted_trees_answered_early() -> None:
    """After a lost cluster publishers get answers about trees that are not registered again yet."""
    original = TreeRestoration.on_replanted

    def on_replanted(self: TreeRestoration, event: Replanted) -> None:
        original(self, event)
        self._until = self._latest = self.port.now

    replace(original, on_replanted)


@fault(
    "P2",
    "tests/upper_tree/owner/registrations/test_tree_uniting.py",
    "test_all_is_united_when_the_winner_has_acknowledged_every_registration",
)
def merge_before_registrations_adopted() -> None:
    """A cluster of a ring that ends reports its registrations adopted when they are not."""

    replace(RegistryMerge._missing, lambda self: iter(()))


@fault(
    "I4",
    "tests/upper_tree/owner/test_tree_registry_model.py",
    "test_what_is_acknowledged_is_served_whatever_happens",
)
def suback_before_commit() -> None:
    """The owner gives SUBACKs before a majority of its voters has the log entry."""

    def is_due(self: Registry, owned: OwnedTree, pending: PendingRegistration) -> bool:
        return (
            self._summaries.is_admitted(pending)
            and self._owner.clusters.is_copied(pending.log_index)
            and owned.is_installed(pending, self._hosts.leases.is_over)
        )

    replace(Registry._is_due, is_due)


@fault(
    "I7",
    "tests/upper_tree/owner/test_tree_registry_batches.py",
    "test_each_of_a_batch_is_acknowledged_when_every_host_has_it",
)
def suback_after_one_host() -> None:
    """A batch is acknowledged when one of its hosts has installed it."""
    original = OwnedTree.is_installed

    def is_installed(
        self: OwnedTree, pending: PendingRegistration, lease_over: Callable[[NodeId], bool]
    ) -> bool:
        return bool(pending.installed) or original(self, pending, lease_over)

    replace(original, is_installed)


@fault(
    "D6",
    "tests/upper_tree/owner/test_tree_growth.py",
    "test_a_host_that_leaves_is_relieved_before_it_goes",
)
def leaving_host_stops_before_its_successor_serves() -> None:
    """A host that leaves drops its virtual nodes before others serve them."""
    original = HostOffers.leave

    def leave(self: HostOffers) -> None:
        original(self)
        for tree in self._assigned.served_for_others():
            self._assigned.trees.pop(tree.attribute).empty()

    replace(original, leave)


@fault(
    "P7",
    "tests/upper_tree/host/test_tree_scheduler.py",
    "test_an_idle_host_matches_of_a_large_visit_what_takes_no_longer_than_a_slice",
)
def idle_host_matches_all_at_once() -> None:
    """A host that has nothing else to do matches a whole visit in one turn, however slow it is."""

    replace(VisitScheduler._fits_turn, lambda self, events: True)


@fault(
    "D15",
    "tests/upper_tree/owner/test_tree_registry.py",
    "test_many_registrations_are_taken_a_few_in_each_turn_and_the_rest_waits_in_order",
)
def all_taken_in_one_turn() -> None:
    """An owner or a host takes all registrations in the turn in which they come."""

    def _continue(self: SlicedInbox) -> None:
        while self._waiting:
            sender, message, weight = self._waiting.popleft()
            self._weight -= weight
            self._handlers_of[type(message)](sender, message)

    replace(SlicedInbox._continue, _continue)


@fault(
    "D15",
    "tests/upper_tree/test_tree_slices.py",
    "test_a_selector_of_very_many_attributes_is_planted_with_work_in_proportion",
)
def all_trees_counted_for_each() -> None:
    """An owner that plants a tree counts the registrations of all trees to find its hosts."""
    original = OwnedTrees.loads

    def loads(self: OwnedTrees) -> Mapping[NodeId, int]:
        for attribute in self:
            self._loads.changed(attribute)
        return original(self)

    replace(original, loads)


@fault(
    "D1", "tests/matching/test_matching_engine.py", "test_only_equal_comparisons_share_a_constraint"
)
def registering_shares_constraints_by_value() -> None:
    """Comparisons share a constraint if Python takes their constants for equal, as 1 and TRUE."""
    original = plain_constraint
    known: dict[tuple[str, str, object], Constraint] = {}

    def shared(atom: Expression) -> Constraint | None:
        found = original(atom)
        if found is None or not isinstance(atom, Comparison) or not isinstance(atom.right, Literal):
            return found
        return known.setdefault((atom.op, found.attribute, atom.right.value), found)

    replace(plain_constraint, shared)


@fault(
    "I7",
    "tests/upper_tree/owner/test_tree_steps.py",
    "test_registrations_during_a_change_wait_for_the_hosts_of_both_maps",
)
def registering_ignores_the_next_map() -> None:
    """A registration that comes during a change is installed at the hosts of the present map."""

    replace(OwnedTree.hosts_for, lambda self, registration: self.tree.map.hosts_of(registration))


@fault(
    "C9",
    "tests/upper_tree/owner/test_tree_pivots.py",
    "test_the_order_of_the_pivots_does_not_matter",
)
def registering_takes_first_of_equal_pivots() -> None:
    """Of pivots with equal traffic the first is taken, in whatever order they come."""

    replace(_by_hash, lambda pivot: "")
