"""Faults on an event's way, at its publisher and at the interested node, and in what is held,
given up and reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from bench.mutations.planting import fault, replace, replaced
from canopy.client.resubscription import Resubscription
from matching import Index
from overlay.client import Delivery, Event
from overlay.links.events import LinkUp
from overlay.lower_random.messages import WalkFailed
from overlay.machine import Peer
from overlay.upper_tree.clients.gap_reports import GapOver, GapReports
from overlay.upper_tree.delivery.fan_out import LastSent
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.held_deliveries import HeldDeliveries
from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.event_history import ArrivalOf
from overlay.upper_tree.events import TreeAbsent
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.publisher.pending_store import PendingStore
from overlay.upper_tree.publisher.publications import Publications
from overlay.upper_tree.publisher.routing_plan import Route
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.subscriber.publication_order import PublicationOrder
from overlay.upper_tree.subscriber.receiver import PartialMatch, Receiver

OUT_OF_REACH = "tests/upper_tree/delivery/test_tree_out_of_reach.py"
HOLDING = "tests/upper_tree/delivery/test_tree_holding.py"
ORDER = "tests/upper_tree/test_tree_order.py"


@fault("D8", OUT_OF_REACH, "test_halves_that_are_apart_for_less_than_a_lease_miss_nothing")
def out_of_reach_not_held() -> None:
    """A host gives up at once what is for a node out of its reach, and says nothing."""

    def put_back(self: Holding, peer: Peer, messages: Sequence[Deliver]) -> None:
        self.port.count("deliveries_lost", sum(len(each.events) for each in messages))

    replace(Holding.put_back, put_back)


@fault("V8", HOLDING, "test_bytes_are_bounded_too_and_the_node_that_most_is_held_for_loses")
def held_without_bound() -> None:
    """A host holds whatever comes for nodes out of reach."""

    replace(HeldDeliveries.excess, lambda self, now: iter(()))


@fault(
    "D7",
    HOLDING,
    "test_beyond_the_bound_the_oldest_are_given_up_and_the_node_is_notified_in_its_place",
)
def given_up_unreported() -> None:
    """A host traces what it gives up and does not report it to the node."""

    replace(GapNotices.given_up, lambda self, peer, events, reason: None)


@fault("D7", OUT_OF_REACH, "test_what_a_lease_does_not_outlast_is_reported_to_the_programs")
def lapse_unreported() -> None:
    """That its registrations had ended is not reported to a node, nor by it to its programs."""

    def on_gap_over(self: GapReports, timer: GapOver) -> None:
        self._over.rang()

    replace(GapNotices.on_matching_interrupted, lambda self, event: None)
    replace(GapReports.on_gap_over, on_gap_over)


@fault(
    "D11",
    "tests/upper_tree/delivery/test_tree_lasting_programs.py",
    "test_what_programs_miss_is_in_a_gap_whatever_becomes_of_their_nodes",
)
def gap_begins_when_it_is_found() -> None:
    """A program's gap begins when the connection to its node was lost."""

    replace(Resubscription._since, lambda self: 0.0 if self._lost_at is None else self._lost_at[1])


@fault(
    "D10",
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
    "C5",
    "tests/upper_tree/publisher/test_tree_finder.py",
    "test_an_absence_by_the_owner_is_certain",
)
def no_lookup_after_failed_walk() -> None:
    """A publisher whose walk failed takes the tree for absent and does not ask the ring."""

    def on_walk_failed(self: TreeFinder, event: WalkFailed) -> None:
        for attribute in event.attributes:
            search = self.searches.get(attribute)
            if search is not None and search.stage == "walk":
                del self.searches[attribute]
                self.port.emit(TreeAbsent(attribute, self.port.now + 1.0))

    replace(TreeFinder.on_walk_failed, on_walk_failed)


@fault(
    "I12",
    "tests/upper_tree/publisher/test_tree_pending.py",
    "test_bytes_bound_what_is_pending_as_pairs_do",
)
def pending_bytes_uncounted() -> None:
    """A publisher admits events as long as they are few, however large."""

    original = PendingStore.add_batch

    def add_batch(self: PendingStore, events: Sequence[Event], route: Route, largest: int) -> None:
        original(self, events, route, 0)

    replace(original, add_batch)


@fault(
    "D12",
    "tests/upper_tree/clients/test_tree_clients.py",
    "test_a_node_that_leaves_acknowledges_nothing_new",
)
def leaving_node_acknowledges() -> None:
    """A node that is leaving goes on acknowledging publications, though it may end before they are
    sent."""
    original = Publications.leave

    def leave(self: Publications) -> None:
        original(self)
        self._leaving = False

    replace(original, leave)


@fault("D9", ORDER, "test_events_of_a_publisher_come_in_the_order_of_publication[hosts-counting]")
def events_wait_for_none() -> None:
    """An event that comes before an earlier one of its publisher is shown at once."""

    replace(PublicationOrder.arrived, lambda self, source, events, passage: None)


@fault("D9", ORDER, "test_events_of_a_publisher_come_in_the_order_of_publication[delegates-pivot]")
def change_of_delegate_unsaid() -> None:
    """A host does not say that the event before went by another delegate."""

    replace(LastSent.sends, lambda self, source, node, first, last, by, now: 0)


@fault(
    "C8",
    "tests/papers/test_papers_cbdlo_delivery.py",
    "test_an_attribute_that_matches_twice_counts_once",
)
def counting_counts_twice() -> None:
    """Counting routing counts an attribute as often as it comes and not once."""
    original = PartialMatch.add

    def add(self: PartialMatch, conjunction: str, attribute: str) -> int:
        times = len(self.matched.get(conjunction, ()))
        return original(self, conjunction, attribute + "+" * times)

    replace(original, add)


@fault(
    "D3",
    "tests/upper_tree/subscriber/test_tree_receiver.py",
    "test_an_event_that_comes_again_is_shown_once",
)
def duplicates_shown() -> None:
    """A subscriber's node does not remove events that it has shown before."""

    replace(Receiver._unseen, lambda self, events, sources: events)


@fault(
    "I9",
    "tests/upper_tree/subscriber/test_tree_receiver.py",
    "test_what_came_for_another_reason_is_not_shown",
)
def no_recheck() -> None:
    """A subscriber's node shows whatever arrives to all of its subscriptions."""
    original = Receiver._deliver

    def _deliver(
        self: Receiver, events: Sequence[Event], witnesses: dict[int, str], arrival_of: ArrivalOf
    ) -> list[Delivery]:
        everyone = sorted({id_.rsplit("/", 1)[0] for id_ in self.required})

        def match(self: Index[str], attributes: object) -> list[str]:
            return everyone

        with replaced(Index[str].match, match):
            return original(self, events, witnesses, arrival_of)

    replace(original, _deliver)
