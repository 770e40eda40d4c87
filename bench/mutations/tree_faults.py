"""Faults at the owners of attribute trees: registry, summaries, placement, adoption, merging."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from bench.mutations.planting import fault, replace, replace_constant, replaced
from matching import Cut, Interval
from overlay.chord.events import Replanted
from overlay.chord.messages import Cluster
from overlay.machine import Key, NodeId, Peer
from overlay.upper_tree.host.host_offers import HostOffers
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.visit_scheduler import VisitScheduler
from overlay.upper_tree.machines import Machines
from overlay.upper_tree.messages import Registration, Renew
from overlay.upper_tree.owner import placement, reported_loads
from overlay.upper_tree.owner.constants import RELIEF_LEAST
from overlay.upper_tree.owner.host_pool import HostPool
from overlay.upper_tree.owner.host_supervisor import HostSupervisor
from overlay.upper_tree.owner.owned_tree import OwnedTree, PendingRegistration
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.placed_node import PlacedNode
from overlay.upper_tree.owner.placement import Placement, RunAssignment
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.owner.registration_transfers import RegistrationTransfers, Transfer
from overlay.upper_tree.owner.registrations.registration_ends import RegistrationEnds
from overlay.upper_tree.owner.registrations.registration_leases import RegistrationLeases
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.owner.registrations.registry_merge import RegistryMerge
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.owner.registrations.tree_stop import TreeStop
from overlay.upper_tree.owner.reported_loads import ReportedLoads
from overlay.upper_tree.owner.subscriber_placement import ended_cuts
from overlay.upper_tree.owner.tree_log import Operation, Tree
from overlay.upper_tree.partition import PartitionMap, tree_children
from overlay.upper_tree.publisher.pending_window import PendingWindow
from overlay.upper_tree.summaries.cache_holders import CacheHolders
from overlay.upper_tree.summaries.invalidation_table import CachedCopy
from overlay.upper_tree.summaries.summary_server import SummaryServer

T = TypeVar("T")


@fault("C6")
def split_installs_no_registrations() -> None:
    """A virtual node that moves to another host arrives there without its registrations."""

    def _send_part(self: RegistrationTransfers, transfer: Transfer, ids: Sequence[str]) -> None:
        pass

    replace(RegistrationTransfers._send_part, _send_part)


@fault(
    "I7",
    "tests/upper_tree/owner/test_tree_transfers.py",
    "test_a_host_is_ordered_to_serve_behind_the_last_part",
)
def hosts_serve_before_the_last_part() -> None:
    """The answer to an order to forget a tree counts as that to the order to serve it."""
    replace(RegistrationTransfers.is_under_way, lambda self, owned, host: False)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/owner/test_tree_transfers.py",
    "test_a_host_is_ordered_to_serve_behind_the_last_part",
)
def hosts_are_given_everything_in_one_turn() -> None:
    """An owner gives a host all registrations of a tree in one turn."""
    original = RegistrationTransfers._send_some

    def _send_some(self: RegistrationTransfers) -> None:
        original(self)
        while self._under_way:
            self._done = (0.0, 0)
            original(self)

    replace(original, _send_some)


@fault(
    "I7",
    "tests/upper_tree/host/test_tree_retaking.py",
    "test_what_its_owner_does_not_give_again_is_gone_when_the_tree_is_served",
)
def former_registrations_stay() -> None:
    """A host that is given a tree back keeps registrations that have ended meanwhile."""
    replace(HostedTree.drop_former, lambda self, most: True)


@fault("P1")
def split_arc_without_trees() -> None:
    """An arc that splits off starts with an empty log: its trees are not handed over."""
    original = Owner._departing_operations

    def _departing_operations(self: Owner, arc: Cluster) -> list[Operation]:
        return original(self, arc)[-1:]

    replace(original, _departing_operations)


@fault("C6")
def suback_before_installed() -> None:
    """A SUBACK does not wait until every host has the registration."""

    def is_installed(
        self: OwnedTree, pending: PendingRegistration, lease_over: Callable[[NodeId], bool]
    ) -> bool:
        return True

    replace(OwnedTree.is_installed, is_installed)


@fault(
    "C5",
    "tests/upper_tree/summaries/test_tree_summary_server.py",
    "test_a_registration_that_contradicts_waits_for_every_cache_holder",
)
def suback_before_invalidation() -> None:
    """A SUBACK does not wait until no publisher has a cached summary that lacks the
    registration."""

    def is_admitted(self: SummaryServer, pending: PendingRegistration) -> bool:
        return True

    replace(SummaryServer.is_admitted, is_admitted)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_growth.py",
    "test_a_load_that_grows_is_cut_for_soon_again",
)
def growing_load_waits_like_a_steady_one() -> None:
    """An owner waits a second between two rounds of cuts though the load grows."""
    replace_constant(placement, "RELIEF_SOON", RELIEF_LEAST)


@fault(
    "C5",
    "tests/upper_tree/summaries/test_tree_cache_holders.py",
    "test_what_a_former_primary_took_and_did_not_acknowledge_waits_likewise",
)
def inherited_summaries_are_trusted() -> None:
    """A new primary acknowledges again what is in the log, though publishers may have summaries
    that the former one did not recall for it."""
    replace(SummaryServer.has_inherited, lambda self, attribute: False)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_serving.py",
    "test_a_suback_waits_for_the_end_of_a_lost_hosts_lease",
)
def suback_ignores_serving_leases() -> None:
    """A SUBACK does not wait until a lost host's serving lease has run out."""

    def has_serving_stale(self: HostSupervisor, owned: OwnedTree) -> bool:
        return self.has_reachable_stale(owned)

    replace(HostSupervisor.has_serving_stale, has_serving_stale)


