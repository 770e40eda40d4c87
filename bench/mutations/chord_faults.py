"""Faults in clusters and their ring: election, log, recovery, merging."""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from overlay.bounded import BoundedDict
from overlay.chord.cluster.election import Election
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.cluster.journal import Journal, Snapshot
from overlay.chord.cluster.leader_log import LeaderLog
from overlay.chord.cluster.messages import LogAck, VoteRecord
from overlay.chord.epochs import ELECTION_BITS, above_fork
from overlay.chord.membership.cluster_merge import ClusterMerges
from overlay.chord.membership.taking_over import TakingOver
from overlay.chord.messages import ArcGiven, Cluster, MergeAnswer, MergePhase, TakeOver
from overlay.chord.recovery.observers import Observers
from overlay.chord.recovery.recovery import Recovery
from overlay.chord.ring.claims import Claims
from overlay.chord.ring.ring_state import Pointers
from overlay.chord.ring_merge import Merging
from overlay.chord.role_changes import RoleChanges
from overlay.machine import Key, NodeId, Peer
from overlay.upper_tree.owner.registrations.registry_merge import TreeStop


@fault(
    "P2",
    "tests/chord/ring/test_chord_pointers.py",
    "test_a_better_successor_is_adopted_with_its_own_list",
)
def successors_beyond_first_not_adopted() -> None:
    """A cluster takes a new first successor but keeps the rest of its list, as the original Chord
    did."""
    original = Pointers.adopt

    def adopt(self: Pointers, cluster: Cluster, followers: tuple[Cluster, ...]) -> bool:
        return original(self, cluster, tuple(self.successors))

    replace(original, adopt)


@fault(
    "I3",
    "tests/chord/cluster/test_chord_election.py",
    "test_the_lease_ends_before_another_member_may_be_elected",
)
def primary_ignores_its_lease() -> None:
    """A primary serves though a higher epoch has fenced it or no majority follows it."""

    replace(Heartbeat.has_lease, lambda self: bool(self.log.voters))


@fault(
    "P4",
    "tests/chord/cluster/test_chord_election.py",
    "test_without_a_majority_no_candidate_is_elected",
)
def election_without_majority() -> None:
    """A candidate leads as soon as one voter has granted it the epoch."""
    original, majority = Election._count_vote, FollowerLog.majority

    def _count_vote(self: Election, node: NodeId, timeout: float = 0.0) -> None:
        def first_only(self: FollowerLog) -> int:
            undo()
            return 1

        undo = replace(majority, first_only)
        original(self, node, timeout)

    replace(original, _count_vote)


@fault(
    "I2", "tests/chord/cluster/test_chord_stored.py", "test_a_voter_acknowledges_what_its_disk_has"
)
def voter_acknowledges_before_the_disk() -> None:
    """A voter acknowledges entries while its disk is still writing them."""

    def _acknowledge(self: FollowerLog, primary: Peer, epoch: int) -> None:
        assert self.voter_log is not None
        self.vote(self.voter_log.key, epoch, primary.id)
        self.port.send(primary, LogAck(self.voter_log.key, epoch, self.next))

    replace(FollowerLog._acknowledge, _acknowledge)


@fault(
    "I5",
    "tests/chord/membership/test_chord_split.py",
    "test_who_falls_silent_before_it_is_decided_serves_nothing_when_it_wakes",
)
def new_primary_serves_before_decision() -> None:
    """The primary of a split-off arc serves before the old cluster's log has decided the split."""
    original = TakingOver.on_take_over

    def on_take_over(self: TakingOver, sender: Peer, message: TakeOver) -> None:
        before = self.journal.offered
        original(self, sender, message)
        if self.journal.offered is not before:
            self.on_arc_given(sender, ArcGiven(message.cluster, True))

    replace(original, on_take_over)


@fault(
    "D5",
    "tests/chord/cluster/test_chord_restart.py",
    "test_the_file_grows_to_a_few_times_the_state_and_no_further",
)
def compaction_drops_votes() -> None:
    """A journal that is written again lacks the votes that this node has given."""
    original = Journal._whole

    def _whole(self: Journal, *log: Snapshot) -> list[bytes]:
        votes, self.votes = self.votes, BoundedDict[Key, VoteRecord](1)
        found = original(self, *log)
        self.votes = votes
        return found

    replace(original, _whole)


@fault(
    "P2",
    "tests/chord/merging/test_chord_merging.py",
    "test_no_cluster_stops_before_all_are_united_and_none_ends_before_all_have_stopped",
)
def merging_cluster_ends_early() -> None:
    """The cluster that coordinates a merge ends its ring before the other clusters are ready."""
    original = Merging._lead

    def _lead(self: Merging, into: Cluster) -> None:
        if all(self._reached.get(c.key, 0) >= self._leading for c in self._clusters):
            self._leading, self._since = MergePhase.ENDED, self.port.now
        original(self, into)

    replace(original, _lead)


