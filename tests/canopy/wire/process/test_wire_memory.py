"""Memory goes back to the system where the C library can be told to."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from canopy.wire.process.memory import (
    ARENA_MAX,
    LARGE,
    MMAP_THRESHOLD,
    TRIM_THRESHOLD,
    return_large_blocks,
)


def test_the_c_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}
    library = SimpleNamespace(mallopt=told.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    return_large_blocks()
    assert told == {MMAP_THRESHOLD: LARGE, TRIM_THRESHOLD: LARGE, ARENA_MAX: 1}


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    return_large_blocks()
