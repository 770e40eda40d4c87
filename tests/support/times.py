"""A plugin of pytest that says what processor time the suite takes, by folder, file and test.

    make test-times                                 # the whole suite, 40 rows of each table
    make test-times TESTS=tests/links TIMES=200     # one folder, and more rows

Processor time is much the same on a busy machine and on an idle one, unlike what ``--durations``
says. Each phase of a test counts what its process has used since the phase before, with the
processes that it started: so what fixtures of a session or module take counts for the test that
asks for them first. The imports of all test files, which each worker makes, are a row of their own.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

CPU, STARTS = "cpu", "starts"
"""Names of the properties by which workers hand on what they measured with each report."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("times")
    group.addoption("--times", type=int, default=40, help="rows of each table of processor time")
    group.addoption(
        "--times-to", type=Path, help="append a line for each phase of a test, as it ends"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process."""
    config.pluginmanager.register(Times(config), "measured-times")


def has_children() -> bool:
    """Whether this process has children: to look for them among all processes takes long."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def spent() -> float:
    """Seconds of processor time of this process and of all that it started."""
    used = sum(os.times()[:4])
    if has_children():
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                used += sum(child.cpu_times()[:4])
    return used


class Times:
    """What one process measured; in the controller, what all tell."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.to: Path | None = config.getoption("times_to")
        if hasattr(config, "workerinput"):
            self.to = None  # the controller writes
        self.begun = spent()
        self.mark = self.begun
        self.starts = 0
        self.by_test: Counter[str] = Counter()
        self.starts_by_test: Counter[str] = Counter()
        self.other: Counter[str] = Counter()
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        self.starts += event in ("subprocess.Popen", "os.posix_spawn")

    def _lap(self) -> float:
        """Seconds since the last one; what measuring takes counts for nobody."""
        found = spent() - self.mark
        self.mark = spent()
        return found

    def pytest_collection_finish(self) -> None:
        """What the imports have taken."""
        self.other["imports and collection"] += spent()
        self.mark = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Hand on what the phase has taken."""
        report = yield
        report.user_properties += [(CPU, self._lap()), (STARTS, self.starts)]
        self.starts = 0
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what a phase has taken."""
        found = dict(report.user_properties)
        self.by_test[report.nodeid] += found.get(CPU, 0.0)
        if self.to is not None:
            with self.to.open("a") as file:
                print(f"{found.get(CPU, 0.0):.3f} {report.when} {report.nodeid}", file=file)
        self.starts_by_test[report.nodeid] += found.get(STARTS, 0)

    def pytest_sessionfinish(self) -> None:
        """A worker's imports are told to the controller."""
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["times"] = dict(self.other)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker tells at its end."""
        self.other.update(getattr(node, "workeroutput", {}).get("times", {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The tables."""
        total = self.by_test + self.other
        rows = self.config.getoption("times")
        starts = sum(self.starts_by_test.values())
        terminalreporter.section(f"{total.total():.1f} s of processor time, {starts} processes")
        for lines in (self._lines(self.other, rows), *self._tables(rows)):
            terminalreporter.write_line("\n".join(lines) + "\n")

    def _tables(self, rows: int) -> Iterator[list[str]]:
        folders: Counter[str] = Counter()
        files: Counter[str] = Counter()
        functions: Counter[str] = Counter()
        for test, seconds in self.by_test.items():
            file = test.partition("::")[0]
            folders[file.rpartition("/")[0]] += seconds
            files[file] += seconds
            functions[test.partition("[")[0]] += seconds
        yield from (self._lines(each, rows) for each in (folders, files, functions, self.by_test))

    def _lines(self, found: Counter[str], rows: int) -> list[str]:
        count: Counter[str] = Counter()
        starts: Counter[str] = Counter()
        for name in found:
            for test in self.by_test if rows else ():
                if test == name or test.startswith((f"{name}/", f"{name}::", f"{name}[")):
                    count[name] += 1
                    starts[name] += self.starts_by_test[test]
        return [
            f"{seconds:7.2f} s {count[name]:5} tests {starts[name]:3} starts  {name}"
            for name, seconds in found.most_common(rows)
        ]
