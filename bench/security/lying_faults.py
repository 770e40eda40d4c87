"""Faults of what keeps voters and members from lying about who leads, where nodes are, and what is
shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.mutations.planting import fault, replace
from overlay.chord.cluster.election import Election
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.cluster.messages import ClusterHeartbeat, VoteReply
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.messages import Cluster
from overlay.chord.ring.claims import Claims
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role_changes import RoleChanges
from overlay.consensus.quorum import majority, quorum_of_storers
from overlay.lower_random.messages import Neighbour
from overlay.lower_random.peer_records import PeerRecords
from overlay.machine import NodeId, Peer
from overlay.tenants.policy import Export
from overlay.upper_tree.delivery.deliveries import Deliveries
from overlay.upper_tree.delivery.delivery_tokens import OwnToken
from overlay.upper_tree.delivery.fan_out import Part
from overlay.upper_tree.delivery.recipients import Recipient
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.hosting import Hosting
from overlay.upper_tree.host.visiting import is_from_host
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.publisher.doubts import Doubts
from overlay.upper_tree.publisher.pending_event import PendingPair
from overlay.upper_tree.publisher.pending_store import PendingStore

CLAIMS = "tests/attacks/test_attacks_claims.py"
DELIVERIES = "tests/attacks/events/test_attacks_deliveries.py"
RECORDS = "tests/lower_random/test_lower_peer_records.py"
TREES = "tests/attacks/test_attacks_trees.py"
POLICY = "tests/attacks/test_attacks_policy.py"
SIGNED_FORKS = "tests/chord/recovery/test_chord_signed_forks.py"


@fault("keys", CLAIMS, "test_a_voter_that_claims_an_epoch_leads_nobody")
def lying_claims_are_believed() -> None:
    """Who says that it leads is believed without a majority's votes or anybody's word."""

    def settles(
        self: Claims,
        cluster: Cluster,
        known: Cluster,
        is_reachable: Callable[[Peer], bool],
        is_led: bool = True,
    ) -> bool:
        return True

    replace(Claims.settles, settles)


@fault("keys", CLAIMS, "test_who_passes_a_description_on_changes_nothing_in_it")
def lying_seals_are_not_looked_at() -> None:
    """A description is believed whoever has changed it."""

    def is_sealed(self: Claims, cluster: Cluster) -> bool:
        return True

    replace(Claims.is_sealed, is_sealed)


@fault("keys", CLAIMS, "test_grants_of_others_than_the_voters_prove_nothing")
def lying_grants_are_counted_unseen() -> None:
    """As many grants as a majority prove a claim, whosever they are."""

    def is_granted(self: Claims, cluster: Cluster, known: Cluster) -> bool:
        return len(cluster.grants) > len(known.members()) // 2

    replace(Claims.is_granted, is_granted)


@fault("keys", CLAIMS, "test_a_vote_that_is_not_signed_is_none")
def lying_votes_need_no_signature() -> None:
    """A candidate counts votes that prove nothing to others."""

    def is_signed(self: Election, sender: Peer, message: VoteReply) -> bool:
        return True

    replace(Election._is_signed, is_signed)


@fault("keys", CLAIMS, "test_a_voter_that_says_it_has_voted_moves_no_primary_again_and_again")
def lying_voters_raise_without_bound() -> None:
    """A voter moves a primary to another election as often as it says that it has voted."""

    def may_raise(self: RoleChanges, node: NodeId) -> bool:
        return True

    replace(RoleChanges._may_raise, may_raise)


@fault("keys", CLAIMS, "test_of_two_primaries_that_one_vote_made_neither_goes_on_in_that_epoch")
def lying_rivals_are_not_noticed() -> None:
    """Two primaries that a voter has made in one epoch go on."""

    def look(self: ClusterMembers, sender: Peer, cluster: Cluster) -> None:
        pass

    replace(ClusterMembers._look_at_rival, look)


@fault("I4", CLAIMS, "test_one_that_says_it_has_what_it_has_not_loses_nothing")
def lying_majority_commits() -> None:
    """An entry counts as stored with a majority, one of which may lie."""

    def of_honest(voters: int, one_may_lie: bool) -> int:
        return majority(voters)

    replace(quorum_of_storers, of_honest)


@fault("keys", RECORDS, "test_what_a_node_has_not_said_itself_is_not_taken")
def lying_addresses_are_taken() -> None:
    """What others say of a node's address is believed."""

    def is_good(self: PeerRecords, entry: Neighbour) -> bool:
        return True

    replace(PeerRecords.is_good, is_good)


