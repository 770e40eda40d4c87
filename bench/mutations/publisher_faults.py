"""Faults of the publisher: finding trees, pending events, who publishes ahead, and the order of its
events (docs/design/delivery.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bench.mutations.planting import fault, replace, replace_constant
from canopy.cli.demo import publisher
from canopy.client.blocking import ControlClient
from matching import Cut, Interval
from overlay.chord.keys import attribute_key
from overlay.client import Event
from overlay.lower_random.events import WalkFailed
from overlay.machine import NodeId, Peer
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.delivery.event_counts import EventSource
from overlay.upper_tree.delivery.last_sent import LastSent
from overlay.upper_tree.events import TreeAbsent
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.publisher.first_searches import FirstSearches
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.pending_event import PendingPair
from overlay.upper_tree.publisher.pending_store import Acceptance, PendingStore
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.routing_plan import Route
from overlay.upper_tree.publisher.summary_cache import SummaryCache
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.subscriber import publication_order
from overlay.upper_tree.subscriber.inner_parts import InnerParts
from overlay.upper_tree.subscriber.publication_order import OrderDue, Passage, PublicationOrder
from overlay.upper_tree.visits import Group, visits_of

OUT_OF_REACH = "tests/upper_tree/delivery/test_tree_out_of_reach.py"


@fault("C5")
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
    "C3",
    "tests/overlay/finding/test_overlay_walks.py",
    "test_a_known_owner_is_not_asked_where_a_tree_is",
)
def known_owner_replaces_the_walk() -> None:
    """A publisher that knows a tree's owner asks it at once and does not walk."""

    def _is_walked(self: TreeFinder, attribute: str) -> bool:
        return self.ring.owner(attribute_key(attribute)) is None

    replace(TreeFinder._is_walked, _is_walked)


@fault(
    "C9",
    "tests/overlay/finding/test_overlay_walks.py",
    "test_the_summary_is_asked_for_when_there_is_enough_traffic",
)
def summary_asked_for_at_the_first_event() -> None:
    """A publisher asks for a tree's summary however few events it has for the tree."""
    original = SummaryCache.claim_refresh

    def claim_refresh(self: SummaryCache, attribute: str, now: float, events: int = 1) -> bool:
        return original(self, attribute, now, events + 1_000)

    replace(original, claim_refresh)


@fault(
    "C7",
    "tests/upper_tree/publisher/test_tree_publisher.py",
    "test_an_event_may_have_more_trees_than_there_is_room_for_locations",
)
def awaited_locations_are_evicted() -> None:
    """A publisher forgets, for want of room, where a tree is that an event waits for."""
    replace(LocationCache.hold, lambda self, attribute: None)


@fault("promise: nothing lost in the quiet")
def broken_link_counts_as_accepted() -> None:
    """A publisher takes events on a link that broke for accepted and sends them no other way."""
    original = PendingStore.host_lost

    def host_lost(self: PendingStore, host: NodeId) -> list[PendingPair]:
        self.drop(original(self, host))
        return []

    replace(original, host_lost)


@fault(
    "promise: delivered = expected",
    OUT_OF_REACH,
    "test_a_host_that_publishes_more_at_once_than_a_frame_carries_delivers_it",
)
def own_visits_uncut() -> None:
    """A publisher visits its own trees with however many bytes of events at once."""
    original = Publisher._send

    def _send(self: Publisher, host: Peer, groups: Sequence[Group], largest: int = 0) -> None:
        original(self, host, groups, 1 if host.id == self.port.me.id else largest)

    replace(original, _send)


@fault(
    "M3",
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
    "promise: nothing lost in the quiet",
    "tests/upper_tree/clients/test_tree_clients.py",
    "test_a_node_that_leaves_acknowledges_nothing_new",
)
def leaving_node_acknowledges() -> None:
    """A node that is leaving goes on acknowledging publications, though it may end before they are
    sent."""
    original = LocalClients.leave

    def leave(self: LocalClients) -> None:
        original(self)
        self._leaving = False

    replace(original, leave)


@fault(
    "promise: nothing lost in the quiet",
    "tests/canopy/cli/test_cli_demo_parts.py",
    "test_nothing_is_published_while_deliveries_wait_for_a_program",
)
def demo_publishes_ahead() -> None:
    """A demo publishes on while deliveries wait for its own subscribers."""

    def await_taken(clients: Sequence[ControlClient]) -> None:
        pass

    replace(publisher.await_taken, await_taken)


