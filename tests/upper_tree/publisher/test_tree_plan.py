"""A plan for a batch leads every event where a single look would, or there is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from matching import BOTTOM, TOP, Interval, compile_selector, place
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.messages import EVENT_TREE, Location, TreeSummary
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.routing_plan import BatchPlan, RoutingPlans, plan_routing
from overlay.upper_tree.publisher.summary_cache import CHECKS_LEAST, USELESS_FOR
from tests.support.summaries import summarise
from tests.support.trees import event
from tests.support.world import peer

BOUNDS = [BOTTOM, *(place(n) for n in range(0, 60, 10)), TOP]
NOW = 100.0

steps = st.lists(
    st.one_of(
        st.tuples(st.just("learn"), st.integers(0, 5), st.integers(1, 3), st.sampled_from("abc")),
        st.tuples(st.just("enter"), st.just(0), st.just(0), st.sampled_from("abc")),
        st.tuples(st.just("forget"), st.just(0), st.just(0), st.sampled_from("abc")),
    ),
    max_size=12,
)


@given(steps, st.integers(-5, 70))
def test_what_a_plan_says_is_what_host_for_says(
    steps: list[tuple[str, int, int, str]], value: int
) -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    for version, (step, low, width, name) in enumerate(steps):
        if step == "learn":
            where = Interval(BOUNDS[low], BOUNDS[min(low + width, len(BOUNDS) - 1)])
            known.learn(Location("x", (1, version), where, (peer(name),)))
        elif step == "enter":
            known.learn_entry("x", peer(name))
        else:
            known.forget_node(name)
    right = known.host_for("x", place(value))
    found = plan_routing(["x"], known, "a", NOW)
    if right is None:
        assert found is None
        return
    assert found is not None
    if found.spread:
        ((name, tree, _),) = found.spread
        assert (name, tree.host_for(place(value))) == ("x", right)
    else:
        assert found.fixed == {right.id: (right, ("x",))}


@given(st.lists(st.sets(st.sampled_from("bcdef"), min_size=1), min_size=1, max_size=4))
def test_trees_that_are_visited_together_are_visited_at_a_common_host(
    replicas: list[set[str]],
) -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    names = [f"x{number}" for number in range(len(replicas))]
    for name, hosts in zip(names, replicas, strict=True):
        peers = tuple(map(peer, sorted(hosts)))
        known.learn(Location(name, (1, 1), Interval(BOTTOM, TOP), peers))
    plans = [plan_routing([name], known, "a", NOW) for name in names]
    single = {host for one in plans if one is not None for host in one.fixed}
    found = plan_routing(names, known, "a", NOW)
    assert found is not None
    visited = [(name, host) for host, (_, trees) in found.fixed.items() for name in trees]
    assert sorted(name for name, _ in visited) == names
    assert all(host in replicas[names.index(name)] for name, host in visited)
    assert len(found.fixed) <= len(single)
    if set.intersection(*replicas):
        assert len(found.fixed) == 1


def test_a_tree_stays_at_its_own_host_while_work_waits_at_the_common_one() -> None:
    selector = ReplicaSelector("me", 3.0)
    known = LocationCache(100, selector)
    for name, hosts in (("x", "bc"), ("y", "b")):
        peers = tuple(map(peer, hosts))
        known.learn(Location(name, (1, 1), Interval(BOTTOM, TOP), peers))
    selector.accepted("b", 0.1, NOW, HostLoad(1_000.0, 100.0, 500))
    selector.expire(NOW)
    found = plan_routing(["x", "y"], known, "a", NOW)
    assert found is not None
    assert {host: trees for host, (_, trees) in found.fixed.items()} == {"b": ("y",), "c": ("x",)}


def test_a_tree_of_one_other_host_is_planned_while_its_summary_is_asked_for() -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    known.learn(Location("x", (1, 1), Interval(BOTTOM, TOP), (peer("b"),)))
    for unknown in (["x"], []):
        found = plan_routing(["x"], known, "a", NOW)
        assert found is not None
        assert found.fixed == {"b": (peer("b"), ("x",))}
        assert list(found.unknown) == unknown
        assert known.summaries.claim_refresh("x", NOW) == bool(unknown)


def test_trees_without_subscribers_are_left_out_and_unknown_ones_are_not_planned() -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    known.learn(Location("x", (1, 1), Interval(BOTTOM, TOP), (peer("a"),)))
    assert plan_routing(["x", "y"], known, "a", NOW) is None
    known.learn_absent("y", NOW + 5, 1, NOW)
    found = plan_routing(["x", "y"], known, "a", NOW)
    assert found is not None
    assert found.fixed == {"a": (peer("a"), ("x",))}
    assert plan_routing(["x", "y"], known, "a", NOW + 6) is None, "its term is over"


def at(known: LocationCache, attribute: str, host: str, selector: str = "") -> None:
    """A tree that one host serves, with a summary of one selector."""
    known.learn(Location(attribute, (1, 1), Interval(BOTTOM, TOP), (peer(host),)))
    known.summaries.claim_refresh(attribute, NOW)
    if selector:
        found = summarise(compile_selector(selector).conjunctions, 8)
        known.learn_summary(TreeSummary(attribute, 7, found), NOW + 10, 1, NOW)


def route_events(
    found: BatchPlan, *places: dict[str, int]
) -> list[tuple[list[str], tuple[str, ...], list[int]]]:
    """Per group: the hosts that are visited, the trees that are skipped, and which events."""
    events = [event(number, **values) for number, values in enumerate(places)]
    return [
        (list(way), skipped, [each.sequence for each in alike])
        for way, skipped, alike in found.route_events(events)
    ]


def test_a_host_is_skipped_only_if_none_of_its_trees_admits_the_event() -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    at(known, "x", "b", "x > 5")
    at(known, "y", "b", "y > 5")
    found = plan_routing(["x", "y"], known, "a", NOW)
    assert found is not None
    assert route_events(found, {"x": 1, "y": 9}, {"x": 1, "y": 1}, {"x": 9, "y": 1}) == [
        (["b"], (), [0, 2]),
        ([], ("x", "y"), [1]),
    ]
    ((way, _, _), _) = found.route_events([event(1, x=9, y=1), event(2, x=1, y=1)])
    assert way == {"b": (peer("b"), ("x", "y"))}


def test_summaries_are_not_consulted_for_a_while_where_hardly_an_event_skips_a_host() -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    at(known, "x", "b", "x > 5")
    at(known, "y", "b", "y > 5")
    for number in range(CHECKS_LEAST):
        found = plan_routing(["x", "y"], known, "a", NOW)
        assert found is not None
        assert [one.trees for one in found.skippable] == [("x", "y")]
        assert found.route_events([event(number, x=9 - number % 2 * 9, y=number % 2 * 9)])[0].route
    found = plan_routing(["x", "y"], known, "a", NOW)
    assert found is not None
    assert (found.skippable, found.spread, list(found.fixed)) == ([], [], ["b"])
    later = plan_routing(["x", "y"], known, "a", NOW + USELESS_FOR + 1)
    assert later is not None
    assert list(later.unknown) == ["x", "y"], "it is tried again"


def test_one_tree_without_a_summary_makes_the_others_at_its_host_not_worth_a_look() -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    at(known, "x", "b", "x > 5")
    at(known, "y", "b")
    at(known, "z", "c", "z > 5")
    found = plan_routing(["x", "y", "z"], known, "a", NOW)
    assert found is not None
    assert found.fixed == {"b": (peer("b"), ("x", "y"))}
    assert [one.trees for one in found.skippable] == [("z",)]


@given(st.integers(0, 9), st.integers(-5, 70), st.integers(0, 60))
def test_a_spread_tree_is_left_out_where_its_summary_says_no(
    bound: int, value: int, least: int
) -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    cut = place(bound * 5)
    known.learn(Location("x", (1, 1), Interval(BOTTOM, cut), (peer("b"),)))
    known.learn(Location("x", (1, 1), Interval(cut, TOP), (peer("c"),)))
    known.summaries.claim_refresh("x", NOW)
    found = summarise(compile_selector(f"x >= {least}").conjunctions, 8)
    known.learn_summary(TreeSummary("x", 7, found), NOW + 10, 1, NOW)
    planned = plan_routing(["x"], known, "a", NOW)
    assert planned is not None
    ((way, skipped, _),) = planned.route_events([event(1, x=value)])
    host = "b" if value < bound * 5 else "c"
    assert way == ({host: (peer(host), ("x",))} if value >= least else {})
    assert skipped == (() if value >= least else ("x",))


learnt = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "learn",
                "enter",
                "forget",
                "node",
                "tree",
                "absent",
                "invalidate",
                "summary",
                "suspect",
                "later",
                "clear",
            ]
        ),
        st.sampled_from(["x", EVENT_TREE]),
        st.sampled_from("bc"),
        st.integers(0, 6),
    ),
    max_size=25,
)


@given(learnt)
def test_a_plan_that_is_kept_is_the_one_that_would_be_made_now(
    steps: list[tuple[str, str, str, int]],
) -> None:
    replicas = ReplicaSelector("me", 3.0)
    known, now = LocationCache(3, replicas), NOW
    plans = RoutingPlans(known, "me")
    for version, (step, tree, host, amount) in enumerate([("absent", EVENT_TREE, "b", 6), *steps]):
        match step:
            case "learn":
                hosts = (peer(host), peer("d"))[: 1 + amount % 2]
                where = Interval(BOUNDS[amount], TOP) if amount > 4 else Interval(BOTTOM, TOP)
                known.learn(Location(tree, (1, version), where, hosts))
            case "enter":
                known.learn_entry(tree, peer(host))
            case "forget":
                known.forget(tree, host)
            case "node":
                known.forget_node(host)
            case "tree":
                known.forget_tree(tree)
            case "absent":
                known.learn_absent(tree, now + amount, version, now)
            case "invalidate":
                known.invalidate(tree, version, now + 1)
            case "summary":
                known.summaries.claim_refresh(tree, now)
                boxes = summarise(compile_selector(f"x > {amount}").conjunctions, 8)
                known.learn_summary(TreeSummary(tree, 7, boxes), now + 10, version, now)
            case "suspect":
                replicas.suspect_silent(host, now)
            case "later":
                now += amount / 4
                replicas.expire(now)
            case "clear":
                known.clear()
        right = plan_routing([EVENT_TREE, "x"], known, "me", now)
        kept = plans.get(("x",), now)
        assert (kept is None) == (right is None)
        if kept is not None and right is not None:
            assert kept[:3] == right[:3], "hosts, and by which summaries they may be skipped"


def test_a_plan_is_not_kept_beyond_the_term_of_what_it_rests_on() -> None:
    known = LocationCache(100, ReplicaSelector("me", 3.0))
    plans = RoutingPlans(known, "a")
    known.learn_absent(EVENT_TREE, NOW + 100, 1, NOW)
    at(known, "x", "b", "x > 5")
    known.learn_absent("y", NOW + 10, 1, NOW)
    for names, early, due in ((("x",), 7.9, 8.0), (("x", "y"), 6.9, 7.0)):
        before = plans.get(names, NOW + early)
        assert before is not None
        assert plans.get(names, NOW + early) is before
        assert (before.unknown, before.expiring) == ({}, {})
        after = plans.get(names, NOW + due)
        assert after is not None
        assert [*after.unknown, *after.expiring] == [names[-1]]
