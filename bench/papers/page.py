"""docs/lab/papers.md: what each paper reports, ours beside it, and what differs."""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.lab.record import RESULTS
from bench.lab.tables import PAGES, NoRowsError, cell, table, value
from bench.papers.experiment import Experiment, Ours, Paper, Reported
from bench.papers.pictures import draw, series_of
from bench.papers.registry import PAPERS, experiments

PAGE: Final = PAGES / "papers.md"

COMMANDS: Final = """\
# The five papers, experiment by experiment

    make papers                                    # the fast form: some twenty minutes
    make papers PAPERS=full                        # the papers' sizes, as near as may be: a day
    python -m bench.papers --list                  # every table and figure, and what it takes
    python -m bench.papers venus minos-producers   # some of them

"""
BEGIN: Final = """\
Made by `python -m bench.papers --page`. Each number of ours comes from a file in `bench/results`,
which has the command, the commit (`+`: with changes), the date, the processor and the load before
and after; the lines above a table say them. A row's form is *full* where it is of the paper's size,
or as near to it as two cores come, and *fast* where `make papers` takes less; without a form it was
measured by another command, which is named. *Here* is what the full form has measured, or the fast
one if that has not been run. The papers measured other machines: 64 cores at 2.2
GHz and 126 GB for VENUS and Minos, hundreds of data centres for Tensor. Compare shapes and
quotients, and absolute times only where the text says that they can be."""

HEAD: Final = "| paper | table or figure | experiment | form | measured | commit | load |"

FORMS: Final = ("", "fast", "full")
"""What counts more is behind."""


def page(results: Path = RESULTS) -> str:
    """The whole page."""
    parts = [COMMANDS, wrapped(BEGIN), *_overview(results)]
    for paper in PAPERS:
        parts += _paper(paper, results)
    return "".join(parts)


def runs_of(experiment: Experiment, results: Path = RESULTS) -> list[dict[str, Any]]:
    """What is in its file: of other commands than its own, of the fast form, of the full form; []
    if there is no file."""
    path = results / f"{experiment.file}.json"
    if not experiment.file or not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return sorted(found, key=_rank)


def draw_all(results: Path = RESULTS) -> None:
    """Draw the pictures of the page anew."""
    for one in experiments():
        rows = [row for run in runs_of(one, results) for row in run["rows"]]
        draw(one, rows, PAGES / "papers" / f"{one.name}.svg")


def _overview(results: Path) -> Iterator[str]:
    yield f"{HEAD}\n|---|---|---|---|---|---|---|\n"
    for paper in PAPERS:
        for one in paper.experiments:
            last = {_form(run): run for run in runs_of(one, results)} or {"": {"date": "no"}}
            for form, run in last.items():
                link = f"[{one.title}](#{one.name})"
                when = (form, run["date"], run.get("commit", ""), _load(run))
                yield f"| {one.paper} | {one.place} | {link} |" + "".join(
                    f" {text} |" if text else " |" for text in when
                )
                yield "\n"
    yield "\n"


def _paper(paper: Paper, results: Path) -> Iterator[str]:
    yield f"## {paper.name}\n\n"
    yield wrapped(paper.note)
    for one in paper.experiments:
        yield from _experiment(one, results)
    if paper.drawings:
        yield f"Of {paper.name}'s other tables and figures none measures anything:\n\n"
        yield "| | what it shows | here |\n|---|---|---|\n"
        for each in paper.drawings:
            yield f"| {each.place} | {each.what} | {each.where} |\n"
        yield "\n"


def _experiment(one: Experiment, results: Path) -> Iterator[str]:
    yield f"### {one.name}\n\n"
    yield wrapped(f"**{one.place[0].upper()}{one.place[1:]}: {one.title}.** {one.question}")
    yield from (f"    {line}\n" for line in _commands(one))
    runs = runs_of(one, results)
    yield "\n"
    if runs:
        yield from map(_measured, runs)
    elif one.file:
        yield "Not measured yet.\n"
    yield "\n" + "".join(_reported(one, runs)) + "\n"
    rows = [row for run in runs for row in run["rows"]]
    if one.picture is not None and series_of(one.picture, rows):
        yield f"![{one.title}](papers/{one.name}.svg)\n\n"
    for spec in one.tables if runs else ():
        whole = f"{spec} | run.form: form | run.commit: commit"
        with contextlib.suppress(NoRowsError):  # another of its commands has been run
            yield f"<!-- table: {whole} -->\n{table(whole, results)}\n"
    yield wrapped(one.differs)


def _commands(one: Experiment) -> Iterator[str]:
    """Those of both forms; of many alike the first and the last."""
    yield from one.fast
    if one.fast and one.full:
        yield "# the full form:"
    yield from one.full if len(one.full) < 4 else (one.full[0], "# …", one.full[-1])


def _measured(run: dict[str, Any]) -> str:
    """When and where a run was: a line of a list."""
    form = _form(run)
    what = f"The {form} form" if form else f"`{run['command']}`"
    told = [f"commit {run['commit']}", run["date"]]
    told += [f"{run['processor']}, {run['cores']} cores"]
    told += [f"load {_load(run)}"] if run["load"] else []
    return f"* {what}: {', '.join(told)}.\n"


def _form(run: dict[str, Any]) -> str:
    form: str = run.get("form", "")
    return form


def _rank(run: dict[str, Any]) -> int:
    return FORMS.index(_form(run))


def wrapped(text: str) -> str:
    """Paragraphs as the other pages have them; "" for none."""
    paragraphs = [
        textwrap.fill(each, 120, break_long_words=False, break_on_hyphens=False)
        for each in text.strip().split("\n\n")
        if each
    ]
    return "".join(f"{each}\n\n" for each in paragraphs)


def _reported(one: Experiment, runs: list[dict[str, Any]]) -> Iterator[str]:
    yield "| | section | the paper | here |\n|---|---|---|---|\n"
    for each in one.reported:
        ours = _ours(each, runs)
        told = each.words
        if each.number is not None:
            form = ",.0f" if float(each.number).is_integer() else ",g"
            told = f"{each.number:{form}} {each.unit}".rstrip()
        yield f"| {each.what} | {each.section} | {told} |" + (f" {ours} |" if ours else " |") + "\n"


def _ours(each: Reported, runs: list[dict[str, Any]]) -> str:
    """Our number as the page has it; "" if there is none."""
    if each.ours is None:
        return ""
    found = newest(each.ours, runs)
    return f"{cell(found, each.ours.form)} {each.unit}".rstrip() if found is not None else ""


def newest(ours: Ours, runs: list[dict[str, Any]]) -> Any:
    """The value of the last row that is meant; None if there is none."""
    rows = [row for run in runs for row in run["rows"]]
    fitting = [row for row in rows if all(value(row, k) == v for k, v in ours.where.items())]
    return value(fitting[-1], ours.key) if fitting else None


def _load(run: dict[str, Any]) -> str:
    load = run.get("load")
    return f"{load[0]} to {load[1]}" if load else ""
