"""Faults in the clusters and their ring: log, election, membership, merging
of rings and of clusters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace, replaced
from overlay.bounded import BoundedDict
from overlay.chord.cluster.election import Election
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import ElectionTimeout, Heartbeat
from overlay.chord.cluster.journal import Journal, Snapshot
from overlay.chord.cluster.leader_log import LeaderLog
from overlay.chord.cluster.messages import LogAck, LogEntries, LogEntry, VoteRecord
from overlay.chord.events import ArcTaken
from overlay.chord.membership.cluster_merge import ClusterMerges
from overlay.chord.membership.handover import HandOver, HandOvers, HandOverTimeout
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.membership.taking_in import TakingIn
from overlay.chord.membership.taking_over import TakingOver
from overlay.chord.merging.merging import Merging
from overlay.chord.merging.phase import MergePhase
from overlay.chord.messages import ArcGiven, Cluster, MergeAnswer, MergeOffer, TakeOver
from overlay.chord.ring.pointers import Pointers
from overlay.chord.ring.stabilisation import Stabilisation
from overlay.chord.role import ClusterRole
from overlay.chord.role_changes import RoleChanges
from overlay.machine import Key, NodeId, Peer
from overlay.upper_tree.owner.registrations.arc_merge import ArcMerge
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.owner.registrations.tree_stop import TreeStop

BEHIND_TESTS = "tests/chord/cluster/test_chord_stored.py"


@fault("P2")
def successors_beyond_first_not_adopted() -> None:
    """A cluster takes a new first successor but keeps the rest of its list, as the original Chord
    did."""
    original = Pointers.adopt

    def adopt(self: Pointers, cluster: Cluster, followers: tuple[Cluster, ...]) -> bool:
        return original(self, cluster, tuple(self.successors))

    replace(original, adopt)


@fault("P2")
def both_halves_own_the_arc() -> None:
    """A cluster that splits goes on owning the arc that it has given away."""
    original = HandOvers._shrunk

    def _shrunk(self: HandOvers, arc: Cluster) -> Cluster:
        own = self.role.cluster
        assert own is not None
        return changed(original(self, arc), start=own.start)

    replace(original, _shrunk)


@fault(
    "P4",
    "tests/chord/cluster/test_chord_election.py",
    "test_the_lease_ends_before_another_member_may_be_elected",
)
def primary_ignores_its_lease() -> None:
    """A primary serves though a higher epoch has fenced it or no majority follows it."""

    def has_lease(self: Heartbeat) -> bool:
        return bool(self.log.voters)

    replace(Heartbeat.has_lease, has_lease)


@fault(
    "P4",
    "tests/chord/cluster/test_chord_turns.py",
    "test_who_hears_the_primary_again_asks_for_no_epoch",
)
def candidate_ignores_returned_primary() -> None:
    """A candidate goes on with its trial election though it has heard the primary meanwhile."""
    original = Election._count_vote

    def _count_vote(self: Election, node: NodeId, timeout: float = 0.0) -> None:
        heard, never = self.heartbeat.heard_at, float("-inf")
        self.heartbeat.heard_at = never
        original(self, node, timeout)
        if self.heartbeat.heard_at == never:
            self.heartbeat.heard_at = heard

    replace(original, _count_vote)


@fault(
    "P4",
    "tests/chord/cluster/test_chord_restart.py",
    "test_the_last_member_leads_on_though_its_primary_had_asked_it_to_wait",
)
def promise_taken_for_round_trip() -> None:
    """A node that was started again takes what it has promised its primary to wait for the time
    that messages take now."""
    original = Heartbeat.resume

    def resume(self: Heartbeat, timeout: float) -> None:
        self._asked_timeout = max(self._asked_timeout, timeout)
        original(self, timeout)

    replace(original, resume)


@fault(
    "P4",
    "tests/chord/cluster/test_chord_election_timeout.py",
    "test_an_outage_is_no_measure_of_the_network",
)
def outage_measured_as_round_trip() -> None:
    """Heartbeats that are answered after an outage count with all of its time."""

    def note(self: ElectionTimeout, took: float, asked: float, now: float) -> None:
        self._remember(took, now)

    replace(ElectionTimeout.note, note)


@fault(
    "P2",
    "tests/chord/recovery/test_chord_part_claimed.py",
    "test_keys_whose_cluster_has_ended_are_taken_by_the_one_after_it",
)
def predecessor_never_missed() -> None:
    """A cluster does not look for the one before it, which nobody leads, unless a link is lost."""

    def _look_back(self: Stabilisation, own: Cluster) -> None:
        pass

    replace(Stabilisation._look_back, _look_back)


@fault("P4")
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


@fault("P1")
def voter_acknowledges_untaken_entries() -> None:
    """A voter acknowledges all entries of a message and takes only the first."""
    original = FollowerLog.on_entries

    def on_entries(self: FollowerLog, sender: Peer, message: LogEntries) -> None:
        voter_log = self.voter_log
        before = None if voter_log is None else voter_log.next
        original(self, sender, changed(message, entries=message.entries[:1]))
        if voter_log is not None and voter_log is self.voter_log and voter_log.next != before:
            following = message.after[1] + len(message.entries)
            self.port.send(sender, LogAck(message.key, message.epoch, following))

    replace(original, on_entries)


@fault("P1")
def voter_acknowledges_before_storing() -> None:
    """A voter acknowledges entries of the log without writing them to its disk."""
    original = FollowerLog.on_entries

    def append(self: Journal, items: Sequence[LogEntry], at_once: bool = False) -> None:
        pass

    def on_entries(self: FollowerLog, sender: Peer, message: LogEntries) -> None:
        with replaced(Journal.append, append):
            original(self, sender, message)

    replace(original, on_entries)


@fault("P1", BEHIND_TESTS, "test_a_voter_acknowledges_what_its_disk_has")
def voter_acknowledges_before_the_disk() -> None:
    """A voter acknowledges entries while its disk is still writing them."""

    def _acknowledge(self: FollowerLog, primary: Peer, epoch: int) -> None:
        assert self.voter_log is not None
        self.vote(self.voter_log.key, epoch, primary.id)
        self.port.send(primary, LogAck(self.voter_log.key, epoch, self.next))

    replace(FollowerLog._acknowledge, _acknowledge)


@fault("P1", BEHIND_TESTS, "test_a_primary_counts_its_own_copy_when_its_disk_has_it")
def primary_counts_itself_before_the_disk() -> None:
    """A primary takes an entry for stored at itself while its disk is still writing it."""

    original = LeaderLog._commit

    def _commit(self: LeaderLog) -> None:
        unstored, self.local.journal.unstored = self.local.journal.unstored, 0
        original(self)
        self.local.journal.unstored = unstored

    replace(original, _commit)


@fault("P1", BEHIND_TESTS, "test_who_votes_is_on_disk_before_anybody_hears_of_it")
def voters_changed_behind_the_turn() -> None:
    """A primary sends an entry that changes the voters before its own disk has it."""
    original = Journal.append

    def append(self: Journal, items: Sequence[LogEntry], at_once: bool = False) -> None:
        original(self, items)

    replace(original, append)


@fault("P1")
def restarted_primary_leads_on() -> None:
    """A primary leads on after a restart without being elected again."""

    def resume(self: ClusterRole, cluster: Cluster) -> None:
        self.must_be_elected = False
        self._describe(cluster)
        self._ring.serve_as_member(cluster)
        self._changed("started again")

    replace(ClusterRole.resume, resume)


@fault(
    "P1",
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
    "P4",
    "tests/chord/cluster/test_chord_restart.py",
    "test_the_file_grows_to_a_few_times_the_state_and_no_further",
)
def compaction_drops_votes() -> None:
    """A journal that is written anew lacks the votes that this node has given."""
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
    "P1",
    "tests/chord/membership/test_chord_split.py",
    "test_a_split_is_given_up_when_its_arc_would_be_quiesced_for_too_long",
)
def split_quiesces_without_bound() -> None:
    """A split quiesces its arc for as long as something is under way in it."""
    original = HandOvers._begin

    def _begin(self: HandOvers, handover: HandOver) -> None:
        original(self, handover)
        self.port.cancel_timer(HandOverTimeout())

    replace(original, _begin)


@fault(
    "promise: what is given up is reported",
    "tests/overlay/test_overlay_healing.py",
    "test_of_two_sides_that_both_went_on_each_hears_that_it_lacks_what_the_other_published",
)
def other_side_unheard_of() -> None:
    """Of two primaries of one arc that did not hear of each other, the one that goes on does not
    learn of the other."""

    def rival_named(self: RoleChanges, sender: Peer, other: Cluster) -> None:
        return

    replace(RoleChanges.rival_named, rival_named)


@fault(
    "P1",
    "tests/chord/membership/test_chord_recruiting.py",
    "test_a_cluster_that_lacks_members_comes_before_one_that_grows",
)
def growing_cluster_recruits_first() -> None:
    """An idle node serves in whichever cluster asks first, also in one that has its size."""

    def idle_for(self: ClusterRole) -> float:
        return float("inf")

    replace(ClusterRole.idle_for, idle_for)


# --- a cluster that merges with the next one ---

MERGE_TESTS = "tests/chord/membership/test_chord_cluster_merge.py"
TREE_TESTS = "tests/upper_tree/owner/registrations/test_tree_arc_merge.py"


@fault("P1", MERGE_TESTS, "test_a_majority_that_is_lost_before_it_is_decided_gives_nothing_away")
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
    "P1",
    MERGE_TESTS,
    "test_an_arc_is_not_taken_before_a_majority_of_the_next_cluster_has_its_state",
)
def arc_taken_without_majority() -> None:
    """The next cluster serves an arc that it takes as soon as its primary has written the state."""
    original = TakingIn.committed

    def committed(self: TakingIn) -> None:
        if self._stored_at >= 0:
            self._stored_at = min(self._stored_at, self.leader_log.committed - 1)
        original(self)

    replace(original, committed)


@fault(
    "P1",
    MERGE_TESTS,
    "test_trees_that_do_not_come_to_rest_keep_their_cluster_which_serves_them_again",
)
def merging_cluster_decides_on() -> None:
    """A cluster goes on deciding in its arc while it stops its trees for a merge."""

    def is_leaving(self: ClusterMerges, key: Key) -> bool:
        return False

    replace(ClusterMerges.is_leaving, is_leaving)


@fault(
    "P1",
    MERGE_TESTS,
    "test_it_is_not_given_away_under_another_epoch_than_it_was_promised_for",
)
def merge_goes_on_under_another_epoch() -> None:
    """A cluster gives its arc away though its epoch has changed since that was promised."""
    original = ClusterMerges.hand_over

    def consider(self: ClusterMerges) -> None:
        own = self.role.led
        if own is not None and self.current is not None and self.current.arc.epoch != own.epoch:
            return
        considered(self)

    def hand_over(self: ClusterMerges, entries: tuple[bytes, ...]) -> None:
        own = self.role.led
        if own is not None and self.current is not None:
            self.current.arc = changed(self.current.arc, version=own.version)
        original(self, entries)

    considered = ClusterMerges.consider
    replace(considered, consider)
    replace(original, hand_over)


@fault("P1", MERGE_TESTS, "test_an_arc_that_was_taken_is_not_taken_again")
def taken_arc_not_remembered() -> None:
    """A cluster that has taken an arc, and has split it off again, takes it a second time."""
    original = TakingIn.on_offer

    def on_offer(self: TakingIn, sender: Peer, message: MergeOffer) -> None:
        config = self.log.config if self.log.voter_log is not None else None
        if config is not None and config.taken is not None:
            assert self.log.voter_log is not None
            self.log.voter_log.override(changed(config, taken=None))
        original(self, sender, message)

    replace(original, on_offer)


@fault(
    "P1",
    MERGE_TESTS,
    "test_a_state_that_came_in_part_is_dropped_by_the_next_primary_and_sent_again",
)
def partial_state_kept() -> None:
    """A voter keeps what has come of an arc's state though the primary that took it is gone."""
    original = FollowerLog._emit_gone

    def _emit_gone(self: FollowerLog, key: Key, start: Key) -> None:
        promised = None if self.voter_log is None else self.voter_log.config.promised
        if promised is None or promised.key != key:
            original(self, key, start)

    replace(original, _emit_gone)


