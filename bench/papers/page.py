"""docs/lab/papers.md: what each paper reports, ours beside it, and what differs."""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.experiments.pictures import draw, series_of
from bench.lab.record import RESULTS
from bench.lab.tables import PAGES, NoRowsError, Spec, cell, table, value
from bench.papers.experiment import Experiment, Ours, Paper, Reported
from bench.papers.registry import PAPERS, experiments

PAGE: Final = PAGES / "papers.md"

COMMANDS: Final = """\
# The five papers, experiment by experiment

    make papers                                    # the fast form of all: some twenty minutes
    python -m bench.papers venus minos-producers   # of a paper, or of some experiments
    python -m bench.papers --full tensor           # of the papers' size, as near as two cores come
    python -m bench.papers --list                  # every table and figure, and what it takes

"""
BEGIN: Final = """\
Each section is an experiment: its question, what the paper reports with our number in brackets, a
table of our rows, and what differs. Above a table stands the file of `bench/results` that has all
rows, and the command, processor and load of each run. A table shows the rows of the full form, or
of the fast form where the full one has not been run; a *+* behind a commit means uncommitted
changes. The papers measured on other machines: 64 cores at 2.2 GHz and 126 GB for VENUS and Minos,
hundreds of data centres for Tensor. Compare shapes and quotients, and absolute times only where the
text says that they can be compared. `python -m bench.papers --page` makes this page."""

FORMS: Final = ("", "fast", "full")
"""What counts more is behind."""


def page(results: Path = RESULTS) -> str:
    """Return the whole page as Markdown."""
    parts = [COMMANDS, wrapped(BEGIN)]
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
    """Draw the pictures of the page again."""
    for one in experiments():
        rows = [row for run in runs_of(one, results) for row in run["rows"]]
        if one.picture is not None:
            title = f"{one.paper}, {one.place}: {one.title}"
            draw([one.picture], rows, title, PAGES / "papers" / f"{one.name}.svg")


def _paper(paper: Paper, results: Path) -> Iterator[str]:
    yield f"## {paper.name}\n\n"
    yield wrapped(paper.note)
    for one in paper.experiments:
        yield from _experiment(one, results)
    if paper.drawings:
        places = "; ".join(f"{each.place}: {each.what} ({each.where})" for each in paper.drawings)
        yield wrapped(f"{paper.name}'s other tables and figures measure nothing. {places}.")


def _experiment(one: Experiment, results: Path) -> Iterator[str]:
    yield f"### {one.name}\n\n"
    yield wrapped(f"**{one.place[0].upper()}{one.place[1:]}: {one.title}.** {one.question}")
    runs = runs_of(one, results)
    yield wrapped(_reported(one, runs))
    rows = [row for run in runs for row in run["rows"]]
    if one.picture is not None and series_of(one.picture, rows):
        yield f"![{one.title}](papers/{one.name}.svg)\n\n"
        if not one.tables:
            drawn = [run for run in runs if _form(run) == _form(runs[-1])]
            yield wrapped(f"Drawn from {_measured(Spec.parse(f'{one.file}.json'), drawn)}.")
    if one.file and not runs:
        yield "Not measured yet.\n\n"
    for spec in one.tables if runs else ():
        yield from _table(spec, runs, results)
    yield wrapped(one.differs)


def _table(spec: str, runs: Sequence[dict[str, Any]], results: Path) -> Iterator[str]:
    """Of the form that counts most, of those that have such rows."""
    for form in reversed(FORMS):
        whole = spec if "run.form=" in spec else f"{spec} | run.form={form or None}"
        with contextlib.suppress(NoRowsError):
            lines = table(whole, results)
            yield wrapped(_measured(Spec.parse(whole), runs) + ":")
            yield f"<!-- table: {whole} -->\n{lines}\n"
            return


def _measured(spec: Spec, runs: Sequence[dict[str, Any]]) -> str:
    """From where the rows of a table are."""
    said = [f"`{spec.file}`"]
    for run in (run for run in runs if any(spec.wants({**row, "run": run}) for row in run["rows"])):
        form, load = _form(run), run["load"]
        said += [f"{form} form" if form else f"`{run['command']}`", f"commit {run['commit']}"]
        said += [run["date"], *([f"load {load[0]} to {load[1]}"] if load else [])]
    return ", ".join(dict.fromkeys(said))


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


def _reported(one: Experiment, runs: list[dict[str, Any]]) -> str:
    said = []
    for each in one.reported:
        what, theirs, ours = each.what, each.words, _ours(each, runs)
        if each.number is not None:
            form = ",.0f" if float(each.number).is_integer() else ",g"
            theirs = f"{each.number:{form}} {each.unit}".rstrip()
        name = "" if what == "shape" else f"{what}: "
        said.append(name + theirs + (f" (here {ours})" if theirs and ours else ours))
    sections = ", ".join(dict.fromkeys(each.section for each in one.reported))
    return f"The paper ({sections}): {'; '.join(said)}."


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
