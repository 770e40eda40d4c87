"""C11: a batch leaves in one message for each interested node, whatever trees found its events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching import EVERYTHING, compile_selector
from overlay.client import Event
from overlay.links.events import LinkDown, SessionEnd
from overlay.machine import Peer, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.delivery.deliveries import Deliveries, NodeMatches
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.held_deliveries import split_by_tree
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.trees import event
from tests.support.world import WorldNode, one_node, peer
from tests.upper_tree.delivery.delivering import make_delegation, make_holding

TREES = "xyz"

found_in = st.lists(st.lists(st.sampled_from(["", *TREES]), min_size=4, max_size=4), max_size=6)


def ways(message: Deliver) -> dict[int, str]:
    """By event: the tree that it came through."""
    return {e.sequence: part.attribute for part in split_by_tree(message) for e in part.events}


def send(
    found: list[list[str]], copies: CopyBudget, port: WorldNode | None = None
) -> list[tuple[str, Deliver]]:
    """A host sends events to the nodes n0, n1, … in whose lists they are found in some tree."""
    port = port or one_node("h")
    batch = []
    for number, trees in enumerate(found):
        places = [place for place, tree in enumerate(trees) if tree]
        mine = NodeMatches(peer(f"n{number}"), places, [tree for tree in trees if tree])
        if mine.places:
            batch.append(mine)
    deliveries = Deliveries(port, copies, make_holding(port), 1)
    deliveries.spread_all([event(number) for number in range(4)], batch)
    deliveries.send()
    return port.sent_to(Deliver)


@given(found_in)
def test_each_node_gets_one_message_that_says_how_each_event_came(found: list[list[str]]) -> None:
    due = {
        f"n{number}": {place: tree for place, tree in enumerate(trees) if tree}
        for number, trees in enumerate(found)
    }
    port = one_node("h")
    port.sampled = lambda events: [e for e in events if e.sequence % 2]  # type: ignore[method-assign,assignment]
    sent = send(found, CopyBudget(16), port)
    assert {to: ways(message) for to, message in sent} == {to: w for to, w in due.items() if w}
    assert len(sent) == len(dict(sent))
    traced = [(t["peer"], t["event"], t["attribute"]) for t in port.traced("forward")]
    assert sorted(traced) == sorted(
        (to, event(at).identity, tree) for to, w in due.items() for at, tree in w.items() if at % 2
    )


def test_copies_are_counted_and_where_they_are_too_many_delegates_help() -> None:
    copies = CopyBudget(4)  # three in the first handling
    sent = send([["x", "", "", ""], ["x", "y", "", ""], ["", "y", "", ""]], copies)
    assert not any(message.onward for _, message in sent)
    assert [copies.room(event(number)) for number in range(3)] == [1, 1, 3]
    sent = send([["x", "x", "x", ""]] * 4, copies)
    assert sum(len(message.events) for _, message in sent) == 1 + 1 + 3
    shares = [share for _, m in sent for some in m.onward for share in some]
    assert sum(len(share.peers) for share in shares) == 3 + 3 + 1


def test_parts_have_all_events_once() -> None:
    events = tuple(event(number) for number in range(5))
    message = Deliver(
        "x", EVERYTHING, 2, events, apart=(("y", EVERYTHING, (0, 3)), ("z", EVERYTHING, (1,)))
    )
    assert ways(message) == {0: "y", 1: "z", 2: "x", 3: "y", 4: "x"}
    assert split_by_tree(Deliver("x", EVERYTHING, 2, events)) == [
        Deliver("x", EVERYTHING, 2, events)
    ]
    all_apart = Deliver("x", EVERYTHING, 2, events[:1], apart=(("y", EVERYTHING, (0,)),))
    assert [(part.attribute, part.apart) for part in split_by_tree(all_apart)] == [("y", ())]


def receiver(port: WorldNode) -> Receiver:
    made = Receiver(port, Settings(), EventHistory(100))
    port.add(made)
    made.add("s", compile_selector("v > 0"), {"s/0": 1}, ("x",))
    return made


def test_the_receiver_says_how_each_event_came() -> None:
    port = one_node("n")
    receiver(port)
    events = (event(1, v=1), event(2, v=1), event(3, v=1))
    port.hear(Deliver("x", EVERYTHING, 2, events, apart=(("y", EVERYTHING, (1,)),)), peer("h"))
    (arrived,) = port.of(Arrived)
    assert [(d.event.sequence, d.attribute) for d in arrived.deliveries] == [
        (1, "x"), (2, "y"), (3, "x"),
    ]  # fmt: skip
    arrivals = {t["event"]: t["attribute"] for t in port.traced("arrive")}
    assert arrivals == {"pub.1.1": "x", "pub.1.2": "y", "pub.1.3": "x"}


@pytest.mark.parametrize("places", [(3,), (-1,), (1, 1), (0, 3), (-1, 0)])
def test_an_event_that_is_not_there_cannot_have_come_and_none_twice(
    places: tuple[int, ...],
) -> None:
    port = one_node("n")
    receiver(port)
    events = (event(1, v=1), event(2, v=1), event(3, v=1))
    with pytest.raises(ProtocolError):
        port.hear(
            Deliver("x", EVERYTHING, 2, events, apart=(("y", EVERYTHING, places),)), peer("h")
        )


def lose(lost: Deliver, others: tuple[Peer, ...]) -> list[tuple[str, Deliver]]:
    """What a host sends whose link to n0 is lost with this on it."""
    port = one_node("h")
    port.add(make_delegation(port, others=lambda: others))
    port.hear(LinkDown(peer("n0"), "silent", False, (lost,), SessionEnd.UNREACHABLE))
    return port.sent_to(Deliver)


def test_what_is_lost_goes_another_way_tree_by_tree() -> None:
    events: tuple[Event, ...] = (event(1), event(2), event(3))
    lost = Deliver("x", EVERYTHING, 2, events, apart=(("y", EVERYTHING, (1,)),))
    again = [("x", [1, 3]), ("y", [2])]
    sent = lose(lost, (peer("n1"),))
    assert [to for to, _ in sent] == ["n1", "n1"]
    assert [(m.attribute, [e.sequence for e in m.events]) for _, m in sent] == again
    assert not any(message.apart for _, message in sent)
    shares = [(share.attribute, share.peers) for _, m in sent for (share,) in m.onward]
    assert shares == [("x", (peer("n0"),))] * 2 + [("y", (peer("n0"),))]
