"""What the tests of this folder share: servers of PostgreSQL and MariaDB, and pairs to close."""

from collections.abc import Iterator

import pytest

from harness.mariadb import MariadbServer
from harness.postgres import NoServerError, Server
from tests.support.sync_pair import Pair


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        made = Server()
    except NoServerError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


@pytest.fixture(scope="session")
def maria() -> Iterator[MariadbServer]:
    try:
        made = MariadbServer()
    except NoServerError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Pairs that a test adds here are closed at its end."""
    made: list[Pair] = []
    yield made
    for one in made:
        one.close()
