"""One PostgreSQL and one MariaDB server for all tests of this folder."""

from collections.abc import Iterator

import pytest

from bench.processes.mariadb import MariadbServer
from bench.processes.postgres import NoServerError, Server


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
