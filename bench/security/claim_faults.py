"""Faults in who is believed to lead a cluster, where nodes have keys."""

from __future__ import annotations

from collections.abc import Sequence

from bench.mutations.planting import fault, replace
from overlay.chord.consensus.heartbeat import Heartbeat
from overlay.chord.consensus.messages import ClusterHeartbeat
from overlay.chord.membership.members import Members
from overlay.chord.messages import Cluster
from overlay.chord.ring.claims import Claims
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role_changes import RoleChanges
from overlay.machine import NodeId, Peer

SIGNED_FORKS = "tests/chord/recovery/test_chord_signed_forks.py"


@fault(
    "P5",
    SIGNED_FORKS,
    "test_who_has_no_vote_believes_who_leads_alone_when_the_others_are_lost",
)
def remembered_clusters_contradict() -> None:
    """Nodes that only remember who led a cluster, or miss a primary themselves, count as against
    whoever leads it now."""

    def is_unled(self: RingState, cluster: Cluster) -> bool:
        return False

    replace(RingState.is_unled, is_unled)


@fault(
    "P5",
    SIGNED_FORKS,
    "test_who_voted_in_another_branch_gets_the_log_of_the_one_that_recruits_it",
)
def branch_voter_kept_out() -> None:
    """A primary asks for no epoch above the vote of a member that has got nothing of its log."""

    def _is_kept_from(self: RoleChanges, member: NodeId) -> bool:
        return False

    replace(RoleChanges._is_kept_from, _is_kept_from)


@fault(
    "P5",
    SIGNED_FORKS,
    "test_of_two_forks_that_both_have_a_majority_the_higher_goes_on",
)
def branches_outvote_each_other() -> None:
    """A primary of a fork that a majority follows gives way to no other fork, though that shows the
    votes of its own majority."""

    def is_followed(self: Claims, cluster: Cluster) -> bool:
        return False

    replace(Claims.is_followed, is_followed)


@fault(
    "P1",
    SIGNED_FORKS,
    "test_who_has_left_says_so_to_a_primary_that_takes_it_for_a_member",
)
def silent_about_having_left() -> None:
    """A node that serves nowhere lets heartbeats of a cluster go by that takes it for a member."""
    original = Heartbeat.on_heartbeat

    def on_heartbeat(self: Heartbeat, sender: Peer, message: ClusterHeartbeat) -> None:
        if self.role.cluster is not None:
            original(self, sender, message)

    replace(original, on_heartbeat)


@fault(
    "P5",
    SIGNED_FORKS,
    "test_nobody_is_recruited_for_a_fork_of_a_cluster_that_is_led",
)
def members_of_any_claim() -> None:
    """A node that serves nowhere serves in whatever cluster names it."""
    original = Members._is_proven

    def _is_proven(self: Members, sender: Peer, cluster: Cluster) -> bool:
        return self.role.cluster is None or original(self, sender, cluster)

    replace(original, _is_proven)


@fault(
    "P4",
    "tests/chord/consensus/test_chord_hello.py",
    "test_a_cluster_with_more_members_than_voters_follows_whom_they_elect",
)
def members_count_as_voters() -> None:
    """A member believes that a primary was elected only if a majority of the members granted it,
    although fewer vote."""

    def prove(self: Claims, cluster: Cluster, voters: Sequence[Peer]) -> None:
        pass

    replace(Claims.prove, prove)
