"""Predicates built without text are those that their text compiles to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from matching import Predicate, SelectorError, attr, compile_selector

a, b = attr("a"), attr("b")


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (a == 1, "a = 1"),
        (a != "x'y", "a <> 'x''y'"),
        (a < 1.5, "a < 1.5"),
        (a <= b, "a <= b"),
        (1 > a, "a < 1"),  # noqa: SIM300
        (a >= -3, "a >= -3"),
        (a.between(1, b + 2), "a BETWEEN 1 AND b + 2"),
        (a.isin(["x", True, 2]), "a IN ('x', TRUE, 2)"),
        (~a.isin([1]), "a NOT IN (1)"),
        (a.like("x!%%", escape="!"), "a LIKE 'x!%%' ESCAPE '!'"),
        (a.is_null(), "a IS NULL"),
        (a.is_not_null(), "a IS NOT NULL"),
        (a.predicate(), "a"),
        (a & b, "a AND b"),
        (a & ~b | (a == 1), "a AND NOT b OR a = 1"),
        (~((a == 1) | b), "NOT (a = 1 OR b)"),
        ((a == 1) & b & (a == 2), "a = 1 AND b AND a = 2"),
        (-(a + 1) * 2 - 3 / b < 10 - a, "-(a + 1) * 2 - 3 / b < 10 - a"),
        (a - (b - 1) == 2 * a, "a - (b - 1) = 2 * a"),
        (1 + a == -b, "1 + a = -b"),
        ((-a).__neg__() == 1, "- -a = 1"),
        (attr("Größe.0") == 1, "Größe.0 = 1"),
        (attr("is") == 1, '"is" = 1'),
        (attr('a "b"') == 1, '"a ""b""" = 1'),
        (a == 10**20, "a = 1e20"),
    ],
)
def test_built_text_is_canonical_and_compiles_back(predicate: Predicate, text: str) -> None:
    assert predicate.text == text
    assert compile_selector(text) == predicate
    assert hash(compile_selector(text)) == hash(predicate)


@pytest.mark.parametrize(
    "build",
    [
        lambda: attr(""),
        lambda: attr("$event"),
        lambda: attr("\ud800"),
        lambda: a == float("nan"),
        lambda: a == 10**400,
        lambda: a == None,  # noqa: E711
        lambda: a == [1],
        lambda: a.isin([]),
        lambda: a.like(3),  # type: ignore[arg-type]
        lambda: a.like("x", escape="xy"),
        lambda: (a + 1).predicate(),
        lambda: (a + 1) & b,
        lambda: a == "x" * 20_000,
    ],
)
def test_what_text_could_not_say_can_not_be_built(build: Callable[[], Any]) -> None:
    with pytest.raises(SelectorError):
        build()


def test_a_built_predicate_keeps_the_limits() -> None:
    deep = a
    for _ in range(10_000):
        deep = deep + 1
    with pytest.raises(SelectorError, match="levels deep"):
        deep.__eq__(1)
    wide = attr("p0") | attr("q0")
    for n in range(1, 10):
        wide = wide & (attr(f"p{n}") | attr(f"q{n}"))
    assert len(wide.conjunctions) == 1024
    with pytest.raises(SelectorError, match="conjunctions"):
        wide & (a | b)


def test_a_chain_is_one_level_deep() -> None:
    chain = a == 0
    for n in range(1, 300):
        chain = chain | (a == n)
    assert len(chain.conjunctions) == 300


def test_python_and_or_are_refused() -> None:
    with pytest.raises(TypeError, match=r"use & \| ~"):
        bool(a == 1)
    with pytest.raises(TypeError, match=r"use & \| ~"):
        bool(a)
