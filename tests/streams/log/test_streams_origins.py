"""streams/log/origins.py: which numbers of its origins a log has, against a naive set."""

from __future__ import annotations

from random import Random

import pytest

from streams.log import origins
from streams.log.batches import BatchHead
from streams.log.origins import CAPTURED, COPIED, OriginScanned, OriginStates
from tests.support.examples import seeds


def restored(states: OriginStates) -> OriginStates:
    """As a segment's state brings them back."""
    other = OriginStates()
    for entry in states.entries():
        other.take(entry)
    return other


@pytest.mark.parametrize("seed", seeds(20))
def test_what_was_appended_is_known_and_nothing_else_above_the_floor(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "RUNS_MOST", 40)
    monkeypatch.setattr(origins, "RUNS_ALL", 100)
    rng = Random(seed)
    states = OriginStates()
    there: dict[tuple[str, int], set[int]] = {}
    tops: dict[tuple[str, int], int] = {}
    for _ in range(400):
        origin = (CAPTURED + rng.choice("abcdef"), rng.randrange(2))
        first = max(0, tops.get(origin, 0) + rng.randrange(-30, 5))
        numbers = [
            n for n in range(first, first + rng.randrange(1, 5)) if not states.has(*origin, n)
        ]
        for number in numbers:
            states.appended(BatchHead(*origin, number, 1))
            there.setdefault(origin, set()).add(number)
            tops[origin] = max(tops.get(origin, 0), number)
        if rng.random() < 0.1:
            before, states = states, restored(states)
            assert list(states.entries()) == list(before.entries())
        for known, numbers_there in there.items():
            for number in range(max(0, tops[known] - 60), tops[known] + 5):
                forgotten = states.is_forgotten(*known, number)
                assert states.has(*known, number) == (number in numbers_there or forgotten)
    assert sum(len(entry.runs) // 2 for entry in states.entries()) <= 100  # type: ignore[union-attr]


def test_numbers_of_one_publisher_that_follow_on_one_another_take_one_run() -> None:
    states = OriginStates()
    for number in (*range(0, 1_000, 2), *range(1, 1_000, 2)):
        states.appended(BatchHead(CAPTURED + "a", 1, number, 1))
    (entry,) = states.entries()
    assert entry.runs == (0, 1_000)  # type: ignore[union-attr]


def test_a_copied_shard_is_known_up_to_a_number() -> None:
    states = OriginStates()
    states.appended(BatchHead(COPIED + "id/0", 0, 7, 2))
    states.take(OriginScanned(COPIED + "id/0", 20))
    states.take(OriginScanned(COPIED + "id/0", 12))
    assert restored(states).floor(COPIED + "id/0") == 20


def test_who_was_silent_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "ORIGINS_MOST", 2)
    states = OriginStates()
    for name in ("a", "b", "a", "c"):
        states.appended(BatchHead(CAPTURED + name, 1, 5 if name != "a" else 9, 1))
    assert [entry.name for entry in states.entries()] == [CAPTURED + "a", CAPTURED + "c"]