@fault(
    "P4",
    "tests/upper_tree/summaries/test_tree_cache_holders.py",
    "test_cached_copies_are_invalidated_before_the_suback",
)
def new_primary_skips_cache_holders() -> None:
    """A new primary does not ask the cache holders of the former one what they have cached."""

    def _ask_all(self: CacheHolders, cluster: Cluster) -> None:
        self._ask(cluster, {})
        if self.owner.state.has_unknown_holders:
            self._wait_out_unknown()

    replace(CacheHolders._ask_all, _ask_all)


@fault(
    "P4",
    "tests/upper_tree/summaries/test_tree_cache_holders.py",
    "test_who_reports_no_copy_leaves_the_log_and_is_not_waited_for_by_the_next_primary",
)
def holders_without_copies_stay() -> None:
    """Cache holders that report no copy stay in the log: if they are lost later, the next primary
    waits for them."""
    original = CacheHolders._is_over

    def _is_over(self: CacheHolders, node: NodeId, now: float) -> bool:
        self._without.clear()
        return original(self, node, now)

    replace(CacheHolders._is_over, _is_over)


@fault(
    "P4",
    "tests/upper_tree/summaries/test_tree_cache_holders.py",
    "test_who_reports_no_copy_and_is_granted_one_at_once_stays_in_the_log",
)
def holder_without_copies_leaves_though_granted() -> None:
    """A cache holder that reported no copy leaves the log, though it was sent a summary since."""

    def lease(self: CacheHolders, peer: Peer) -> float:
        self._until[peer.id] = self.port.now + self.term
        return self.term

    replace(CacheHolders.lease, lease)


@fault(
    "P1",
    "tests/upper_tree/summaries/test_tree_cache_holders.py",
    "test_no_summary_is_sent_before_a_majority_knows_the_cache_holder",
)
def summary_before_log() -> None:
    """A publisher gets a summary before the log names it as a cache holder."""

    def _is_logged(self: SummaryServer, index: int) -> bool:
        return True

    replace(SummaryServer._is_logged, _is_logged)