@fault(
    "D13",
    "tests/overlay/test_overlay_healing.py",
    "test_of_two_sides_that_both_went_on_each_hears_that_it_lacks_what_the_other_published",
)
def other_side_unheard_of() -> None:
    """Of two primaries of one arc that did not hear of each other, the one that goes on does not
    learn of the other."""

    replace(RoleChanges.rival_named, lambda self, sender, other: None)


@fault(
    "I4",
    "tests/chord/membership/test_chord_cluster_merge.py",
    "test_a_majority_that_is_lost_before_it_is_decided_gives_nothing_away",
)
def merge_decided_without_majority() -> None:
    """A cluster that merges sends its state as soon as its primary has written the decision."""
    original = ClusterMerges.hand_over

    def hand_over(self: ClusterMerges, entries: tuple[bytes, ...]) -> None:
        merge = self.current
        original(self, entries)
        if merge is not None and self.log.is_given:
            self._answered(merge.into.primary, MergeAnswer(merge.arc, "promised"), merge.arc)

    replace(original, hand_over)


@fault(
    "I8",
    "tests/upper_tree/owner/registrations/test_tree_arc_merge.py",
    "test_the_state_is_handed_over_when_no_publisher_has_a_summary",
)
def merged_while_summaries_are_cached() -> None:
    """A cluster that merges does not wait for the end of publishers' summaries of its trees."""

    def _is_stopped(self: TreeStop) -> bool:
        return not any(
            self._owner.hosts.leases.may_serve(host)
            for owned in self._trees.values()
            for host in owned.stopping_hosts
        )

    replace(TreeStop._is_stopped, _is_stopped)


@fault(
    "P5",
    "tests/papers/test_papers_phoenix_clusters.py",
    "test_p5_as_many_machines_as_are_missing_are_requested",
)
def lost_cluster_not_replaced() -> None:
    """No member of a cluster that lost its majority leads on."""

    replace(RoleChanges.lead_own_log, lambda self, epoch: None)


@fault(
    "I3",
    "tests/chord/recovery/test_chord_recovery.py",
    "test_who_outlives_a_fork_goes_on_in_its_branch_and_not_in_its_lineage",
)
def fork_overrides_are_not_unique() -> None:
    """Two clusters that override the same fork take the same epoch."""

    replace(above_fork, lambda epoch, rng: epoch | ((1 << ELECTION_BITS) - 1))


@fault(
    "P5",
    "tests/chord/recovery/test_chord_recovery.py",
    "test_an_arc_that_its_cluster_has_left_gets_an_owner_while_others_look_for_that",
)
def unled_arc_is_what_others_look_for() -> None:
    """Who leads the cluster after an arc that nobody leads goes by what others say of that."""
    original = Recovery.suspect

    def suspect(self: Recovery, cluster: Cluster) -> None:
        if cluster.key not in self._lost:
            original(self, cluster)

    replace(original, suspect)


@fault(
    "I3",
    "tests/chord/recovery/test_chord_recovery.py",
    "test_of_a_cluster_and_its_fork_that_has_elected_another_primary_one_goes_on",
)
def clusters_override_each_other_for_ever() -> None:
    """A cluster does not remember which forks it has overridden."""
    original = RoleChanges._overrides

    def overrides(self: RoleChanges, own: Cluster, other: Cluster) -> bool:
        self._overridden.clear()
        return original(self, own, other)

    replace(original, overrides)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_signed_forks.py",
    "test_a_claim_that_was_refused_is_believed_when_the_primary_gives_way_to_it",
)
def who_gives_way_is_not_believed() -> None:
    """A claim that was refused stays so though the primary has given way to it since."""

    replace(Claims.given_way, lambda self, sender, cluster, known: None)


@fault(
    "P5",
    "tests/chord/recovery/test_chord_observing.py",
    "test_a_suback_waits_for_an_observer_for_a_while_and_then_no_more",
)
def suback_ignores_observers() -> None:
    """A SUBACK waits for no copy of the log outside of the cluster."""

    replace(Observers.is_copied, lambda self, index: True)


@fault(
    "P1",
    "tests/chord/cluster/test_chord_dropped.py",
    "test_a_voter_gets_what_the_link_had_no_room_for",
)
def unsent_primary_forgets_what_was_dropped() -> None:
    """Entries and greetings for which a link had no room are not sent again."""

    replace(LeaderLog.dropped, lambda self, event: None)


@fault(
    "M6",
    "tests/papers/test_papers_phoenix_clusters.py",
    "test_p4_the_first_candidate_that_is_left_takes_qs_place[0]",
)
def standby_does_not_take_over() -> None:
    """The standby leaves the place of a primary that is gone to the other members."""
    original = Election._may_campaign

    def _may_campaign(self: Election) -> bool:
        own = self.role.cluster
        is_standby = own is not None and own.standby == self.port.me
        return original(self) and not is_standby

    replace(original, _may_campaign)
