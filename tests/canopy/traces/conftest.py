"""One Spark session for the whole folder: starting one costs more than most of its tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from canopy.traces.analysis import spark_session


@pytest.fixture(scope="session", autouse=True)
def no_cache() -> Iterator[None]:
    """No test uses the user's archive of classes, or spends half a minute on one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.devnull)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with spark_session() as session:
        yield session
