"""Every table and figure of the five papers, and the same measured here.

    python -m bench.papers --list                  # what there is, what is measured, what it takes
    python -m bench.papers                         # all of the fast form: some twenty minutes
    python -m bench.papers venus minos-producers   # a paper, or some experiments
    python -m bench.papers --full tensor           # of the papers' size, as near as may be: hours
    python -m bench.papers --page                  # tables and pictures again, from bench/results

Rows go to bench/results, a file for each experiment, as soon as it has ended, and the page is
written each time. What was measured at the commit that is checked out is not measured again, so
that a run that was interrupted goes on where it was (`--again`: all). An experiment that fails
keeps its former rows; the exit code is 1 then, and the others are run all the same.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.command import parser, say
from bench.experiments.pictures import draw
from bench.lab.record import RESULTS, commit, keep, measure
from bench.lab.tables import FORMS, PAGES
from bench.lab.tables import main as write_tables
from bench.papers.registry import EXPERIMENTS, Experiment, chosen


def runs_of(one: Experiment) -> list[dict[str, Any]]:
    """What is in its file: of other commands than its own, of the fast form, of the full form; []
    if there is no file."""
    path = RESULTS / f"{one.file}.json"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return sorted(found, key=lambda run: FORMS.index(run.get("form")))


def write_page() -> None:
    """Make the tables of docs/lab and the pictures of docs/lab/papers.md again."""
    for one in EXPERIMENTS:
        if one.picture is not None:
            rows = [row for run in runs_of(one) for row in run["rows"]]
            draw([one.picture], rows, one.title, PAGES / "papers" / f"{one.name}.svg")
    write_tables([])


def is_measured(one: Experiment, command: str, now: str) -> bool:
    """Whether a command's rows are of the commit `now`."""
    return any(
        run["command"] == command and run["commit"].rstrip("+") == now.rstrip("+")
        for run in runs_of(one)
    )


def listed(one: Experiment) -> str:
    """A line of it."""
    runs = runs_of(one)
    state = "not measured"
    if runs:
        low, high = runs[-1]["load"]
        state = f"{runs[-1]['date']} at {runs[-1]['commit']}, load {low} to {high}"
    takes = f"some {one.seconds} s" if one.seconds else "with another"
    return f"{one.name:20} {takes if one.fast else 'only --full':12} {state:48} {one.title}"


def run(one: Experiment, commands: Sequence[str]) -> bool:
    """Run the commands of an experiment and keep their rows; whether all went well."""
    for command in commands:
        try:
            found = measure(shlex.split(command))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            say(f"{one.name}: {command} printed no rows: {error}")
            return False
        keep(RESULTS / f"{one.file}.json", {"form": one.form_of(command), **found})
        write_page()
        if found.get("exit_code"):
            say(f"{one.name}: {command} ended with {found['exit_code']}")
            return False
    return True


def run_all(wanted: Sequence[Experiment], full: bool, again: bool) -> int:
    """Run what is to be run, with a line before each; returns the exit code."""
    now = commit()
    work = []
    for one in wanted:
        commands = (one.full or one.fast) if full else one.fast
        left = [c for c in commands if again or not is_measured(one, c, now)]
        if left:
            work.append((one, left))
    rest, failed, ran = sum(one.seconds for one, _ in work), [], dict[str, None]()
    for number, (one, left) in enumerate(work, 1):
        about = "" if full else f", {max(rest // 60, 1)} min left"
        say(f"[{number}/{len(work)}{about}] {one.name}: {one.title}")
        began = time.monotonic()
        if not run(one, [command for command in left if command not in ran]):
            failed.append(one.name)
        ran.update(dict.fromkeys(left))  # of which another experiment shows something else
        say(f"  {time.monotonic() - began:.0f} s")
        rest -= one.seconds
    write_page()
    if failed:
        say(f"failed: {', '.join(failed)}; their rows are the former ones")
    return 1 if failed else 0


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.papers` and return its exit code."""
    made = parser(
        __doc__,
        list=(False, "say what there is"),
        full=(False, "of the papers' size"),
        again=(False, "also what this commit has measured"),
        page=(False, "make tables and pictures only"),
    )
    made.add_argument("names", nargs="*", help="of experiments or papers; all if none is named")
    options = made.parse_args(args)
    try:
        wanted = chosen(options.names)
    except LookupError as error:
        made.error(f"no paper or experiment is called {error.args[0]}; --list names them")
    if options.list and options.json:
        found = [{**one._asdict(), "runs": len(runs_of(one))} for one in wanted]
        print(json.dumps(found, default=str))
    elif options.list:
        print("\n".join(map(listed, wanted)))
    elif options.page:
        write_page()
    else:
        return run_all(wanted, options.full, options.again)
    return 0


if __name__ == "__main__":
    sys.exit(main())
