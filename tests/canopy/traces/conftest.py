"""One Spark session for the whole folder: starting one costs more than most of its tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from canopy.traces.analysis import spark_session


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here uses the user's archive of classes, or spends half a minute on one. (Only here:
    the tests that come next in this process need the compiled kernels in that folder.)"""
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", os.devnull)
            session = stack.enter_context(spark_session())
        yield session
