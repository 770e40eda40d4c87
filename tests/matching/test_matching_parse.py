"""Text to tree and back: what is accepted, what is refused, where, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from matching import Predicate, SelectorError, compile_in_steps, compile_selector
from matching.predicate import CACHED_SELECTORS, _cached, built
from matching.selector.expression import MAX_DEPTH, MAX_TEXT, Expression
from matching.selector.parser import parse
from matching.selector.unparse import quote_name, unparse
from matching.values import is_utf8
from tests.matching.matching_strategies import PATIENT, wild

FRAGMENTS = [
    *("AND", "or", "NOT", "BETWEEN", "in", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "false"),
    *("(", ")", ",", "=", "<>", "!=", "<", "<=", ">=", "+", "-", "*", "/", "==", "&&", "!"),
    *(
        "mag",
        '"a b"',
        '"',
        "'x'",
        "'",
        "1",
        "2.5",
        ".5",
        "1e9",
        "1e999",
        "9" * 25,
        "12abc",
        "1.2.3",
    ),
    *("$e", '"$e"', '""', "“", "é", "\u0301", "\x00", "\ud800", "\n", ".", "a.b", ";", "x y"),
]


def refusal(text: str) -> SelectorError | None:
    try:
        parse(text)
    except SelectorError as error:
        return error
    return None


@settings(PATIENT, max_examples=500)
@given(
    st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join), st.text(max_size=40))
)
@example("' \n 'x'")
@example("x IN (")
@example("''")
def test_no_text_raises_anything_but_selector_error(text: str) -> None:
    error = refusal(text)
    if error is None:
        assert parse(unparse(parse(text))) == parse(text)
        return
    assert error.text == text
    assert 0 <= error.position <= len(text)
    assert 2 <= len(error.caret().splitlines()) <= 3
    assert error.message
    assert not any(name in str(error) for name in ("$END", "LPAR", "QUOTED_NAME", "COMPARISON"))


@settings(PATIENT, max_examples=200)
@given(tree=wild)
def test_canonical_text_compiles_back_to_an_equal_tree(tree: Expression) -> None:
    text = built(tree).text
    assert parse(text) == tree
    assert compile_selector(text) == built(tree)


@settings(PATIENT)
@given(
    value=st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text().filter(is_utf8),
        st.booleans(),
    )
)
def test_every_value_can_be_written(value: Any) -> None:
    from matching import attr

    tree = compile_selector((attr("x") == value).text).tree()
    assert tree == ["cmp", "=", ["attr", "x"], ["lit", value]]
    assert type(tree[3][1]) is type(value)  # type: ignore[index]


@settings(PATIENT)
@given(name=st.text(min_size=1).filter(lambda n: is_utf8(n) and not n.startswith("$")))
@example("and")
@example('a"b')
@example("a.")
@example("été.2")
def test_every_name_can_be_written(name: str) -> None:
    assert compile_selector(f"{quote_name(name)} = 1").attributes == (name,)


def test_only_ascii_spells_a_keyword() -> None:
    # A dotless i, and a long s: in upper case both look like letters of IS.
    for name in ("\u0131s", "i\u017f"):
        assert name.upper() == "IS"
        assert compile_selector(f"{name} = 1").attributes == (name,)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", ["attr", "a"]),
        ("TRUE", ["lit", True]),
        ("a != 1", ["cmp", "<>", ["attr", "a"], ["lit", 1]]),
        ("a >= -1", ["cmp", ">=", ["attr", "a"], ["lit", -1]]),
        ("NOT a = 1", ["not", ["cmp", "=", ["attr", "a"], ["lit", 1]]]),
        (
            "a OR b AND c OR (d OR e)",
            [
                "or",
                ["attr", "a"],
                ["and", ["attr", "b"], ["attr", "c"]],
                ["attr", "d"],
                ["attr", "e"],
            ],
        ),
        (
            "a NOT BETWEEN 1 AND b + 2",
            [
                "not",
                ["between", ["attr", "a"], ["lit", 1], ["arith", "+", ["attr", "b"], ["lit", 2]]],
            ],
        ),
        (
            "a not in (1, -2.5, 'x''y', TRUE)",
            ["not", ["in", ["attr", "a"], [1, -2.5, "x'y", True]]],
        ),
        ("a LIKE 'x%'", ["like", ["attr", "a"], "x%", None]),
        ("a LIKE 'x!%' ESCAPE '!'", ["like", ["attr", "a"], "x!%", "!"]),
        ("a IS NOT NULL", ["not", ["isnull", ["attr", "a"]]]),
        (
            "-a * 2 < b - -3",
            [
                "cmp",
                "<",
                ["arith", "*", ["neg", ["attr", "a"]], ["lit", 2]],
                ["arith", "-", ["attr", "b"], ["lit", -3]],
            ],
        ),
        ("x = 9223372036854775807", ["cmp", "=", ["attr", "x"], ["lit", 2**63 - 1]]),
        ("x = -9223372036854775808", ["cmp", "=", ["attr", "x"], ["lit", -(2**63)]]),
        ("x = 9223372036854775808", ["cmp", "=", ["attr", "x"], ["lit", float(2**63)]]),
        ("x = " + "0" * 5000 + "7", ["cmp", "=", ["attr", "x"], ["lit", 7]]),
    ],
)
def test_the_json_form(text: str, tree: list[Any]) -> None:
    assert compile_selector(text).tree() == tree


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "empty"),
        ("   \n", 0, "empty"),
        ("mag 3", 4, "expected a comparison after the attribute 'mag'"),
        ("mag >=", 6, "expected a value"),
        ("mag >= AND x", 7, "expected a value"),
        ("mag == 3", 5, "write = for equality"),
        ("a < b < c", 6, "do not chain"),
        ("a = NULL", 4, "IS NULL"),
        ("a = 1 b = 2", 6, "expected AND, OR or the end after the number 1"),
        ("a = 1 AND", 9, "expected a condition"),
        ("(a = 1", 6, "the ( at character 1 is not closed"),
        ("a = 1)", 5, "this ) closes nothing"),
        ("a IN ()", 6, "expected a number, a 'string'"),
        ("a IN (b)", 6, "expected a number, a 'string'"),
        ("a IN (1 2)", 8, "a comma or )"),
        ("a IN 1", 5, "a list in parentheses"),
        ("a BETWEEN 1", 11, "expected AND"),
        ("a NOT 3", 6, "BETWEEN, IN or LIKE"),
        ("a IS 3", 5, "NULL or NOT NULL"),
        ("a LIKE b", 7, "pattern in 'single quotes'"),
        ('a LIKE "b"', 7, "'single quotes'"),
        ("a LIKE 'b' ESCAPE 'xy'", 18, "exactly one character"),
        ("place = 'CA", 8, "not closed"),
        ('"place = 1', 0, "not closed"),
        ("x = “a”", 4, "'single quotes'"),
        ("x = 12abc", 4, "no number"),
        ("x = 1e999", 4, "too large"),
        ("x IN (1, -1e999)", 10, "too large"),
        ("$event = 1", 0, "reserved"),
        ('"$event" = 1', 0, "reserved"),
        ('a = 1 AND "" = 1', 10, "needs a name"),
        ("a && b", 2, "write AND"),
        ("a ? b", 2, "unexpected character"),
        ("n > 1 -- note", 6, "begins a comment in SQL"),
        ("n > 1--note", 5, "begins a comment in SQL"),
        ("s = '--' AND \"a--b\" = 1 --", 24, "begins a comment in SQL"),
        ("n > /* one */ 1", 4, "begins a comment in SQL"),
        ("5 AND a", 1, "expected a comparison after 5"),
        ("a AND 'b'", 9, "expected a comparison after 'b'"),
        ("a + b", 5, "expected a comparison after a + b"),
        ("(a = 1) = 2", 0, "this is a condition"),
        ("a = '\ud800'", 5, "surrogate"),
    ],
)
def test_errors_say_what_and_where(text: str, position: int, words: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    assert words in caught.value.message
    assert caught.value.position == position


def test_the_caret_stands_under_the_place_in_its_line() -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector("a = 1 AND\n\tmag 3\nOR b")
    line, caret, message = caught.value.caret().split("\n")
    assert line == " mag 3"
    assert caret == "     ^"
    assert message.startswith("expected a comparison")


def test_the_caret_of_a_long_line_shows_its_surroundings() -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector("a = 1 AND " * 50 + "mag 3" + " AND b = 1" * 50)
    line, caret, _ = caught.value.caret().split("\n")
    assert len(line) < 80
    assert line[len(caret) - 1] == "3"


def test_eight_kibibytes_of_any_shape_are_accepted() -> None:
    for text in (
        " OR ".join(f"x{n} = {n}" for n in range(600)),
        " AND ".join(f"x <> {n}" for n in range(630)),
        "NOT(" + " OR ".join(["a"] * 1637) + ")",
        "x IN (" + ",".join(["1e9"] * 2040) + ")",
        "x = '" + "é" * 4090 + "'",
    ):
        assert 8000 < len(text.encode()) <= 8 * 1024
        predicate = compile_selector(text)
        assert all(
            compile_selector(conjunction.text) == Predicate.of(conjunction)
            for conjunction in predicate.conjunctions[:3]
        )


@pytest.mark.parametrize(
    "text",
    [
        "x = '" + "a" * MAX_TEXT + "'",
        "x = '" + "é" * (MAX_TEXT // 2) + "'",
        "(" * 5000 + "a" + ")" * 5000,
        "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
        "NOT " * 4000 + "a",
        "x = " + "- " * 4000 + "y",
        "x = " + "y + " * 3000 + "1",
        " AND ".join(f"(a{n} OR b{n})" for n in range(11)),
        " AND ".join(f"(a{n} OR b{n})" for n in range(700)),
        "NOT (" + " AND ".join(f"a{n} = 1 " for n in range(1025)) + ")",
    ],
)
def test_beyond_the_limits_the_error_is_clear(text: str) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    assert any(w in caught.value.message for w in ("longer than", "levels deep", "conjunctions"))


def test_within_the_limits_depth_and_conjunctions_are_accepted() -> None:
    # The attribute itself is the last level.
    deep = "NOT (" * (MAX_DEPTH - 1) + "a" + ")" * (MAX_DEPTH - 1)
    assert compile_selector(deep).matches({"a": False})
    wide = " AND ".join(f"(a{n} OR b{n})" for n in range(10))
    assert len(compile_selector(wide).conjunctions) == 1024


def test_compiling_is_cached_within_a_bound() -> None:
    assert compile_selector("mag > 1") is compile_selector("mag > 1")
    for n in range(CACHED_SELECTORS + 1):
        compile_selector(f"cached = {n}")
    assert len(_cached) == CACHED_SELECTORS
    assert "mag > 1" not in _cached


def test_compiling_in_steps_is_compiling() -> None:
    text = " OR ".join(f"step{n} BETWEEN {n} AND {n + 2}" for n in range(400))
    steps = sum(1 for _ in compile_in_steps(text))
    assert steps >= 6, "2,800 tokens"
    kept = _cached[text]
    assert compile_selector(text) is kept
    assert not list(compile_in_steps(text)), "nothing is left to do"
    del _cached[text]
    assert compile_selector(text) == kept
    assert compile_selector(text).conjunctions == kept.conjunctions


@pytest.mark.parametrize("text", ["", "a = ", "a = 1 OR " * 300, "a = 1 OR " * 300 + "b = 'x", "1"])
def test_compiling_in_steps_refuses_in_the_same_words(text: str) -> None:
    with pytest.raises(SelectorError) as at_once:
        compile_selector(text)
    with pytest.raises(SelectorError) as in_steps:
        list(compile_in_steps(text))
    assert at_once.value.caret() == in_steps.value.caret()
    assert (at_once.value.message, at_once.value.position) == (
        in_steps.value.message,
        in_steps.value.position,
    )


def test_only_text_is_compiled() -> None:
    with pytest.raises(TypeError):
        compile_selector(3)


def test_a_compiled_predicate_keeps_its_own_text() -> None:
    predicate = compile_selector("mag>=3   and(b)")
    assert predicate.text == str(predicate) == "mag>=3   and(b)"
    assert Predicate(predicate.expression).text == "mag >= 3 AND b"
