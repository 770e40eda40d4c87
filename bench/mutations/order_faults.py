"""Faults in the order of a publisher's events (docs/design/delivery.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bench.mutations.planting import fault, replace, replace_constant
from matching import Cut, Interval
from overlay.client import Event
from overlay.machine import NodeId, Peer
from overlay.upper_tree.delivery.event_counts import EventSource
from overlay.upper_tree.delivery.last_sent import LastSent
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.publisher.first_searches import FirstSearches
from overlay.upper_tree.subscriber import publication_order
from overlay.upper_tree.subscriber.inner_parts import InnerParts
from overlay.upper_tree.subscriber.publication_order import OrderDue, Passage, PublicationOrder
from overlay.upper_tree.visits import Group, visits_of


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
