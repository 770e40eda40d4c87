"""C9: conjunctions are true where the predicate is; constraints cover; pivots reject NULL."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from matching import (
    BOTTOM,
    EVERYTHING,
    NUMBERS,
    STRINGS,
    TOP,
    Conjunction,
    Interval,
    Predicate,
    compile_selector,
)
from matching.selector.expression import Expression
from matching.selector.unparse import quote_value
from tests.matching.matching_strategies import PATIENT, events, typed, wild, wild_events

Event = dict[str, Any]


def check(predicate: Predicate, event: Event) -> None:
    conjunctions = predicate.conjunctions
    matching = [c for c in conjunctions if c.matches(event)]
    assert bool(matching) == predicate.matches(event)
    for conjunction in conjunctions:
        parts = [Predicate.of(c).matches(event) for c in conjunction.constraints.values()]
        residual = conjunction.residual
        if residual is not None:
            parts.append(Predicate(residual).matches(event))
        assert all(parts) == (conjunction in matching)
        for name, constraint in conjunction.constraints.items():
            assert Predicate.of(constraint).attributes == (name,)
            inside = any(i.contains(event.get(name)) for i in constraint.intervals)
            if Predicate.of(constraint).matches(event):
                assert inside
                assert constraint.hull.contains(event.get(name))
            elif constraint.exact:
                assert not inside
        for name, interval in conjunction.pivots():
            if conjunction in matching:
                assert interval.contains(event.get(name))
            assert not conjunction.matches({**event, name: None})


@settings(PATIENT, max_examples=150)
@given(tree=typed, event=events)
def test_conjunctions_of_typed_selectors(tree: Expression, event: Event) -> None:
    check(Predicate(tree), event)


@settings(PATIENT, max_examples=150)
@given(tree=wild, event=wild_events)
def test_conjunctions_of_mixed_types(tree: Expression, event: Event) -> None:
    check(Predicate(tree), event)


@settings(PATIENT, max_examples=100)
@given(tree=wild)
def test_a_conjunction_travels_as_text(tree: Expression) -> None:
    for conjunction in Predicate(tree).conjunctions:
        again = compile_selector(conjunction.text)
        assert again == Predicate.of(conjunction)
        assert again.conjunctions == (conjunction,)
        assert [c.pivots() for c in again.conjunctions] == [conjunction.pivots()]


def only(text: str) -> Conjunction:
    (conjunction,) = compile_selector(text).conjunctions
    return conjunction


def intervals(text: str) -> tuple[Interval, ...]:
    return only(text).constraints["x"].intervals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 5", (((1, 5, 0), (1, 5, 1)),)),
        ("5 < x", (((1, 5, 1), STRINGS),)),
        ("x <= 2 + 3", ((NUMBERS, (1, 5, 1)),)),
        ("x <> 5", ((NUMBERS, (1, 5, 0)), ((1, 5, 1), STRINGS))),
        ("NOT x >= 'm'", ((STRINGS, (2, "m", 0)),)),
        ("x BETWEEN 1 AND 3", (((1, 1, 0), (1, 3, 1)),)),
        ("x NOT BETWEEN 1 AND 3", ((NUMBERS, (1, 1, 0)), ((1, 3, 1), STRINGS))),
        ("x > 1 AND x < 3 AND x <> 2", (((1, 1, 1), (1, 2, 0)), ((1, 2, 1), (1, 3, 0)))),
        ("x IN (2, 1, 2)", (((1, 1, 0), (1, 1, 1)), ((1, 2, 0), (1, 2, 1)))),
        ("x NOT IN ('a')", ((STRINGS, (2, "a", 0)), ((2, "a", 1), TOP))),
        ("x", (((0, True, 0), (0, True, 1)),)),
        ("x <> FALSE", (((0, True, 0), (0, True, 1)),)),
        ("x >= FALSE", ((BOTTOM, NUMBERS),)),
        ("x LIKE 'ab%'", (((2, "ab", 0), (2, "ac", 0)),)),
        ("x LIKE 'ab'", (((2, "ab", 0), (2, "ab", 1)),)),
        ("x LIKE 'a_%'", (((2, "a", 0), (2, "b", 0)),)),
        ("x LIKE '%b'", ((STRINGS, TOP),)),
        ("x NOT LIKE 'b%'", ((STRINGS, (2, "b", 0)), ((2, "c", 0), TOP))),
        ("x NOT LIKE '%b'", ((STRINGS, TOP),)),
        ("x IS NOT NULL", ((BOTTOM, TOP),)),
        ("x > 9007199254740993", (((1, 9007199254740993, 1), STRINGS),)),
    ],
)
def test_intervals_of_single_constraints(text: str, expected: Any) -> None:
    assert tuple((i.lo, i.hi) for i in intervals(text)) == expected


@pytest.mark.parametrize(
    ("text", "exact"),
    [("x LIKE 'ab%'", True), ("x LIKE 'a_'", False), ("x LIKE '%'", True), ("x <> 3", True)],
)
def test_exactness_is_known(text: str, exact: bool) -> None:
    assert only(text).constraints["x"].exact is exact


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("values", [(0, 1, 1.5, "1"), ("", "k", "k\0", 1), (False, True, 1, "k")])
def test_comparisons_at_their_bound(op: str, values: tuple[Any, ...]) -> None:
    """Each operator, plain, negated and mirrored, around the bound and beside its type."""
    bound = values[1]
    written = quote_value(bound)
    for text in (f"x {op} {written}", f"NOT x {op} {written}", f"{written} {op} x"):
        for value in (*values, None):
            check(compile_selector(text), {"x": value})


def test_inexact_stays_inexact_when_merged() -> None:
    conjunction = only("x LIKE 'a_' AND x <> 'ab'")
    assert not conjunction.constraints["x"].exact
    check(compile_selector("x LIKE 'a_' AND x <> 'ab'"), {"x": "abc"})


@pytest.mark.parametrize(
    "text",
    [
        "x = 'a' AND x = 'b'",
        "x > 3 AND x < 3",
        "x = 1 AND x = '1'",
        "x NOT IN (1, 'a')",
        "x BETWEEN 3 AND 1",
        "x = 1 / 0",
        "FALSE",
        "1 = 2 AND x",
        "'a' = 1",
        "x < FALSE",
        "(x = 1 OR x = 2) AND x > 2",
        "x LIKE 'a' AND x > 'b'",
        "x LIKE 'a!' ESCAPE '!'",
    ],
)
def test_what_can_never_be_true_has_no_conjunction(text: str) -> None:
    assert compile_selector(text).conjunctions == ()


def test_three_valued_laws_only() -> None:
    # x OR NOT x is unknown without x: it must stay two conjunctions, each of which needs x.
    predicate = compile_selector("x = 1 OR NOT x = 1")
    assert [c.pivots()[0][0] for c in predicate.conjunctions] == ["x", "x"]
    assert not predicate.matches({})


def test_a_constant_part_decides() -> None:
    assert only("TRUE OR x = 1").pivots() == ()
    assert only("TRUE OR x = 1").matches({})
    assert only("x = 1 AND 1 < 2").text == "x = 1"


def test_equal_conjunctions_are_one() -> None:
    assert len(compile_selector("x = 1 OR x = 1 OR (x = 1 AND x = 1)").conjunctions) == 1
    # ... but TRUE is not 1, and 1 is not 1.0 to a division.
    assert len(compile_selector("x = 1 OR x = TRUE").conjunctions) == 2
    assert len(compile_selector("y / 2 = 1 OR y / 2.0 = 1").conjunctions) == 2


def test_pivots_come_most_selective_first() -> None:
    conjunction = only(
        "f IS NOT NULL AND e <> 3 AND d > 3 AND c LIKE 'a%' AND b IN (1, 2) AND a = 1 AND b2"
        " AND g + 1 > h"
    )
    assert [name for name, _ in conjunction.pivots()] == [
        "a",
        "b",
        "c",
        "b2",
        "d",
        "e",
        "f",
        "g",
        "h",
    ]
    assert dict(conjunction.pivots())["b"] == Interval((1, 1, 0), (1, 2, 1))
    assert dict(conjunction.pivots())["g"] == EVERYTHING
    assert conjunction.residual_attributes == ("g", "h")


def test_is_null_is_no_pivot() -> None:
    assert only("x IS NULL").pivots() == ()
    assert only("x IS NULL AND y + 1 IS NULL").residual_attributes == ()
    assert only("x + y IS NOT NULL").residual_attributes == ("x", "y")


def test_between_attributes_is_split_where_that_helps() -> None:
    assert only("5 BETWEEN low AND high").constraints.keys() == {"low", "high"}
    assert only("x BETWEEN 1 AND y").constraints.keys() == {"x"}
    assert len(compile_selector("x NOT BETWEEN y AND z").conjunctions) == 2


def test_integers_beyond_64_bits_stay_out_of_intervals() -> None:
    conjunction = only("x < 9223372036854775807 * 2")
    assert conjunction.pivots() == (("x", EVERYTHING),)
    assert conjunction.matches({"x": 1.2e19})
    assert not conjunction.matches({"x": 2e19})


def test_many_constraints_on_one_attribute_are_one() -> None:
    few = only("x > 1 AND x <> 3 AND x < 5 AND x IS NOT NULL")
    assert [n for n in range(7) if few.matches({"x": n})] == [2, 4]
    assert not few.matches({"x": "2"})
    assert not few.matches({"x": None})
    conjunction = only(" AND ".join(f"x <> {n}" for n in range(800)))
    assert len(conjunction.constraints["x"].intervals) == 801
