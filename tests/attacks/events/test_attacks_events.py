"""A forged event cannot keep out the one whose identity it has."""

from __future__ import annotations

from harness.overlays import settings
from matching import EVERYTHING, compile_selector
from overlay.client import Event
from overlay.settings import Settings
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.trees import event
from tests.support.world import WorldNode, one_node, peer

LIAR, HOST = peer("liar"), peer("h")


def receiver(*pivots: str) -> WorldNode:
    """A node with the subscription "s"."""
    port = one_node("s")
    made = Receiver(port, Settings(), EventHistory(100))
    made.add("s", compile_selector("x > 1"), {"s/0": 1}, pivots)
    port.add(made)
    return port


def shown(port: WorldNode) -> list[int]:
    return [d.event.sequence for e in port.of(Arrived) for d in e.deliveries]


def deliver(*events: Event, previous: tuple[int, ...] = ()) -> Deliver:
    return Deliver("x", EVERYTHING, 2, events, previous=previous)


def test_what_fails_the_recheck_does_not_count_as_seen() -> None:
    """Attack 6: identities are counted, so the next ones can be guessed."""
    port = receiver()
    port.hear(deliver(event(1, x=0), event(2, x=0), event(3, x=5)), LIAR)
    port.hear(deliver(event(1, x=5), event(2, x=5), event(3, x=5)), HOST)
    assert shown(port) == [3, 1, 2]
    assert (port.counts["recheck_failed"], port.counts["duplicates"]) == (2, 1)


def test_nor_while_it_claims_to_wait_for_an_earlier_event() -> None:
    port = receiver("x")
    port.hear(deliver(event(2, x=0), previous=(1,)), LIAR)
    port.hear(deliver(event(2, x=5)), HOST)
    assert shown(port) == [2]


def test_a_number_that_is_counted_again_is_remembered_within_the_bound() -> None:
    """What was discarded leaves a place in the window, which does no harm when it is its turn."""
    chosen = settings(tree={"dedupe": 2_000})
    port = one_node("s")
    made = Receiver(port, chosen, EventHistory(100))
    made.add("s", compile_selector("x > 1"), {"s/0": 1})
    port.add(made)
    for round_ in range(12):
        numbers = range(round_ * 500, round_ * 500 + 500)
        port.hear(deliver(*[event(n, x=n % 2) for n in numbers]), LIAR)
        port.hear(deliver(*[event(n, x=5) for n in numbers]), HOST)
        port.emitted.clear()
    assert port.counts["delivered"] == 6_000
    assert len(made.seen) <= 2_000