@fault("P1", MERGE_TESTS, "test_a_cluster_takes_no_arc_with_which_it_would_soon_split")
def full_cluster_takes_an_arc() -> None:
    """A cluster takes the arc of a small one however much it owns itself."""

    def _has_room(self: TakingIn, offered: MergeOffer) -> bool:
        return True

    replace(TakingIn._has_room, _has_room)


@fault(
    "P1",
    MERGE_TESTS,
    "test_trees_that_do_not_come_to_rest_keep_their_cluster_which_serves_them_again",
)
def promise_is_never_withdrawn() -> None:
    """A cluster keeps its promise to take an arc that the other one has kept."""

    def _withdraw(self: TakingIn) -> None:
        pass

    replace(TakingIn._withdraw, _withdraw)


@fault("C6", TREE_TESTS, "test_the_state_is_handed_over_when_the_hosts_have_said_that_they_stopped")
def merged_while_hosts_serve() -> None:
    """A cluster that merges hands its state over while its hosts still serve its trees."""
    original = ArcMerge._step

    def _step(self: ArcMerge) -> None:
        original(self)
        if self._under_way and not self._stop.step():
            self._hand_over()

    replace(original, _step)


@fault("C5", TREE_TESTS, "test_the_state_is_handed_over_when_no_publisher_has_a_summary")
def merged_while_summaries_are_cached() -> None:
    """A cluster that merges does not wait for the end of publishers' summaries of its trees."""

    def _is_stopped(self: TreeStop) -> bool:
        return not any(
            self._owner.leases.may_serve(host)
            for owned in self._trees.values()
            for host in owned.stopping_hosts
        )

    replace(TreeStop._is_stopped, _is_stopped)


