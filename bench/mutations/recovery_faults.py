"""Faults in the recovery of lost clusters, and in the copies of their logs (P5)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from bench.mutations.planting import fault, replace
from overlay.chord.epochs import ELECTION_BITS, above_fork, new_fork
from overlay.chord.events import ObservedArc
from overlay.chord.messages import Cluster
from overlay.chord.recovery.observers import Observers
from overlay.chord.recovery.recovery import LostCluster, Recovery
from overlay.chord.role_changes import RoleChanges
from overlay.machine import Peer
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration


@fault(
    "P5",
    "tests/chord/recovery/test_chord_part_claimed.py",
    "test_a_cluster_that_took_another_s_arc_and_has_to_give_it_back_keeps_its_own",
)
def whole_arc_given_up_for_a_part() -> None:
    """A primary of whose arc another cluster claims a part stops leading all of it."""

    def _give_back(self: RoleChanges, own: Cluster, other: Cluster) -> None:
        self.members.disband("fenced")

    replace(RoleChanges._give_back, _give_back)


@fault("P5")
def lost_cluster_not_replaced() -> None:
    """No member of a cluster that lost its majority leads on."""

    def lead_own_log(self: RoleChanges, epoch: int) -> None:
        pass

    replace(RoleChanges.lead_own_log, lead_own_log)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_recovery.py",
    "test_who_comes_back_alone_does_not_keep_the_successor_from_acting",
)
def starting_member_refuses_all() -> None:
    """A member that was just started refuses a node with as much of the log, though it does not
    act itself."""

    def _gives_way(self: Recovery, lost: LostCluster) -> bool:
        return False

    replace(Recovery._gives_way, _gives_way)


@fault("P5")
def fork_takes_next_epoch() -> None:
    """A cluster that goes on without a majority takes the next epoch, which the lost majority may
    grant as well."""

    def next_epoch(epoch: int, seen: int, rng: Random) -> int:
        return epoch + 1

    replace(new_fork, next_epoch)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_recovery.py",
    "test_who_outlives_a_fork_goes_on_in_its_branch_and_not_in_its_lineage",
)
def fork_overrides_are_not_unique() -> None:
    """Two clusters that override the same fork take the same epoch."""

    def same(epoch: int, rng: Random) -> int:
        return epoch | ((1 << ELECTION_BITS) - 1)

    replace(above_fork, same)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_observing.py",
    "test_a_suback_waits_for_an_observer_for_a_while_and_then_no_more",
)
def suback_ignores_observers() -> None:
    """A SUBACK waits for no copy of the log outside of the cluster."""

    def is_copied(self: Observers, index: int) -> bool:
        return True

    replace(Observers.is_copied, is_copied)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_observing.py",
    "test_answers_to_what_was_sent_before_a_copy_began_anew_ask_for_no_other",
)
def older_answers_ask_for_another_copy() -> None:
    """An observer's answers to pieces of an earlier copy count as a gap in the one under way."""

    original = Observers.send_snapshot

    def send_snapshot(self: Observers, entries: Sequence[bytes]) -> None:
        original(self, entries)
        for observer in self.observers.values():
            observer.pieces = 0

    replace(Observers.send_snapshot, send_snapshot)


@fault(
    "P5",
    "tests/upper_tree/owner/test_tree_adopting.py",
    "test_a_copy_of_an_arc_that_shrank_has_the_trees_no_more_that_went_with_it",
)
def copies_keep_what_went_with_an_arc() -> None:
    """An observer's copy keeps the trees of a part of the arc that the cluster has given away."""

    def on_observed_arc(self: TreeRestoration, event: ObservedArc) -> None:
        pass

    replace(TreeRestoration.on_observed_arc, on_observed_arc)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_recovery.py",
    "test_a_former_primary_that_is_back_does_not_pass_for_the_leader",
)
def former_primary_ends_suspicion() -> None:
    """A node takes a lost cluster for led when a primary of a former epoch says that it leads
    it."""

    def leader_named(self: Recovery, sender: Peer, cluster: Cluster) -> None:
        if sender.id == cluster.primary.id:
            self._lost.pop(cluster.key, None)

    replace(Recovery.leader_named, leader_named)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_recovery.py",
    "test_who_was_started_lately_waits_for_no_cluster_that_it_joined_since",
)
def restarted_node_waits_for_new_cluster() -> None:
    """A node that was started lately waits for its former cluster though it serves in another
    one."""
    original = Recovery._attempt_at

    def _attempt_at(self: Recovery, lost: LostCluster) -> float:
        heard_at, self.heartbeat.heard_at = self.heartbeat.heard_at, float("-inf")
        try:
            return original(self, lost)
        finally:
            self.heartbeat.heard_at = heard_at

    def cluster_left(self: Recovery) -> None:
        pass

    replace(original, _attempt_at)
    replace(Recovery.cluster_left, cluster_left)
