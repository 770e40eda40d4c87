"""Memory goes back to the system where the C library can be configured to, and what is old is not
looked at by the garbage collector."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest

from canopy.wire.process import machine_load
from canopy.wire.process.machine_load import (
    ARENA_MAX,
    LARGE,
    MMAP_THRESHOLD,
    TRIM_THRESHOLD,
    return_large_blocks,
)

YOUNG: Final = 2_000


def test_the_c_library_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[int, int] = {}
    library = SimpleNamespace(mallopt=options.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    return_large_blocks()
    assert options == {MMAP_THRESHOLD: LARGE, TRIM_THRESHOLD: LARGE, ARENA_MAX: 1}


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    return_large_blocks()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A frozen heap with small generations; in the list, for each collection, how many objects it
    looks at."""
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            ages = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(generation=age)) for age in ages))

    monkeypatch.setattr(machine_load, "YOUNG_OBJECTS", YOUNG)
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    machine_load.freeze_heap()
    gc.callbacks.append(note)
    try:
        yield looked_at
    finally:
        gc.callbacks[:] = callbacks
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def test_no_collection_looks_at_more_than_what_is_young(collector: list[int]) -> None:
    kept = [[number] for number in range(100 * YOUNG)]
    assert len(kept) == 100 * YOUNG
    assert len(collector) >= 10
    assert max(collector) <= 2 * YOUNG + 500  # some are the test runner's
    assert gc.get_freeze_count() >= 90 * YOUNG


def test_young_cycles_are_found(collector: list[int]) -> None:
    class Node:
        other: Any

    one = Node()
    one.other = one
    gone = weakref.ref(one)
    del one
    assert gone() is not None
    kept = [[number] for number in range(10 * YOUNG)]
    assert gone() is None
    assert kept
