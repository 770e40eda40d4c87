"""Where the tests of traces keep nothing of the user's."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here uses the user's archive of classes, or spends half a minute on one. (Only here:
    the tests that come next in this process need the compiled kernels in that folder.)"""
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
