"""Shared by all tests. Helpers live in ``tests.support``; the project's root is on the path.

A shell starts background jobs with SIGINT ignored, and processes hand that on to their children: a
suite that runs in the background would wait for ever for the processes that it interrupts.

``CANOPY_FAULT=name`` plants a fault first (`bench.mutations`), which some test has to find.

``CANOPY_EXAMPLES_SHARE=10`` has Hypothesis draw ten times the examples that a test asks for
(`make examples`); the suite draws a part of them.
"""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from bench.mutations.planting import VARIABLE
from canopy.wire.process.machine_load import freeze_heap
from tests.support.examples import examples
from tests.support.traces.spark_fixture import spark  # noqa: F401  a fixture of all tests

signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get(VARIABLE):
    import node  # noqa: F401  imports all that a fault replaces
    from bench.mutations.planted import plant

    plant(os.environ[VARIABLE])


# No test may depend on how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

ASKED = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps a test's settings, which can be given once only in public."""

ROOT = Path(__file__).parents[1]


@cache
def group_of(file: str) -> str:
    """What the tests of a file share a worker with: all that start Spark, which share a session;
    all that start processes, which mostly wait; else those of the file, whose fixtures are made
    once."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return next((mark for mark in ("spark", "process") if f"pytest.mark.{mark}" in text), file)


class GroupScheduling(LoadScopeScheduling):
    """Gives each worker of pytest-xdist whole groups, in the order of the folders, of the tests
    that it has collected. (xdist's own groups need the ids of tests to be changed, which pytest 9
    has made impossible.)"""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._collected: dict[WorkerController, set[str]] = {}

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Workers need not have the same tests."""
        self.registered_collections[node] = list(collection)
        self._collected[node] = set(collection)

    def schedule(self) -> None:
        """Begin with the groups of all workers, two for each worker."""
        if self.collection is None:
            found = self.registered_collections.values()
            self.collection = list(dict.fromkeys(test for each in found for test in each))
            for test in self.collection:
                self.workqueue.setdefault(self._split_scope(test), {})[test] = False
        for node in [*self.nodes, *self.nodes]:
            self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Give the worker its next group, if it is almost done with what it has."""
        if self._pending_of(self.assigned_work[node]) > 2:
            return
        mine = self._collected[node]
        groups = (name for name, tests in self.workqueue.items() if not mine.isdisjoint(tests))
        group = next(groups, None)
        if group is not None:
            self.workqueue.move_to_end(group, last=False)
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()


APART = "process"
"""The group that waits more than it computes: of three workers or more the last one has it, and
nothing else, and the others do not look at its files."""


def is_for_others(config: pytest.Config, file: Path) -> bool:
    """Whether this worker leaves a test file to others: to import all of them takes a worker 10 s
    of processor time."""
    worker = getattr(config, "workerinput", {})
    if worker.get("workercount", 0) < 3 or config.getvalue("dist") != "loadgroup":
        return False
    number, last = int(worker["workerid"].removeprefix("gw")), worker["workercount"] - 1
    if number > last:  # in the place of one that crashed
        return False
    return (group_of(str(file.relative_to(ROOT))) == APART) != (number == last)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files to other workers."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return (is_test and is_for_others(config, collection_path)) or None


def pytest_collection(session: pytest.Session) -> None:
    """Import the test files before they are collected, each worker beginning at another one.

    Each worker collects all tests. The first time, pytest rewrites the assertions of each file,
    which takes three times as long as all else, and keeps what it compiled: so each finds what the
    others have done. What fails here fails again, and is reported, when it is collected."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    every = (
        file.resolve() for each in session.config.args for file in Path(each).rglob("test_*.py")
    )
    files = sorted(file for file in every if not is_for_others(session.config, file))
    begin = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[begin:] + files[:begin]:
        with suppress(Exception):
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each property of Hypothesis draw a part of the examples that it asks for."""
    tests = [getattr(item, "obj", None) for item in items]
    for test in {getattr(each, "__func__", each): None for each in tests}:
        asked: settings | None = getattr(test, ASKED, None)
        if asked is not None:
            setattr(test, ASKED, settings(asked, max_examples=examples(asked.max_examples)))


@given(strategies.none())
def start_hypothesis(_: None) -> None:
    """Has Hypothesis register its random generator, for which it asks the garbage collector who
    refers to it: what is frozen is no answer."""


def pytest_collection_finish() -> None:
    """As in a node's process: the garbage collector passes over all modules and collected tests,
    a tenth of the suite's processor time otherwise."""
    start_hypothesis()
    freeze_heap()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """The scheduler for ``--dist loadgroup``."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)
