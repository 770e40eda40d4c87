"""The analysis' own parser of selectors: the tree of a text is the product's, or it is noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canopy.traces.analysis.selection.text import TextError, is_tree_of, tree_of
from matching import compile_selector
from matching.selector.expression import SelectorError
from matching.selector.unparse import unparse
from tests.matching.matching_strategies import texts, typed, wild

TEXTS = (
    "a = -9223372036854775808 OR a = 9223372036854775808 OR a = - -9223372036854775808",
    "a IN (-9223372036854775808, +9223372036854775808, -0, -0.0, 1e6, '', TRUE, 'o''k')",
    "a = -(5) + +6 - -a * -(a / 2.) / .5e-3 AND -(-a) < - - -7",
    "(a AND (b AND c)) AND (d OR (e OR f)) OR (g OR h)",
    "NOT NOT a = 1 AND NOT (a OR b) AND a != 3",
    "a + 1 BETWEEN b * 2 AND c - 1 AND d NOT BETWEEN -1 AND 'z'",
    "a LIKE '%!_''' ESCAPE '!' OR a NOT LIKE '' oR a nOt In (1) AnD a is NOT null",
    '"mag.type" = \'mw\' AND "a""b\'c" IS NULL AND disk.0.used$x > 1 AND größe = 1 AND \u0131.and',
    "true and\t(\nfalse)\u3000or\u00a0((a))",
    "a = 00000000000000000000000000000000001 OR a = 12345678901234567890123 OR a = 007.50",
    "(" * 128 + "a" + ")" * 128,
    "NOT " * 127 + "a",
    "a = " + "- " * 120 + "b",
    "a OR b AND NOT (" * 42 + "a" + ")" * 42,
    "a = " + "1 + (" * 120 + "b" + ")" * 120,
    " OR ".join(f"a = {number}" for number in range(1000)),
)
NO_SELECTORS = ("", "a >", "a > 5 < 6", "a ~ 5", "(a", "a)", "a NOT 5", "a IN ()", "a LIKE b", "'a")


@pytest.mark.parametrize("text", TEXTS)
def test_the_tree_of_a_text_is_the_products(text: str) -> None:
    assert is_tree_of(text, json.dumps(compile_selector(text).tree()))


@given(texts())
def test_the_tree_of_a_random_text_is_the_products(text: str) -> None:
    assert is_tree_of(text, json.dumps(compile_selector(text).tree()))


@given(st.one_of(typed, wild))
def test_the_tree_of_a_text_made_from_a_random_tree_is_the_products(made: Any) -> None:
    text = unparse(made)
    try:
        predicate = compile_selector(text)
    except SelectorError:  # of more conjunctions than are allowed
        return
    assert is_tree_of(text, json.dumps(predicate.tree()))


@pytest.mark.parametrize("text", NO_SELECTORS)
def test_what_is_no_selector_has_no_tree(text: str) -> None:
    with pytest.raises(TextError):
        tree_of(text)
    assert not is_tree_of(text, '["attr", "a"]')


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a = 1", "a = 1.0"),
        ("a = 1", "a = TRUE"),
        ("a = 0.0", "a = -0.0"),
        ("a = -0.0 AND b = 1", "a = 0.0 AND b = 1"),
        ("a BETWEEN -0.0 AND 1 AND b = 1", "a BETWEEN 0.0 AND 1 AND b = 1"),
        ("a = 9007199254740993", "a = 9007199254740992"),
        ("a > 5", "a >= 5"),
        ("a > 5", "A > 5"),
        ("a OR b AND c", "(a OR b) AND c"),
        ("NOT a AND b", "NOT (a AND b)"),
        ("a - b - c > 0", "a - (b - c) > 0"),
        ("a IN (1, 2)", "a IN (2, 1)"),
        ("a LIKE 'b%' ESCAPE '!'", "a LIKE 'b%'"),
        ("a BETWEEN 1 AND 2", "a BETWEEN 2 AND 1"),
        ("a IS NULL", "a IS NOT NULL"),
    ],
)
def test_the_tree_of_another_text_is_noticed(text: str, other: str) -> None:
    assert not is_tree_of(text, json.dumps(compile_selector(other).tree()))
    assert not is_tree_of(other, json.dumps(compile_selector(text).tree()))
