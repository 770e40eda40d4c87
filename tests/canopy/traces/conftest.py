"""One Spark session for the whole folder: starting one costs more than most of its tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from canopy.traces.analysis import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    with spark_session() as session:
        yield session
