"""C1: the view stays a random graph, repairs itself, and is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from overlay.links.events import LinkDown, LinkUp, SeedReached
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.constants import MAX_EXCHANGED
from overlay.lower_random.messages import (
    AccessPoint,
    Neighbour,
    RingHint,
    RingHintReceived,
    Shuffle,
    ShuffleReply,
)
from overlay.lower_random.peer_records import Tombstones
from overlay.lower_random.view import View
from overlay.machine import Peer, ProtocolError
from overlay.settings import ViewSettings
from tests.support.world import World, WorldNode, one_node


def peer(name: str) -> Peer:
    return Peer(name, f"{name}:1")


def alone(**settings: int) -> tuple[WorldNode, View, AccessPoints]:
    port = one_node()
    chosen = ViewSettings(**settings)
    points = AccessPoints(port, chosen)
    view = View(port, chosen, points)
    port.add(points, view)
    view.start()
    return port, view, points


def forest(
    nodes: int, seed: int = 1, regions: Sequence[str] = ("",), **settings: float
) -> tuple[World, dict[str, View]]:
    """Every node knows the first one only; they are in these regions in turn."""
    world = World(seed, delay=(0.01, 0.01), notice=0.01)
    chosen = ViewSettings(**settings)  # type: ignore[arg-type]
    views: dict[str, View] = {}
    first: Peer | None = None
    for number in range(nodes):
        member = world.node(f"n{number:03}", region=regions[number % len(regions)])
        points = AccessPoints(member, chosen)
        view = views[member.me.id] = View(member, chosen, points)
        member.add(points, view)
        view.start()
        if first is not None:
            member.hear(SeedReached("n000:1", first))
        first = first or member.me
        world.run(0.05)
    return world, views


def reached(views: dict[str, View], first: str) -> int:
    """How many nodes one gets to along the views."""
    seen = {first: None}
    todo = [first]
    while todo:
        for other in views[todo.pop()].peers():
            if other.id in views and other.id not in seen:
                seen[other.id] = None
                todo.append(other.id)
    return len(seen)


def largest(views: dict[str, View]) -> int:
    """Nodes of the largest part that holds together, along views in either direction."""
    linked: dict[str, dict[str, None]] = {name: {} for name in views}
    for name, view in views.items():
        for other in view.peers():
            if other.id in views:
                linked[name][other.id] = linked[other.id][name] = None
    found: dict[str, None] = {}
    sizes = [0]
    for name in views:
        todo, size = [name], 0
        while todo:
            each = todo.pop()
            if each not in found:
                found[each] = None
                size += 1
                todo += linked[each]
        sizes.append(size)
    return max(sizes)


def in_degrees(views: dict[str, View]) -> list[int]:
    counts = dict.fromkeys(views, 0)
    for view in views.values():
        for other in view.peers():
            if other.id in counts:
                counts[other.id] += 1
    return sorted(counts.values())


@pytest.fixture(scope="module")
def grown() -> tuple[World, dict[str, View]]:
    """200 nodes with views of 10 after 60 periods. Tests of it must be in order of harm."""
    world, views = forest(200, size=10, shuffle=5)
    world.run(120.0)
    return world, views


def test_all_nodes_stay_connected(grown: tuple[World, dict[str, View]]) -> None:
    _, views = grown
    for first in list(views)[::40]:
        assert reached(views, first) == 200


def test_views_are_full_bounded_and_never_hold_the_node_itself(
    grown: tuple[World, dict[str, View]],
) -> None:
    for name, view in grown[1].items():
        peers = [other.id for other in view.peers()]
        assert len(peers) == len(dict.fromkeys(peers)) == 10
        assert name not in peers
        assert view.is_filled


def test_no_node_is_in_many_more_views_than_another(
    grown: tuple[World, dict[str, View]],
) -> None:
    degrees = in_degrees(grown[1])
    # All began with n000 in 199 views. In a graph of random pointers the standard deviation would
    # be sqrt(10) = 3.2; Cyclon's is about 1 (its paper, figure 5).
    mean = sum(degrees) / len(degrees)
    deviation = (sum((each - mean) ** 2 for each in degrees) / len(degrees)) ** 0.5
    assert degrees[-1] <= 20
    assert degrees[0] >= 4
    assert deviation < 3.2


def test_the_graph_is_a_small_world(grown: tuple[World, dict[str, View]]) -> None:
    _, views = grown
    seen, edge, steps = {"n000": None}, ["n000"], 0
    while len(seen) < 200:
        steps += 1
        edge = [
            other.id
            for name in edge
            for other in views[name].peers()
            if seen.setdefault(other.id, None) is None
        ]
        edge = list(dict.fromkeys(edge))
        assert steps < 10
    assert steps <= 5  # log(200) / log(10) = 2.3


def test_dead_nodes_leave_all_views_and_the_rest_holds_together(
    grown: tuple[World, dict[str, View]],
) -> None:
    world, views = grown
    dead = list(views)[::4]
    for name in dead:
        world.kill(name)
    living = {name: view for name, view in views.items() if name not in dead}
    world.run(120.0)
    left = [other.id for view in living.values() for other in view.peers() if other.id in dead]
    assert len(left) <= 3  # of 1,500 entries: at most a last echo
    assert reached(living, "n001") == 150
    assert all(len(view.peers()) >= 9 for view in living.values())


REGIONS = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def divided() -> dict[str, View]:
    """100 nodes of five regions with views of 10, after 60 periods."""
    world, views = forest(100, regions=REGIONS, size=10, shuffle=5)
    world.run(120.0)
    return views


def test_half_of_a_view_is_nearby(divided: dict[str, View]) -> None:
    near = [
        sum(other.region == view.port.me.region for other in view.peers())
        for view in divided.values()
    ]
    assert set(near) == {5}


@pytest.mark.parametrize("dead", [0.0, 0.2, 0.5])
def test_views_of_regions_hold_together_before_anything_is_repaired(
    divided: dict[str, View], dead: float
) -> None:
    for seed in range(20):
        gone = Random(seed).sample(list(divided), int(dead * len(divided)))
        living = {name: view for name, view in divided.items() if name not in gone}
        assert largest(living) >= 0.98 * len(living)


def test_a_region_that_is_lost_wholly_divides_no_others(divided: dict[str, View]) -> None:
    for region in REGIONS:
        living = {n: view for n, view in divided.items() if view.port.me.region != region}
        assert largest(living) == 80


def test_nodes_of_regions_are_in_about_as_many_views(divided: dict[str, View]) -> None:
    degrees = in_degrees(divided)
    deviation = (sum((each - 10) ** 2 for each in degrees) / len(degrees)) ** 0.5
    assert deviation < 4.0, "hardly more than in a graph of random pointers"
    assert degrees[0] >= 3
    assert degrees[-1] <= 25


def test_nodes_without_a_region_are_all_far() -> None:
    port, view, _ = alone(size=2)
    for name in ("a", "b", "c"):
        port.hear(LinkUp(peer(name), True))
    heard = tuple(Neighbour(peer(name), 0) for name in ("d", "e"))
    port.hear(Shuffle(heard, (), ()), peer("a"))
    assert len(view.peers()) == 2


def test_a_region_that_is_far_gets_places_in_a_view_of_near_nodes_only() -> None:
    port = World().node("me", region="eu")
    chosen = ViewSettings(size=4)
    points = AccessPoints(port, chosen)
    view = View(port, chosen, points)
    port.add(points, view)
    for number in range(4):
        port.hear(LinkUp(Peer(f"e{number}", "", "eu"), True))
    far = tuple(Neighbour(Peer(f"u{number}", "", "us"), 0) for number in range(4))
    sender = Peer("e0", "", "eu")
    port.hear(Shuffle((Neighbour(sender, 0), *far), (), ()), sender)
    assert sorted(other.region for other in view.peers()) == ["eu", "eu", "us", "us"]


def test_a_healed_partition_merges_through_a_seed() -> None:
    world, views = forest(10, size=6)
    for number in range(10, 20):  # an island of their own
        member = world.node(f"n{number:03}")
        chosen = ViewSettings(size=6)
        points = AccessPoints(member, chosen)
        view = views[member.me.id] = View(member, chosen, points)
        member.add(points, view)
        view.start()
        if number > 10:
            member.hear(SeedReached("n010:1", peer("n010")))
    world.run(30.0)
    assert reached(views, "n000") == reached(views, "n010") == 10
    world.nodes["n015"].hear(SeedReached("n000:1", peer("n000")))
    world.run(30.0)
    assert reached(views, "n000") == reached(views, "n010") == 20


def test_a_seed_enters_a_full_view_for_the_oldest_and_is_asked_at_once() -> None:
    port, view, _ = alone(size=3)
    for number, age in enumerate([1, 7, 3]):
        sender = peer(f"p{number}")
        port.hear(Shuffle((Neighbour(sender, age),), (), ()), sender)
    port.sent.clear()
    port.hear(SeedReached("seed:1", peer("seed")))
    assert [other.id for other in view.peers()] == ["p0", "p2", "seed"]
    assert [(to.id, type(message)) for to, message in port.sent] == [("seed", Shuffle)]


def test_the_first_neighbour_is_asked_at_once_and_the_oldest_each_period() -> None:
    port, _, _ = alone(size=2)
    port.hear(LinkUp(peer("a"), True))
    assert [to.id for to, _ in port.sent] == ["a"]
    offered = (Neighbour(peer("a"), 0), Neighbour(peer("b"), 9))
    port.hear(ShuffleReply(offered, (), ()), peer("a"))
    port.sent.clear()
    port.advance(2.5)
    [(to, message)] = port.sent
    assert to.id == "b"
    assert isinstance(message, Shuffle)
    assert message.neighbours[0] == Neighbour(port.me, 0, True)


def test_a_new_node_asks_on_at_once_until_no_new_node_is_named() -> None:
    port, view, _ = alone(size=5)
    port.hear(LinkUp(peer("a"), True))
    offered = (Neighbour(peer("a"), 0), Neighbour(peer("b"), 9), Neighbour(peer("c"), 4))
    port.hear(ShuffleReply(offered, (), ()), peer("a"))
    assert [to.id for to, _ in port.sent] == ["a", "b"]  # the oldest, without waiting a period
    assert not view.is_filled
    port.hear(ShuffleReply(offered, (), ()), peer("b"))
    assert [to.id for to, _ in port.sent] == ["a", "b"]
    assert view.is_filled


def test_what_was_sent_is_replaced_and_nothing_else() -> None:
    port, view, _ = alone(size=4, shuffle=2)
    for name in "abcd":
        port.hear(LinkUp(peer(name), True))
    mine = (Neighbour(peer("x"), 0), Neighbour(peer("y"), 1), Neighbour(peer("z"), 2))
    port.take(Shuffle)
    port.hear(Shuffle(mine, (), ()), peer("x"))
    [reply] = port.take(ShuffleReply)
    offered = [entry.peer.id for entry in reply.neighbours if entry.peer.id != port.me.id]
    assert len(offered) == 1
    kept = [name for name in "abcd" if name not in offered]
    assert [other.id for other in view.peers()] == [*kept, "x"]


def test_a_partner_that_never_answers_leaves_after_three_periods() -> None:
    port, view, _ = alone()
    port.hear(LinkUp(peer("a"), True))
    port.advance(2.0 * 1.25 * 3)
    assert view.is_alone


def test_hearsay_older_than_the_death_is_not_trusted_and_younger_is() -> None:
    port, view, _ = alone()
    for name in "ab":
        port.hear(LinkUp(peer(name), True))
    port.advance(2.6)
    port.hear(LinkDown(peer("b"), "silent", False))
    port.advance(2.6)
    port.hear(Shuffle((Neighbour(peer("a"), 0), Neighbour(peer("b"), 3)), (), ()), peer("a"))
    assert [other.id for other in view.peers()] == ["a"]
    port.hear(Shuffle((Neighbour(peer("a"), 0), Neighbour(peer("b"), 0)), (), ()), peer("a"))
    assert [other.id for other in view.peers()] == ["a", "b"]


def test_the_younger_news_has_the_address() -> None:
    port, view, _ = alone()
    port.hear(Shuffle((Neighbour(Peer("a", "old:1"), 5),), (), ()), peer("a"))
    port.hear(Shuffle((Neighbour(Peer("a", "new:1"), 2, False),), (), ()), peer("b"))
    port.hear(Shuffle((Neighbour(Peer("a", "older:1"), 6),), (), ()), peer("b"))
    assert view.neighbours()[0] == Neighbour(Peer("a", "new:1"), 2, False)


def test_idle_nodes_are_informed_in_exchanges_and_found_for_recruiting() -> None:
    port, view, _ = alone()
    entries = (
        Neighbour(peer("a"), 3, True),
        Neighbour(peer("b"), 0, False),
        Neighbour(peer("c"), 1, True),
    )
    view.set_idle(False)
    port.hear(Shuffle(entries, (), ()), peer("b"))
    assert [other.id for other in view.idle_peers()] == ["c", "a"]
    [reply] = port.take(ShuffleReply)
    assert reply.neighbours[0] == Neighbour(port.me, 0, False)


def test_an_exchange_carries_access_points_both_ways() -> None:
    port, _, points = alone()
    points.set_local([AccessPoint("mine", port.me, (1, 1), 0)])
    theirs = AccessPoint("theirs", peer("h"), (1, 2), 4)
    port.hear(Shuffle((Neighbour(peer("a"), 0),), (theirs,), ()), peer("a"))
    assert points.points("theirs")[0] == theirs
    [reply] = port.take(ShuffleReply)
    assert reply.access_points == (AccessPoint("mine", port.me, (1, 1), 0),)


def hint(key: str, version: int = 1, primary: str = "p") -> RingHint:
    return RingHint("ring", key, (1, version), peer(primary))


def rings(port: WorldNode, *hints: RingHint) -> Sequence[RingHint]:
    """Send `port` these; what its answer offers."""
    port.hear(Shuffle((Neighbour(peer("a"), 0),), (), hints), peer("a"))
    return port.take(ShuffleReply)[-1].rings


def test_ring_hints_are_sent_heard_and_passed_on_in_their_newest_version() -> None:
    port, view, _ = alone()
    own = hint("00")
    view.advertise_ring(own)
    assert rings(port, hint("11", 2)) == (own,)
    assert port.of(RingHintReceived) == [RingHintReceived(hint("11", 2))]
    assert set(rings(port, hint("11", 1))) == {own, hint("11", 2)}
    view.advertise_ring(None)
    assert rings(port) == (hint("11", 2),)


def test_hints_are_bounded_and_not_passed_on_when_the_primary_is_dead() -> None:
    port, _, _ = alone()
    offered = rings(port, *(hint(f"{number:02}", primary=f"p{number}") for number in range(40)))
    assert offered == ()
    assert len(rings(port)) == 4
    port.hear(LinkDown(peer("p"), "dead", False))
    port.emitted.clear()
    assert hint("99") not in rings(port, hint("99"))
    assert not port.of(RingHintReceived)


def test_nothing_is_reported_of_a_ring_that_has_ended() -> None:
    port, view, _ = alone()
    known = hint("11")
    assert known not in rings(port, known)
    assert known in rings(port)
    view.forget_ring(known.ring)
    assert rings(port, known) == ()
    assert rings(port) == ()
    assert len(port.of(RingHintReceived)) == 1


def test_an_exchange_beyond_all_bounds_breaks_the_link() -> None:
    port, _, _ = alone()
    many = tuple(Neighbour(peer(f"x{number}"), 0) for number in range(MAX_EXCHANGED + 1))
    with pytest.raises(ProtocolError):
        port.hear(Shuffle(many, (), ()), peer("a"))
    with pytest.raises(ProtocolError):
        port.hear(Shuffle((Neighbour(peer("x"), -1),), (), ()), peer("a"))


def test_filled_means_full_or_no_new_nodes_or_alone() -> None:
    port, view, _ = alone(size=2)
    assert view.is_alone
    assert view.is_filled
    port.hear(LinkUp(peer("a"), True))
    assert not view.is_filled
    port.hear(ShuffleReply((Neighbour(peer("a"), 0),), (), ()), peer("a"))
    assert view.is_filled
    port.hear(LinkUp(peer("b"), True))
    assert view.is_filled
    assert len(view.peers()) == 2


def test_news_of_a_dead_node_is_ignored_if_it_is_older_than_its_death() -> None:
    dead = Tombstones()
    dead.add("x", 10)
    assert [dead.covers("x", age, 12) for age in (3, 2, 1, 0)] == [True, True, False, False]
    assert not dead.covers("y", 3, 12)
    dead.remove("x")
    assert not dead.covers("x", 3, 12)
