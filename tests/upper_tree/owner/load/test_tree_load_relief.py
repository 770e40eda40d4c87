"""C6: what moves when hosts are busy, and that all else stays."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from matching import EVERYTHING
from overlay.machine import NodeId
from overlay.upper_tree.owner.constants import SPARE, TARGET
from overlay.upper_tree.owner.host_selector import PlacedNode, fair_share
from overlay.upper_tree.owner.placement import HostUse, LoadRelief, Placement
from tests.support.world import peer

ROOM = 1_000


def node(number: int, busy: float, *hosts: str, alone: float = 1.0, size: int = 4) -> PlacedNode:
    return PlacedNode(f"t{number}", EVERYTHING, hosts, size, busy, alone * busy)


def relieve(
    nodes: Sequence[PlacedNode], hosts: str, room: int = ROOM
) -> dict[str, tuple[NodeId, ...]] | None:
    share = fair_share(nodes, len(hosts))
    found = LoadRelief(nodes, [peer(name) for name in hosts], room, share, {}).places()
    if found is None:
        return None
    return {name: tuple(host.id for host in at) for (name, _), at in found.items()}


def moved(nodes: Sequence[PlacedNode], found: dict[str, tuple[NodeId, ...]]) -> list[str]:
    return [each.attribute for each in nodes if each.hosts != found[each.attribute]]


def test_one_virtual_node_moves_from_a_busy_host_to_the_one_with_most_time() -> None:
    asked = [(0.4, "a"), (0.3, "a"), (0.1, "a"), (0.3, "b"), (0.1, "c")]
    nodes = [node(number, busy, host) for number, (busy, host) in enumerate(asked)]
    found = relieve(nodes, "abc")
    assert found is not None
    assert moved(nodes, found) == ["t1"], "the smallest that is enough"
    assert found["t1"] == ("c",)


def test_many_trees_are_spread_and_hardly_more_moves_than_is_too_much() -> None:
    """A hundred trees by a Zipf law at eight hosts, of which a new plan would move nearly all."""
    rng = random.Random(1)
    weights = [(number + 1) ** -0.8 for number in range(100)]
    scale = 6.0 / sum(weights)
    nodes = [node(n, w * scale, rng.choice("abcdefgh")) for n, w in enumerate(weights)]
    hosts = "abcdefghijklmnop"
    found = relieve(nodes, hosts)
    assert found is not None
    asked = dict.fromkeys(hosts, 0.0)
    for each in nodes:
        at = found[each.attribute]
        for host in at:
            asked[host] += each.busy / len(at)
    limit = TARGET * (1 + SPARE)
    assert max(asked.values()) <= limit + 1e-9
    before = dict.fromkeys(hosts, 0.0)
    for each in nodes:
        before[each.hosts[0]] += each.busy
    excess = sum(max(0.0, each - TARGET) for each in before.values())
    taken = sum(each.busy for each in nodes if each.attribute in moved(nodes, found))
    assert taken <= 1.5 * excess


def test_what_asks_for_more_than_one_host_has_gets_more_of_them() -> None:
    nodes = [node(0, 1.5, "a"), node(1, 0.2, "b")]
    found = relieve(nodes, "abcd")
    assert found is not None
    assert found["t0"][0] == "a"
    assert len(found["t0"]) == 3
    assert found["t1"] == ("b",)


@pytest.mark.parametrize(
    ("why", "nodes", "hosts", "room"),
    [
        ("visited together", [node(0, 0.4, "a", alone=0.5), node(1, 0.4, "a", alone=0.5)], "ab", 9),
        ("no room", [node(0, 0.4, "a"), node(1, 0.4, "a"), node(2, 0.0, "b", size=6)], "ab", 9),
        ("a host is gone", [node(0, 0.4, "z"), node(1, 0.1, "a")], "ab", 9),
    ],
)
def test_what_no_single_moves_relieve_takes_a_new_plan(
    why: str, nodes: list[PlacedNode], hosts: str, room: int
) -> None:
    assert relieve(nodes, hosts, room) is None, why


def test_a_host_that_joins_while_others_are_busy_takes_some_and_the_rest_stays() -> None:
    nodes = [node(n, 0.3, "ab"[n % 2]) for n in range(8)]
    popularity = {each.attribute: 1 for each in nodes}
    placement = Placement(ROOM)
    use = HostUse({}, ("a", "b"), 0)
    hosts = [peer("a"), peer("b")]
    placement.update(nodes, popularity, hosts, 0.0, use)
    hosts += [peer(name) for name in "cd"]
    plan = placement.update(nodes, popularity, hosts, 0.1, use)
    found = {name: tuple(host.id for host in at) for (name, _), at in plan.hosts.items()}
    assert len(moved(nodes, found)) == 4
    assert sorted(at for (at,) in found.values()) == sorted("aabbccdd")


def test_a_host_that_has_more_than_all_its_time_asked_for_is_relieved_again_soon() -> None:
    """Other plans for the same load come less and less often, and queues grow meanwhile."""
    hosts = [peer(name) for name in "abcd"]
    nodes = [node(n, 0.3, "ab"[n % 2]) for n in range(8)]
    popularity = {each.attribute: 1 for each in nodes}

    def changes(are_overloaded: bool) -> int:
        placement = Placement(ROOM)
        use = HostUse({}, ("a", "b"), 0, are_overloaded)
        found = 0
        for step in range(1, 41):
            before = placement.plan
            placement.update(nodes, popularity, hosts, step * 0.2, use)  # nothing moves meanwhile
            found += placement.plan is not before
        return found

    assert changes(are_overloaded=False) == 4  # at once, for the load, and after 2 and 4 seconds
    assert changes(are_overloaded=True) == 9  # every second
