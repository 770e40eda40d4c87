"""C11: how many copies of an event one node may send, whatever it is to the event."""

from __future__ import annotations

import pytest

from harness.overlays import settings
from matching import BOTTOM, EVERYTHING, Interval, place
from overlay.machine import Message, Peer
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.messages import DelegateShare, Deliver, Visit
from overlay.upper_tree.subscriber.receiver import Receiver
from tests.support.trees import event
from tests.support.world import peer
from tests.upper_tree.delivery.test_tree_delegation import Interested, Rig
from tests.upper_tree.host.test_tree_hosting import assign


@pytest.mark.parametrize(
    ("most", "taken"),
    [
        (16, [12, 2, 1, 1, 1]),
        (64, [48, 8, 4, 2, 1, 1, 1]),
        (4, [3, 1, 1]),
        (2, [2, 1]),
        (1, [1, 1]),
    ],
)
def test_each_handling_finds_some_room_and_together_they_keep_the_limit(
    most: int, taken: list[int]
) -> None:
    copies, one = CopyBudget(most), event(1)
    found = []
    for _ in taken:
        found.append(copies.room(one))
        copies.add((one,), found[-1])
    assert found == taken
    assert sum(taken[:-1]) == most


def test_events_are_distinguished_by_all_of_their_identity() -> None:
    copies = CopyBudget(16)
    copies.add((event(1),), 16)
    assert copies.room(event(1)) == 1
    for other in (event(2), event(1, publisher="p"), event(1, incarnation=2)):
        assert copies.room(other) == 12


def test_what_is_remembered_is_bounded_and_the_oldest_goes() -> None:
    copies = CopyBudget(16, kept=3)
    copies.add([event(number) for number in range(5)], 16)
    assert [copies.room(event(number)) for number in range(5)] == [12, 12, 1, 1, 1]


SIXTEEN = settings(tree={"fan_out": 16})


def shared(names: list[str]) -> tuple[tuple[DelegateShare, ...], ...]:
    return ((DelegateShare("y", EVERYTHING, tuple(map(peer, names))),),)


@pytest.mark.parametrize("host_first", [True, False])
def test_host_and_delegate_of_one_event_share_its_limit(host_first: bool) -> None:
    rig = Rig(40, SIXTEEN)
    node = rig.host.port
    node.add(Receiver(node, SIXTEEN, EventHistory(10)))
    others = [Interested(rig.net.node(f"o{number}"), SIXTEEN) for number in range(30)]
    onward = shared([f"o{number}" for number in range(30)])
    asked: list[tuple[Message, Peer]] = [
        (Visit(peer("pub"), 1, ("x",), (event(1, x=5, y=5),)), peer("pub")),
        (Deliver("y", EVERYTHING, 2, (event(1, x=5, y=5),), (), onward), peer("elsewhere")),
    ]
    for message, sender in asked if host_first else reversed(asked):
        node.hear(message, sender)
    sent = len(node.sent_to(Deliver))
    assert sent <= 16
    rig.net.flush()
    assert rig.reached() == [[1]] * 40
    assert [other.events for other in others] == [[1]] * 30


def test_a_publisher_counts_its_visits() -> None:
    """What it has sent as a publisher it does not send as a host."""
    rig = Rig(40, SIXTEEN)
    rig.host.hosting.copies.add((event(1, x=5),), 9)
    rig.publish(event(1, x=5))
    assert len(rig.host.port.sent_to(Deliver)) == 3
    rig.net.flush()
    assert rig.reached() == [[1]] * 40


def test_a_visit_that_a_host_hands_on_is_one_of_its_copies() -> None:
    rig = Rig(40, SIXTEEN)
    assign(rig.host, Interval(BOTTOM, place(0)), attribute="y")
    rig.host.port.hear(Visit(peer("pub"), 1, ("x", "y"), (event(1, x=5, y=5),)), peer("pub"))
    assert len(rig.host.port.sent_to(Visit)) == 1
    assert len(rig.host.port.sent_to(Deliver)) == 11
    rig.net.flush()
    assert rig.reached() == [[1]] * 40
