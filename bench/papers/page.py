"""docs/lab/papers.md: what each paper reports, ours beside it, and what differs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.lab.record import RESULTS
from bench.lab.tables import PAGES, cell, table, value
from bench.papers.experiment import Experiment, Ours, Paper, Reported
from bench.papers.pictures import draw, series_of
from bench.papers.registry import PAPERS, experiments

PAGE: Final = PAGES / "papers.md"

COMMANDS: Final = """\
# The five papers, experiment by experiment

    make papers                                    # the fast form: some twenty minutes
    make papers PAPERS=full                        # the papers' sizes, as near as may be: hours
    python -m bench.papers --list                  # every table and figure, and what it takes
    python -m bench.papers venus minos-producers   # some of them

"""
BEGIN: Final = """\
Made by `python -m bench.papers --page`. Each number of ours comes from a file in `bench/results`,
which has the command, the commit (`+`: with changes), the date, the processor and the load before
and after; the line above a table says them. The papers measured other machines: 64 cores at 2.2
GHz and 126 GB for VENUS and Minos, hundreds of data centres for Tensor. Compare shapes and
quotients, and absolute times only where the text says that they can be."""

HEAD: Final = "| paper | table or figure | experiment | measured | commit | load |"


def page(results: Path = RESULTS) -> str:
    """The whole page."""
    parts = [COMMANDS, wrapped(BEGIN), *_overview(results)]
    for paper in PAPERS:
        parts += _paper(paper, results)
    return "".join(parts)


def runs_of(experiment: Experiment, results: Path = RESULTS) -> list[dict[str, Any]]:
    """What its commands have left in its file, oldest first, or everything if they have left
    nothing; [] if there is no file."""
    path = results / f"{experiment.file}.json"
    if not experiment.file or not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    mine = {*experiment.fast, *experiment.full}
    return [run for run in found if run["command"] in mine] or found


def draw_all(results: Path = RESULTS) -> None:
    """Draw the pictures of the page anew."""
    for one in experiments():
        rows = [row for run in runs_of(one, results) for row in run["rows"]]
        draw(one, rows, PAGES / "papers" / f"{one.name}.svg")


def _overview(results: Path) -> Iterator[str]:
    yield f"{HEAD}\n|---|---|---|---|---|---|\n"
    for paper in PAPERS:
        for one in paper.experiments:
            runs = runs_of(one, results)
            last = runs[-1] if runs else {}
            link = f"[{one.title}](#{one.name})"
            when = (last.get("date", "no"), last.get("commit", ""), _load(last))
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
    yield from (f"    {command}\n" for command in one.fast or one.full)
    runs = runs_of(one, results)
    if runs:
        last = runs[-1]
        where = f"{last['processor']}, {last['cores']} cores"
        told = [f"commit {last['commit']}", last["date"], where]
        told += [f"load {_load(last)}"] if last["load"] else []
        ran = last["command"]
        other = f" (`{ran}`)" if ran not in (*one.fast, *one.full) else ""
        yield f"\nMeasured at {', '.join(told)}{other}.\n"
    elif one.file:
        yield "\nNot measured yet.\n"
    yield "\n" + "".join(_reported(one, runs)) + "\n"
    rows = [row for run in runs for row in run["rows"]]
    if one.picture is not None and series_of(one.picture, rows):
        yield f"![{one.title}](papers/{one.name}.svg)\n\n"
    for spec in one.tables if runs else ():
        yield f"<!-- table: {spec} -->\n{table(spec, results)}\n"
    yield wrapped(one.differs)


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
