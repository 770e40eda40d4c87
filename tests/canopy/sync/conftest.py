"""One PostgreSQL server for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.canopy.sync.postgres_server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()
