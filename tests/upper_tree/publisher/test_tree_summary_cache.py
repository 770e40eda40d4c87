"""C9: which visits a publisher skips, and when it asks for summaries."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Predicate, compile_selector, place
from matching.selector.expression import Expression
from overlay.upper_tree.publisher.summary_cache import (
    CHECKS_LEAST,
    IDLE_MOST,
    SUMMARY_RETRY,
    CachedSummary,
    SummaryCache,
)
from overlay.upper_tree.summary import Summary
from tests.matching.matching_strategies import PATIENT, events, typed, wild, wild_events
from tests.support.summaries import summarise


def summary(*selectors: str) -> Summary:
    return summarise([c for s in selectors for c in compile_selector(s).conjunctions], 64)


def admits(cached: SummaryCache, now: float = 1.0, tree: str = "x", **event: int | str) -> bool:
    return not cached.may_skip(tree, {name: place(value) for name, value in event.items()}, now)


def test_what_the_summary_does_not_admit_is_skipped_until_its_term_ends() -> None:
    cached = SummaryCache(10)
    assert admits(cached, x=0)
    cached.learn("x", 7, summary("x > 5 AND y = 1"), until=10.0, now=0.0)
    assert admits(cached, x=6, y=1)
    assert not admits(cached, x=6)
    assert not admits(cached, 9.9, x=5, y=1)
    assert admits(cached, 10.0, x=5, y=1), "its term is over"


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    st.lists(st.dictionaries(st.sampled_from("xyz"), st.integers(-1, 10)), max_size=8),
)
def test_it_admits_what_the_summary_admits(
    bounds: list[tuple[int, int]], events: list[dict[str, int]]
) -> None:
    ranges = (f"x BETWEEN {lo} AND {lo + hi} AND y < {hi}" for lo, hi in bounds)
    found = summary(*ranges, "x >= 4 AND y = 9", "z = 3 AND x < 2")
    cached = SummaryCache(10)
    cached.learn("x", 7, found, until=10.0, now=0.0)
    for event in events:
        assert admits(cached, **event) == found.admits(event)


def test_a_recalled_summary_is_forgotten() -> None:
    cached = SummaryCache(10)
    cached.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    cached.invalidate("x")
    assert admits(cached, x=0)
    assert cached.digest("x") == 0
    cached.learn("x", 7, None, until=20.0, now=1.0)
    assert admits(cached, x=0), "the owner speaks of one that is not here any more"


def test_good_still_prolongs_the_term() -> None:
    cached = SummaryCache(10)
    cached.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    cached.learn("x", 7, None, until=20.0, now=8.0)
    assert not admits(cached, 15.0, x=0)
    cached.learn("x", 8, None, until=30.0, now=16.0)
    assert admits(cached, 25.0, x=0), "that was said of another one"


def test_the_owner_is_asked_once_and_again_before_the_term_ends() -> None:
    cached = SummaryCache(10)
    assert cached.claim_refresh("x", 0.0)
    assert not cached.claim_refresh("x", SUMMARY_RETRY - 0.1), "the answer is on its way"
    assert cached.claim_refresh("x", SUMMARY_RETRY), "or lost"
    cached.learn("x", 7, summary("x > 5"), until=12.5, now=2.5)
    assert not cached.claim_refresh("x", 10.0)
    assert cached.claim_refresh("x", 10.6)


def test_trees_that_were_used_lately_are_asked_for_together() -> None:
    cached = SummaryCache(10)
    for tree in "xyz":
        cached.learn(tree, 7, summary("x > 5"), until=10.0, now=0.0)
    admits(cached, 1.0, "y", x=1)
    asked: dict[str, int] = {"y": 0, "z": 0}
    for now in range(8, 8 * 20, 8):
        admits(cached, now, "x", x=1)
        assert cached.claim_refresh("x", now + 0.5)
        found = cached.claim_early(now + 0.5)
        assert cached.claim_early(now + 0.5) == [], "they are on their way"
        for tree in ["x", *found]:
            cached.learn(tree, 7, None, until=now + 10.5, now=now + 0.5)
        for tree in found:
            asked[tree] += 1
    assert asked == {"y": IDLE_MOST + 1, "z": IDLE_MOST}


def test_a_summary_that_is_over_is_not_asked_for_with_others() -> None:
    cached = SummaryCache(10)
    cached.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    assert cached.claim_early(9.9) == ["x"]
    cached.learn("y", 7, summary("x > 5"), until=10.0, now=0.0)
    assert cached.claim_early(10.0) == []


def test_a_summary_that_skips_nothing_is_not_checked_for_ever() -> None:
    cached = SummaryCache(10)
    cached.learn("x", 7, summary("x > 5"), until=10.0, now=0.0)
    for _ in range(CHECKS_LEAST):
        assert admits(cached, x=6)
    assert admits(cached, x=0), "not even looked at"
    assert not cached.claim_refresh("x", 11.0), "nor asked for"
    assert cached.claim_refresh("x", 100.0)
    cached.learn("x", 8, summary("x > 5"), until=110.0, now=100.0)
    assert not admits(cached, 101.0, x=0)


def test_trees_are_bounded() -> None:
    cached = SummaryCache(2)
    for tree in "xyz":
        cached.learn(tree, 7, summary("x > 5"), until=10.0, now=0.0)
    assert [cached.digest(tree) for tree in "xyz"] == [0, 7, 7]


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
    cached = CachedSummary()
    cached.replace(summary, 1)
    for event in seen:
        places = {name: place(value) for name, value in event.items() if value is not None}
        assert cached.admits(places) == summary.admits(event)
