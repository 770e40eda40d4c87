"""Shared by all tests. Helpers live in ``tests.support``; the project's root is on the path.

A shell starts background jobs with SIGINT ignored, and processes hand that on to their children: a
suite that runs in the background would wait for ever for the processes that it interrupts.

``CANOPY_FAULT=name`` plants a fault first (`bench.mutations`), which some test has to find.
"""

import os
import signal

import pytest

from bench.mutations.planting import VARIABLE

signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get(VARIABLE):
    import node  # noqa: F401  imports all that a fault replaces
    from bench.mutations.planted import plant

    plant(os.environ[VARIABLE])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where pytest-xdist runs tests in several workers, one worker has a whole file, so that module
    fixtures are made once. One worker has all tests with Spark, which share a session, and one all
    tests with real processes, which mostly wait."""
    for item in items:
        marks = (mark for mark in ("spark", "process") if item.get_closest_marker(mark))
        item.add_marker(pytest.mark.xdist_group(next(marks, item.location[0])))