@fault("C6", TREE_TESTS, "test_an_arc_that_is_kept_is_served_again")
def kept_arc_not_served_again() -> None:
    """A cluster that keeps its arc after all does not give its hosts their registrations again."""

    def cancel(self: TreeStop) -> None:
        self._stopping = False

    replace(TreeStop.cancel, cancel)


@fault(
    "C6",
    TREE_TESTS,
    "test_the_next_cluster_serves_the_trees_from_its_own_hosts_when_its_log_has_them",
)
def taken_trees_not_planted() -> None:
    """A cluster that takes an arc has its trees in the log and decides about none of them."""

    def on_arc_taken(self: TreeRestoration, event: ArcTaken) -> None:
        self._clusters.forget_log(event.arc.key)

    replace(TreeRestoration.on_arc_taken, on_arc_taken)


@fault("P1", MERGE_TESTS, "test_0_keeps_clusters_from_merging")
def merge_below_ignored() -> None:
    """A cluster that misses members merges whatever `cluster.merge_below` says."""
    original = ClusterMerges._begin_if_small

    def _begin_if_small(self: ClusterMerges, own: Cluster) -> None:
        settings = self.recruiting.settings
        self.recruiting.settings = changed(settings, merge_below=settings.size)
        original(self, own)
        self.recruiting.settings = settings

    replace(original, _begin_if_small)


@fault(
    "P4",
    "tests/chord/cluster/test_chord_hello.py",
    "test_who_believes_late_that_a_primary_was_elected_answers_its_hello_then",
)
def late_follower_says_nothing() -> None:
    """A member that follows a primary only after it has asked others does not answer its HELLO."""

    def _follow(self: ClusterMembers) -> None:
        self.election.cancel()
        self.heartbeat.start_following()

    replace(ClusterMembers._follow, _follow)


@fault(
    "P1",
    "tests/chord/cluster/test_chord_hello.py",
    "test_a_voter_that_is_started_again_at_once_gets_what_was_under_way",
)
def returned_voter_not_asked() -> None:
    """A primary does not ask a voter that is reachable again how far its log is."""

    def restart_follower(self: LeaderLog, peer: Peer) -> None:
        pass

    replace(LeaderLog.restart_follower, restart_follower)
