"""Runs the planted faults on the commit that is checked out: does each one's test find it?

    python -m bench.mutations.check                  # those that this commit has no row of
    python -m bench.mutations.check --only walk,C7   # words in names, or ids; nothing is kept
    python -m bench.mutations.check --page           # docs/lab/mutations.md from the rows alone

A test that never fails proves nothing. Each fault of `bench.mutations.planted` is planted alone, in
a process of its own, and the test that it names has to fail with it and to pass without it. Rows
are kept in bench/results/mutations.json after each fault: all are of one commit, and a run that was
ended goes on where it was. Two tests run at a time at most.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

import node  # noqa: F401  what each child would import
from bench.lab import tables
from bench.lab.record import RESULTS, ROOT, place, write
from bench.lab.tables import PAGES, rows_of
from bench.mutations.planted import FAULTS, PlantedFault
from bench.mutations.planting import VARIABLE

Row = dict[str, Any]

ROWS: Final = RESULTS / "mutations.json"
PAGE: Final = PAGES / "mutations.md"

PARTS: Final = {
    "C": "CBDLO's mechanisms",
    "P": "Phoenix's",
    "V": "VENUS'",
    "M": "Minos'",
    "T": "Tensor's",
    "I": "invariants",
    "D": "promises of live events",
    "S": "promises of streams",
    "Y": "promises of sync",
    "A": "attacks",
}
"""What an id's letter says."""

TIMEOUT: Final = 600.0
"""Seconds for one test: what takes longer hangs, and has found nothing."""

HANG: Final = 124
"""The code of tests that took longer than that …"""

CRASH: Final = 3
"""… and of those that could not be run, which is pytest's."""

RED: Final = "not found: its test fails without it"

HEAD: Final = """# Planted faults

    make mutations                                    # on the commit that is checked out
    python -m bench.mutations.check --only walk,C7    # some of them, and nothing is kept

A fault stands for a [mechanism or an invariant](../design/overview.md#the-mechanisms), a
[promise](../design/promises.md#by-number) or an
[attack](../design/security.md#attacks-that-are-tried) that is refused. It replaces a method or a
function of the product. The test that it names has to fail with it
(`CANOPY_FAULT=name python -m pytest …`) and to pass without it. What no fault stands for is looked
at by changing the code at random ([`make mutants`](../../CONTRIBUTING.md#planted-faults)).
"""


class Ran(NamedTuple):
    """How tests ran with a fault, or without one."""

    fault: str  # "": none
    tests: Sequence[str]
    code: int  # pytest's; HANG
    said: str
    seconds: float


