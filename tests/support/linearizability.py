"""Is a history of concurrent operations what one machine could have done, one after the other?

The algorithm is that of Porcupine: Wing and Gong's search, in which a linked list of calls and
returns is gone through, with Lowe's memory of (operations done, state) pairs that led nowhere
(G. Lowe, Testing for linearizability, 2017; A. Horn and D. Kroening, Faster linearizability
checking via P-compositionality, 2015). It is exponential at worst: `STEPS_MOST` bounds it.

An operation whose outcome is not known (the node of its program crashed) returns at infinity: it
may have taken effect at any time after its call, or after all others, which is never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Any, Final, NamedTuple

from canopy.sim.checks import Violation

STEPS_MOST: Final = 2_000_000
"""Steps of a search at most: some seconds."""

UNKNOWN: Final = object()
"""The output of an operation of which nothing was heard."""


class ProgramOperation(NamedTuple):
    """What a program asked, and was answered. Times are those at which it did."""

    call: float
    returned: float  # infinity: nothing was heard
    input: Any
    output: Any = UNKNOWN


class MachineModel(NamedTuple):
    """What the machine does. `step` returns the state after an operation, None if the machine
    would not have answered so."""

    initial: Hashable
    step: Callable[[Any, Any, Any], Hashable | None]


class _Entry:
    """A call or a return in the order of time, in a list from which it can be taken and put
    back."""

    __slots__ = ("after", "before", "number", "returns")

    def __init__(self, number: int, returns: _Entry | None) -> None:
        self.number = number
        self.returns = returns  # of a call: its return
        self.before: _Entry = self
        self.after: _Entry | None = None

    def lift(self) -> None:
        """Take a call and its return out."""
        assert self.returns is not None
        for entry in (self, self.returns):
            entry.before.after = entry.after
            if entry.after is not None:
                entry.after.before = entry.before

    def put_back(self) -> None:
        """The reverse of `lift`."""
        assert self.returns is not None
        for entry in (self.returns, self):
            entry.before.after = entry
            if entry.after is not None:
                entry.after.before = entry


def check_linearizable(
    model: MachineModel, history: Iterable[ProgramOperation], what: str
) -> list[Violation]:
    """One violation if the history of `what` is not linearizable, or the search is too long."""
    operations = list(history)
    head = _list_of(operations)
    state: Any = model.initial
    done = longest = steps = 0  # `done`: the operations so far, one bit for each
    seen: set[tuple[int, Hashable]] = set()
    path: list[tuple[_Entry, Any]] = []  # calls that were taken out, with the state before each
    stuck: ProgramOperation | None = None
    entry = head.after
    while head.after is not None:
        steps += 1
        if steps > STEPS_MOST:
            return [Violation("linearizability", f"{what}: not decided in {steps} steps")]
        assert entry is not None, "a call is before its return"
        if entry.returns is not None:  # a call
            operation = operations[entry.number]
            following = model.step(state, operation.input, operation.output)
            key = (done | 1 << entry.number, following)
            if following is not None and key not in seen:
                seen.add(key)
                path.append((entry, state))
                state, done = following, done | 1 << entry.number
                entry.lift()
                entry = head.after
            else:
                entry = entry.after
            continue
        if len(path) >= longest:
            longest, stuck = len(path), operations[entry.number]
        if not path:
            text = f"{what}: {longest} of {len(operations)} operations fit together, not {stuck}"
            return [Violation("linearizability", text)]
        call, state = path.pop()
        done &= ~(1 << call.number)
        call.put_back()
        entry = call.after
    return []


def _list_of(operations: list[ProgramOperation]) -> _Entry:
    """Calls and returns in the order of time; a call comes before a return of the same time."""
    times: list[tuple[float, int, _Entry]] = []
    for number, operation in enumerate(operations):
        returns = _Entry(number, None)
        times.append((operation.call, 0, _Entry(number, returns)))
        times.append((operation.returned, 1, returns))
    times.sort(key=lambda each: each[:2])
    head = last = _Entry(-1, None)
    for _, _, entry in times:
        entry.before, last.after = last, entry
        last = entry
    return head


class Append(NamedTuple):
    """Append a row. Its output is the offset."""

    row: Hashable


class ReadAll(NamedTuple):
    """Read the whole log. Its output is the rows."""


def _log(state: tuple[Hashable, ...], asked: Append | ReadAll, said: Any) -> Hashable | None:
    if isinstance(asked, ReadAll):
        return state if said == state else None
    return (*state, asked.row) if said is UNKNOWN or said == len(state) else None


APPENDS: Final = MachineModel((), _log)
"""One shard's log."""


class PositionCommit(NamedTuple):
    """Say that all below `position` is done with."""

    position: int


class Attach(NamedTuple):
    """Read as the durable consumer. Its output is the position."""


def _position(state: int, asked: PositionCommit | Attach, said: Any) -> Hashable | None:
    if isinstance(asked, PositionCommit):
        return max(state, asked.position)
    return state if said is UNKNOWN or said == state else None


POSITIONS: Final = MachineModel(0, _position)
"""The position of one durable consumer of one shard, which begins at 0."""


def pending(call: float, asked: Any) -> ProgramOperation:
    """An operation of which nothing was heard."""
    return ProgramOperation(call, inf, asked)