@fault(
    "promise: a program gets what it has room for, or hears of the gap",
    "tests/canopy/cli/test_cli_demo_parts.py",
    "test_nodes_sample_no_more_while_a_program_is_behind",
)
def demo_samples_at_programs_behind() -> None:
    """A demo's nodes go on publishing telemetry while a subscriber is behind."""

    def is_behind(client: ControlClient) -> bool:
        return False

    replace(publisher.is_behind, is_behind)


@fault(
    "promise: nothing waits for ever",
    "tests/upper_tree/publisher/test_tree_pending.py",
    "test_room_is_announced_also_if_the_window_became_larger_before_the_next_acceptance",
)
def room_forgotten_when_the_window_grows() -> None:
    """Publications that found no room do not hear of it if there is some before an acceptance."""
    original = PendingStore.accept

    def accept(
        self: PendingStore,
        host: NodeId,
        taken: Iterable[tuple[tuple[str, ...], tuple[int, ...]]],
    ) -> Acceptance:
        self._is_room_awaited = not self.has_room
        return original(self, host, taken)

    replace(PendingStore.accept, accept)


@fault(
    "promise: order",
    "tests/upper_tree/test_tree_order.py",
    "test_events_of_a_publisher_come_in_the_order_of_publication[hosts-counting]",
)
def events_wait_for_none() -> None:
    """An event that comes before an earlier one of its publisher is shown at once."""

    def arrived(
        self: PublicationOrder, source: EventSource, events: Sequence[Event], passage: Passage
    ) -> None:
        return None

    replace(PublicationOrder.arrived, arrived)


@fault(
    "promise: order",
    "tests/upper_tree/subscriber/test_tree_publication_order.py",
    "test_it_waits_only_so_long_after_the_other_left",
)
def events_wait_for_ever() -> None:
    """An event that waits for an earlier one waits until that comes."""

    def on_order_due(self: PublicationOrder, timer: OrderDue) -> None:
        pass

    replace(PublicationOrder.on_order_due, on_order_due)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/subscriber/test_tree_publication_order.py",
    "test_what_waits_is_not_gone_through_for_every_delivery_of_a_burst",
)
def waiting_gone_through_for_each() -> None:
    """Each delivery goes through all events that wait."""
    replace_constant(publication_order, "LOOKED_AT_ONCE", 1 << 30)


@fault(
    "promise: order",
    "tests/upper_tree/test_tree_order.py",
    "test_events_of_a_publisher_come_in_the_order_of_publication[delegates-pivot]",
)
def change_of_delegate_unsaid() -> None:
    """A host does not say that the event before went by another delegate."""

    def sends(
        self: LastSent,
        source: EventSource,
        node: NodeId,
        first: int,
        last: int,
        by: NodeId,
        now: float,
    ) -> int:
        return 0

    replace(LastSent.sends, sends)


@fault(
    "promise: order",
    "tests/upper_tree/test_tree_visits.py",
    "test_a_publisher_sends_each_host_one_message_in_the_order_of_publication",
)
def visits_tree_by_tree() -> None:
    """A host is visited by all events for one set of trees before those for the next."""
    original = visits_of

    def tree_by_tree(
        origin: Peer,
        hop: int,
        groups: Sequence[Group],
        cut: Callable[[Sequence[Event]], Iterable[tuple[Event, ...]]],
    ) -> Iterator[Visit]:
        for group in groups:
            yield from original(origin, hop, (group,), cut)

    replace(original, tree_by_tree)


@fault(
    "promise: order",
    "tests/upper_tree/publisher/test_tree_first_searches.py",
    "test_trees_that_are_looked_for_together_are_visited_together",
)
def found_trees_visited_at_once() -> None:
    """Events leave for a tree as soon as it is found, before earlier ones whose trees are not."""

    def take(self: FirstSearches, now: float) -> tuple[list[str], list[str], float | None]:
        ready = list(self.held)
        for name in ready:
            self.ended(name)
        return ready, [], None

    replace(FirstSearches.take, take)


@fault(
    "promise: order",
    "tests/upper_tree/subscriber/test_tree_publication_order.py",
    "test_one_that_reaches_into_another_part_of_its_tree_waits_and_the_others_are_not_matched",
)
def inner_part_is_the_whole_part() -> None:
    """Events of a part of a tree wait for no others, though a subscription reaches beyond it."""

    def came(self: InnerParts, tree: str, hull: Interval) -> None:
        pass

    def find(
        self: InnerParts, tree: str, part: Interval, hulls: Iterable[Interval]
    ) -> tuple[Cut, Cut]:
        return part.lo, part.hi

    replace(InnerParts.came, came)
    replace(InnerParts.find, find)
