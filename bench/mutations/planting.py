"""How a fault is planted: methods and functions of the product are replaced in the running process.

A fault is a function that calls `replace` (or `replaced`, for as long as another call runs) with
the original symbol and with what stands in its place. The symbol is Python, not text: a tool that
renames it renames it here as well, mypy refuses a fault whose symbol is gone, and `replace` one
with other parameters. Faults are planted before any node is built, in a process of their own
(tests/conftest.py).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE: Final = "CANOPY_FAULT"
"""Environment variable by which tests/conftest.py plants a fault."""

OURS: Final = ("overlay", "matching", "streams", "canopy", "node", "bench", "harness", "tests")
"""Packages whose modules may have imported a function that is replaced."""


class PlantedFault(NamedTuple):
    """One fault that can be planted."""

    name: str  # on the command line
    stands_for: str  # id of a mechanism, invariant, promise or attack (docs/design)
    what: str  # one plain sentence without its full stop
    plant: Callable[[], None]
    test: str  # id of the test that fails with it

    @property
    def found_by(self) -> str:
        """The test's name, as the table has it."""
        return self.test.rpartition("::")[2]


FAULTS: dict[str, PlantedFault] = {}
"""All faults, by name, in the order of `bench.mutations.planted`."""


def fault(
    stands_for: str, file: str, test: str
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register the decorated function as a fault that stands for what has this id; its docstring
    says what the fault does. `file` and `test` name the test that finds it."""

    def register(plant: Callable[[], None]) -> Callable[[], None]:
        name = plant.__name__.replace("_", "-")
        if name in FAULTS:
            raise ValueError(f"two faults are called {name}")
        what = " ".join((plant.__doc__ or "").split()).removesuffix(".")
        FAULTS[name] = PlantedFault(name, stands_for, what, plant, f"{file}::{test}")
        return plant

    return register


def plant(name: str) -> None:
    """Plant the fault called `name` in this process. Raises KeyError if there is none."""
    FAULTS[name].plant()


def replace(original: Callable[P, R], by: Callable[P, R]) -> Callable[[], None]:
    """Put `by` in the place of a method (``Class.method``) or a module's function, wherever our
    modules have imported the function. Returns what undoes it.

    Raises ValueError if `original` is not what its name refers to: it was replaced already; or if
    `by` has other parameters, so that a call would fail for a reason that is not the fault's.
    """
    function: Any = original
    wanted, has = (list(inspect.signature(each).parameters) for each in (function, by))
    if has[: len(wanted)] != wanted:
        raise ValueError(f"{function.__qualname__} has the parameters {', '.join(wanted)}")
    *path, name = function.__qualname__.split(".")
    owner: Any = sys.modules[function.__module__]
    for part in path:
        owner = getattr(owner, part)
    if getattr(owner, name) is not original:
        raise ValueError(f"{function.__qualname__} is not the original")
    places = [(owner, name)] if path else list(_imports(function))
    for place, its_name in places:
        setattr(place, its_name, by)

    def undo() -> None:
        for place, its_name in places:
            setattr(place, its_name, original)

    return undo


def replace_constant(module: ModuleType | type, name: str, value: object) -> Callable[[], None]:
    """Give a module's constant, or a class's property, another value. Returns what undoes it."""
    original = getattr(module, name)
    setattr(module, name, value)
    return lambda: setattr(module, name, original)


@contextmanager
def replaced(original: Callable[P, R], by: Callable[P, R]) -> Iterator[None]:
    """`replace` for the duration of a with-block."""
    undo = replace(original, by)
    try:
        yield
    finally:
        undo()


def _imports(function: Any) -> Iterator[tuple[Any, str]]:
    """Every (module, name) of ours that refers to a module's function."""
    for module in list(sys.modules.values()):
        if module.__name__.partition(".")[0] in OURS:
            names = [name for name, value in vars(module).items() if value is function]
            yield from ((module, name) for name in names)
