"""Faults of what keeps voters and members from lying about who leads, where nodes are, and what is
shared.
"""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.ring.claims import Claims
from overlay.consensus import majority, quorum_of_storers
from overlay.upper_tree.delivery.deliveries import Deliveries
from overlay.upper_tree.delivery.delivery_tokens import OwnToken
from overlay.upper_tree.host.host import Hosting
from overlay.upper_tree.host.visit_handler import is_from_host
from overlay.upper_tree.messages import Visit

CLAIMS = "tests/attacks/test_attacks_claims.py"
DELIVERIES = "tests/attacks/events/test_attacks_deliveries.py"


@fault("A20", CLAIMS, "test_a_voter_that_claims_an_epoch_leads_nobody")
def lying_claims_are_believed() -> None:
    """Who says that it leads is believed without a majority's votes or anybody's word."""

    replace(Claims.settles, lambda self, cluster, known, is_reachable, is_led=True: True)


@fault("A20", CLAIMS, "test_of_two_primaries_that_one_vote_made_neither_goes_on_in_that_epoch")
def lying_rivals_are_not_noticed() -> None:
    """Two primaries that a voter has made in one epoch go on."""

    replace(ClusterMembers._look_at_rival, lambda self, sender, cluster: None)


@fault("A20", CLAIMS, "test_one_that_says_it_has_what_it_has_not_loses_nothing")
def lying_majority_commits() -> None:
    """An entry counts as stored with a majority, one of which may lie."""

    replace(quorum_of_storers, lambda voters, one_may_lie: majority(voters))


@fault(
    "A38", "tests/attacks/test_attacks_trees.py", "test_members_that_drop_copies_are_no_delegates"
)
def lying_members_are_delegates() -> None:
    """Any recipient is a delegate, whatever `tree.delegates` says."""

    replace(Deliveries._by_standing, lambda self, near, far, room: (near, []))


@fault("A31", DELIVERIES, "test_who_hosts_nothing_forges_and_suppresses_nothing")
def lying_deliveries_are_taken() -> None:
    """An interested node takes events from whoever sends them."""

    replace(OwnToken.is_shown, lambda self, token, now: True)


@fault("A31", DELIVERIES, "test_who_hosts_nothing_forges_and_suppresses_nothing[by_a_host-2]")
def lying_visits_are_passed_on() -> None:
    """A host takes a publisher's events from whoever says that it passes them on."""

    replace(is_from_host, lambda visit, sender, trees: True)


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
