"""The language's meaning, judged by SQLite: the same text, the same rows, the same three values."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import compile_selector
from matching.selector.expression import Expression
from matching.selector.unparse import unparse
from tests.matching.matching_strategies import (
    COLUMNS,
    PATIENT,
    events,
    texts,
    typed,
    verdict,
    wild,
    wild_events,
)

Event = dict[str, Any]


class Oracle:
    """SQLite with one table; columns have no declared type, so nothing is converted."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("PRAGMA case_sensitive_like = ON")
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        self.db.execute(f"CREATE TABLE event (number INTEGER PRIMARY KEY, {names})")

    def verdicts(self, text: str, rows: list[Event]) -> list[bool | None]:
        marks = ", ".join("?" for _ in COLUMNS)
        self.db.execute("DELETE FROM event")
        self.db.executemany(
            f"INSERT INTO event VALUES (NULL, {marks})",
            [[row[name] for name in COLUMNS] for row in rows],
        )
        found = self.db.execute(f"SELECT ({text}) FROM event ORDER BY number").fetchall()
        return [None if value is None else bool(value) for (value,) in found]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle()
    yield oracle
    oracle.db.close()


rows = st.lists(events, min_size=1, max_size=6)


@settings(PATIENT, max_examples=200)
@given(tree=typed, rows=rows)
def test_trees_mean_what_sqlite_says(oracle: Oracle, tree: Expression, rows: list[Event]) -> None:
    text = unparse(tree)
    predicate = compile_selector(text)
    assert [predicate.evaluate(row) for row in rows] == oracle.verdicts(text, rows)


@settings(PATIENT, max_examples=200)
@given(text=texts(), rows=rows)
def test_texts_mean_what_sqlite_says(oracle: Oracle, text: str, rows: list[Event]) -> None:
    predicate = compile_selector(text)
    assert [predicate.evaluate(row) for row in rows] == oracle.verdicts(text, rows)


@settings(PATIENT, max_examples=200)
@given(tree=wild, event=wild_events)
def test_mixed_types_mean_what_the_naive_evaluator_says(tree: Expression, event: Event) -> None:
    predicate = compile_selector(unparse(tree))
    assert predicate.evaluate(event) == verdict(predicate.tree(), event)


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("x = 1", {}, None),
        ("x = 1", {"x": None}, None),
        ("x = 1", {"x": "1"}, None),
        ("x = 1", {"x": True}, None),
        ("x = TRUE", {"x": 1}, None),
        ("x = 1", {"x": 1.0}, True),
        ("NOT x = 1", {"x": "1"}, None),
        ("x <> 'a'", {"x": 3}, None),
        ("x", {"x": 1}, None),
        ("x", {"x": True}, True),
        ("FALSE < x", {"x": True}, True),
        ("x = 9007199254740993", {"x": 9007199254740992.0}, False),
        ("x = 9007199254740993", {"x": 9007199254740993}, True),
        ("x > 9223372036854775807", {"x": 9223372036854775807}, False),
        ("x >= -9223372036854775808", {"x": -(2**63)}, True),
        ("x * x > 9223372036854775807", {"x": 2**63 - 1}, True),  # exact, no overflow
        ("x / 2 = -3", {"x": -7}, True),
        ("x / 0 IS NULL", {"x": 1}, True),
        ("x / 0.0 IS NULL", {"x": 1}, True),
        ("x * 1e308 IS NULL", {"x": 10}, True),
        ("x * 1.5 IS NULL", {"x": 10**18}, False),
        ("x + 1 IS NULL", {"x": True}, True),
        ("x + 1 IS NULL", {"x": "1"}, True),
        ("x IN (1, 'a')", {"x": "a"}, True),
        ("x NOT IN (1, 'a')", {"x": 2}, None),
        ("x BETWEEN 1 AND 'z'", {"x": 0}, False),
        ("x NOT BETWEEN 1 AND 'z'", {"x": 0}, True),
        ("x LIKE '1%'", {"x": 12}, None),
        ("x LIKE 'A%'", {"x": "abc"}, False),
        ("x LIKE 'a%c'", {"x": "a\n\nc"}, True),
        ("x LIKE 'a_c'", {"x": "a\nc"}, True),
        ("x LIKE 'a\\%'", {"x": "a\\b"}, True),  # no escape unless named
        ("x LIKE 'a!%' ESCAPE '!'", {"x": "a%"}, True),
        ("x LIKE 'a!%' ESCAPE '!'", {"x": "ab"}, False),
        ("x IS NULL", {"x": ["nested"]}, True),
        ("x < '\U0001f333'", {"x": "\uffff"}, True),  # by code point, not by UTF-16
        ('a.b.0 = 1 AND "a b" = 2', {"a.b.0": 1, "a b": 2}, True),
        ("Größe = 1 AND größe = 2", {"Größe": 1, "größe": 2}, True),
        ("TRUE", {}, True),
        ("TRUE OR x", {}, True),
        ("x OR NOT x", {}, None),
    ],
)
def test_the_rules_where_sql_leaves_a_choice(text: str, event: Event, expected: Any) -> None:
    assert compile_selector(text).evaluate(event) is expected
