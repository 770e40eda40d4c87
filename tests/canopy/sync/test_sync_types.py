"""Random values of every type, changed in random ways, arrive as they are in each kind of database.

Few examples here; `make sync-types` tries many (CANOPY_EXAMPLES).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.databases import open_destination, open_source
from canopy.sync.errors import UnfitError
from canopy.sync.row_filter import RowFilter
from harness.databases.comparing import plain
from harness.databases.database import Database
from harness.databases.drawing import Draw
from harness.databases.mariadb import Mariadb
from harness.databases.postgres import Postgres
from harness.databases.sqlite import KINDS as SQLITE_KINDS
from harness.databases.sqlite import Sqlite, anything
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.databases.duck import Duck
from tests.support.databases.memory import MemoryStream
from tests.support.databases.pairs import Pairs

EXAMPLES = int(os.environ.get("CANOPY_EXAMPLES", "1"))
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES < 10,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class DataDraw:
    """Choices of hypothesis."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def integer(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def choice(self, of: Any) -> Any:
        return self._draw(st.sampled_from(of))


def example(pairs: Pairs, draw: Draw) -> None:
    pairs.clear()
    if draw.integer(0, 2) == 0:
        pairs.work(draw)
        pairs.snapshot()
    for _ in range(draw.integer(1, 3)):
        pairs.work(draw)
        pairs.drain()
        pairs.compare()


@pytest.fixture(scope="module")
def from_postgres(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    folder = tmp_path_factory.mktemp("types")
    targets: list[Database] = [Sqlite(folder / "t.db"), Duck(folder / "t.duck"), Postgres(server)]
    made = Pairs(Postgres(server), targets)
    yield made
    made.close()


@pytest.fixture(scope="module")
def from_sqlite(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    folder = tmp_path_factory.mktemp("types")
    targets: list[Database] = [Sqlite(folder / "t.db"), Duck(folder / "t.duck"), Postgres(server)]
    made = Pairs(Sqlite(folder / "s.db"), targets)
    yield made
    made.close()


@pytest.fixture(scope="module")
def from_mariadb(
    server: Server, maria: MariadbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pairs]:
    folder = tmp_path_factory.mktemp("types")
    targets: list[Database] = [Sqlite(folder / "t.db"), Duck(folder / "t.duck"), Postgres(server)]
    made = Pairs(Mariadb(maria), [*targets, Mariadb(maria)])
    yield made
    made.close()


@pytest.fixture(scope="module", params=["postgresql", "sqlite", "mariadb"])
def to_mariadb(
    request: pytest.FixtureRequest,
    server: Server,
    maria: MariadbServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pairs]:
    """From values that MariaDB has, too; of its own also days 0."""
    source: Database
    if request.param == "postgresql":
        source = Postgres(server, finite=True)
    elif request.param == "sqlite":
        source = Sqlite(tmp_path_factory.mktemp("types") / "s.db", finite=True)
    else:
        source = Mariadb(maria, zero=True)
    made = Pairs(source, [Mariadb(maria)])
    yield made
    made.close()


class ByAlchemy:
    """A database that is written to by SQLAlchemy's dialect."""

    def __init__(self, inner: Any, url: str) -> None:
        self.url = f"sqlalchemy:{url}"
        self.read, self.close, self.named = inner.read, inner.close, inner.named
        self.execute, self.kinds, self.keys = inner.execute, inner.kinds, inner.keys


@pytest.fixture(scope="module")
def to_alchemy(
    server: Server, maria: MariadbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pairs]:
    light = Sqlite(tmp_path_factory.mktemp("types") / "t.db")
    heavy, other = Postgres(server), Mariadb(maria)
    targets: list[Database] = [
        ByAlchemy(light, f"sqlite:///{light.path}"),
        ByAlchemy(heavy, heavy.url.replace("postgresql:", "postgresql+psycopg:")),
        ByAlchemy(other, other.url.replace("mariadb:", "mysql+pymysql:")),
    ]
    made = Pairs(Postgres(server, finite=True), targets)
    yield made
    made.close()


@few
@given(data=st.data())
def test_values_arrive_by_dialects_of_sqlalchemy(to_alchemy: Pairs, data: Any) -> None:
    example(to_alchemy, DataDraw(data))


@few
@given(data=st.data())
def test_values_of_mariadb_arrive_as_they_are(from_mariadb: Pairs, data: Any) -> None:
    example(from_mariadb, DataDraw(data))


@few
@given(data=st.data())
def test_values_arrive_in_mariadb_as_they_are(to_mariadb: Pairs, data: Any) -> None:
    example(to_mariadb, DataDraw(data))


@few
@given(data=st.data())
def test_values_of_postgresql_arrive_as_they_are(from_postgres: Pairs, data: Any) -> None:
    example(from_postgres, DataDraw(data))


@few
@given(data=st.data())
def test_values_of_sqlite_arrive_as_they_are(from_sqlite: Pairs, data: Any) -> None:
    example(from_sqlite, DataDraw(data))


@few
@given(data=st.data())
def test_values_of_other_types_than_their_columns_arrive_as_well(
    server: Server, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    folder = tmp_path_factory.mktemp("loose")
    pairs = Pairs(Sqlite(folder / "s.db", loose=True), [Sqlite(folder / "t.db")])
    try:
        example(pairs, DataDraw(data))
    finally:
        pairs.close()


@few
@given(data=st.data())
def test_a_value_that_a_column_has_no_place_for_is_refused_or_arrives_as_it_is(
    server: Server, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    draw = DataDraw(data)
    kind = draw.choice(SQLITE_KINDS)
    folder = tmp_path_factory.mktemp("unfit")
    source = Sqlite(folder / "s.db")
    source.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {kind.declared})")
    source.execute("INSERT INTO t VALUES (7, ?)", [anything(draw)])
    captured = open_source("unfit", source.url)
    stream = MemoryStream()
    Capture(captured, stream, RowFilter({})).begin()
    ((there,),) = source.read("t", ["c"])
    for target in (Postgres(server), Duck(folder / "t.duck")):
        destination = open_destination("unfit", target.url)
        apply = Applier(stream, destination, RowFilter({}))
        apply.begin()
        try:
            apply.run_once(0)
        except UnfitError as error:
            found, said = None, str(error)
        else:
            found = target.read("t", ["c"])
        apply.close()
        destination.close()
        target.close()
        if found is None:
            assert said.startswith("t.c, key (7,): ")
        else:
            assert plain(kind.means, found[0][0]) == plain(kind.means, there)
    captured.close()
    source.close()
