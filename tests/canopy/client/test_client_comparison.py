"""Two selectors compared: on events, and by the values of single attributes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from canopy.client.comparison import admitted, compare, covers, differences, interval_texts
from matching import EVERYTHING, NUMBERS, STRINGS, Interval, compile_selector
from overlay.client import Event
from tests.support.examples import seeds

PARTS = (
    "a {c} {n}", "a BETWEEN {n} AND {m}", "a IN ({n}, {m})", "b LIKE '{s}%'", "b = '{s}'",
    "a IS NULL", "b IS NOT NULL", "a + c > {n}", "NOT a {c} {m}", "c = TRUE", "b <> '{s}'",
)  # fmt: skip
VALUES: tuple[Any, ...] = (None, True, False, *range(6), 2.5, "", "x", "xy", "y")


def drawn(rng: Random) -> str:
    parts = []
    for _ in range(rng.randrange(1, 5)):
        text = rng.choice(PARTS).format(
            c=rng.choice(("<", "<=", "=", ">", ">=", "<>")),
            n=rng.randrange(4), m=rng.randrange(6), s=rng.choice("xy"),
        )  # fmt: skip
        parts.append(text if rng.random() < 0.8 else f"NOT ({text})")
    return "".join(
        part if not place else f" {rng.choice(('AND', 'OR'))} {part}"
        for place, part in enumerate(parts)
    )


@pytest.mark.parametrize("seed", seeds(60))
def test_what_matches_has_only_values_that_are_admitted(seed: int) -> None:
    rng = Random(seed)
    selector = compile_selector(drawn(rng))
    for _ in range(200):
        event = {name: rng.choice(VALUES) for name in "abc" if rng.random() < 0.9}
        if selector.matches(event):
            for name in "abc":
                found, value = admitted(selector, name), event.get(name)
                if value is None:
                    assert found.absent, (selector.text, event)
                else:
                    assert any(i.contains(value) for i in found.values), (selector.text, event)


@pytest.mark.parametrize("seed", seeds(60))
def test_what_is_covered_matches_no_event_alone(seed: int) -> None:
    rng = Random(seed)
    wide = compile_selector(drawn(rng))
    for _ in range(20):
        other = drawn(rng)
        narrow = compile_selector(rng.choice((other, f"({wide.text}) AND ({other})")))
        events = [
            {name: rng.choice(VALUES) for name in "abc" if rng.random() < 0.9} for _ in range(30)
        ]
        alone = [one for one in events if narrow.matches(one) and not wide.matches(one)]
        assert not (covers(wide, narrow) and alone), (wide.text, narrow.text, alone)


@pytest.mark.parametrize(
    ("wide", "narrow", "known"),
    [
        ("TRUE", "a = 1", True),
        ("a > 3", "a > 4 AND b = 'x'", True),
        ("a > 3", "a >= 3", False),
        ("a > 3 OR b = 'x'", "b = 'x' AND c = 1 OR a = 9", True),
        ("b LIKE 'x%y'", "b LIKE 'x%y' AND a = 1", True),
        ("b LIKE 'x%y'", "b LIKE 'x%'", False),
        ("b LIKE 'x%'", "b = 'xy'", True),
        ("a + c > 3", "a + c > 3 AND b = 'x'", True),
        ("a = 1", "TRUE", False),
        ("a > 3", "FALSE", True),
    ],
)
def test_which_selectors_are_known_to_be_covered(wide: str, narrow: str, known: bool) -> None:
    assert covers(compile_selector(wide), compile_selector(narrow)) is known


@pytest.mark.parametrize(
    ("old", "new", "gained", "lost"),
    [
        ("a > 4", "a > 5", (), ("> 4 and <= 5",)),
        ("a > 4", "a >= 4", ("4",), ()),
        ("a = 1", "a = 2 OR a = 'x'", ("2", "'x'"), ("1",)),
        ("a = 1 OR b = 1", "b = 1", (), ()),
        ("a IS NULL", "a IS NOT NULL", ("any value",), ("absent",)),
        ("TRUE", "a < 3", (), ("TRUE or FALSE", ">= 3", "any text", "absent")),
        ("a + b > 3", "TRUE", ("absent",), ()),
    ],
)
def test_values_that_only_one_admits(
    old: str, new: str, gained: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    found = differences(compile_selector(old), compile_selector(new)).get("a")
    assert (
        (gained, lost) == ((), ())
        if found is None
        else (found.gained, found.lost) == (gained, lost)
    )


def test_intervals_of_several_types_are_one_text_for_each() -> None:
    assert interval_texts(EVERYTHING) == ("any value",)
    assert interval_texts(Interval((1, 5, 1), (2, "m", 0))) == ("> 5", "< 'm'")
    assert interval_texts(Interval(NUMBERS, STRINGS)) == ("any number",)


def test_events_are_sorted_by_who_matches() -> None:
    events = [Event("n", 1, number, 0.0, {"a": number}) for number in range(5)]
    found = compare(compile_selector("a < 3"), compile_selector("a > 1"), events)
    parts = (found.both, found.gained, found.lost, found.neither)
    assert [[e.sequence for e in part] for part in parts] == [[2], [3, 4], [0, 1], []]
