"""Faults of holding deliveries for a node out of reach, and of reporting what it misses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec import structs

from bench.mutations.planting import fault, replace
from canopy.client.resubscription import Resubscription
from overlay.client import Event
from overlay.links.events import LinkUp
from overlay.machine import Peer
from overlay.upper_tree.clients.gap_reports import GapOver, GapReports
from overlay.upper_tree.clients.local_subscription import LocalSubscription
from overlay.upper_tree.clients.low_water import LowWater
from overlay.upper_tree.delivery.gap_notices import GapNotices, PendingNotice
from overlay.upper_tree.delivery.held_deliveries import HeldDeliveries, HeldNode
from overlay.upper_tree.delivery.holding import Holding
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.events import MatchingInterrupted
from overlay.upper_tree.messages import Deliver, Renewed
from overlay.upper_tree.owner.registrations.registration_ends import RegistrationEnds
from overlay.upper_tree.subscriber.confirmations import Renewal
from overlay.upper_tree.subscriber.receiver import Receiver
from overlay.upper_tree.subscriber.renewals import Renewals

LASTING = "tests/upper_tree/delivery/test_tree_lasting_programs.py"

OUT_OF_REACH = "tests/upper_tree/delivery/test_tree_out_of_reach.py"


@fault(
    "promise: what is for a node out of reach is held",
    OUT_OF_REACH,
    "test_halves_that_are_apart_for_less_than_a_lease_miss_nothing",
)
def out_of_reach_not_held() -> None:
    """A host gives up at once what is for a node out of its reach, and says nothing."""

    def put_back(self: Holding, peer: Peer, messages: Sequence[Deliver]) -> None:
        self.port.count("deliveries_lost", sum(len(each.events) for each in messages))

    replace(Holding.put_back, put_back)


@fault(
    "promise: what is for a node out of reach is held",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_what_is_for_a_node_out_of_reach_waits_and_follows_in_order",
)
def held_not_released() -> None:
    """A host goes on holding when the link to a node comes up."""

    def on_link_up(self: Holding, event: LinkUp) -> None:
        pass

    replace(Holding.on_link_up, on_link_up)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_a_node_that_leaves_hands_over_the_notices_that_wait",
)
def notices_leave_with_their_node() -> None:
    """A node that leaves takes along the notices for nodes out of its reach."""

    def leave(self: GapNotices, stand_in: Callable[[Peer], Peer | None]) -> None:
        pass

    replace(GapNotices.leave, leave)


@fault(
    "I12",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_bytes_are_bounded_too_and_the_node_that_most_is_held_for_loses",
)
def held_without_bound() -> None:
    """A host holds whatever comes for nodes out of reach."""

    def excess(self: HeldDeliveries) -> Iterator[tuple[HeldNode, Deliver]]:
        return iter(())

    replace(HeldDeliveries.excess, excess)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_beyond_the_bound_the_oldest_are_given_up_and_the_node_is_notified_in_its_place",
)
def given_up_unreported() -> None:
    """A host traces what it gives up and does not report it to the node."""

    def given_up(self: GapNotices, peer: Peer, events: Sequence[Event], reason: str) -> None:
        pass

    replace(GapNotices.given_up, given_up)


@fault(
    "promise: what is given up is reported",
    OUT_OF_REACH,
    "test_what_exceeds_the_bound_is_traced_and_reported_to_the_programs",
)
def given_up_untraced() -> None:
    """A host reports to a node what it gave up and writes no trace record of it."""

    def _drop(self: Holding, peer: Peer, messages: Iterable[Deliver], reason: str) -> list[Deliver]:
        return [message for message in messages if message.events]

    replace(Holding._drop, _drop)


@fault(
    "promise: what is given up is reported",
    OUT_OF_REACH,
    "test_what_a_lease_does_not_outlast_is_reported_to_the_programs",
)
def lapse_unreported() -> None:
    """That its registrations had ended is not reported to a node, nor by it to its programs."""

    def on_matching_interrupted(self: GapNotices, event: MatchingInterrupted) -> None:
        pass

    def on_gap_over(self: GapReports, timer: GapOver) -> None:
        self._over.rang()

    replace(GapNotices.on_matching_interrupted, on_matching_interrupted)
    replace(GapReports.on_gap_over, on_gap_over)


@fault(
    "promise: what is given up is reported",
    OUT_OF_REACH,
    "test_what_a_side_without_the_log_did_not_match_is_reported_when_it_has_healed",
)
def overridden_fork_unreported() -> None:
    """A primary that overrides a fork does not report to subscribers that the fork may have lacked
    them."""

    def _report_divided(self: RegistrationEnds, attributes: Iterable[str]) -> None:
        pass

    replace(RegistrationEnds._report_divided, _report_divided)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_a_notice_names_attributes_and_since_when_nothing_was_matched",
)
def attributes_of_the_first_only() -> None:
    """A notice of deliveries that were given up names the attributes of the first of them."""
    original = PendingNotice._concern

    def _concern(self: PendingNotice, attributes: Iterable[str] | None) -> None:
        if not self._attributes:
            original(self, attributes)

    replace(original, _concern)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/clients/test_tree_gap_reports.py",
    "test_a_conjunction_that_needs_no_attribute_may_miss_any_event",
)
def gap_concerns_known_attributes_only() -> None:
    """A program hears of missing events only if its selectors use one of their attributes."""

    def may_miss(self: LocalSubscription, attributes: Collection[str]) -> bool:
        return any(name in attributes for name in self.predicate.attributes)

    replace(LocalSubscription.may_miss, may_miss)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_a_node_that_leaves_hands_over_to_one_that_failed_as_a_relay_rather_than_drop",
)
def leaving_host_needs_a_relay() -> None:
    """A node that leaves drops what it holds if no relay has reached its node lately."""
    replace(Relays.stand_in, Relays.relay)


@fault(
    "promise: a gap begins where deliveries were complete",
    LASTING,
    "test_what_programs_miss_is_in_a_gap_whatever_becomes_of_their_nodes",
)
def gap_begins_when_it_is_found() -> None:
    """A program's gap begins when the connection to its node was lost."""

    def _since(self: Resubscription) -> float:
        return 0.0 if self._lost_at is None else self._lost_at[1]

    replace(Resubscription._since, _since)