@fault("C9")
def summaries_never_invalidated() -> None:
    """Cached summaries are not invalidated when a registration makes them wrong."""
    original = SummaryServer._invalidate

    def _invalidate(
        self: SummaryServer,
        owned: OwnedTree,
        pending: PendingRegistration,
        admitting: int,
        holders: Sequence[CachedCopy],
    ) -> None:
        without_summaries = [copy for copy in holders if not copy.digest]
        original(self, owned, pending, admitting, without_summaries)

    replace(original, _invalidate)


@fault("C6")
def renewals_ignored() -> None:
    """An owner ignores renewals, so that the leases of all registrations lapse."""

    def on_renew(self: RegistrationEnds, sender: Peer, message: Renew) -> None:
        pass

    replace(RegistrationEnds.on_renew, on_renew)


@fault("promise: bounded state")
def leases_never_lapse() -> None:
    """Registrations of dead subscribers never lapse."""

    def lapsed(self: RegistrationLeases, tree: Tree, now: float) -> tuple[str, ...]:
        return ()

    replace(RegistrationLeases.lapsed, lapsed)


@fault("C7")
def midpoint_tree_wrong_right_child() -> None:
    """A right child in a midpoint tree is the next node and not the right part's midpoint."""
    original = tree_children

    def children(size: int, index: int) -> Iterator[int]:
        for child in original(size, index):
            yield child if child < index else index + 1

    replace(original, children)


@fault("P4")
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
    "P5",
    "tests/upper_tree/owner/test_tree_adopting.py",
    "test_where_all_clusters_are_lost_no_tree_is_said_to_be_absent_at_once",
)
def only_one_lost_arc_is_waited_for() -> None:
    """Where all clusters of a ring are lost, publishers get answers about other arcs at once."""
    original = TreeRestoration.on_replanted

    def on_replanted(self: TreeRestoration, event: Replanted) -> None:
        original(self, Replanted(event.lost))

    replace(original, on_replanted)


@fault(
    "P5",
    "tests/upper_tree/owner/test_tree_adopting.py",
    "test_a_lost_clusters_trees_are_served_before_their_subscribers_register_again",
)
def adopted_trees_lose_registrations() -> None:
    """Each tree of a lost cluster is adopted with one of its registrations."""
    original = TreeRestoration._operations

    def _operations(self: TreeRestoration, tree: Tree) -> Iterator[Operation]:
        return islice(original(self, tree), 2)

    replace(original, _operations)


@fault(
    "P5",
    "tests/upper_tree/owner/test_tree_adopting.py",
    "test_publishers_learn_nothing_before_the_hosts_serve",
)
def adopted_trees_answered_before_served() -> None:
    """Publishers get answers about adopted trees before the hosts serve them."""

    def _is_served(self: TreeRestoration, owned: OwnedTree) -> bool:
        return True

    replace(TreeRestoration._is_served, _is_served)


@fault(
    "P2",
    "tests/upper_tree/owner/registrations/test_tree_uniting.py",
    "test_all_is_united_when_the_winner_has_acknowledged_every_registration",
)
def merge_before_registrations_adopted() -> None:
    """A cluster of a ring that ends reports its registrations adopted when they are not."""

    def _missing(self: RegistryMerge) -> Iterator[tuple[str, list[Registration]]]:
        return iter(())

    replace(RegistryMerge._missing, _missing)


@fault(
    "P2",
    "tests/upper_tree/owner/registrations/test_tree_uniting.py",
    "test_a_ring_has_stopped_when_its_hosts_have_said_so",
)
def merge_while_hosts_serve() -> None:
    """A cluster of a ring that ends reports its trees stopped while hosts still serve them."""

    def _is_stopped(self: TreeStop) -> bool:
        return self._stopping

    replace(TreeStop._is_stopped, _is_stopped)


@fault(
    "P1",
    "tests/upper_tree/owner/test_tree_registry_model.py",
    "test_what_is_acknowledged_is_served_whatever_happens",
)
def suback_before_commit() -> None:
    """The owner gives SUBACKs before a majority of its voters has the log entry."""

    def is_due(self: Registry, owned: OwnedTree, pending: PendingRegistration) -> bool:
        return (
            self._summaries.is_admitted(pending)
            and self._clusters.is_copied(pending.log_index)
            and owned.is_installed(pending, self._hosts.leases.is_over)
        )

    replace(Registry._is_due, is_due)