@fault(
    "C11", "tests/attacks/test_attacks_trees.py", "test_members_that_drop_copies_are_no_delegates"
)
def lying_members_are_delegates() -> None:
    """Any recipient is a delegate, whatever `tree.delegates` says."""

    def by_standing(
        self: Deliveries, near: list[Recipient], far: Sequence[Part[Recipient]], room: int
    ) -> tuple[list[Recipient], list[Recipient]]:
        return near, []

    replace(Deliveries._by_standing, by_standing)


@fault("keys", POLICY, "test_an_export_opens_what_its_tenant_may_publish_and_nothing_else")
def lying_exports_open_others() -> None:
    """An export opens what its selector says, whosever events these are."""
    from overlay.tenants import policy

    original = policy.visible

    def visible(given: policy.Policy) -> dict[str, str]:
        found = original(given)
        for tenant in given.tenants.values():
            for export in tenant.exports.values():
                _open(found, export)
        return found

    replace(original, visible)


def _open(found: dict[str, str], export: Export) -> None:
    for name in export.to:
        found[name] = f"({found[name]}) OR ({export.where})"


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
    original = ClusterMembers._is_proven

    def _is_proven(self: ClusterMembers, sender: Peer, cluster: Cluster) -> bool:
        return self.role.cluster is None or original(self, sender, cluster)

    replace(original, _is_proven)


@fault(
    "P4",
    "tests/chord/cluster/test_chord_hello.py",
    "test_a_cluster_with_more_members_than_voters_follows_whom_they_elect",
)
def members_count_as_voters() -> None:
    """A member believes that a primary was elected only if a majority of the members granted it,
    although fewer vote."""

    def prove(self: Claims, cluster: Cluster, voters: Sequence[Peer]) -> None:
        pass

    replace(Claims.prove, prove)


@fault("promise: every event", DELIVERIES, "test_who_hosts_nothing_forges_and_suppresses_nothing")
def lying_deliveries_are_taken() -> None:
    """An interested node takes events from whoever sends them."""

    def is_shown(self: OwnToken, token: bytes, now: float) -> bool:
        return True

    replace(OwnToken.is_shown, is_shown)


@fault(
    "promise: every event",
    DELIVERIES,
    "test_who_hosts_nothing_forges_and_suppresses_nothing[by_a_host-2]",
)
def lying_visits_are_passed_on() -> None:
    """A host takes a publisher's events from whoever says that it passes them on."""

    def from_anybody(visit: Visit, sender: NodeId, trees: Mapping[str, HostedTree]) -> bool:
        return True

    replace(is_from_host, from_anybody)


@fault(
    "promise: every event", DELIVERIES, "test_nor_has_it_a_publisher_take_its_events_for_refused"
)
def lying_refusals_are_believed() -> None:
    """A publisher takes an event for refused by whoever says so."""

    def sent_to(self: PendingStore, host: NodeId, sequences: Iterable[int]) -> list[PendingPair]:
        self._batches.break_up()
        found = [self._single[number] for number in sequences if number in self._single]
        return [(pending, attribute) for pending in found for attribute in pending.pairs]

    def is_certain(self: Doubts, attribute: str, host: NodeId) -> bool:
        return True

    replace(PendingStore.sent_to, sent_to)
    replace(Doubts.is_certain, is_certain)


@fault(
    "promise: every event", DELIVERIES, "test_hosts_move_and_nothing_that_they_send_is_refused[1]"
)
def former_tokens_are_refused() -> None:
    """A process takes no delivery of a host that has what a former one registered as well."""
    original = OwnToken.is_shown

    def is_shown(self: OwnToken, token: bytes, now: float) -> bool:
        return original(self, token, float("inf"))

    replace(OwnToken.is_shown, is_shown)


@fault(
    "promise: every event",
    "tests/attacks/events/test_attacks_poison.py",
    "test_an_event_that_no_host_can_match_is_refused_and_goes_no_further",
)
def poisonous_events_end_hosts() -> None:
    """A fault of the program that an event brings to light ends each host that the event visits."""

    def raising(self: Hosting, message: Visit, error: Exception) -> int:
        raise error

    replace(Hosting._match_apart, raising)