@fault(
    "promise: a gap begins where deliveries were complete",
    "tests/upper_tree/clients/test_tree_low_water.py",
    "test_a_node_that_stood_still_is_behind_until_what_was_held_has_come",
)
def mark_moves_after_a_pause() -> None:
    """A node that stood still says at once that deliveries are complete until shortly before."""

    def _stood_still(self: LowWater, seconds: float) -> None:
        pass

    replace(LowWater._stood_still, _stood_still)


@fault(
    "promise: nothing older than a SUBACK is shown",
    "tests/upper_tree/subscriber/test_tree_earlier_lives.py",
    "test_what_was_matched_for_an_earlier_start_is_refused_and_reported",
)
def earlier_life_shown() -> None:
    """A node shows its programs what hosts have matched for an earlier start of it."""

    def on_link_up(self: Holding, event: LinkUp) -> None:
        held = self.held.find(event.peer.id)
        if held is not None:
            self._open(held)

    def _refuse_earlier(self: Receiver, message: Deliver) -> None:
        self.on_deliver(self.port.me, structs.replace(message, life=0))

    replace(Holding.on_link_up, on_link_up)
    replace(Receiver._refuse_earlier, _refuse_earlier)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_what_was_for_a_process_that_has_ended_its_next_one_gets_a_notice_of",
)
def ended_process_unreported() -> None:
    """A host drops what it had for a process that has ended, and the next one hears nothing."""

    def _to_ended(self: Holding, peer: Peer, messages: Iterable[Deliver]) -> None:
        for message in messages:
            self.port.count("deliveries_to_ended", len(message.events))

    replace(Holding._to_ended, _to_ended)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/subscriber/test_tree_renewals.py",
    "test_hosts_that_were_lost_while_it_stood_still_may_have_held_something",
)
def hosts_of_a_pause_not_asked_for() -> None:
    """A node that stood still does not ask whether hosts that held something for it were lost."""

    def _hosts_known(self: Renewals, renewal: Renewal, message: Renewed) -> None:
        self._unasked.clear()

    replace(Renewals._hosts_known, _hosts_known)