BATCHES = "tests/upper_tree/owner/test_tree_registry_batches.py"


@fault("I4", BATCHES, "test_each_of_a_batch_is_acknowledged_when_the_log_has_it")
def suback_before_a_batchs_last_entry() -> None:
    """All registrations of a batch are acknowledged when the log has the first of them."""
    original, register = Registry._log_fresh, OwnedTree.register

    def _log_fresh(self: Registry) -> None:
        first: list[int] = []

        def as_the_first(
            owned: OwnedTree, registration: Registration, log_index: int
        ) -> PendingRegistration:
            first.append(log_index)
            return register(owned, registration, first[0])

        with replaced(register, as_the_first):
            original(self)

    replace(original, _log_fresh)


@fault("I7", BATCHES, "test_each_of_a_batch_is_acknowledged_when_every_host_has_it")
def suback_after_one_host() -> None:
    """A batch is acknowledged when one of its hosts has installed it."""
    original = OwnedTree.is_installed

    def is_installed(
        self: OwnedTree, pending: PendingRegistration, lease_over: Callable[[NodeId], bool]
    ) -> bool:
        return bool(pending.installed) or original(self, pending, lease_over)

    replace(original, is_installed)


@fault("C9", BATCHES, "test_one_of_a_batch_that_no_summary_admits_waits_and_the_others_do_not")
def suback_of_a_batch_after_its_first_recall() -> None:
    """Of a batch only the first registration waits until publishers have no summary without it."""
    original = Registry._await

    def _await(self: Registry, taken: Iterable[tuple[OwnedTree, PendingRegistration]]) -> None:
        taken = list(taken)
        original(self, taken)
        for _, pending in taken[1:]:
            pending.holders.clear()

    replace(original, _await)


@fault("I8", BATCHES, "test_what_a_batch_contradicts_each_publisher_hears_in_one_message")
def recall_names_one_tree() -> None:
    """A publisher that is asked to drop summaries of several trees hears of the first only."""
    original = SummaryServer.send_recalls

    def send_recalls(self: SummaryServer) -> None:
        for attributes in self._recalls.values():
            for attribute in list(attributes)[1:]:
                del attributes[attribute]
        original(self)

    replace(original, send_recalls)


@fault(
    "C5",
    "tests/upper_tree/summaries/test_tree_summary_server.py",
    "test_of_an_arc_that_leaves_publishers_hear_where_its_trees_are_and_nothing_else",
)
def departing_trees_are_not_located() -> None:
    """An owner that hands an arc over answers no publisher where its trees are meanwhile."""

    def may_locate(self: Owner, attribute: str) -> bool:
        return self.decides(attribute)

    replace(Owner.may_locate, may_locate)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_growth.py",
    "test_a_busy_virtual_node_is_cut_where_its_load_has_its_parts",
)
def busy_virtual_node_cut_at_its_edge() -> None:
    """A busy virtual node is cut where nearly all of its load lies on one side."""
    original = reported_loads.cuts_by_load

    def cuts_by_load(
        interval: Interval, places: Sequence[tuple[Cut, float]], parts: int
    ) -> list[tuple[Cut, float]]:
        return original(interval, places, len(places))[:1]

    replace(original, cuts_by_load)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_growth.py",
    "test_a_busy_virtual_node_is_cut_where_its_load_has_its_parts",
)
def busy_parts_merged() -> None:
    """Virtual nodes are merged as if no event asked for anything."""

    def recent(
        self: ReportedLoads, attribute: str, interval: Interval, now: float
    ) -> tuple[float, float]:
        return (0.0, 0.0)

    original = Rebalance._merged

    def _merged(self: Rebalance, owned: OwnedTree) -> PartitionMap | None:
        with replaced(ReportedLoads.recent, recent):
            return original(self, owned)

    replace(original, _merged)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_growth.py",
    "test_a_new_primary_changes_nothing_before_hosts_have_reported",
)
def new_primary_merges_at_once() -> None:
    """A new primary takes what no host has reported yet to be idle, and merges it."""

    def are_known(self: ReportedLoads, now: float) -> bool:
        return True

    replace(ReportedLoads.are_known, are_known)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_growth.py",
    "test_a_host_that_leaves_is_relieved_before_it_goes",
)
def leaving_host_stops_before_its_successor_serves() -> None:
    """A host that leaves drops its virtual nodes before others serve them."""
    original = HostOffers.leave

    def leave(self: HostOffers) -> None:
        original(self)
        for tree in self._hosting.served_for_others():
            self._hosting.trees.pop(tree.attribute).empty()

    replace(original, leave)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_placement.py",
    "test_a_plan_for_a_load_stands_while_the_load_does",
)
def plans_without_end() -> None:
    """Hosts that are busy are planned for at each look, and keep nothing that they have."""

    def _has_time(self: RunAssignment, number: int, host: Peer) -> bool:
        return False

    def _relieves(self: Placement, nodes: Sequence[PlacedNode], now: float) -> bool:
        return True

    replace(RunAssignment._has_time, _has_time)
    replace(Placement._relieves, _relieves)


