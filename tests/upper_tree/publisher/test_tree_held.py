"""C9: which visits a publisher skips, and when it asks for summaries."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Predicate, compile_selector, place
from matching.selector.expression import Expression
from overlay.upper_tree.publisher.summary_cache import (
    IDLE_MOST,
    PAUSE,
    TRIED,
    CachedSummary,
    SummaryCache,
)
from overlay.upper_tree.summary import Summary, summarise
from tests.matching.matching_strategies import PATIENT, events, typed, wild, wild_events


def summary(*selectors: str) -> Summary:
    return summarise([c for s in selectors for c in compile_selector(s).conjunctions], 64)


def admits(held: SummaryCache, now: float = 1.0, tree: str = "x", **event: int | str) -> bool:
    return held.admits(tree, {name: place(value) for name, value in event.items()}, now)


def test_what_the_summary_does_not_admit_is_skipped_until_its_term_ends() -> None:
    held = SummaryCache(10)
    assert admits(held, x=0)
    held.learn("x", 7, summary("x > 5 AND y = 1"), until=10.0, now=0.0)
    assert admits(held, x=6, y=1)
    assert not admits(held, x=6)
    assert not admits(held, 9.9, x=5, y=1)
    assert admits(held, 10.0, x=5, y=1), "its term is over"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    st.dictionaries(st.sampled_from("xyz"), st.integers(-1, 10)),
)
def test_it_admits_what_the_summary_admits(
    bounds: list[tuple[int, int]], event: dict[str, int]
) -> None:
    found = summary(*(f"x >= {lo} AND y < {hi}" for lo, hi in bounds), "z = 3 AND x < 2")
    held = SummaryCache(10)
    held.learn("x", 7, found, until=10.0, now=0.0)
    assert admits(held, **event) == found.admits(event)


def test_a_recalled_summary_is_forgotten() -> None:
    held = SummaryCache(10)
    held.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    held.recall("x")
    assert admits(held, x=0)
    assert held.digest("x") == 0
    held.learn("x", 7, None, until=20.0, now=1.0)
    assert admits(held, x=0), "the owner speaks of one that is not here any more"


def test_good_still_prolongs_the_term() -> None:
    held = SummaryCache(10)
    held.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    held.learn("x", 7, None, until=20.0, now=8.0)
    assert not admits(held, 15.0, x=0)
    held.learn("x", 8, None, until=30.0, now=16.0)
    assert admits(held, 25.0, x=0), "that was said of another one"


def test_the_owner_is_asked_once_and_again_before_the_term_ends() -> None:
    held = SummaryCache(10)
    assert held.is_due("x", 0.0)
    assert not held.is_due("x", PAUSE - 0.1), "the answer is on its way"
    assert held.is_due("x", PAUSE), "or lost"
    held.learn("x", 7, summary("x > 5"), until=12.5, now=2.5)
    assert not held.is_due("x", 10.0)
    assert held.is_due("x", 10.6)


def test_trees_that_were_used_lately_are_asked_for_together() -> None:
    held = SummaryCache(10)
    for tree in "xyz":
        held.learn(tree, 7, summary("x > 5"), until=10.0, now=0.0)
    admits(held, 1.0, "y", x=1)
    asked: dict[str, int] = {"y": 0, "z": 0}
    for now in range(8, 8 * 20, 8):
        admits(held, now, "x", x=1)
        assert held.is_due("x", now + 0.5)
        found = held.soon(now + 0.5)
        assert held.soon(now + 0.5) == [], "they are on their way"
        for tree in ["x", *found]:
            held.learn(tree, 7, None, until=now + 10.5, now=now + 0.5)
        for tree in found:
            asked[tree] += 1
    assert asked == {"y": IDLE_MOST + 1, "z": IDLE_MOST}


def test_a_summary_that_is_over_is_not_asked_for_with_others() -> None:
    held = SummaryCache(10)
    held.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    assert held.soon(9.9) == ["x"]
    held.learn("y", 7, summary("x > 5"), until=10.0, now=0.0)
    assert held.soon(10.0) == []


def test_a_summary_that_skips_nothing_is_not_checked_for_ever() -> None:
    held = SummaryCache(10)
    held.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    for _ in range(TRIED):
        assert admits(held, x=6)
    assert admits(held, x=0), "not even looked at"
    assert not held.is_due("x", 11.0), "nor asked for"
    assert held.is_due("x", 100.0)
    held.learn("x", 8, summary("x > 5"), until=110.0, now=100.0)
    assert not admits(held, 101.0, x=0)


def test_trees_are_bounded() -> None:
    held = SummaryCache(2)
    for tree in "xyz":
        held.learn(tree, 7, summary("x > 5"), until=10.0, now=0.0)
    assert [held.digest(tree) for tree in "xyz"] == [0, 7, 7]


@settings(PATIENT, max_examples=150)
@given(
    trees=st.lists(st.one_of(typed, wild), max_size=8),
    seen=st.lists(st.one_of(events, wild_events), min_size=1, max_size=8),
    most=st.integers(1, 12),
)
def test_what_is_held_admits_what_the_summary_admits(
    trees: list[Expression], seen: list[dict[str, Any]], most: int
) -> None:
    known = [one for tree in trees for one in Predicate(tree).conjunctions][:40]
    summary = summarise(known, most)
    held = CachedSummary()
    held.take(summary, 1)
    for event in seen:
        places = {name: place(value) for name, value in event.items() if value is not None}
        assert held.admits(places) == summary.admits(event)
