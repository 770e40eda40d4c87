"""Memory goes back to the system where the C library can be configured to."""

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


def test_the_c_library_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[int, int] = {}
    library = SimpleNamespace(mallopt=options.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    return_large_blocks()
    assert options == {MMAP_THRESHOLD: LARGE, TRIM_THRESHOLD: LARGE, ARENA_MAX: 1}


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    return_large_blocks()
