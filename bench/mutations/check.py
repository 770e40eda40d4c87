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

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any, Final

import pytest

import node  # noqa: F401  what each child would import
from bench.command import parser
from bench.lab import tables
from bench.lab.record import RESULTS, ROOT, place, write
from bench.lab.tables import PAGES, rows_of
from bench.mutations.planted import FAULTS, PlantedFault, plant
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

SHOWN: Final = "I3 or I5"
"""What the faults stand for that the page names."""

TIMEOUT: Final = 300.0
"""Seconds for one test: what takes longer hangs, and has found nothing."""

HANG: Final = 124
"""The code of tests that took longer than that …"""

CRASH: Final = 3
"""… and of those that could not be run, which is pytest's."""

RED: Final = -1
"""In the place of a code: the test fails, or is skipped, without the fault."""

NOT_FOUND: Final = {
    0: "not found",
    RED: "not found: its test does not pass without it",
    HANG: "not found: it hangs",
}

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


def in_a_fork(run: Callable[[], int], most: float = TIMEOUT) -> Callable[[], int | None]:
    """Run this in a fork of this process, for `most` seconds. Returns what says with which code it
    has ended; None: it has not yet."""
    sys.stdout.flush()
    sys.stderr.flush()
    began, pid = time.monotonic(), os.fork()
    if not pid:
        code = CRASH
        try:
            os.setsid()
            code = run()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def ended() -> int | None:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() < began + most:
            return None
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return HANG

    return ended


class Tries:
    """A plugin of pytest that runs the tests of faults without them, and those that pass with each.
    Each runs in a fork of the process that has collected them, which takes longer than most of
    them."""

    def __init__(self, faults: Sequence[PlantedFault], found: Callable[[Row], None]) -> None:
        self._faults = faults
        self._found = found
        self._ran = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that is skipped has not run."""
        self._ran |= not report.skipped and (report.when == "call" or report.failed)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them in the place of what pytest would run."""
        tests = {fault.test for fault in self._faults}
        good = {test for test in sorted(tests) if self._code(session, test, "") == 0}
        for fault in self._faults:
            began = time.monotonic()
            code = self._code(session, fault.test, fault.name) if fault.test in good else RED
            self._found(row(fault, code, time.monotonic() - began))
        return True

    def _code(self, session: pytest.Session, test: str, fault: str) -> int:
        items = [i for i in session.items if test in (i.nodeid, i.nodeid.partition("[")[0])]

        def run() -> int:
            os.environ[VARIABLE] = fault
            if fault:
                plant(fault)
            for item, following in zip(items, [*items[1:], None], strict=True):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            return int(bool(session.testsfailed)) if self._ran else CRASH

        ended = in_a_fork(run)
        while (code := ended()) is None:
            time.sleep(0.01)
        return code


def row(fault: PlantedFault, code: int, seconds: float) -> Row:
    """As bench/results/mutations.json has it. `code`: of its test with the fault, or RED."""
    return {
        "fault": fault.name,
        "stands_for": fault.stands_for,
        "what": fault.what[:1].lower() + fault.what[1:],
        "found_by": NOT_FOUND.get(code, fault.found_by if code == 1 else "not found: no test ran"),
        "seconds": round(seconds, 1),
    }


def check(faults: Iterable[PlantedFault], workers: int = 1) -> Iterator[Row]:
    """Yield a row for each fault. `workers`: test files that run at the same time."""
    files: dict[str, list[PlantedFault]] = {}
    for fault in faults:
        files.setdefault(fault.test.partition("::")[0], []).append(fault)
    left = list(files.values())[::-1]
    running: list[tuple[list[PlantedFault], IO[str], Callable[[], int | None]]] = []
    while left or running:
        while left and len(running) < workers:
            some = left.pop()
            kept: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed when read
            most = TIMEOUT * (2 * len(some) + 1)
            running.append((some, kept, in_a_fork(partial(of_file, some, kept), most)))
        time.sleep(0.02)
        for some, kept, ended in list(running):
            if ended() is not None:
                running.remove((some, kept, ended))
                with kept:
                    kept.seek(0)
                    rows = {found["fault"]: found for found in map(json.loads, kept)}
                yield from (rows.get(fault.name) or row(fault, CRASH, 0.0) for fault in some)


def of_file(faults: Sequence[PlantedFault], kept: IO[str]) -> int:
    """Write rows of faults whose tests are in one file, one a line. Returns pytest's exit code."""

    def found(row: Row) -> None:
        print(json.dumps(row), file=kept, flush=True)

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    options = ["-q", "--tb=line", "-p", "no:cacheprovider"]
    file = faults[0].test.partition("::")[0]
    return int(pytest.main([*options, file], plugins=[Tries(faults, found)]))


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
        f"{HEAD}\nOn commit `{run['commit']}`, {run['date']}. With the faults the tests took "
        f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes together "
        f"(load {run['load'][0]} to {run['load'][1]}).\n\n"
    )
    some = f"Some of them; all are in `bench/results/{ROWS.name}`:\n\n"
    spec = f"{ROWS.name} | stands_for={SHOWN} | {columns}"
    return text + "\n".join(lines) + f"\n\n{some}<!-- table: {spec} -->\n"


def write_page() -> None:
    """Write docs/lab/mutations.md from the results."""
    PAGE.write_text(tables.page(page(list(rows_of(ROWS)))), encoding="utf-8")


def changed() -> list[str]:
    """Files that differ from the commit, without those that this command writes."""
    asked = ["git", "status", "--porcelain", "--untracked-files=no"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    names = [line[3:] for line in done.stdout.splitlines()]
    return [name for name in names if ROOT / name not in (ROWS, PAGE)]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.mutations.check` and return its exit code."""
    options = parser(
        __doc__,
        only=("", "words in names, or ids, with commas; not kept"),
        workers=(2, "tests at a time"),
        page=(False, "make the page, run nothing"),
    ).parse_args(args)
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
