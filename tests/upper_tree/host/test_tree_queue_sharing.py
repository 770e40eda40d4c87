"""What waits at a host when its virtual node gets more hosts is divided among them."""

from __future__ import annotations

import pytest

from matching import EVERYTHING
from overlay.settings import Settings
from overlay.upper_tree.host.visit_scheduler import MatchDue
from overlay.upper_tree.messages import Assign, Deliver, Entry, Install, Visit
from overlay.upper_tree.partition import PartitionMap
from tests.support.trees import HostNode, event, registration
from tests.support.world import one_node, peer

OWNER, PUB, S = peer("owner"), peer("pub"), peer("s")


def assign(node: HostNode, version: int, *others: str, attribute: str = "x") -> None:
    """The whole tree is served here and at these hosts."""
    hosts = (node.port.me, *map(peer, others))
    known = PartitionMap((1, version), (Entry(EVERYTHING, hosts),)).slice_for("h")
    node.port.hear(Assign(attribute, (1, version), (EVERYTHING,), 1, known), OWNER)


def behind(waiting: int, hop: int = 1, attributes: tuple[str, ...] = ("x",)) -> HostNode:
    """A host at which so many visits of one event wait, after one that is matched already."""
    node = HostNode(one_node("h"), Settings()).lease()
    for attribute in attributes:
        made = registration(f"s/{attribute}", attribute, f"{attribute} > 0", S)
        node.port.hear(Install(attribute, 1, (made,)), OWNER)
        assign(node, 1, attribute=attribute)
    for number in range(waiting + 1):
        made_event = event(number, **dict.fromkeys(attributes, 5))
        node.port.hear(Visit(PUB, hop, attributes, (made_event,)), PUB)
        if not number:
            node.port.world.jump(0.001)
    assert matched(node) == [0]
    node.port.world.jump(0.001)
    return node


def matched(node: HostNode) -> list[int]:
    """Sequences that were delivered from here since the last look."""
    return [e.sequence for message in node.port.take(Deliver) for e in message.events]


def run(node: HostNode) -> None:
    while node.port.timers.get(MatchDue()) is not None:
        node.port.world.jump(0.001)
        node.port.fire(MatchDue())


def passed_on(node: HostNode) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for to, visit in node.port.sent_to(Visit):
        assert visit.hop == 2
        assert visit.origin == PUB
        found.setdefault(to, []).extend(e.sequence for e in visit.events)
    return found


def test_what_waited_is_divided_among_all_hosts() -> None:
    node = behind(9)
    assign(node, 2, "a", "b")
    run(node)
    others = passed_on(node)
    assert sorted(others) == ["a", "b"]
    mine = matched(node)
    assert [len(mine), *map(len, others.values())] == [3, 3, 3]
    assert sorted([*mine, *others["a"], *others["b"]]) == list(range(1, 10))
    accepted = [s for m in node.accepted() for _, some in m.taken for s in some]
    assert sorted(accepted) == sorted([0, *mine]), "who matches an event accepts it"


def test_what_comes_when_the_hosts_are_there_is_matched_where_it_came() -> None:
    node = behind(1)
    assign(node, 2, "a", "b")
    node.port.world.jump(0.001)
    for number in range(20, 29):
        node.port.hear(Visit(PUB, 1, ("x",), (event(number, x=5),)), PUB)
    run(node)
    assert set(range(20, 29)) <= set(matched(node))


@pytest.mark.parametrize("others", [(), ("a",)])
def test_a_map_that_brings_no_host_divides_nothing(others: tuple[str, ...]) -> None:
    node = behind(0)
    assign(node, 2, *others)
    node.port.world.jump(0.001)
    node.port.hear(Visit(PUB, 1, ("x",), (event(1, x=5),)), PUB)
    for number in range(2, 9):
        node.port.hear(Visit(PUB, 1, ("x",), (event(number, x=5),)), PUB)
    assign(node, 3, *others)
    run(node)
    assert passed_on(node) == {}
    assert matched(node) == list(range(1, 9))


def test_what_was_passed_on_once_stays() -> None:
    node = behind(9, hop=2)
    assign(node, 2, "a", "b")
    run(node)
    assert passed_on(node) == {}
    assert matched(node) == list(range(1, 10))


def test_a_visit_of_two_trees_goes_only_to_a_host_of_both() -> None:
    node = behind(8, attributes=("x", "y"))
    assign(node, 2, "a", "b")
    run(node)
    assert passed_on(node) == {}, "y has no other host"
    node = behind(8, attributes=("x", "y"))
    assign(node, 2, "a", "b")
    assign(node, 2, "b", "c", attribute="y")
    run(node)
    assert list(passed_on(node)) == ["b"]
