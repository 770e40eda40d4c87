"""Events wait at an interested node for earlier ones of their publisher, and not for long."""

from __future__ import annotations

from collections.abc import Sequence, Set

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from harness.overlays import settings
from matching import BOTTOM, EVERYTHING, TOP, Interval, compile_selector, place
from overlay.client import Event
from overlay.machine import ProtocolError
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.messages import Deliver, SentBefore
from overlay.upper_tree.subscriber import publication_order
from overlay.upper_tree.subscriber.constants import SHOWN_AT_ONCE
from overlay.upper_tree.subscriber.publication_order import (
    PublicationOrder,
    PublisherOrder,
    Ready,
    Trees,
    ways_of,
)
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.trees import event
from tests.support.world import WorldNode, one_node, peer

HOLD = 0.05


class Node:
    """A node with a subscription in the trees b and c, and what it was shown."""

    def __init__(self, hold: float = HOLD) -> None:
        self.port: WorldNode = one_node("n")
        self.receiver = Receiver(self.port, settings(tree={"order_hold": hold}), EventHistory(100))
        self.port.add(self.receiver)
        self.subscribe("s", "b = 1 OR c = 1", "b", "c")

    def subscribe(self, name: str, selector: str, *trees: str) -> None:
        registered = {f"{name}/{number}": 1 for number in range(len(trees))}
        self.receiver.add(name, compile_selector(selector), registered, trees)

    def deliver(
        self, host: str, tree: str, *numbers: int, before: tuple[SentBefore, ...] = (),
        previous: tuple[int, ...] = (), through: int = 0, publisher: str = "pub",
        interval: Interval = EVERYTHING, value: int = 1,
    ) -> None:  # fmt: skip
        events = tuple([event(number, publisher, **{tree: value}) for number in numbers])
        through = through or max(numbers)
        message = Deliver(tree, interval, 2, events, (), (), None, (), before, through, previous)
        self.port.hear(message, peer(host))

    def shown(self, subscription: str = "s") -> list[int]:
        """What was shown for it, from the last time that this was asked."""
        found = [d.event.sequence for arrived in self.port.of(Arrived) for d in arrived.deliveries
                 if d.subscription == subscription]  # fmt: skip
        self.port.emitted.clear()
        return found


def other(host: str, tree: str, first: int, last: int, age: int = 0) -> SentBefore:
    return SentBefore(host, (tree,), first, last, age)


def test_a_later_event_waits_for_what_visits_another_host() -> None:
    node = Node()
    node.deliver("i", "c", 2, 4, before=(other("h", "b", 1, 5),))
    assert node.shown() == []
    node.deliver("h", "b", 1, 3, 5)
    assert node.shown() == [1, 2, 3, 4, 5]


def test_what_its_host_has_delivered_to_is_not_waited_for() -> None:
    node = Node()
    node.deliver("h", "b", 1, through=3)
    node.deliver("i", "c", 4, before=(other("h", "b", 1, 3),))
    assert node.shown() == [1, 4]


def test_one_that_reaches_into_another_part_of_its_tree_waits_and_the_others_are_not_matched() -> (
    None
):
    node = Node()
    node.receiver.remove("s", 2)
    node.subscribe("wide", "b BETWEEN 5 AND 15", "b")
    node.subscribe("narrow", "b BETWEEN 1 AND 2", "b")
    matched: list[int] = []
    original = node.receiver.trees_of_each

    def match(found: Sequence[Event]) -> Sequence[Set[Trees]]:
        matched.extend(event.sequence for event in found)
        return original(found)

    node.receiver.trees_of_each = match
    low = Interval(BOTTOM, place(10))
    before = (other("i", "b", 1, 1),)
    node.deliver("h", "b", 2, value=1, interval=low, before=before)
    assert (node.shown("narrow"), matched) == ([2], [])
    node.deliver("h", "b", 3, value=7, interval=low, before=before)
    assert (node.shown("wide"), matched) == ([], [3])
    node.deliver("i", "b", 1, value=12, interval=Interval(place(10), TOP))
    assert node.shown("wide") == [1, 3]


def test_it_waits_only_so_long_after_the_other_left() -> None:
    node = Node()
    node.deliver("i", "c", 2, before=(other("h", "b", 1, 1, age=20),))
    node.port.advance(0.029)
    assert node.shown() == []
    node.port.advance(0.002)
    assert node.shown() == [2]
    node.deliver("h", "b", 1)
    assert node.shown() == [1], "late, but not lost"


def test_only_events_that_may_come_to_the_same_subscription_are_waited_for() -> None:
    node = Node()
    node.subscribe("t", "d = 1", "d")
    node.deliver("i", "c", 2, before=(other("h", "x", 1, 1),))
    node.deliver("i", "d", 3, before=(other("h", "b", 1, 1),))
    assert node.shown() == [2]
    node.deliver("i", "c", 5, before=(other("h", "b", 6, 6),))
    assert node.shown() == [5], "what left after it, in the same turn"


@pytest.mark.parametrize(
    ("selector", "trees", "first", "last"),
    [
        ("x BETWEEN 1 AND 3", ["x"], 1, 3),
        ("x BETWEEN 7 AND 9 OR x BETWEEN 1 AND 3 OR x = 5", ["x", "x", "x"], 1, 9),
    ],
)
def test_what_a_subscription_needs_of_its_one_tree_holds_all_conjunctions(
    selector: str, trees: list[str], first: int, last: int
) -> None:
    found = ways_of(compile_selector(selector), trees)
    assert found == (("x",), Interval(place(first), (*place(last)[:2], 1)))


