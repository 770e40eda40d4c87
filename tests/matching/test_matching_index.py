"""The index finds what brute force finds, after any additions, replacements and removals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Index, Interval, Predicate, attr, compile_selector, warm, warmup
from matching import index as index_module
from matching.plain_engine import MAX_ENTRIES, IntervalIndex
from matching.selector.expression import Expression
from tests.matching.matching_strategies import PATIENT, events, typed, wild, wild_events

Event = dict[str, Any]
keys = st.integers(0, 7)
steps = st.lists(st.tuples(keys, st.one_of(st.none(), typed, wild)), min_size=1, max_size=20)


@settings(PATIENT, max_examples=120)
@given(steps=steps, batch=st.lists(st.one_of(events, wild_events), min_size=1, max_size=4))
def test_index_is_brute_force_through_any_churn(
    steps: list[tuple[int, Expression | None]], batch: list[Event]
) -> None:
    index: Index[int] = Index()
    model: dict[int, Predicate] = {}
    for key, tree in steps:
        if tree is not None:
            predicate = Predicate(tree)
            index.add(key, predicate)
            model[key] = predicate
        elif key in model:
            index.remove(key)
            del model[key]
        else:
            with pytest.raises(KeyError):
                index.remove(key)
        assert len(index) == len(model)
        assert (key in index) == (key in model)
    # A dict keeps a replaced key in its place, and so does the index.
    expected = [[k for k, predicate in model.items() if predicate.matches(e)] for e in batch]
    assert [index.match(event) for event in batch] == expected


def test_many_of_every_kind_agree_with_brute_force() -> None:
    predicates = [
        *(attr("x") == n for n in range(200)),
        *(attr("x").between(n, n + n % 17) for n in range(300)),
        *(attr("x") > n for n in range(200)),
        *(attr("x") <= n / 2 for n in range(200)),
        *((attr("x") > n) & (attr("s") == str(n % 3)) for n in range(100)),
        *(attr("s").like(f"{n}%") for n in range(50)),
        *(attr("s").isin([str(n), n, bool(n % 2)]) for n in range(50)),
        attr("y").is_null(),
        attr("x") + attr("y") > 100,
    ]
    index: Index[int] = Index()
    for number, predicate in enumerate(predicates):
        index.add(number, predicate)
    for number in range(0, len(predicates), 3):
        index.remove(number)
    kept = [(n, p) for n, p in enumerate(predicates) if n % 3]
    batch: list[Event] = [
        {"x": 150},
        {"x": 7.5, "s": "1"},
        {"x": 300, "y": 1},
        {"x": "7", "s": 7},
        {"s": True},
    ]
    for event in batch:
        assert index.match(event) == [n for n, p in kept if p.matches(event)]
    for number, _ in kept:
        index.remove(number)
    assert len(index) == 0
    assert not index._plain_engine._tables  # nothing is left behind
    assert index.match({"x": 150}) == []


def test_a_key_appears_once_however_many_conjunctions_match() -> None:
    index: Index[str] = Index()
    index.add("a", compile_selector("x = 1 OR y = 1 OR z IS NULL"))
    assert index.match({"x": 1, "y": 1}) == ["a"]


def test_a_single_conjunction_can_be_registered() -> None:
    index: Index[tuple[str, int]] = Index()
    for number, conjunction in enumerate(compile_selector("x = 1 OR y = 1").conjunctions):
        index.add(("s", number), conjunction)
    assert index.match({"x": 0, "y": 1}) == [("s", 1)]


@pytest.mark.parametrize("value", [False, True, -(2**63), 0, 1e308, "", "\U0010ffff"])
def test_the_ends_of_the_space_are_found(value: Any) -> None:
    index: Index[str] = Index()
    index.add("there", attr("x").is_not_null())
    index.add("typed", attr("x") >= value)
    index.add("both", attr("x").between(value, value) & attr("x").is_not_null())
    assert index.match({"x": value}) == ["there", "typed", "both"]


def test_true_and_one_are_two_values() -> None:
    index: Index[str] = Index()
    index.add("one", attr("x") == 1)
    index.add("true", attr("x").isin([True]))
    assert index.match({"x": True}) == ["true"]
    assert index.match({"x": 1.0}) == ["one"]


def test_a_pivot_whose_intervals_are_not_exact_is_checked() -> None:
    index: Index[str] = Index()
    index.add("like", attr("s").like("a_c"))
    index.add("both", attr("s").like("a_c") & (attr("s") != "abc") & (attr("x") > 1))
    assert index.match({"s": "abd", "x": 2}) == []
    assert index.match({"s": "abc", "x": 2}) == ["like"]
    assert index.match({"s": "adc", "x": 2}) == ["like", "both"]


def test_a_predicate_that_can_never_be_true_is_registered_nevertheless() -> None:
    index: Index[str] = Index()
    index.add("never", compile_selector("x = 1 AND x = 2"))
    assert "never" in index
    assert index.match({"x": 1}) == []
    index.remove("never")
    assert len(index) == 0


@settings(PATIENT, max_examples=25)
@given(data=st.data())
def test_an_interval_index_finds_what_a_list_finds(data: st.DataObject) -> None:
    """More entries than a block has room for, so that blocks are split, emptied and skipped."""
    bounds = st.tuples(st.integers(0, 20), st.integers(1, 20))
    entries = data.draw(st.lists(bounds, min_size=MAX_ENTRIES, max_size=MAX_ENTRIES * 3))
    intervals: dict[int, Interval] = {}
    index: IntervalIndex[int] = IntervalIndex()
    for number, (lo, length) in enumerate(entries):
        intervals[number] = Interval((1, lo, 0), (1, lo + length, 0))
        index.add(intervals[number], number, number)
    for number in data.draw(st.lists(st.sampled_from(sorted(intervals)), unique=True)):
        index.remove(intervals.pop(number), number)
    for place in range(-1, 42):
        expected = [n for n, interval in intervals.items() if interval.contains(place)]
        assert sorted(index.containing((1, place, 0))) == expected
    with pytest.raises(KeyError):
        index.remove(Interval((1, 0, 0), (1, 1, 0)), -1)


def test_few_predicates_that_are_matched_often_move_to_the_block_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warm()
    monkeypatch.setattr(index_module, "START_COST", 10 * index_module.MIN_MOVED)
    few: Index[int] = Index()
    enough: Index[int] = Index()
    for number in range(index_module.MIN_MOVED):
        enough.add(number, compile_selector(f"x >= {number}"))
        if number:
            few.add(number, compile_selector(f"x >= {number}"))
    for _ in range(20):
        assert enough.match({"x": 3}) == [0, 1, 2, 3]
        assert few.match({"x": 3}) == [1, 2, 3]
    assert enough.block_engine
    assert not few.block_engine, "so few that the plain engine is as good"


def test_what_has_waited_for_the_block_engine_moves_within_some_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warm()
    monkeypatch.setattr(warmup._State, "warm", False)
    index: Index[int] = Index()
    for number in range(2000):
        index.add(number, compile_selector(f"x >= {number}"))
    assert index.match({"x": 3}) == [0, 1, 2, 3]
    assert not index.block_engine, "it is not there yet"
    monkeypatch.setattr(warmup._State, "warm", True)
    for _ in range(100):
        assert index.match({"x": 3}) == [0, 1, 2, 3]
    assert index.block_engine
    assert not index.has_plain
