"""A text that is parsed by its shape has the tree that the parser makes, whatever was parsed
before; plain ANDs have the conjunction that the whole normal form makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from matching import Predicate, SelectorError, compile_selector
from matching import predicate as predicate_module
from matching.conjunction import Conjunction
from matching.normal_form import negation_normal_form, plain_products, products
from matching.selector import parser, shapes
from matching.selector.expression import Expression, tree
from matching.selector.unparse import unparse
from tests.matching.matching_strategies import PATIENT, texts, typed, wild
from tests.matching.test_matching_parse import FRAGMENTS

numerals = st.one_of(
    st.integers(0, 10**20).map(str),
    st.floats(0, allow_infinity=False, allow_nan=False).map(repr),
    st.sampled_from([".5", "2.", "1e9", "1e999", "007", "9223372036854775808", "1" * 18]),
)
quoted = st.text(alphabet="ab%_\\'é\x02\U0001f333", max_size=4).map(
    lambda value: "'" + value.replace("'", "''") + "'"
)


def other_constants(draw: Callable[[Any], Any], text: str) -> str:
    """A text of the same shape."""
    pieces = shapes._CONSTANT.split(text)
    for at in range(1, len(pieces), 2):
        if pieces[at][0] != '"':
            pieces[at] = draw(quoted if pieces[at][0] == "'" else numerals)
    return "".join(pieces)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    text = draw(st.one_of(wild.map(unparse), texts()))
    return text, other_constants(draw, text)


def outcome(parse: object, text: str) -> object:
    try:
        return parse(text)  # type: ignore[operator]
    except SelectorError as error:
        return error.message, error.text, error.position


@settings(PATIENT, max_examples=200)
@given(pairs())
@example(("x < -1", "x < -9223372036854775808"))
@example(("x < -(1)", "x < -(9223372036854775808)"))
@example(("x = 1", "x = 1e999"))
@example(("s LIKE 'a%' ESCAPE 'b'", "s LIKE 'a%' ESCAPE 'bc'"))
@example(("x1.2 = 'it''s' AND \"a'1\" IN (1, 'b', -2.5)", "x1.2 = '' AND \"a'1\" IN (7, '', -0)"))
def test_texts_of_one_shape_have_their_own_trees(pair: tuple[str, str]) -> None:
    for text in pair:
        assert outcome(shapes.parse, text) == outcome(parser.parse, text)


@settings(PATIENT, max_examples=200)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=9), st.sampled_from(["", " "]))
@example(["x", "=", "1", "'", "a", "'", "2"], "")
@example(["'", "1", "'", "'", "=", "x"], "")
@example(["x", "=", "1", "AND", "y"], "")
@example(["x", "AND", "y", "BETWEEN", "1", "AND", "2", "AND", "z"], " ")
@example(["(", "x", "AND", "y", ")", "AND", "z"], " ")
@example(["x", "AND", "y", "OR", "z"], " ")
@example(["NOT", "x", "AND", "NOT", "NOT", "y"], " ")
@example(["AND", "x"], " ")
@example(["x", "AND"], " ")
def test_odd_texts_are_taken_and_refused_as_by_the_parser(words: list[str], space: str) -> None:
    text = space.join(words)
    assert outcome(shapes.parse, text) == outcome(parser.parse, text)


@settings(PATIENT, max_examples=100)
@given(st.data(), st.lists(wild.map(unparse), min_size=2, max_size=5))
def test_terms_that_were_seen_in_other_texts_have_their_own_trees(
    data: st.DataObject, terms: list[str]
) -> None:
    for some in (terms, terms[::-1]):
        text = " and ".join(other_constants(data.draw, term) for term in some)
        assert outcome(shapes.parse, text) == outcome(parser.parse, text)


@settings(PATIENT, max_examples=100)
@given(st.data(), st.one_of(texts(), st.lists(texts(), min_size=2, max_size=4).map(" AND ".join)))
@example(None, "x BETWEEN 1 AND 2 AND s = 'a' AND y <> 0.5 AND s2 LIKE 'a%'")
@example(None, "s < '' AND x = 1")
@example(None, "x BETWEEN 2 AND 1.5 AND y = 1")
@example(None, "x BETWEEN 1 AND 'a' AND y = 1")
@example(None, "x = 1 AND x = 1.0")
@example(None, "x = 1 AND y = 1.0 AND z = 1e0")
@example(None, "x >= 1 AND y = 1 AND x < 5 AND x <> 3")
@example(None, "x > 1 AND x > 1 AND x < 9 AND x < 9.0")
@example(None, "x > 5 AND x < 1 AND y = 1")
@example(None, "\"a b\" = 'it''s' AND x >= 007")
@example(None, "x = -5 AND y > 1")
@example(None, "(x = 5) AND y > 1")
def test_what_is_compiled_by_its_shape_is_what_its_tree_says(
    data: st.DataObject | None, text: str
) -> None:
    """A plain conjunction has no tree until it is asked for one: its constraints, intervals,
    pivots, attributes and JSON text are those of the tree."""
    for some in (text, text if data is None else other_constants(data.draw, text)):
        try:
            right = Predicate(parser.parse(some), some)
            conjunctions = right.conjunctions
        except SelectorError:
            continue
        predicate_module._cached.clear()
        found = compile_selector(some)
        assert json.loads(found.tree_text()) == right.tree()
        assert [one.pivots() for one in found.conjunctions] == [
            one.pivots() for one in conjunctions
        ]
        for mine, other in zip(found.conjunctions, conjunctions, strict=True):
            assert list(mine.constraints) == list(other.constraints)
            for name, constraint in mine.constraints.items():
                assert constraint.intervals == other.constraints[name].intervals
                assert constraint.exact == other.constraints[name].exact
                assert constraint.tree() == tree(constraint.expression)
                assert constraint == other.constraints[name]
        assert (found, found.attributes) == (right, right.attributes)


@settings(PATIENT, max_examples=150)
@given(st.one_of(typed, wild))
def test_a_plain_conjunction_is_that_of_the_normal_form(tree: Expression) -> None:
    found = plain_products(tree)
    if found is not None:
        check_products(tree)


def check_products(tree: Expression) -> None:
    plain = [Conjunction(*one) for one in plain_products(tree) or ()]
    whole = [Conjunction(*one) for one in products(negation_normal_form(tree))]
    assert plain == whole
    assert [one.pivots() for one in plain] == [one.pivots() for one in whole]
    for mine, other in zip(plain, whole, strict=True):
        assert mine.constraints == other.constraints
        assert list(mine.constraints) == list(other.constraints)
        for name, constraint in mine.constraints.items():
            assert constraint.intervals == other.constraints[name].intervals
            assert constraint.exact == other.constraints[name].exact


CASES = [
    "x > 1 AND x < 5 AND y = 'a'",
    "x > 1 AND x > 1 AND x <> 3",
    "x > 5 AND x < 1 AND y",
    "y = 2 AND x BETWEEN 3 AND 1",
    "b AND x IN (1, 2, 3) AND s LIKE 'a%' AND x >= 2",
]


def test_constraints_of_one_attribute_are_joined_as_in_the_normal_form() -> None:
    for text in CASES:
        tree = parser.parse(text)
        assert plain_products(tree) is not None
        check_products(tree)


def test_shapes_are_shared_and_kept_within_a_bound() -> None:
    before = shapes._plan_of.cache_info().misses
    for n in range(100):
        assert compile_selector(f"shared = {n} AND other > {n / 8} AND name = 'n{n}'").text
    assert shapes._plan_of.cache_info().misses == before + 1
    for n in range(shapes.SHAPES + 1):
        shapes.parse(f"x{n} = 1")
    assert shapes._maker_of.cache_info().currsize == shapes.SHAPES


def test_constants_of_equal_value_and_another_type_have_constraints_of_their_own() -> None:
    for text, value in (("n = 1", 1), ("n = 1.0", 1.0), ("n = 1", 1)):
        _, (_, _, _, (_, found)), _ = json.loads(compile_selector(f"{text} AND m < 2").tree_text())
        assert type(found) is type(value)