def test_a_subscription_in_one_place_waits_for_nothing() -> None:
    node = Node()
    low, high = Interval(BOTTOM, place(5)), Interval(place(5), TOP)
    node.subscribe("one", "d = 1", "d")
    node.subscribe("wide", "e > 0", "e")
    node.deliver("i", "d", 2, before=(other("h", "d", 1, 1),), interval=low)
    assert node.shown("one") == [2]
    node.deliver("i", "e", 4, before=(other("h", "e", 3, 3),), interval=high, value=7)
    assert node.shown("wide") == [], "it is registered at the other host, too"
    node.deliver("h", "e", 3, interval=low)
    assert node.shown("wide") == [3, 4]


def test_an_event_that_comes_for_another_subscription_waits_too() -> None:
    """It is shown to all that it matches, as soon as it comes for one."""
    node = Node()
    node.subscribe("t", "d = 1", "d")
    message = Deliver("c", EVERYTHING, 2, (event(2, c=1, d=1),), (), (), None, (),
                      (other("h", "d", 1, 2),), 2)  # fmt: skip
    node.port.hear(message, peer("i"))
    assert node.shown("t") == []
    node.deliver("h", "d", 1, through=2)
    assert node.shown("t") == [1, 2]


def test_behind_what_waits_wait_only_events_that_share_a_subscription() -> None:
    node = Node()
    node.subscribe("t", "d = 1", "d")
    node.deliver("i", "c", 2, before=(other("h", "b", 1, 1),))
    node.deliver("i", "c", 3)
    node.deliver("i", "d", 4)
    assert node.shown("t") == [4]
    node.port.advance(HOLD)
    assert node.shown() == [2, 3]


def test_other_publishers_wait_for_nothing() -> None:
    node = Node()
    node.deliver("i", "c", 2, before=(other("h", "b", 1, 1),))
    node.deliver("i", "c", 1, publisher="else")
    assert node.shown() == [1]


def test_what_went_another_way_from_the_same_host_is_waited_for() -> None:
    node = Node()
    node.deliver("h", "b", 3, 4, previous=(2, 0))
    node.deliver("h", "b", 5)
    assert node.shown() == []
    node.deliver("h", "b", 2, previous=(1,), through=1)
    assert node.shown() == [], "the first is still under way"
    node.deliver("h", "b", 1)
    assert node.shown() == [1, 2, 3, 4, 5]
    node.deliver("h", "b", 8, previous=(7,))
    node.port.advance(HOLD)
    assert node.shown() == [8]


def test_previous_events_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProtocolError):
        Node().deliver("h", "b", 3, 4, previous=(2,))


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_order, "ORDERED_EVENTS", 10)
    node = Node()
    before = (other("h", "b", 1, 1),)
    node.deliver("i", "c", *range(2, 10), before=before)
    assert node.shown() == []
    node.deliver("i", "c", *range(10, 20), before=before)
    assert node.shown() == [*range(2, 20)]
    assert (node.receiver.order.events, node.receiver.order.bytes) == (0, 0)


def test_what_waits_is_not_gone_through_for_every_delivery_of_a_burst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    take_ready = PublicationOrder._take_ready

    def counted(self: PublicationOrder, state: PublisherOrder) -> list[Ready]:
        nonlocal looks
        looks += len(state.waiting)
        return take_ready(self, state)

    monkeypatch.setattr(PublicationOrder, "_take_ready", counted)
    node = Node()
    for number in range(2, 2_000):
        node.deliver("i", "c", number, before=(other("h", "b", 1, 1),))
    assert node.shown() == []
    node.deliver("h", "b", 1)
    node.port.advance(HOLD)
    assert node.shown() == [*range(1, 2_000)]
    assert looks < 10 * 2_000, "of two million if each delivery went through what waits"


def test_what_has_waited_is_shown_in_parts() -> None:
    node = Node()
    node.deliver("i", "c", *range(2, 2_000), before=(other("h", "b", 1, 1),))
    node.deliver("h", "b", 1)
    node.port.advance(HOLD)
    parts = [len(arrived.deliveries) for arrived in node.port.of(Arrived)]
    assert sum(parts) == 1_999
    assert max(parts) <= SHOWN_AT_ONCE


def test_an_ended_subscription_is_shown_nothing_that_waited() -> None:
    node = Node()
    node.deliver("i", "c", 2, before=(other("h", "b", 1, 1),))
    node.receiver.remove("s", 2)
    node.port.advance(HOLD)
    assert node.shown() == []
    assert node.receiver.order.events == 0


def test_with_no_time_to_wait_everything_is_shown_as_it_comes() -> None:
    node = Node(hold=0.0)
    node.deliver("i", "c", 2, before=(other("h", "b", 1, 1),))
    assert node.shown() == [2]


deliveries = st.lists(
    st.tuples(st.sampled_from("hij"), st.sampled_from("bc"), st.integers(1, 30), st.booleans()),
    max_size=30,
)


@hypothesis_settings(deadline=None)
@given(deliveries, st.integers(0, 60))
def test_whatever_comes_is_shown_once_and_soon(
    found: list[tuple[str, str, int, bool]], pause: int
) -> None:
    """Also if the deliveries contradict each other."""
    node = Node()
    shown: list[int] = []
    for host, tree, number, strange in found:
        before = (other("j" if host == "h" else "h", "b", max(number - 3, 1), number + 1),)
        previous = (max(number - 2, 1),) if strange else (0,)
        node.deliver(host, tree, number, before=before, previous=previous)
        shown += node.shown()
        node.port.advance(pause / 1000)
        shown += node.shown()
    node.port.advance(HOLD)
    shown += node.shown()
    assert sorted(shown) == sorted({number for _, _, number, _ in found})
    assert (node.receiver.order.events, node.receiver.order.bytes) == (0, 0)
