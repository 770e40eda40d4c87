"""A table or figure of a paper: what the paper reports, and how the same is measured here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bench.experiments.pictures import Picture


class Ours(NamedTuple):
    """The number of ours that stands beside one of a paper's."""

    key: str
    """Of the row, a path as in `bench.lab.tables`."""
    where: Mapping[str, Any] = {}
    """What the row has to have; of several the last one, of the newest run, counts."""
    form: str = ",.1f"
    """As in Python's format language."""


class Reported(NamedTuple):
    """One number of a paper, or what it says without one."""

    what: str
    section: str
    number: float | None
    unit: str = ""
    words: str = ""
    """What the paper says where it has no number (`number` is None)."""
    ours: Ours | None = None


class Experiment(NamedTuple):
    """A table or figure (or a section with a result in words)."""

    name: str
    """As the command takes it."""
    paper: str
    place: str
    """The table, figure or section."""
    title: str
    question: str
    reported: tuple[Reported, ...]
    file: str
    """bench/results/FILE.json; "": the page that `differs` links has it."""
    fast: tuple[str, ...]
    """Commands that print rows, of the size that fits into the fast form; (): it is not in it. What
    several experiments share is run once."""
    full: tuple[str, ...]
    """… of the paper's size, or as near as a machine of two cores comes; (): `fast` has it."""
    seconds: int
    """That `fast` takes on two cores, about; `full` if there is no fast form; 0: another experiment
    has the same commands."""
    tables: tuple[str, ...]
    """What `bench.lab.tables` makes of the file; the page adds the form and the commit."""
    differs: str
    """What differs from the paper, and why."""
    picture: Picture | None = None

    def form_of(self, command: str) -> str:
        """Of which form a command is: "full" where its rows are of the paper's size, or as near as
        may be; "fast"; or "", if it is neither's."""
        if command in (self.full or self.fast):
            return "full"
        return "fast" if command in self.fast else ""


class Drawing(NamedTuple):
    """A table or figure that defines or draws something, and measures nothing."""

    place: str
    what: str
    where: str
    """The page that has it here, from docs/lab."""


class Paper(NamedTuple):
    """A paper with everything that it tabulates or draws."""

    name: str
    note: str
    """What goes for all of its experiments."""
    experiments: tuple[Experiment, ...]
    drawings: tuple[Drawing, ...]
