"""C3, C4, C10: CRAWL's walks, their trace, blocking and recovery."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overlay.health import Health, HealthReport, NodeHealth
from overlay.lower_random.constants import MAX_WALK_ATTRIBUTES
from overlay.lower_random.messages import Walk, WalkFailed, WalkFound, WalkHit, WalkMiss
from overlay.machine import ProtocolError
from tests.support.walks import peer, point, walker, woods
from tests.support.world import one_node


def a_walk(
    *attributes: str, left: int = 5, limit: int = 10, hop: int = 5, trace: str = "o"
) -> Walk:
    names = tuple(peer(name) for name in trace)
    return Walk(peer("o"), 7, attributes, hop, left, limit, names)


def test_known_attributes_are_not_walked_at_all() -> None:
    port = one_node()
    crawl, points = walker(port, "a", "b")
    points.learn(point("x", "h"))
    crawl.walk(["x"])
    assert not port.sent
    assert port.of(WalkFound) == [WalkFound(point("x", "h"), 0)]
    assert not port.timers


def test_step_1_puts_the_source_into_the_trace_and_asks_one_random_neighbour() -> None:
    asked: Counter[str] = Counter()
    for seed in range(60):
        port = one_node(seed=seed)
        crawl, _ = walker(port, "a", "b", "c")
        crawl.walk(["x", "y"])
        [(to, walk)] = port.sent
        asked[to.id] += 1
        assert walk == Walk(port.me, 1, ("x", "y"), 1, 9, 10, (port.me,))
    assert min(asked[name] for name in "abc") >= 8


def test_step_2_a_hit_ends_that_attribute_and_the_rest_goes_on() -> None:
    port = one_node()
    _, points = walker(port, "a")
    points.learn(point("x", "h", (3, 4)))
    port.hear(a_walk("x", "y"), peer("o"))
    (origin, hit), (to, walk) = port.sent
    assert (origin.id, hit) == ("o", WalkHit(7, 5, (point("x", "h", (3, 4)),)))
    assert to.id == "a"
    assert walk == Walk(peer("o"), 7, ("y",), 6, 4, 10, (peer("o"), port.me))


def test_a_walk_of_another_ring_goes_on_and_finds_nothing_here() -> None:
    port = one_node()
    _, points = walker(port, "a")
    points.learn(point("x", "h"))
    port.hear(msgspec.structs.replace(a_walk("x"), ring=9), peer("o"))
    ((to, walk),) = port.sent
    assert (to.id, walk.attributes, walk.ring) == ("a", ("x",), 9)


def test_a_node_of_the_trace_is_never_visited() -> None:
    for seed in range(30):
        port = one_node(seed=seed)
        walker(port, "a", "b", "c")
        port.hear(a_walk("x", trace="oac"), peer("c"))
        assert [to.id for to, _ in port.sent] == ["b"]


def test_a_walk_goes_by_healthy_neighbours_while_there_are_some() -> None:
    """T6: health orders, and excludes none."""
    for sub_healthy, expected in (("ab", "c"), ("abc", "abc"), ("", "abc")):
        asked = set()
        for seed in range(30):
            port = one_node(seed=seed)
            health = Health(port)
            walker(port, "a", "b", "c", health=health)
            bad = NodeHealth(1, "latency")
            health.update(HealthReport(dict.fromkeys(sub_healthy, bad), 10.0))
            port.hear(a_walk("x"), peer("o"))
            asked |= {to.id for to, _ in port.sent}
        assert asked == set(expected)


def test_the_hop_limit_ends_the_walk_with_a_miss() -> None:
    port = one_node()
    walker(port, "a")
    port.hear(a_walk("x", left=0, hop=10), peer("z"))
    assert port.sent == [(peer("o"), WalkMiss(7, 10, ("x",)))]


def test_the_trace_holds_the_last_k_nodes() -> None:
    port = one_node()
    walker(port, "a", trace=3)
    port.hear(a_walk("x", trace="obcd"), peer("d"))
    [(_, walk)] = port.sent
    assert isinstance(walk, Walk)
    assert [each.id for each in walk.trace] == ["c", "d", "me"]


def test_a_blocked_walk_restarts_at_a_random_node_of_the_trace_with_half_the_limit() -> None:
    chosen: Counter[str] = Counter()
    for seed in range(60):
        port = one_node(seed=seed)
        walker(port, "d")  # F of the paper's figure 3: a leaf
        port.hear(a_walk("x", left=7, limit=10, hop=3, trace="obd"), peer("d"))
        [(to, walk)] = port.sent
        chosen[to.id] += 1
        assert isinstance(walk, Walk)
        assert (walk.left, walk.limit, walk.hop) == (5, 5, 4)
        assert [each.id for each in walk.trace] == ["o", "b", "d", "me"]
        assert port.counts["walks_blocked"] == port.counts["walks_recovered"] == 1
        assert port.traced("walk_blocked") == [{"walk": "o.7", "attribute": "x", "hop": 3}]
        assert port.traced("walk_recovered") == [
            {"walk": "o.7", "attribute": "x", "hop": 4, "peer": to.id}
        ]
    assert min(chosen[name] for name in "obd") >= 8


def test_the_halving_ends_at_one() -> None:
    port = one_node()
    walker(port, "d")
    port.hear(a_walk("x", left=2, limit=2, trace="od"), peer("d"))
    assert [walk.limit for walk in port.take(Walk)] == [1]
    port.hear(a_walk("x", left=1, limit=1, trace="od"), peer("d"))
    assert port.sent == [(peer("o"), WalkMiss(7, 5, ("x",)))]


def test_a_node_without_neighbours_misses_at_once() -> None:
    port = one_node()
    crawl, _ = walker(port)
    crawl.walk(["x"])
    assert not port.sent
    assert not port.counts["walks_blocked"], "there was no walk"
    assert port.of(WalkFailed) == [WalkFailed(("x",), 0)]


def test_the_walk_of_figure_3_recovers_and_finds() -> None:
    # A-B-C-D-E-F in a row, with G (who knows) behind C: walks into the dead end F recover.
    links = {"A": "B", "B": "AC", "C": "BDG", "D": "CE", "E": "DF", "F": "E", "G": "C"}
    found, recovered = 0, 0
    for seed in range(40):
        world, nodes = woods(links, seed)
        nodes["G"][2].learn(point("x", "h"))
        member, crawl, _ = nodes["A"]
        crawl.walk(["x"])
        world.run(10.0)
        found += len(member.of(WalkFound))
        recovered += sum(node[0].counts["walks_recovered"] > 0 for node in nodes.values())
        assert len(member.of(WalkFound)) + len(member.of(WalkFailed)) == 1
    assert recovered >= 10
    assert found >= 30


def test_a_hit_is_reported_upwards_once_and_learnt_with_who_named_it() -> None:
    port = one_node()
    crawl, points = walker(port, "a")
    crawl.walk(["x", "y"])
    port.sent.clear()
    hit = WalkHit(1, 4, (point("x", "h"),))
    port.hear(hit, peer("n"))
    port.hear(hit, peer("n"))
    assert port.of(WalkFound) == [WalkFound(point("x", "h"), 4)]
    assert points.points("x")[0] == point("x", "h")
    points.invalidate("x", "h", (1, 1))
    assert [to.id for to, _ in port.sent] == ["n"]
    assert len(port.timers) == 1  # y is still out
    port.hear(WalkMiss(1, 10, ("y", "x", "z")), peer("n"))
    assert port.of(WalkFailed) == [WalkFailed(("y",), 10)]
    assert not port.timers


def test_an_access_point_of_a_ring_that_was_left_meanwhile_is_no_hit() -> None:
    port = one_node()
    crawl, points = walker(port, "a", timeout=3.0)
    points.enter_ring("theirs")
    crawl.walk(["x"])
    theirs = msgspec.structs.replace(point("x", "h"), ring=points.ring)
    points.enter_ring("ours")
    port.hear(WalkHit(1, 2, (theirs,)), peer("n"))
    assert not port.of(WalkFound)
    assert not points.points("x")
    port.advance(3.1)
    assert port.of(WalkFailed) == [WalkFailed(("x",), 0)]


def test_each_attribute_ends_once_whatever_answers_come() -> None:
    """A hit that comes twice, a miss after it, an answer to another walk, one that came late."""
    port = one_node()
    crawl, _ = walker(port, "a")
    crawl.walk(["x", "y"])
    for _ in range(2):
        port.hear(WalkHit(1, 2, (point("x", "h"), point("x", "i"))), peer("n"))
    port.hear(WalkMiss(1, 9, ("x",)), peer("n"))
    port.hear(WalkMiss(7, 9, ("x", "y")), peer("n"))
    for _ in range(2):
        port.hear(WalkMiss(1, 9, ("y",), lost=True), peer("n"))
    port.hear(WalkMiss(2, 4, ("y",)), peer("n"))
    port.hear(WalkHit(1, 2, (point("y", "h"),)), peer("n"))
    assert port.of(WalkFound) == [WalkFound(point("x", "h"), 2, (point("x", "i"),))]
    assert port.of(WalkFailed) == [WalkFailed(("y",), 4)]
    ends = [t for kind in ("walk_hit", "walk_miss") for t in port.traced(kind)]
    assert sorted((t["walk"], t["attribute"]) for t in ends) == [
        ("me.1", "x"),
        ("me.1", "y"),
        ("me.2", "y"),
    ]


def test_a_walk_not_heard_of_in_time_is_a_miss_and_a_late_hit_is_only_learnt() -> None:
    port = one_node()
    crawl, points = walker(port, "a", timeout=3.0)
    crawl.walk(["x"])
    port.advance(2.9)
    assert not port.of(WalkFailed)
    port.advance(0.2)
    assert port.of(WalkFailed) == [WalkFailed(("x",), 0)]
    port.hear(WalkHit(1, 4, (point("x", "h"),)), peer("n"))
    assert not port.of(WalkFound)
    assert points.points("x")[0] == point("x", "h")


def test_a_walk_after_a_stale_point_has_half_the_hops() -> None:
    port = one_node()
    crawl, _ = walker(port, "a")
    crawl.walk(["x"], hops=5)
    [walk] = port.take(Walk)
    assert (walk.left, walk.limit) == (4, 5)


def test_the_origin_is_not_informed_of_itself() -> None:
    port = one_node()
    _, points = walker(port, "a")
    points.learn(point("x", "o"))  # stale: the origin knows best what it serves
    port.hear(a_walk("x"), peer("o"))
    assert [type(message) for _, message in port.sent] == [Walk]


def test_every_attribute_has_exactly_one_start_and_one_end_in_the_trace() -> None:
    links = {"A": "BC", "B": "AC", "C": "ABD", "D": "C"}
    for seed in range(20):
        world, nodes = woods(links, seed, hops=3)
        nodes["D"][2].learn(point("x", "h"))
        nodes["C"][2].learn(point("y", "h"))
        member, crawl, _ = nodes["A"]
        crawl.walk(["x", "y", "z"])
        world.run(10.0)
        starts = [(f["walk"], f["attribute"], f["hops"]) for f in member.traced("walk_start")]
        assert starts == [("A.1", attribute, 3) for attribute in "xyz"]
        ends = [f["attribute"] for k in ("walk_hit", "walk_miss") for f in member.traced(k)]
        assert sorted(ends) == ["x", "y", "z"]
        hops = [
            (f["attribute"], f["hop"])
            for node, _, _ in nodes.values()
            for kind in ("walk_hop", "walk_recovered")
            for f in node.traced(kind)
        ]
        for attribute in "xyz":
            numbers = sorted(hop for name, hop in hops if name == attribute)
            assert numbers == list(range(1, len(numbers) + 1))


def test_many_attributes_go_on_several_walks() -> None:
    port = one_node()
    crawl, _ = walker(port, "a")
    crawl.walk([f"x{number % 300}" for number in range(600)])
    walks = port.take(Walk)
    assert [len(walk.attributes) for walk in walks] == [
        MAX_WALK_ATTRIBUTES,
        300 - MAX_WALK_ATTRIBUTES,
    ]
    assert [walk.data_units() for walk in walks] == [256, 44]


@pytest.mark.parametrize(
    "walk",
    [
        a_walk(),
        a_walk(*(f"x{number}" for number in range(MAX_WALK_ATTRIBUTES + 1))),
        a_walk("x", left=-1),
        a_walk("x", left=11, limit=10),
        a_walk("x", left=5, limit=100_000),
        a_walk("x", hop=0),
        a_walk("x", hop=100_000),
        a_walk("x", trace=""),
        a_walk("x", trace="o" * 2_000),
    ],
)
def test_a_malformed_walk_breaks_the_link(walk: Walk) -> None:
    port = one_node()
    walker(port, "a")
    with pytest.raises(ProtocolError):
        port.hear(walk, peer("z"))
    assert not port.sent


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=7, max_size=20),
    hops=st.integers(1, 12),
    trace=st.integers(1, 12),
    known=st.lists(st.integers(0, 7), max_size=2),
)
def test_on_any_graph_a_walk_ends_within_its_bound_and_avoids_its_trace(
    seed: int, edges: list[tuple[int, int]], hops: int, trace: int, known: list[int]
) -> None:
    letters = "ABCDEFGH"
    links = {
        name: "".join(
            dict.fromkeys(
                letters[two if one == index else one]
                for one, two in edges
                if one != two and index in (one, two)
            )
        )
        for index, name in enumerate(letters)
    }
    world, nodes = woods(links, seed, hops=hops, trace=trace)
    for index in known:
        nodes[letters[index]][2].learn(point("x", "h"))
    member, crawl, _ = nodes["A"]
    crawl.walk(["x"])
    world.run(10.0)
    path = [(to, message) for _, to, message in world.sent if isinstance(message, Walk)]
    assert len(member.of(WalkFound)) + len(member.of(WalkFailed)) == 1
    assert not member.timers
    bound, limit = hops, hops // 2
    while limit >= 1:  # each recovery is a step of its own and then half as many
        bound, limit = bound + 1 + limit, limit // 2
    assert len(path) <= bound
    for (_, last), (to, walk) in pairwise([("A", None), *path]):  # type: ignore[list-item]
        assert len(walk.trace) <= trace
        recovered = walk.left == walk.limit
        if not recovered:
            assert to not in [each.id for each in walk.trace]
        if last is not None:
            assert walk.limit == (last.limit // 2 if recovered else last.limit)
