"""Syncs and exactly-once sinks in one database, whichever comes first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from canopy.sinks.alchemy import SqlAlchemySink
from canopy.sync.conflicts import Conflict
from canopy.sync.databases import open_destination
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.sync_pair import Pair, pg_url

KINDS = ("sqlite", "postgresql", "mariadb", "duckdb", "sqlalchemy")


@pytest.fixture(params=KINDS)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The destination's, and what SQLAlchemy calls it ("": it has no dialect here)."""
    copy = tmp_path / "b.db"
    if request.param == "sqlite":
        return f"sqlite:{copy}", f"sqlite:///{copy}"
    if request.param == "sqlalchemy":
        return f"sqlalchemy:sqlite:///{copy}", f"sqlite:///{copy}"
    if request.param == "duckdb":
        return f"duckdb:{tmp_path / 'b.duck'}", ""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("server")
        url = pg_url(server, server.database())
        return url, url.replace("postgresql:", "postgresql+psycopg:")
    maria: MariadbServer = request.getfixturevalue("maria")
    url = f"mariadb://root@localhost/{maria.database()}?unix_socket={maria.socket}"
    return url, url.replace("mariadb:", "mariadb+pymysql:")


@pytest.fixture
def open_pair(tmp_path: Path, urls: tuple[str, str]) -> Iterator[Callable[[], Pair]]:
    db = sqlite3.connect(tmp_path / "a.db")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1)")
    db.commit()
    db.close()
    made: list[Pair] = []

    def opened() -> Pair:
        made.append(Pair(f"sqlite:{tmp_path / 'a.db'}", urls[0]))
        return made[-1]

    yield opened
    for pair in made:
        pair.close()


def begin_sink(url: str) -> None:
    engine = sa.create_engine(url)
    sink = SqlAlchemySink(engine, "invoices")
    assert sink.positions("orders") == {}
    engine.dispose()


def test_a_sink_and_a_sync_share_the_table_of_positions(
    urls: tuple[str, str], open_pair: Callable[[], Pair]
) -> None:
    if not urls[1]:
        pytest.skip("SQLAlchemy has no dialect for it here")
    begin_sink(urls[1])
    pair = open_pair()
    pair.begin()
    begin_sink(urls[1])
    engine = sa.create_engine(urls[1])
    with engine.connect() as link:
        found = link.execute(
            sa.text("SELECT stream, shard, durable, next_offset FROM canopy_positions")
        )
        assert [tuple(row) for row in found] == [
            ("memory", 0, "sync:kept", pair.apply.progress.offset)
        ]
    engine.dispose()


def test_a_conflict_is_kept_in_any_kind_of_database(urls: tuple[str, str]) -> None:
    target = open_destination("kept", urls[0])
    target.begin()
    target.note([Conflict("t", "(1,)", "own", False, "1", "2", "3")])
    target.commit()
    ((found,),) = target.run("SELECT incoming FROM canopy_conflicts", {}).rows
    assert found == "2"
    target.close()
