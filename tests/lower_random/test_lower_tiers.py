"""M2: what gossip says of nodes with a tier is kept, within bounds, as long as they answer."""

from __future__ import annotations

from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.constants import MAX_TIERED_REGIONS, TIERED_PER_REGION
from overlay.lower_random.messages import Neighbour, Shuffle, ShuffleReply
from overlay.lower_random.view import TieredNodes, View
from overlay.machine import Peer
from overlay.settings import ViewSettings
from tests.lower_random.test_lower_view import alone, peer
from tests.support.world import one_node


def tiered(name: str, tier: int = 1, region: str = "eu") -> Peer:
    return Peer(name, f"{name}:1", region, tier)


def test_those_of_the_highest_tiers_are_kept_of_each_region() -> None:
    nodes = TieredNodes()
    for tier in range(8):
        nodes.learn(tiered(f"e{tier}", tier))
        nodes.learn(tiered(f"u{tier}", tier, "us"))
    nodes.learn(tiered("nowhere", 9, ""))
    found = [each.id for each in nodes.peers()]
    assert found == ["e7", "e6", "e5", "u7", "u6", "u5"]


def test_regions_and_nodes_are_bounded() -> None:
    nodes = TieredNodes()
    for number in range(MAX_TIERED_REGIONS + 10):
        for each in range(TIERED_PER_REGION + 2):
            nodes.learn(tiered(f"{number}.{each}", 1, f"r{number}"))
    assert len(nodes.peers()) == MAX_TIERED_REGIONS * TIERED_PER_REGION


def test_a_node_that_has_another_tier_or_region_now_is_there_once() -> None:
    nodes = TieredNodes()
    for place in (tiered("a"), tiered("a", 3), tiered("a", 3, "us"), tiered("a", 3, "us")):
        nodes.learn(place)
        assert nodes.peers() == (place,)
    nodes.learn(tiered("a", 0))
    assert nodes.peers() == ()


def test_gossip_names_them_though_the_view_is_full() -> None:
    port, view, _ = alone(size=1, shuffle=2)
    port.hear(LinkUp(peer("a"), True))
    heard = (Neighbour(peer("a"), 0), Neighbour(tiered("gate"), 1))
    port.hear(Shuffle(heard, (), ()), peer("a"))
    assert view.tiered_peers() == (tiered("gate"),)


def test_loads_travel_with_the_view_and_idle_nodes_that_host_little_come_first() -> None:
    port = one_node()
    chosen = ViewSettings(size=8)
    view = View(port, chosen, AccessPoints(port, chosen), lambda: 40)
    port.add(view)
    entries = tuple(
        Neighbour(peer(name), age, name != "d", load)
        for name, age, load in (("a", 1, 80), ("b", 9, 10), ("c", 2, 20), ("d", 0, 0))
    )
    port.hear(Shuffle(entries, (), ()), peer("a"))
    assert [each.id for each in view.idle_peers()] == ["c", "b", "a"]
    (reply,) = port.take(ShuffleReply)
    assert reply.neighbours[0] == Neighbour(port.me, 0, True, 40)
    view.start()
    port.advance(3.0)
    assert {each.peer.id: each.load for each in view.neighbours()}["a"] == 80, "as it ages"


def test_one_that_is_dead_is_forgotten() -> None:
    port, view, _ = alone()
    port.hear(LinkUp(tiered("gate"), True))
    assert view.tiered_peers() == (tiered("gate"),)
    port.hear(LinkDown(tiered("gate"), "dead", False, ()))
    assert view.tiered_peers() == ()
    port.hear(LinkUp(peer("a"), True))
    port.hear(Shuffle((Neighbour(tiered("gate"), 5),), (), ()), peer("a"))
    assert view.tiered_peers() == (), "hearsay from before its death"
