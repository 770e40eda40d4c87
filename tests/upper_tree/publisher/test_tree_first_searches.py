"""What waits for trees that are new to a publisher leaves in the order of publication."""

from __future__ import annotations

from overlay.upper_tree.events import TreeAbsent, TreeFound
from overlay.upper_tree.publisher.constants import MOVES, SEARCH_TOGETHER
from tests.upper_tree.publisher.test_tree_publisher import Rig


def found(rig: Rig, tree: str, host: str = "h") -> None:
    rig.know(tree, host)
    rig.port.hear(TreeFound(tree))


def sent(rig: Rig) -> dict[str, list[int]]:
    """By host, the events that were sent, as they were."""
    orders: dict[str, list[int]] = {}
    for to, _, sequences in rig.visits():
        orders.setdefault(to, []).extend(sequences)
    return {to: sorted(order) for to, order in orders.items()}


def test_trees_that_are_looked_for_together_are_visited_together() -> None:
    rig = Rig()
    rig.publish({"b": 1}, {"c": 1}, {"b": 1})
    found(rig, "c")
    assert sent(rig) == {}
    rig.publish({"c": 1})
    assert sent(rig) == {}, "it is published after what waits for the tree"
    found(rig, "b", "i")
    assert sent(rig) == {"h": [2, 4], "i": [1, 3]}
    rig.publish({"c": 1})
    assert sent(rig) == {"h": [5]}


def test_the_first_event_waits_for_nothing_but_its_own_trees() -> None:
    rig = Rig()
    rig.publish({"b": 1, "c": 1}, {"c": 1})
    found(rig, "c")
    assert sent(rig) == {"h": [1]}
    found(rig, "b")
    assert sent(rig) == {"h": [1, 2]}


def test_they_wait_also_for_one_that_proves_absent() -> None:
    rig = Rig()
    rig.publish({"b": 1}, {"c": 1})
    found(rig, "c")
    assert sent(rig) == {}
    rig.port.hear(TreeAbsent("b", 1e9))
    assert sent(rig) == {"h": [2]}


def test_they_wait_no_longer_than_searches_take() -> None:
    rig = Rig()
    rig.publish({"b": 1}, {"c": 1})
    found(rig, "c")
    rig.port.advance(SEARCH_TOGETHER * 0.9)
    assert sent(rig) == {}
    rig.port.advance(SEARCH_TOGETHER * 0.2)
    assert sent(rig) == {"h": [2]}
    rig.publish({"d": 1})
    found(rig, "d")
    assert sent(rig) == {"h": [3]}, "the search for b takes long, and is not waited for"
    found(rig, "b")
    assert sent(rig) == {"h": [1]}


def test_events_for_known_trees_wait_for_no_search() -> None:
    rig = Rig()
    rig.know("c", "h")
    rig.publish({"b": 1}, {"c": 1})
    assert sent(rig) == {"h": [2]}


def test_what_has_to_be_sent_again_waits_for_no_search() -> None:
    rig = Rig()
    rig.know("c", "h")
    rig.publish({"c": 1})
    rig.publish({"b": 1})
    rig.visits()
    for _ in range(MOVES + 1):
        rig.moved("h", "c", 1)
    rig.visits()
    found(rig, "c", "i")
    assert sent(rig) == {"i": [1]}
