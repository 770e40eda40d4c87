"""What hosts send for a process of the node that has ended, or for subscriptions that have."""

from __future__ import annotations

import pytest

from matching import EVERYTHING, compile_selector
from overlay.client import Event
from overlay.settings import Settings
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.events import DeliveriesMissed
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.trees import event, registration
from tests.support.world import one_node, peer

HOST = peer("h")


class Rig:
    """A receiver at the third start of its node."""

    def __init__(self) -> None:
        self.port = one_node("s")
        self.receiver = Receiver(self.port, Settings(), EventHistory(100), incarnation=3)
        self.port.add(self.receiver)

    def subscribe(self, name: str, selector: str, gathered: int | None = None) -> None:
        predicate = compile_selector(selector)
        self.receiver.add(name, predicate, {f"{name}/0": 1}, ("x",), gathered)

    def deliver(
        self, *events: Event, life: int = 0, held: int = 0, passing: bool = False
    ) -> list[tuple[str | int, int]]:
        """(subscription, or client that gathers, sequence) that are shown."""
        message = Deliver("x", EVERYTHING, 2, events, life=life, held=held, passing=passing)
        self.port.emitted.clear()
        self.port.hear(message, HOST)
        found: list[tuple[str | int, int]] = []
        for arrived in self.port.of(Arrived):
            found += [(one.subscription, one.event.sequence) for one in arrived.deliveries]
            for client, places in arrived.gathered.items():
                found += [(client, arrived.events[place].sequence) for place in places]
        return found


@pytest.mark.parametrize(("life", "is_shown"), [(0, True), (1, False), (2, False), (3, True)])
def test_what_was_matched_for_an_earlier_start_is_refused_and_reported(
    life: int, is_shown: bool
) -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1")
    assert rig.deliver(event(1, x=5), event(2, x=6, y=1), life=life) == [
        ("a", number) for number in (1, 2) if is_shown
    ]
    missed = [each.notice for each in rig.port.of(DeliveriesMissed)]
    if is_shown:
        assert not missed
        return
    assert rig.port.counts["deliveries_of_earlier_life"] == 2
    assert [(one.count, one.first, one.attributes) for one in missed] == [
        (2, event(1).identity, ("x", "y"))
    ]
    assert rig.deliver(event(1, x=5), life=3) == [("a", 1)], "it does not count as seen"


def test_a_subscription_is_shown_nothing_that_was_matched_before_it_was_made() -> None:
    rig = Rig()
    rig.subscribe("old", "x > 5")
    rig.subscribe("gathered", "x > 6", gathered=1)
    rig.port.advance(10.0)
    rig.subscribe("new", "x > 1")
    rig.subscribe("late", "x > 1", gathered=1)
    rig.subscribe("alone", "x > 1", gathered=2)
    rig.port.advance(2.0)
    events = (event(1, x=2), event(2, x=6), event(3, x=7))
    assert rig.deliver(*events, held=5_000) == [("old", 2), ("old", 3), (1, 3)]
    assert rig.port.counts["deliveries_of_earlier_life"] == 1
    recorded = [(t["event"], t["subscription"]) for t in rig.port.traced("deliver")]
    assert recorded == [("pub.1.2", "old"), ("pub.1.3", "old"), ("pub.1.3", "gathered")]
    later = (event(4, x=2), event(5, x=7))
    assert set(rig.deliver(*later, held=1_000)) == {
        *(("new", 4), (1, 4), (2, 4)),
        *(("old", 5), ("new", 5), (1, 5), (2, 5)),
    }


def test_clocks_that_differ_in_rate_cost_no_subscription_what_it_is_owed() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1")
    rig.port.advance(10.0)
    assert rig.deliver(event(1, x=5), held=12_000) == [("a", 1)]


def test_a_relay_shows_its_own_programs_nothing_of_what_it_passes_on() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1")
    assert rig.deliver(event(1, x=5), passing=True) == []
    assert rig.deliver(event(1, x=5)) == [("a", 1)]


@pytest.mark.parametrize(
    ("id_", "life"),
    [("s.7.12/0", 7), ("s/0", 0), ("other", 0), ("s.x.1/0", 0), ("s.9999999999999999.1/0", 0)],
)
def test_a_registration_s_id_names_the_start_of_its_node(id_: str, life: int) -> None:
    assert registration(id_, "x", "x > 1", peer("s")).life == life