@fault(
    "C6",
    "tests/overlay/load/test_overlay_saturation.py",
    "test_a_machine_gets_as_many_hosts_as_its_processors_carry_and_no_more",
)
def machines_carry_any_number_of_hosts() -> None:
    """An owner counts with all nodes of a machine, however few processors that has."""

    def _worth(self: Machines, machine: str) -> int:
        return 1_000

    replace(Machines._worth, _worth)


@fault(
    "P7",
    "tests/upper_tree/host/test_tree_scheduler.py",
    "test_an_idle_host_matches_of_a_large_visit_what_takes_no_longer_than_a_slice",
)
def idle_host_matches_all_at_once() -> None:
    """A host that has nothing else to do matches a whole visit in one turn, however slow it is."""

    def _fits_turn(self: VisitScheduler, events: int) -> bool:
        return True

    replace(VisitScheduler._fits_turn, _fits_turn)


@fault(
    "promise: a slow machine goes on",
    "tests/overlay/load/test_overlay_saturation.py",
    "test_a_saturated_machine_does_little_twice",
)
def publishers_have_all_pending() -> None:
    """A publisher takes events as long as its memory allows, however slowly hosts accept them."""

    def most(self: PendingWindow, is_searching: bool) -> int:
        return self._most

    replace(PendingWindow.most, most)


@fault(
    "P1",
    "tests/upper_tree/owner/test_tree_balance.py",
    "test_a_cluster_that_is_busy_for_long_asks_for_a_split_in_the_middle_of_its_load",
)
def busy_cluster_split_by_its_trees() -> None:
    """A cluster that is busy splits in the middle of its trees, wherever its load lies."""

    def middle_by_load(asked: Sequence[tuple[Key, float]]) -> Key | None:
        return asked[len(asked) // 2 - 1][0]

    replace(reported_loads.middle_by_load, middle_by_load)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_subscriber_placement.py",
    "test_cuts_of_registrations_that_ended_are_taken_back",
)
def cuts_outlive_their_registrations() -> None:
    """With `placement: subscribers` what ended registrations have cut is never merged."""

    def ended(tree: Tree) -> list[int]:
        return []

    replace(ended_cuts, ended)


@fault(
    "C6",
    "tests/overlay/load/test_overlay_subscriber_hosts.py",
    "test_each_subscriber_hosts_what_its_subscription_cuts",
)
def subscribers_are_not_asked_to_host() -> None:
    """With `placement: subscribers` the cluster's members host, as without it."""

    def ask_for(self: HostPool, hosts: Sequence[Peer]) -> None:
        pass

    replace(HostPool.ask_for, ask_for)
