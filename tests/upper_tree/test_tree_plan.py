"""A plan for a batch leads every event where a single look would, or there is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from matching import BOTTOM, TOP, Interval, compile_selector, place
from overlay.upper_tree.locations import Locations
from overlay.upper_tree.messages import Location, TreeSummary
from overlay.upper_tree.plan import plan
from overlay.upper_tree.replicas import Replicas
from overlay.upper_tree.summary import summarise
from tests.support.tree_net import peer

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
    known = Locations(100, Replicas("me", 3.0))
    for version, (step, low, width, name) in enumerate(steps):
        if step == "learn":
            where = Interval(BOUNDS[low], BOUNDS[min(low + width, len(BOUNDS) - 1)])
            known.learn(Location("x", (1, version), where, (peer(name),)))
        elif step == "enter":
            known.learn_entry("x", peer(name))
        else:
            known.forget_node(name)
    right = known.host_for("x", place(value))
    found = plan(["x"], known, "a", NOW)
    if right is None:
        assert found is None
        return
    if found is None:  # a summary may have a word to say
        assert known.summaries.wants_asking("x", NOW)
        return
    if found.spread:
        ((name, tree, _),) = found.spread
        assert (name, tree.host_for(place(value))) == ("x", right)
    else:
        assert found.fixed == {right.id: (right, ("x",))}


def test_a_tree_of_one_other_host_is_planned_when_no_summary_can_say_more() -> None:
    known = Locations(100, Replicas("me", 3.0))
    known.learn(Location("x", (1, 1), Interval(BOTTOM, TOP), (peer("b"),)))
    assert plan(["x"], known, "a", NOW) is None, "its summary has not been asked for"
    assert known.summaries.is_due("x", NOW)
    found = plan(["x"], known, "a", NOW)
    assert found is not None
    assert found.fixed == {"b": (peer("b"), ("x",))}


def test_trees_without_subscribers_are_left_out_and_unknown_ones_are_not_planned() -> None:
    known = Locations(100, Replicas("me", 3.0))
    known.learn(Location("x", (1, 1), Interval(BOTTOM, TOP), (peer("a"),)))
    assert plan(["x", "y"], known, "a", NOW) is None
    known.absent("y", NOW + 5, 1, NOW)
    found = plan(["x", "y"], known, "a", NOW)
    assert found is not None
    assert found.fixed == {"a": (peer("a"), ("x",))}
    assert plan(["x", "y"], known, "a", NOW + 6) is None, "its term is over"


def at(known: Locations, attribute: str, host: str, selector: str = "") -> None:
    """A tree that one host serves, with a summary of one selector."""
    known.learn(Location(attribute, (1, 1), Interval(BOTTOM, TOP), (peer(host),)))
    known.summaries.is_due(attribute, NOW)
    if selector:
        found = summarise(compile_selector(selector).conjunctions, 8)
        known.learn_summary(TreeSummary(attribute, 7, found), NOW + 10, 1, NOW)


def test_a_host_is_skipped_only_if_none_of_its_trees_admits_the_event() -> None:
    known = Locations(100, Replicas("me", 3.0))
    at(known, "x", "b", "x > 5")
    at(known, "y", "b", "y > 5")
    found = plan(["x", "y"], known, "a", NOW)
    assert found is not None
    skipped: dict[str, None] = {}
    both = {"b": (peer("b"), ("x", "y"))}
    assert found.way({"x": place(1), "y": place(9)}, skipped) == both
    assert found.way({"x": place(9), "y": place(1)}, skipped) == both
    assert not skipped
    assert found.way({"x": place(1), "y": place(1)}, skipped) == {}
    assert list(skipped) == ["x", "y"]


def test_one_tree_without_a_summary_makes_the_others_at_its_host_not_worth_a_look() -> None:
    known = Locations(100, Replicas("me", 3.0))
    at(known, "x", "b", "x > 5")
    at(known, "y", "b")
    at(known, "z", "c", "z > 5")
    found = plan(["x", "y", "z"], known, "a", NOW)
    assert found is not None
    assert found.fixed == {"b": (peer("b"), ("x", "y"))}
    assert [one.trees for one in found.admitting] == [("z",)]


@given(st.integers(0, 9), st.integers(-5, 70), st.integers(0, 60))
def test_a_spread_tree_is_left_out_where_its_summary_says_no(
    bound: int, value: int, least: int
) -> None:
    known = Locations(100, Replicas("me", 3.0))
    cut = place(bound * 5)
    known.learn(Location("x", (1, 1), Interval(BOTTOM, cut), (peer("b"),)))
    known.learn(Location("x", (1, 1), Interval(cut, TOP), (peer("c"),)))
    known.summaries.is_due("x", NOW)
    found = summarise(compile_selector(f"x >= {least}").conjunctions, 8)
    known.learn_summary(TreeSummary("x", 7, found), NOW + 10, 1, NOW)
    planned = plan(["x"], known, "a", NOW)
    assert planned is not None
    skipped: dict[str, None] = {}
    way = planned.way({"x": place(value)}, skipped)
    host = "b" if value < bound * 5 else "c"
    assert way == ({host: (peer(host), ("x",))} if value >= least else {})
    assert list(skipped) == ([] if value >= least else ["x"])
