"""A host says whom events would be sent to, and sends nothing."""

from __future__ import annotations

from typing import Any

import pytest

from matching import BOTTOM, EVERYTHING, Interval, place
from overlay.machine import ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.host.constants import LISTED_MOST
from overlay.upper_tree.inspection_messages import AskMatches, MatchesFound
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Assign,
    Deliver,
    Install,
    Registration,
)
from tests.support.trees import HostNode, registration
from tests.support.world import one_node, peer

OWNER, ASKER = peer("owner"), peer("asker")
LOW = Interval(BOTTOM, place(10))


def host(*intervals: Interval) -> HostNode:
    """A host of these intervals of the trees of x, y and `$event`."""
    node = HostNode(one_node("h"), Settings()).lease()
    for attribute in ("x", "y", EVENT_TREE):
        node.port.hear(Assign(attribute, (1, 1), intervals or (EVERYTHING,)), OWNER)
    return node


def install(node: HostNode, *made: Registration) -> None:
    for one in made:
        node.port.hear(Install(one.attribute, 1, (one,)), OWNER)


def ask(node: HostNode, events: dict[int, dict[str, Any]], **trees: tuple[int, ...]) -> Any:
    named = tuple((name.replace("event", EVENT_TREE), numbers) for name, numbers in trees.items())
    node.port.hear(AskMatches(7, tuple(events), tuple(events.values()), named), ASKER)
    ((to, answer),) = node.port.sent_to(MatchesFound)
    assert (to, answer.number) == ("asker", 7)
    assert node.port.sent_to(Deliver) == []
    return answer


def test_nodes_are_named_with_their_subscriptions_each_once() -> None:
    node = host()
    install(
        node,
        registration("s1/0", "x", "x > 1", peer("s")),
        registration("s1/1", "y", "y > 1", peer("s")),  # of the same subscription
        registration("s2/0", "y", "y > 5", peer("s")),
        registration("t1/0", "x", "x > 100", peer("t")),
    )
    answer = ask(node, {3: {"x": 5, "y": 9}, 8: {"x": 0}}, x=(3, 8), y=(3,))
    assert (answer.events, answer.nodes, answer.moved) == ((3, 8), (1, 0), ())
    ((match,), none) = answer.listed
    assert none == ()
    assert (match.peer.id, match.subscriptions, set(match.ids)) == ("s", 2, {"s1", "s2"})


def test_what_would_not_visit_a_tree_here_is_not_matched_in_it() -> None:
    node = host(LOW)
    install(
        node,
        registration("s/0", "x", "x > 1", peer("s")),
        registration("t/0", "y", "y > 1", peer("t")),
    )
    answer = ask(node, {0: {"x": 50, "y": 5}, 1: {"x": 5, "z": 5}}, x=(0, 1), z=(1,), y=(0,))
    assert answer.moved == (("x", (0,)), ("z", (1,)))
    assert [[m.peer.id for m in listed] for listed in answer.listed] == [["t"], ["s"]]


def test_without_a_lease_nothing_is_served() -> None:
    node = host()
    install(node, registration("s/0", "x", "x > 1", peer("s")))
    node.port.advance(60.0)
    answer = ask(node, {0: {"x": 5}}, x=(0,), event=(0,))
    assert answer.nodes == (0,)
    assert answer.moved == (("x", (0,)), (EVENT_TREE, (0,)))


def test_an_answer_lists_what_it_has_room_for_and_counts_the_rest() -> None:
    node = host()
    many = [registration(f"s{n}/0", "x", "x > 1", peer("s")) for n in range(LISTED_MOST + 5)]
    other = [registration(f"t{n}/0", "x", "x > 1", peer("t")) for n in range(3)]
    install(node, *many, *other)
    node.port.advance(1.0)  # installed a little in each turn
    answer = ask(node, {0: {"x": 5}, 1: {"x": 6}}, x=(0, 1))
    assert answer.nodes == (2, 2)
    (match,), nothing = answer.listed
    assert nothing == ()
    assert (match.peer.id, match.subscriptions) == ("s", LISTED_MOST + 5)
    assert len(match.ids) == LISTED_MOST


@pytest.mark.parametrize(
    "message",
    [
        AskMatches(1, (0,), (), ()),
        AskMatches(1, (0,), ({"x": 1},), (("x", (1,)),)),
        AskMatches(1, (0,), ({"x": None},), (("x", (0,)),)),
        AskMatches(1, (0,), ({"y": 1},), (("x", (0,)),)),
    ],
)
def test_a_question_that_makes_no_sense_is_the_senders_fault(message: AskMatches) -> None:
    with pytest.raises(ProtocolError):
        host().port.hear(message, ASKER)
