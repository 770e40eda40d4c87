"""C2: the access-point table is bounded, fresh, and unlearns what proved wrong."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from overlay.health import Health, HealthReport, NodeHealth
from overlay.links.events import LinkDown, LinkUp
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.messages import AccessPoint, StalePoint
from overlay.machine import Peer
from overlay.settings import ViewSettings
from tests.support.world import WorldNode, one_node


def peer(name: str) -> Peer:
    return Peer(name, f"{name}:1")


def point(
    attribute: str, name: str, version: tuple[int, int] = (1, 1), age: int = 0
) -> AccessPoint:
    return AccessPoint(attribute, peer(name), version, age)


def table(**changed: int) -> tuple[WorldNode, AccessPoints]:
    port = one_node()
    points = AccessPoints(port, ViewSettings(**changed))
    port.add(points)
    return port, points


def test_an_unknown_attribute_is_not_found() -> None:
    assert not table()[1].points("x")


def test_the_choice_is_random_among_the_newest_epoch() -> None:
    _, points = table(per_attribute=4)
    for name, version in [("a", (2, 1)), ("b", (2, 9)), ("c", (1, 50)), ("d", (2, 3))]:
        assert points.learn(point("x", name, version))
    found = [points.points("x")[0] for _ in range(100)]
    assert {each.peer.id for each in found} == {"a", "b", "d"}


def test_a_newer_version_beats_an_older_one() -> None:
    _, points = table(per_attribute=2)
    for name, version in [("a", (1, 1)), ("b", (1, 2)), ("c", (1, 3))]:
        points.learn(point("x", name, version))
    assert {points.points("x")[0].peer.id for _ in range(50)} == {"b", "c"}
    assert not points.learn(point("x", "d", (1, 1)))
    points.learn(point("x", "b", (2, 1)))
    assert {points.points("x")[0].peer.id for _ in range(20)} == {"b"}


def test_among_the_newest_epoch_the_healthy_come_first_and_none_is_excluded() -> None:
    """T6. A report ends, and where all are sub-healthy the order is as without one."""
    port = one_node()
    health = Health(port)
    points = AccessPoints(port, ViewSettings(), health)
    for name in "abc":
        points.learn(point("x", name, (2, 1)))
    bad = NodeHealth(1, "latency")
    health.update(HealthReport({"a": bad, "b": bad}, 10.0))
    orders = [[each.peer.id for each in points.points("x")] for _ in range(50)]
    assert {order[0] for order in orders} == {"c"}
    assert {order[1] for order in orders} == {"a", "b"}
    health.update(HealthReport(dict.fromkeys("abc", bad), 10.0))
    assert {points.points("x")[0].peer.id for _ in range(50)} == {"a", "b", "c"}
    health.update(HealthReport({"a": bad, "b": bad}, 0.0))
    assert {points.points("x")[0].peer.id for _ in range(50)} == {"a", "b", "c"}


def test_a_newer_epoch_beats_health() -> None:
    port = one_node()
    health = Health(port)
    points = AccessPoints(port, ViewSettings(), health)
    points.learn(point("x", "a", (2, 1)))
    points.learn(point("x", "b", (1, 9)))
    health.update(HealthReport({"a": NodeHealth(3, "crash")}, 10.0))
    assert {points.points("x")[0].peer.id for _ in range(20)} == {"a"}


def test_an_older_version_from_the_same_node_changes_nothing() -> None:
    _, points = table()
    points.learn(point("x", "a", (1, 5), age=3))
    points.learn(point("x", "a", (1, 4)))
    points.learn(point("x", "a", (1, 5), age=9))
    assert points.points("x")[0] == point("x", "a", (1, 5), age=3)


def test_the_attribute_used_least_recently_leaves_first() -> None:
    _, points = table(access_points=3)
    for attribute in "abc":
        points.learn(point(attribute, "p"))
    points.points("a")
    points.learn(point("d", "p"))
    assert [attribute for attribute in "abcd" if points.points(attribute)] == ["a", "c", "d"]


def test_own_trees_come_first_never_age_and_are_never_evicted() -> None:
    port, points = table(access_points=1, access_point_age=2)
    own = AccessPoint("x", port.me, (1, 1), 0)
    points.set_local([own])
    points.learn(point("x", "p", (9, 9)))
    points.learn(point("y", "p"))
    for _ in range(5):
        points.age_entries()
    assert points.points("x")[0] == own
    points.invalidate("x", port.me.id, (9, 9))
    assert points.points("x")[0] == own
    points.set_local([])
    assert not points.points("x")


def test_entries_age_with_each_shuffle_and_leave_when_too_old() -> None:
    _, points = table(access_point_age=3)
    points.learn(point("x", "p", age=1))
    points.age_entries()
    assert points.points("x")[0] == point("x", "p", age=2)
    points.age_entries()
    assert points.points("x")[0] == point("x", "p", age=3)
    points.age_entries()
    assert not points.points("x")
    assert len(points) == 0
    assert not points.learn(point("x", "p", age=4))


def test_a_stale_point_is_dropped_reported_to_who_named_it_and_not_learnt_again() -> None:
    port, points = table()
    points.learn(point("x", "p", (1, 3)), named_by=peer("gossip"))
    points.invalidate("x", "p", (1, 4))
    assert not points.points("x")
    assert port.sent == [(peer("gossip"), StalePoint("x", "p", (1, 4)))]
    assert not points.learn(point("x", "p", (1, 4)))
    assert points.learn(point("x", "p", (1, 5)))
    assert points.learn(point("y", "p", (1, 1)))


def test_a_drop_without_a_version_means_the_one_that_is_known() -> None:
    port, points = table()
    points.invalidate("x", "p")
    assert not port.sent
    points.learn(point("x", "p", (1, 3)), named_by=peer("gossip"))
    points.invalidate("x", "p")
    assert port.sent == [(peer("gossip"), StalePoint("x", "p", (1, 3)))]
    assert not points.learn(point("x", "p", (1, 3)))


def test_who_is_informed_of_a_stale_point_drops_it_and_keeps_newer_ones() -> None:
    port, points = table()
    points.learn(point("x", "p", (1, 3)), named_by=peer("gossip"))
    points.learn(point("x", "q", (1, 3)))
    port.hear(StalePoint("x", "p", (1, 2)), peer("walker"))
    assert {points.points("x")[0].peer.id for _ in range(30)} == {"p", "q"}
    port.hear(StalePoint("x", "p", (1, 3)), peer("walker"))
    assert {points.points("x")[0].peer.id for _ in range(30)} == {"q"}
    assert not port.sent


def test_dead_access_points_are_not_used_until_they_are_heard_of_again() -> None:
    port, points = table()
    for attribute in "xy":
        points.learn(point(attribute, "p"))
    points.age_entries()
    port.hear(LinkDown(peer("p"), "silent", False))
    assert len(points) == 0
    points.age_entries()
    assert not points.learn(point("x", "p", age=1))
    assert points.learn(point("x", "p", age=0))
    port.hear(LinkDown(peer("p"), "silent", False))
    port.hear(LinkUp(peer("p"), True))
    assert points.learn(point("x", "p", age=1))


def test_a_node_is_no_access_point_to_itself_by_hearsay() -> None:
    port, points = table()
    assert not points.learn(AccessPoint("x", port.me, (1, 1), 0))


def test_half_of_what_is_sent_is_own_and_the_rest_is_heard() -> None:
    port, points = table()
    points.set_local([AccessPoint(f"own{number}", port.me, (1, 1), 0) for number in range(30)])
    for number in range(30):
        points.learn(point(f"heard{number}", "p"))
    sampled = [each.attribute[:3] for each in points.sample(20)]
    assert sampled.count("own") == sampled.count("hea") == 10
    points.set_local([])
    assert len(points.sample(20)) == 20
    assert len(points.sample(50)) == 30


MOVES = st.one_of(
    st.tuples(
        st.just("learn"), st.integers(0, 7), st.integers(0, 3), st.integers(1, 3), st.integers(0, 4)
    ),
    st.tuples(st.just("drop"), st.integers(0, 7), st.integers(0, 3), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("down"), st.just(0), st.integers(0, 3), st.just(0), st.just(0)),
    st.tuples(st.just("age"), st.just(0), st.just(0), st.just(0), st.just(0)),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(MOVES, max_size=60))
def test_whatever_happens_the_table_is_bounded_and_names_nothing_refuted(
    moves: list[tuple[str, int, int, int, int]],
) -> None:
    port, points = table(access_points=5, per_attribute=2, access_point_age=3)
    refuted: dict[tuple[str, str], tuple[int, int]] = {}
    for move, attribute, node, epoch, age in moves:
        name, host = f"a{attribute}", f"p{node}"
        if move == "learn":
            points.learn(point(name, host, (epoch, 1), age))
        elif move == "drop":
            points.invalidate(name, host, (epoch, 1))
            refuted[name, host] = max(refuted.get((name, host), (0, 0)), (epoch, 1))
        elif move == "down":
            port.hear(LinkDown(peer(host), "", False))
            assert all(each.peer.id != host for each in points.sample(100))
        else:
            points.age_entries()
        sampled = points.sample(100)
        assert len(points) == len(sampled) <= 5
        for each in sampled:
            assert each.age <= 3
            assert each.version > refuted.get((each.attribute, each.peer.id), (0, 0))


def test_ways_into_the_trees_of_another_ring_are_not_taken() -> None:
    """Views mix sooner than rings do, and who enters the other's tree misses one's own."""
    _, points = table()
    points.enter_ring("ours")
    theirs, ours = point("x", "a"), msgspec.structs.replace(point("x", "b"), ring=points.ring)
    assert not points.learn(theirs)
    assert points.learn(ours)
    assert points.points("x")[0] == ours
    points.enter_ring("another")
    assert not points.points("x")
    assert len(points) == 0
