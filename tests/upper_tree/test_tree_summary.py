"""C5, C9: a summary never hides an event from a conjunction, and stays within its bound."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Conjunction, Predicate, compile_selector
from matching.selector.expression import Expression
from overlay.upper_tree.summary import Summary, box_of
from tests.matching.matching_strategies import PATIENT, events, typed, wild, wild_events
from tests.support.summaries import summarise

Event = dict[str, Any]


def only(text: str) -> Conjunction:
    (conjunction,) = compile_selector(text).conjunctions
    return conjunction


def conjunctions_of(trees: list[Expression]) -> list[Conjunction]:
    return [one for tree in trees for one in Predicate(tree).conjunctions][:40]


def check(known: list[Conjunction], seen: list[Event], most: int) -> None:
    summary = summarise(known, most)
    assert len(summary.boxes) <= most
    assert all(summary.covers(box_of(conjunction)) for conjunction in known)
    for event in seen:
        if any(conjunction.matches(event) for conjunction in known):
            assert summary.admits(event)


trees = st.one_of(st.lists(typed, max_size=6), st.lists(wild, max_size=6))
bounds = st.integers(1, 6)


@settings(PATIENT, max_examples=150)
@given(
    trees=trees,
    seen=st.lists(st.one_of(events, wild_events), min_size=1, max_size=8),
    most=bounds,
)
def test_no_event_is_hidden(trees: list[Expression], seen: list[Event], most: int) -> None:
    check(conjunctions_of(trees), seen, most)


@settings(PATIENT, max_examples=100)
@given(trees=trees, probe=wild, event=wild_events, most=bounds)
def test_what_is_covered_is_admitted(
    trees: list[Expression], probe: Expression, event: Event, most: int
) -> None:
    summary = summarise(conjunctions_of(trees), most)
    for conjunction in Predicate(probe).conjunctions:
        if summary.covers(box_of(conjunction)) and conjunction.matches(event):
            assert summary.admits(event)


def test_what_sticks_out_of_every_box_is_not_covered() -> None:
    summary = summarise([only("x BETWEEN 1 AND 5 AND y = 2"), only("z = 1")], 4)
    assert summary.covers(box_of(only("x BETWEEN 2 AND 5 AND y = 2 AND w = 1")))
    for text in ("x BETWEEN 0 AND 5 AND y = 2", "x BETWEEN 1 AND 6 AND y = 2", "x = 3", "y = 2"):
        assert not summary.covers(box_of(only(text))), text


def test_the_empty_summary_is_an_absence() -> None:
    assert not Summary().admits({"x": 1})
    assert not Summary().covers(box_of(only("x = 1")))
    assert summarise([], 4) == Summary()


def test_a_conjunction_without_a_pivot_admits_everything() -> None:
    assert summarise([only("x IS NULL"), only("y = 1")], 8).admits({})


def test_missing_attributes_foreign_types_and_values_outside_are_not_admitted() -> None:
    summary = summarise([only("x > 1 AND y = 'a'"), only("x BETWEEN 5 AND 7 AND z < 3")], 2)
    assert summary.admits({"x": 2, "y": "a"})
    assert summary.admits({"x": 6, "z": 2})
    for event in ({"x": 2}, {"x": 2, "y": "b"}, {"x": 8, "z": 2}, {"x": "2", "y": "a"}, {"z": 2}):
        assert not summary.admits(event), event


def test_what_has_most_in_common_is_merged() -> None:
    likes = [only(f"a = {n} AND b = {n}") for n in (1, 2)]
    summary = summarise([*likes, only("c = 1 AND d = 1"), only("c = 9 AND d = 9 AND e = 1")], 3)
    assert not summary.admits({"a": 1, "d": 1})
    assert not summary.admits({})
    assert len(summary.boxes) == 3


def test_what_lies_in_another_takes_no_box() -> None:
    known = [only("a > 0"), *(only(f"a > {n} AND b = {n}") for n in range(1, 30))]
    assert len(summarise(known, 8).boxes) == 1


def test_it_does_not_depend_on_the_order() -> None:
    known = [only(f"a{n % 7} > {n} AND b{n % 5} < {n}") for n in range(60)]
    shuffled = list(known)
    Random(1).shuffle(shuffled)
    assert summarise(known, 8) == summarise(shuffled, 8)


def test_it_travels() -> None:
    summary = summarise([only("a > 0 AND s LIKE 'x%'"), only("b = TRUE"), only("c <> 1.5")], 8)
    packed = msgspec.msgpack.encode(summary)
    assert msgspec.msgpack.decode(packed, type=Summary) == summary


def test_more_boxes_skip_more_visits() -> None:
    rng = Random(2)
    kinds = [rng.sample("abcdefghijklmnop", 4) for _ in range(24)]
    known = [
        only(" AND ".join(f"{name} > {rng.randrange(50)}" for name in rng.choice(kinds)))
        for _ in range(120)
    ]
    seen = [dict.fromkeys(rng.choice(kinds), rng.randrange(100)) for _ in range(200)]
    seen += [dict.fromkeys(rng.sample("abcdefghijklmnop", 4), 60) for _ in range(200)]
    needed = [any(one.matches(event) for one in known) for event in seen]

    def wasted(boxes: int) -> int:
        summary = summarise(known, boxes)
        return sum(
            summary.admits(event) and not need for event, need in zip(seen, needed, strict=True)
        )

    assert wasted(1) > wasted(8) > wasted(32) > wasted(120) == 0
