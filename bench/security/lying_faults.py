"""Faults of what keeps voters and members from lying about who leads, where nodes are, and what is
shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.mutations.planting import fault, replace
from overlay.chord.consensus.election import Election
from overlay.chord.consensus.leader_log import LeaderLog
from overlay.chord.consensus.messages import VoteReply
from overlay.chord.membership.members import Members
from overlay.chord.messages import Cluster
from overlay.chord.ring.claims import Claims
from overlay.chord.role_changes import RoleChanges
from overlay.lower_random.messages import Neighbour
from overlay.lower_random.peer_records import PeerRecords
from overlay.machine import NodeId, Peer
from overlay.tenants.policy import Export
from overlay.upper_tree.delivery.deliveries import Deliveries
from overlay.upper_tree.delivery.fan_out import Part
from overlay.upper_tree.delivery.recipients import Recipient

CLAIMS = "tests/attacks/test_attacks_claims.py"
RECORDS = "tests/lower_random/test_lower_peer_records.py"
TREES = "tests/attacks/test_attacks_trees.py"
POLICY = "tests/attacks/test_attacks_policy.py"


@fault("keys", CLAIMS, "test_a_voter_that_claims_an_epoch_leads_nobody")
def lying_claims_are_believed() -> None:
    """Who says that it leads is believed without a majority's votes or anybody's word."""

    def settles(
        self: Claims, cluster: Cluster, known: Cluster, is_reachable: Callable[[Peer], bool]
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

    def look(self: Members, sender: Peer, cluster: Cluster) -> None:
        pass

    replace(Members._look_at_rival, look)


@fault("I4", CLAIMS, "test_one_that_says_it_has_what_it_has_not_loses_nothing")
def lying_majority_commits() -> None:
    """An entry counts as stored with a majority, one of which may lie."""

    def enough(self: LeaderLog, voters: int) -> int:
        return voters // 2 + 1

    replace(LeaderLog._enough, enough)


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
