"""What an experiment is: a plan, trials that make rows, and a table and a picture of these.

A trial runs in a `World` of its own, from the plan's seed: the same plan makes the same rows, but
for what they took (``cpu_s``). Tables and pictures are of rows, with the words of
`bench.lab.tables`: what a terminal shows is what docs/lab makes of ``bench/results``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from bench.experiments.pictures import Picture
from bench.lab.tables import NoRowsError, Row, Spec, lines_of
from canopy.sim.world.cost import collector_at_rest
from canopy.sim.world.world import World

Plan = TypeVar("Plan", bound=msgspec.Struct)

Progress = Callable[[str, float], None]
"""Called with what is measured and the share that is done."""

READY_WITHIN = 120.0
"""Virtual seconds within which all nodes are ready, and all subscriptions acknowledged."""


class NotReadyError(RuntimeError):
    """The overlay did not come to where the experiment begins."""


class PlanError(ValueError):
    """Parameters of an experiment do not go together; says which."""


def no_progress(stage: str, share: float) -> None:
    """A `Progress` that says nothing."""


def run_until_ready(world: World, condition: Callable[[], bool]) -> None:
    """Run `world` until the condition holds. Raises NotReadyError after `READY_WITHIN`."""
    if not world.run_until(condition, READY_WITHIN):
        raise NotReadyError(f"the overlay is not ready after {READY_WITHIN:g} virtual seconds")


def always(row: Row) -> bool:
    """Every row is good."""
    return True


@dataclass(frozen=True)
class Experiment(Generic[Plan]):
    """Something that can be run: `python -m bench.experiments NAME`."""

    name: str
    title: str
    about: str
    """What it does and shows, for ``--help``."""
    plan: Plan
    """The parameters, with the values that they have if nothing else is asked for."""
    trials: Callable[[Plan, Progress], Iterable[Any]]
    """Run all trials: a row for each, a dictionary or a structure. Raises PlanError for parameters
    that don't go together, NotReadyError."""
    table: str
    """As in the comments of docs/lab, without the file."""
    pictures: tuple[Picture, ...] = ()
    is_good: Callable[[Row], bool] = always
    """Whether a row is as it has to be; else the exit code is 1."""

    def rows(self, plan: Plan, progress: Progress = no_progress) -> list[Row]:
        """What the trials of a plan find, as their JSON has it."""
        with collector_at_rest():
            return [msgspec.to_builtins(row) for row in self.trials(plan, progress)]

    def shown(self, rows: list[Row]) -> str:
        """The table of these rows, as Markdown, without columns in which no row has anything; a
        sentence if there are no rows."""
        spec = Spec.parse(f"{self.name} | {self.table}")
        columns = [column for column in spec.columns if any(map(column.text, rows))]
        try:
            return lines_of(spec._replace(columns=columns), rows)
        except NoRowsError as error:
            return f"{error}\n"