class _Child:
    """A process in which tests run: a fork of this one, which has imported the product. To import
    it takes longer than most of the tests."""

    def __init__(self, fault: str, tests: Sequence[str]) -> None:
        self._task = (fault, tests)
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed when it has ended
        self._began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid:
            return
        code = CRASH
        try:
            os.setsid()
            for stream in (1, 2):
                os.dup2(self._output.fileno(), stream)
            os.environ[VARIABLE] = fault
            options = ["-q", "-rA", "--tb=line", "-p", "no:cacheprovider"]
            code = int(pytest.main([*options, *(["-x"] if fault else []), *tests]))
            sys.stdout.flush()
        finally:
            os._exit(code)

    def ended(self) -> Ran | None:
        """How they ran; None: they still do."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        seconds = time.monotonic() - self._began
        if not pid and seconds < TIMEOUT * len(self._task[1]):
            return None
        code = os.waitstatus_to_exitcode(status)
        if not pid:
            os.killpg(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            code = HANG
        self._output.seek(0)
        with self._output:
            return Ran(*self._task, code, self._output.read(), seconds)


def run_tests(tasks: Iterable[tuple[str, Sequence[str]]], workers: int) -> Iterator[Ran]:
    """Run tests, each with a fault ("": none), so many at a time, as they end."""
    left, children = list(tasks)[::-1], list[_Child]()
    while left or children:
        while left and len(children) < workers:
            children.append(_Child(*left.pop()))
        time.sleep(0.02)
        for child in list(children):
            if ran := child.ended():
                children.remove(child)
                yield ran


def passed(ran: Ran) -> set[str]:
    """Those of the tests that have passed."""
    found = {"PASSED": set[str](), "FAILED": set[str](), "ERROR": set[str]()}
    for line in ran.said.splitlines():
        word, _, rest = line.partition(" ")
        if word in found:
            test = rest.partition(" - ")[0]
            found[word] |= {test, test.partition("[")[0]}
    return set(ran.tests) & (found["PASSED"] - found["FAILED"] - found["ERROR"])


def row(fault: PlantedFault, found_by: str, seconds: float) -> Row:
    """As bench/results/mutations.json has it."""
    return {
        "fault": fault.name,
        "stands_for": fault.stands_for,
        "what": fault.what[:1].lower() + fault.what[1:],
        "found_by": found_by,
        "seconds": round(seconds, 1),
    }


def row_of(ran: Ran) -> Row:
    """What came of a fault, whose test is known to pass without it."""
    fault = FAULTS[ran.fault]
    found_by = {0: "not found", 1: fault.found_by, HANG: "not found: it hangs"}.get(ran.code)
    if found_by is None:
        print(ran.said[-2_000:], file=sys.stderr)
        found_by = "not found: it cannot be run"
    return row(fault, found_by, ran.seconds)


def check(faults: Iterable[PlantedFault], workers: int = 1) -> Iterator[Row]:
    """For each file of tests: run them without faults, and those that pass with each."""
    files: dict[str, list[PlantedFault]] = {}
    for fault in faults:
        files.setdefault(fault.test.partition("::")[0], []).append(fault)
    for some in files.values():
        (without,) = run_tests([("", sorted({fault.test for fault in some}))], 1)
        good = passed(without)
        yield from (row(fault, RED, 0.0) for fault in some if fault.test not in good)
        tasks = [(fault.name, [fault.test]) for fault in some if fault.test in good]
        yield from map(row_of, run_tests(tasks, workers))


def is_found(found: Row) -> bool:
    """Whether the test found it."""
    return not found["found_by"].startswith("not found")


def page(rows: Sequence[Row]) -> str:
    """docs/lab/mutations.md of these rows, each with its run."""
    of = Counter(row["stands_for"][0] for row in rows)
    found = Counter(row["stands_for"][0] for row in rows if is_found(row))
    run = rows[0]["run"]
    lines = ["| of | faults | found |", "|---|---|---|"]
    lines += [f"| {PARTS[part]} ({part}) | {of[part]} | {found[part]} |" for part in PARTS]
    lines += [f"| all | {of.total()} | {found.total()} |"]
    columns = "fault: planted fault | stands_for: of | what: what it does | found_by: found by"
    text = (
        f"{HEAD}\nOn commit `{run['commit']}`, {run['date']}. The tests took "
        f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes together, two at a time "
        f"(load {run['load'][0]} to {run['load'][1]}).\n\n"
    )
    return text + "\n".join(lines) + f"\n\n<!-- table: {ROWS.name} | {columns} -->\n"


def write_page() -> None:
    """Make docs/lab/mutations.md anew."""
    PAGE.write_text(tables.page(page(list(rows_of(ROWS)))), encoding="utf-8")


def changed() -> list[str]:
    """Files that differ from the commit, without those that this command writes."""
    asked = ["git", "status", "--porcelain", "--untracked-files=no"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    names = [line[3:] for line in done.stdout.splitlines()]
    return [name for name in names if ROOT / name not in (ROWS, PAGE)]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.mutations.check` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.mutations.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="words in names, or ids, with commas; not kept")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=2, help="tests at a time")
    parser.add_argument("--page", action="store_true", help="make the page, run nothing")
    options = parser.parse_args(args)
    if options.page:
        write_page()
        return 0
    sys.dont_write_bytecode = False  # tests, and what they start, compile what they import once
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    words = options.only.split(",")
    wanted = [
        fault
        for fault in FAULTS.values()
        if any(word in fault.name or word == fault.stands_for for word in words)
    ]
    if not options.only and changed():
        print(f"commit these first, rows are of a commit: {', '.join(changed())}", file=sys.stderr)
        return 2
    former = list(rows_of(ROWS)) if ROWS.exists() else []
    head = place("python -m bench.mutations.check")
    head["commit"] = head["commit"].removesuffix("+")
    same = [row for row in former if not options.only and row["run"]["commit"] == head["commit"]]
    rows = [{key: row[key] for key in row if key != "run"} for row in same]
    found = {row["fault"]: row for row in rows if row["fault"] in FAULTS}
    left = [fault for fault in wanted if fault.name not in found]
    for row in check(left, options.workers):
        found[row["fault"]] = row
        where = f"{len(found)}/{len(wanted)} {row['seconds']:6.1f} s"
        print(f"{where}  {row['fault']}: {row['found_by']}", file=sys.stderr, flush=True)
        if not options.only:
            head["load"][1] = round(os.getloadavg()[0], 1)
            write(ROWS, [{**head, "rows": [found[name] for name in FAULTS if name in found]}])
    if not options.only:
        write_page()
    missed = [name for name, row in found.items() if not is_found(row)]
    print(f"{len(found) - len(missed)} of {len(found)} found", *missed, sep="\n  ")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
