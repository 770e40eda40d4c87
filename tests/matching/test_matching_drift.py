"""The engine gets other buckets when its values drift away from the first ones, and stays exact."""

from __future__ import annotations

import random

import pytest

from matching import Index, Predicate, attr, warm
from matching.engine import block_engine
from matching.engine.codes import number_code
from matching.engine.kernels.layout import BOUNDS, ROWS

REGIONS = 64


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    warm()


def in_order(count: int, rng: random.Random) -> list[Predicate]:
    """Each in its own part of the values; the parts come one after the other."""
    found = []
    for number in range(count):
        low = number * REGIONS // count * 10 + rng.uniform(0, 9)
        part = attr("x").between(low, low + rng.uniform(0, 1))
        kind = rng.randrange(4)
        if kind == 0:
            part &= attr("kind") == f"k{number * 50 // count}"
        elif kind == 1:
            part &= attr("y") > rng.uniform(0, 100)
        elif kind == 2:
            part &= attr("x").between(low - 50, low - 40) | attr("z").is_not_null()
        found.append(part)
    return found


def fullest(index: Index[int], name: str, ends: list[float]) -> float:
    """The share of the fullest bucket of a column in these ends."""
    assert index.block_engine is not None
    columns = index.block_engine.columns
    column = columns.column_of(name)
    assert column is not None
    bounds = columns.bounds[column * BOUNDS :][:ROWS].tolist()
    counts: dict[int, int] = {}
    for end in ends:
        row = sum(bound <= number_code(end) for bound in bounds)
        counts[row] = counts.get(row, 0) + 1
    return max(counts.values()) / len(ends)


def test_subscriptions_in_an_order_get_even_buckets() -> None:
    rng = random.Random(1)
    index: Index[int] = Index(100)
    ends = []
    for number in range(6_000):
        low = number / 10
        index.add(number, attr("x").between(low, low + 1))
        ends.append(low)
        if number % 50 == 0:
            index.match({"x": rng.uniform(0, 600)})
    assert fullest(index, "x", ends) < 0.35  # before: nearly all of them


@pytest.mark.parametrize("seed", range(3))
def test_matches_stay_exact_while_values_drift(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_engine, "FIRST_CHECK", 300)
    monkeypatch.setattr(block_engine, "MIN_ENDS", 16)
    rebucketed = []
    rebucket = block_engine.rebucket_if_drifted

    def noted(*arguments: object) -> bool:
        rebucketed.append(rebucket(*arguments))  # type: ignore[arg-type]
        return rebucketed[-1]

    monkeypatch.setattr(block_engine, "rebucket_if_drifted", noted)
    rng = random.Random(seed)
    index: Index[int] = Index(50)
    model: dict[int, Predicate] = {}
    for number, predicate in enumerate(in_order(2_500, rng)):
        index.add(number, predicate)
        model[number] = predicate
        if rng.random() < 0.3:
            gone = rng.choice(list(model)) if number % 10 == 0 else number
            index.remove(gone)
            del model[gone]
        if number % 60 == 0:
            event = {"x": rng.uniform(0, number / 4), "y": rng.uniform(0, 100), "kind": "k3"}
            if rng.random() < 0.3:
                event["z"] = 1
            expected = [key for key, each in model.items() if each.matches(event)]
            assert index.match(event) == expected
    assert sum(rebucketed) >= 3  # or nothing was tried
