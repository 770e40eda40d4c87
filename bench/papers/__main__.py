"""Every table and figure of the five papers, and the same measured here.

    python -m bench.papers --list                  # what there is, what is measured, what it takes
    python -m bench.papers                         # all of the fast form: some twenty minutes
    python -m bench.papers venus minos-producers   # a paper, or some experiments
    python -m bench.papers --full tensor           # of the papers' size, as near as may be: hours
    python -m bench.papers --page                  # docs/lab/papers.md again, from bench/results

Rows go to bench/results, a file for each experiment, as soon as it has ended, and the page is
written each time. What was measured at the commit that is checked out is not measured again, so
that a run that was interrupted goes on where it was (`--again`: all). An experiment that fails
keeps its former rows; the exit code is 1 then, and the others are run all the same.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from bench.lab.record import RESULTS, commit, keep, measure
from bench.papers.experiment import Experiment
from bench.papers.page import PAGE, draw_all, page, runs_of
from bench.papers.registry import chosen


def commands_of(one: Experiment, full: bool) -> tuple[str, ...]:
    """What an experiment runs; (): nothing in this form."""
    return (one.full or one.fast) if full else one.fast


def is_measured(one: Experiment, command: str, now: str) -> bool:
    """Whether a command's rows are of the commit `now`."""
    return any(
        run["command"] == command and run["commit"].rstrip("+") == now.rstrip("+")
        for run in runs_of(one)
    )


def listed(wanted: Sequence[Experiment]) -> str:
    """A line for each of them."""
    lines = []
    for one in wanted:
        runs = runs_of(one)
        state = f"measured {runs[-1]['date']} at {runs[-1]['commit']}" if runs else "not measured"
        takes = f"some {one.seconds} s" if one.seconds else "with another"
        takes = takes if one.fast else "only --full"
        lines.append(f"{one.name:24} {one.paper:8} {one.place:24} {takes:12} {state}")
        lines.append(f"{'':24} {one.title}")
    return "\n".join(lines)


def run(one: Experiment, commands: Sequence[str]) -> bool:
    """Run the commands of an experiment and keep their rows; whether all went well."""
    for command in commands:
        try:
            found = measure(shlex.split(command))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"{one.name}: {command} printed no rows: {error}", file=sys.stderr)
            return False
        keep(RESULTS / f"{one.file}.json", {"form": one.form_of(command), **found})
        write_page()
        if found.get("exit_code"):
            print(f"{one.name}: {command} ended with {found['exit_code']}", file=sys.stderr)
            return False
    return True


def write_page() -> None:
    """Make docs/lab/papers.md and its pictures again."""
    draw_all()
    PAGE.write_text(page(), encoding="utf-8")


def run_all(wanted: Sequence[Experiment], full: bool, again: bool) -> int:
    """Run what is to be run, with a line before each; returns the exit code."""
    now = commit()
    work = []
    for one in wanted:
        commands = commands_of(one, full)
        left = [c for c in commands if again or not is_measured(one, c, now)]
        if left:
            work.append((one, left))
    rest, failed, ran = sum(one.seconds for one, _ in work), [], dict[str, None]()
    for number, (one, left) in enumerate(work, 1):
        about = "" if full else f", {max(rest // 60, 1)} min left"
        print(f"[{number}/{len(work)}{about}] {one.name}: {one.title}", file=sys.stderr, flush=True)
        began = time.monotonic()
        if not run(one, [command for command in left if command not in ran]):
            failed.append(one.name)
        ran.update(dict.fromkeys(left))  # of which another experiment shows something else
        print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        rest -= one.seconds
    write_page()
    if failed:
        print(f"failed: {', '.join(failed)}; their rows are the former ones", file=sys.stderr)
    return 1 if failed else 0


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.papers` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.papers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="of experiments or papers; all if none is named")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--full", action="store_true", help="of the papers' size")
    parser.add_argument("--again", action="store_true", help="also what this commit has measured")
    parser.add_argument("--page", action="store_true", help="make docs/lab/papers.md only")
    parser.add_argument("--json", action="store_true", help="with --list: one JSON list")
    options = parser.parse_args(args)
    try:
        wanted = chosen(options.names)
    except LookupError as error:
        parser.error(f"no paper or experiment is called {error.args[0]}; --list names them")
    if options.list and options.json:
        print(
            json.dumps(
                [{**one._asdict(), "runs": len(runs_of(one))} for one in wanted], default=str
            )
        )
    elif options.list:
        print(listed(wanted))
    elif options.page:
        write_page()
    else:
        return run_all(wanted, options.full, options.again)
    return 0


if __name__ == "__main__":
    sys.exit(main())
