"""Faults of what keeps voters and members from lying about who leads, where nodes are, and what is
shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.mutations.planting import fault, replace
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.messages import Cluster
from overlay.chord.ring.claims import Claims
from overlay.consensus import majority, quorum_of_storers
from overlay.machine import NodeId, Peer
from overlay.upper_tree.delivery.deliveries import Deliveries
from overlay.upper_tree.delivery.delivery_tokens import OwnToken
from overlay.upper_tree.delivery.fan_out import Part, Recipient
from overlay.upper_tree.host.host import Hosting
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.visit_handler import is_from_host
from overlay.upper_tree.messages import Visit

CLAIMS = "tests/attacks/test_attacks_claims.py"
DELIVERIES = "tests/attacks/events/test_attacks_deliveries.py"


@fault("A20", CLAIMS, "test_a_voter_that_claims_an_epoch_leads_nobody")
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


@fault("A20", CLAIMS, "test_of_two_primaries_that_one_vote_made_neither_goes_on_in_that_epoch")
def lying_rivals_are_not_noticed() -> None:
    """Two primaries that a voter has made in one epoch go on."""

    def look(self: ClusterMembers, sender: Peer, cluster: Cluster) -> None:
        pass

    replace(ClusterMembers._look_at_rival, look)


@fault("A20", CLAIMS, "test_one_that_says_it_has_what_it_has_not_loses_nothing")
def lying_majority_commits() -> None:
    """An entry counts as stored with a majority, one of which may lie."""

    def of_honest(voters: int, one_may_lie: bool) -> int:
        return majority(voters)

    replace(quorum_of_storers, of_honest)


@fault(
    "A38", "tests/attacks/test_attacks_trees.py", "test_members_that_drop_copies_are_no_delegates"
)
def lying_members_are_delegates() -> None:
    """Any recipient is a delegate, whatever `tree.delegates` says."""

    def by_standing(
        self: Deliveries, near: list[Recipient], far: Sequence[Part[Recipient]], room: int
    ) -> tuple[list[Recipient], list[Recipient]]:
        return near, []

    replace(Deliveries._by_standing, by_standing)


@fault("A31", DELIVERIES, "test_who_hosts_nothing_forges_and_suppresses_nothing")
def lying_deliveries_are_taken() -> None:
    """An interested node takes events from whoever sends them."""

    def is_shown(self: OwnToken, token: bytes, now: float) -> bool:
        return True

    replace(OwnToken.is_shown, is_shown)


@fault("A31", DELIVERIES, "test_who_hosts_nothing_forges_and_suppresses_nothing[by_a_host-2]")
def lying_visits_are_passed_on() -> None:
    """A host takes a publisher's events from whoever says that it passes them on."""

    def from_anybody(visit: Visit, sender: NodeId, trees: Mapping[str, HostedTree]) -> bool:
        return True

    replace(is_from_host, from_anybody)


@fault(
    "A34",
    "tests/attacks/events/test_attacks_poison.py",
    "test_an_event_that_no_host_can_match_is_refused_and_goes_no_further",
)
def poisonous_events_end_hosts() -> None:
    """A fault of the program that an event brings to light ends each host that the event visits."""

    def raising(self: Hosting, message: Visit, error: Exception) -> int:
        raise error

    replace(Hosting._match_apart, raising)
