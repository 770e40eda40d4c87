"""Whether a predicate is true is what its evaluation says, and takes no closures to say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Predicate, compile_selector
from matching.selector.expression import And, Expression
from matching.selector.truth import truth_of
from tests.matching.matching_strategies import PATIENT, events, typed, wild, wild_events


@settings(PATIENT, max_examples=300)
@given(
    trees=st.lists(st.one_of(typed, wild), min_size=1, max_size=4),
    some=st.lists(st.one_of(events, wild_events), min_size=1, max_size=4),
)
def test_it_is_true_where_its_evaluation_is(
    trees: list[Expression], some: list[dict[str, Any]]
) -> None:
    predicates = [*map(Predicate, trees), Predicate(And(tuple(trees)))]
    predicates += [compile_selector(predicate.text) for predicate in predicates]
    for predicate in predicates:
        for event in some:
            assert predicate.matches(event) is (predicate.evaluate(event) is True)


RANGES = ("a BETWEEN 1 AND 3", "a >= 1 AND a < 3", "a < 3 AND a >= 1", "a > 1 AND a <= 3")
RANGES += ("a >= 0 AND a >= 1 AND a <= 3", "a >= 1 AND a <> 2", "a >= '1' AND a < '3'", "a = TRUE")
RANGES += ("a > 1 AND a < 3", "a = 1 AND a < 3", "a > 3 AND a < 1", "a > 0", "a < 0", "a = '1'")
LARGE = [f"a {op} {2**53 + more}" for op in ("<", "<=", "=", ">", ">=") for more in (-1, 0, 1)]
EDGES = [end for at in (0.0, 1.0, 3.0) for end in (math.nextafter(at, -1), math.nextafter(at, 9))]
VALUES = (0, -0.0, 1, 1.0, 2, 3, 3.0, *EDGES, True, False, "1", "2", "3", None)
VALUES += (2**53 - 1, 2.0**53, 2**53, 2**53 + 1, -(2**53) - 1, 1e300, -math.inf)


@pytest.mark.parametrize("selector", [*RANGES, *LARGE, "a >= 1 AND a < 9007199254740993"])
def test_ends_of_ranges_and_kinds_of_values_are_told_apart(selector: str) -> None:
    predicate = compile_selector(selector)
    for value in VALUES:
        event = {"a": value}
        assert predicate.matches(event) is (predicate.evaluate(event) is True), value
    assert not predicate.matches({"b": 2})


@pytest.mark.parametrize(
    ("selector", "sizes"),
    [
        ("a BETWEEN 1 AND 2 AND b >= 0 AND b < 1", (6, 0, 0, 0)),
        ("a > 1 AND t = 'x' AND t LIKE 'x%' AND f = TRUE", (3, 4, 1, 0)),
        ("a = 1 OR b = 2", (0, 0, 0, 1)),
    ],
)
def test_comparisons_with_constants_need_no_closure(selector: str, sizes: tuple[int, ...]) -> None:
    assert tuple(map(len, truth_of(compile_selector(selector).expression))) == sizes
