"""Runs of offsets, and the window that chooses among rows, by many generated cases."""

from __future__ import annotations

from random import Random

import pytest

from streams.log.group_state import DoneRows, GroupOptions
from streams.services.group.window import Window, pending
from tests.support.examples import seeds


@pytest.mark.parametrize("seed", seeds(8))
def test_runs_are_a_set_of_offsets(seed: int) -> None:
    rng = Random(seed)
    runs, model = DoneRows(), set[int]()
    for _ in range(60):
        first = rng.randrange(40)
        if rng.random() < 0.7:
            end = first + rng.randrange(6)
            runs.add(first, end)
            model |= set(range(first, end))
        else:
            runs.remove(first)
            model.discard(first)
        assert {n for n in range(60) if n in runs} == model
        assert runs.floor == next(n for n in range(60) if n not in model)
        ends = [end for run in ((0, runs.floor), *runs.runs) for end in run]
        assert ends[1:] == sorted(set(ends[1:]))
        again = DoneRows(runs.floor, runs.runs)
        assert (again.floor, again.runs) == (runs.floor, runs.runs)


@pytest.mark.parametrize("seed", seeds(8))
def test_a_window_gives_every_row_in_order_of_its_key_and_never_two_of_one(seed: int) -> None:
    rng = Random(seed)
    options = GroupOptions(by="k", priority=rng.choice(("", "p")))
    window, now, lease = Window(), 0.0, 0
    waiting = list(range(60))
    held: dict[int, str | None] = {}
    given: dict[str | None, list[int]] = {}
    keys: dict[int, str | None] = {}
    done: list[int] = []
    for _ in range(3_000):
        now += 0.1
        what = rng.randrange(5)
        if what == 0 and waiting:
            offset = waiting.pop(0)
            keys[offset] = rng.choice(("a", "b", "c", None))
            values = {"k": keys[offset], "p": rng.randrange(10)}
            row = pending(options, offset, int(now * 1e9), values, b"row")
            row.due = now + rng.random() * 3 if rng.random() < 0.2 else 0.0
            window.add(row)
        elif what == 1 and (row := window.next(now)) is not None:
            assert row.offset not in held
            assert row.due <= now
            assert row.key is None or keys[row.offset] not in held.values()
            lease += 1
            window.lease(row, lease, 1, now + 5.0)
            held[row.offset] = keys[row.offset]
            if given.setdefault(keys[row.offset], []) and keys[row.offset] is not None:
                assert row.offset >= given[keys[row.offset]][-1], "in order within a key"
            given[keys[row.offset]].append(row.offset)
        elif what == 2 and held:
            offset = rng.choice(list(held))
            del held[offset]
            window.settle(window.rows[offset])
            window.done(offset)
            done.append(offset)
        elif what == 3 and held and rng.random() < 0.3:
            offset = rng.choice(list(held))
            del held[offset]
            window.give_back(window.rows[offset], now + rng.random() if rng.random() < 0.5 else 0.0)
        for row in window.take_expired(now):
            del held[row.offset]
            window.give_back(row)
        assert window.leased == len(held)
    assert sorted(done) == list(range(60)), "none is stuck"
    assert (len(window), window.bytes, window.next(now)) == (0, 0, None)


def test_runs_around_rows_reach_to_the_next_that_is_not_done_with() -> None:
    window = Window()
    for offset in (3, 7, 12):
        window.add(pending(GroupOptions(), offset, 0, {}, b""))
    window.done(7)
    assert window.runs_around([7], 20) == [(4, 12)]
    window.done(12)
    assert window.runs_around([12], 20) == [(4, 20)]
    window.expect(30)  # a dead letter, which is beyond what was scanned
    window.done(3)
    assert window.runs_around([3], 20) == [(0, 20)], "what was not looked at is not done with"
    window.done(30)
    assert window.runs_around([30], 20) == [(30, 31)]
    assert window.floor(20) == 20
