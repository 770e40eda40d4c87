"""tests/support/linearizability.py: histories that are good or bad, and a brute force."""

from __future__ import annotations

from itertools import permutations
from math import inf
from random import Random

import pytest

from tests.support import linearizability
from tests.support.examples import seeds
from tests.support.linearizability import (
    APPENDS,
    POSITIONS,
    UNKNOWN,
    Append,
    Attach,
    MachineModel,
    PositionCommit,
    ProgramOperation,
    ReadAll,
    check_linearizable,
    pending,
)


def holds(model: MachineModel, *history: ProgramOperation) -> bool:
    return not check_linearizable(model, history, "it")


def test_concurrent_appends_may_come_in_either_order() -> None:
    a, b = ProgramOperation(0, 5, Append("a"), 1), ProgramOperation(1, 4, Append("b"), 0)
    assert holds(APPENDS, a, b)
    assert holds(APPENDS, a, b, ProgramOperation(6, 7, ReadAll(), ("b", "a")))
    assert not holds(APPENDS, a, b, ProgramOperation(6, 7, ReadAll(), ("a", "b")))


def test_an_append_after_an_answered_one_comes_behind_it() -> None:
    first, second = ProgramOperation(0, 1, Append("a"), 1), ProgramOperation(2, 3, Append("b"), 0)
    assert not holds(APPENDS, first, second)
    assert holds(APPENDS, first._replace(returned=2), second), "at the same time: concurrent"


def test_an_acknowledged_append_that_is_gone_is_found() -> None:
    appended = ProgramOperation(0, 1, Append("a"), 0)
    assert not holds(APPENDS, appended, ProgramOperation(2, 3, ReadAll(), ()))
    assert not holds(APPENDS, appended, ProgramOperation(2, 3, Append("b"), 0))


def test_an_append_of_unknown_outcome_may_be_there_late_or_never() -> None:
    lost, known = pending(0, Append("a")), ProgramOperation(5, 6, Append("b"), 0)
    assert holds(APPENDS, lost, known, ProgramOperation(7, 8, ReadAll(), ("b",)))
    assert holds(APPENDS, lost, known, ProgramOperation(7, 8, ReadAll(), ("b", "a")))
    assert holds(
        APPENDS, lost, known._replace(output=1), ProgramOperation(7, 8, ReadAll(), ("a", "b"))
    )
    assert not holds(APPENDS, lost, known, ProgramOperation(7, 8, ReadAll(), ("a", "b")))
    assert not holds(APPENDS, lost, known, ProgramOperation(7, 8, ReadAll(), ("b", "a", "a")))


def test_a_position_that_goes_back_is_found() -> None:
    done = ProgramOperation(0, 1, PositionCommit(7), None)
    assert holds(POSITIONS, done, ProgramOperation(2, 3, Attach(), 7))
    assert not holds(POSITIONS, done, ProgramOperation(2, 3, Attach(), 5))
    late = pending(0.5, PositionCommit(9))
    assert holds(
        POSITIONS,
        done,
        late,
        ProgramOperation(2, 3, Attach(), 7),
        ProgramOperation(4, 5, Attach(), 9),
    )
    assert not holds(
        *(POSITIONS, done, late),
        ProgramOperation(2, 3, Attach(), 9),
        ProgramOperation(4, 5, Attach(), 7),
    )


def test_a_search_that_is_too_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "STEPS_MOST", 50)
    history = [ProgramOperation(0, 1, Append(n), n) for n in range(20)]
    (found,) = check_linearizable(APPENDS, reversed(history), "it")
    assert "not decided" in found.text


def brute_force(history: list[ProgramOperation]) -> bool:
    """All orders in which no operation is before one that had returned when it was called, with
    or without each of those whose outcome is not known."""
    for order in permutations(history):
        late = inf
        for operation in reversed(order):
            if operation.call > late:
                break
            late = min(late, operation.returned)
        else:
            state = APPENDS.initial
            for operation in order:
                state = APPENDS.step(state, operation.input, operation.output)
                if state is None:
                    break
            else:
                return True
    return False


@pytest.mark.parametrize("seed", seeds(10))
def test_small_histories_are_judged_as_by_brute_force(seed: int) -> None:
    rng = Random(seed)
    verdicts = []
    for _ in range(40):
        history = []
        for number in range(rng.randrange(1, 6)):
            call = rng.randrange(8)
            if rng.random() < 0.2:
                history.append(pending(call, Append(number)))
            elif rng.random() < 0.15:
                rows = tuple(rng.sample(range(5), rng.randrange(3)))
                history.append(ProgramOperation(call, call + rng.randrange(1, 5), ReadAll(), rows))
            else:
                output = rng.randrange(4) if rng.random() < 0.9 else UNKNOWN
                history.append(
                    ProgramOperation(call, call + rng.randrange(1, 5), Append(number), output)
                )
        # A call and a return of the same time count as concurrent.
        verdicts.append(holds(APPENDS, *history))
        assert verdicts[-1] == brute_force(history), history
    assert len(set(verdicts)) == 2, "good and bad ones"
