"""Explanations: the verdict on every part with the event's values; and the manual's examples."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from hypothesis import given, settings

import matching
from matching import Explanation, Predicate, compile_selector
from matching.selector.expression import Expression
from tests.matching.matching_strategies import PATIENT, wild, wild_events

Event = dict[str, Any]


def test_the_manual_is_true() -> None:
    results = doctest.testmod(matching)
    assert results.attempted > 10
    assert results.failed == 0


@settings(PATIENT, max_examples=150)
@given(tree=wild, event=wild_events)
def test_every_verdict_is_that_of_its_own_text(tree: Expression, event: Event) -> None:
    def check(explanation: Explanation) -> None:
        own = compile_selector(explanation.text)
        assert explanation.verdict is own.evaluate(event)
        assert all(event.get(name) == value for name, value in explanation.seen)
        if not explanation.children:
            assert (explanation.verdict is None) == bool(explanation.reason)
        for child in explanation.children:
            check(child)

    explanation = Predicate(tree).explain(event)
    check(explanation)
    assert explanation.text == Predicate(tree).text
    assert all(
        line.lstrip().split(":")[0] in ("true", "false", "unknown") or line
        for line in explanation.lines()
    )


@pytest.mark.parametrize(
    ("text", "event", "reason"),
    [
        ("mag > 3", {}, "attribute mag is absent"),
        ("mag > 3", {"mag": None}, "attribute mag is NULL"),
        ("mag > 3", {"mag": "5"}, "mag is the string '5', 3 is a number"),
        ("mag NOT IN (1, 'a')", {"mag": 2}, "mag is the number 2, 'a' is a string"),
        ("mag LIKE 'a%'", {"mag": 2}, "mag is the number 2, LIKE needs a string"),
        ("mag", {"mag": 2}, "mag is the number 2, not a boolean"),
        ("mag / 0 = mag / 0", {"mag": 2}, "mag / 0 is NULL, so is the other side"),
        ("mag BETWEEN 1 AND 'z'", {"mag": 2}, "mag is the number 2, 'z' is a string"),
    ],
)
def test_unknown_has_a_reason(text: str, event: Event, reason: str) -> None:
    assert compile_selector(text).explain(event).reason == reason


def test_lines_are_a_tree() -> None:
    lines = compile_selector("a = 1 AND NOT (b = 2)").explain({"a": 1, "b": 2}).lines()
    assert lines == [
        "false: a = 1 AND NOT (b = 2)",
        "  true: a = 1  (a is 1)",
        "  false: NOT (b = 2)",
        "    true: b = 2  (b is 2)",
    ]
