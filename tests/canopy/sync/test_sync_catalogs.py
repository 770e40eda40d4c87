"""What catalogs say of keys, indexes and columns is read as the databases mean it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pymysql
import pytest

from canopy.sync.databases import is_passing, open_destination
from canopy.sync.errors import SchemaError, SyncError
from harness.mariadb import MariadbServer
from harness.postgres import Server
from tests.support.sync_pair import Pair, pg_url


def executed(dsn: str, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as link:
        for statement in statements:
            found = link.execute(statement)
        return found.fetchall() if found.description else []


def test_keys_of_postgresql_are_read_as_the_server_means_them(
    server: Server, pairs: list[Pair], tmp_path: Path
) -> None:
    """Columns that are INCLUDEd are none of the key; a deferrable key needs a full identity; a
    column of a domain is one of its type."""
    dsns = [server.database(), server.database()]
    executed(
        dsns[0],
        "CREATE DOMAIN cents AS bigint CHECK (value >= 0)",
        "CREATE DOMAIN price AS cents",
        "CREATE TABLE o (tenant int, id int, payload text, n price, "
        "PRIMARY KEY (tenant, id) INCLUDE (payload))",
        "CREATE TABLE d (id int PRIMARY KEY DEFERRABLE, v text)",
        "ALTER TABLE d REPLICA IDENTITY FULL",
        "CREATE TABLE whole (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE whole_1 PARTITION OF whole FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE whole_2 PARTITION OF whole FOR VALUES FROM (10) TO (20)",
        "INSERT INTO o VALUES (1, 1, 'a', 0)",
        "INSERT INTO d VALUES (1, 'a')",
        "INSERT INTO whole VALUES (1, 'a')",
    )
    executed(
        dsns[1],
        "CREATE TABLE o (tenant int, id int, payload text, n bigint, "
        "PRIMARY KEY (tenant, id) INCLUDE (n))",
    )
    copies = [pg_url(server, dsns[1]), f"sqlite:{tmp_path / 'b.db'}"]
    for number, url in enumerate(copies):
        pairs.append(Pair(pg_url(server, dsns[0]), url, name=f"kept{number}"))
        pairs[-1].begin()
    executed(
        dsns[0],
        "INSERT INTO o VALUES (1, 2, 'b', 5)",
        "UPDATE o SET payload = NULL, n = 7 WHERE id = 1",
        "BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE d SET id = 2; INSERT INTO d VALUES (1, 'b'); "
        "COMMIT",
        "UPDATE whole SET id = 11",
    )
    for pair in pairs:
        pair.go_on(5)
        assert pair.verified(1).identical
    with sqlite3.connect(tmp_path / "b.db") as copy:
        assert copy.execute("SELECT tenant, id, payload, n FROM o ORDER BY id").fetchall() == [
            (1, 1, None, 7),
            (1, 2, "b", 5),
        ]
        assert copy.execute("SELECT id, v FROM d ORDER BY id").fetchall() == [(1, "b"), (2, "a")]
        assert copy.execute("SELECT id FROM whole_2").fetchall() == [(11,)]
    copy.close()


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (("CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v int)",), "DEFERRABLE.*IDENTITY FULL"),
        (
            (
                "CREATE TABLE t (a text, b text GENERATED ALWAYS AS (lower(a)) STORED, c int, "
                "PRIMARY KEY (c, b))",
            ),
            "generated column b",
        ),
        (
            (
                "CREATE TABLE t (id int PRIMARY KEY, v int)",
                "ALTER TABLE t REPLICA IDENTITY NOTHING",
            ),
            "REPLICA IDENTITY DEFAULT",
        ),
        (
            (
                "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL UNIQUE)",
                "ALTER TABLE t REPLICA IDENTITY USING INDEX t_v_key",
            ),
            "without its primary key",
        ),
        (
            ("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY HASH (id)",),
            r"is partitioned.*'t_\*'",
        ),
        (("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)",), "no table t"),
        (("CREATE TABLE t (id int NOT NULL UNIQUE NULLS NOT DISTINCT)",), "no primary key"),
        (("CREATE TABLE t (id int)", "CREATE UNIQUE INDEX ON t ((id + 1))"), "no primary key"),
    ],
)
def test_tables_of_postgresql_that_cannot_be_captured_are_refused_before(
    server: Server, tmp_path: Path, statements: tuple[str, ...], said: str
) -> None:
    dsn = server.database()
    executed(dsn, *statements, "CREATE TABLE other (id int PRIMARY KEY)")
    with pytest.raises(SchemaError, match=said):
        Pair(pg_url(server, dsn), f"sqlite:{tmp_path / 'b.db'}", tables=("t", "other"))
    assert executed(dsn, "SELECT count(*) FROM pg_publication") == [(0,)]  # nobody is hindered


def test_a_publication_that_leaves_changes_out_and_policies_of_rows_are_refused(
    server: Server, tmp_path: Path
) -> None:
    dsn = server.database()
    executed(dsn, "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    url, target = pg_url(server, dsn), f"sqlite:{tmp_path / 'b.db'}"
    Pair(url, target).close()
    executed(dsn, "ALTER PUBLICATION canopy_kept SET (publish = 'insert')")
    with pytest.raises(SchemaError, match="leaves changes out"):
        Pair(url, target)
    executed(
        dsn,
        "DROP PUBLICATION canopy_kept",
        "DO $$ BEGIN CREATE ROLE few REPLICATION LOGIN; EXCEPTION WHEN OTHERS THEN NULL; END $$",
        "GRANT ALL ON DATABASE " + dsn.rpartition("=")[2] + " TO few",
        "ALTER TABLE t OWNER TO few",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "CREATE POLICY five ON t USING (id > 5)",
    )
    pair = Pair(url.replace("canopy@", "few@"), target)
    with pytest.raises(psycopg.Error, match="row-level security") as found:
        pair.begin()
    assert not is_passing(found.value)
    pair.close()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            "id int PRIMARY KEY, v int GENERATED ALWAYS AS (id + 1) STORED",
            "computes its column t.v",
        ),
        ("id int PRIMARY KEY, v int GENERATED ALWAYS AS IDENTITY", "GENERATED BY DEFAULT"),
        ("id int PRIMARY KEY DEFERRABLE, v int", "NOT DEFERRABLE"),
        ("id int, v int, PRIMARY KEY (id, v)", r"needs the primary key \(id\)"),
    ],
)
def test_tables_of_a_destination_that_cannot_be_written_are_refused(
    server: Server, tmp_path: Path, made: str, said: str
) -> None:
    dsn = server.database()
    executed(dsn, f"CREATE TABLE t ({made})")
    with sqlite3.connect(tmp_path / "a.db") as source:
        source.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INT)")
    source.close()
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", pg_url(server, dsn))
    with pytest.raises(SchemaError, match=said):
        pair.begin()
    pair.close()


REPLACED = """
CREATE TABLE one (id INTEGER PRIMARY KEY, name TEXT, mail TEXT, n INT);
CREATE UNIQUE INDEX named ON one (name COLLATE NOCASE);
CREATE UNIQUE INDEX mailed ON one (lower(trim(mail, ' ,)"''')) /* a, comment) */ DESC,
  n COLLATE rtrim) WHERE n IS NOT NULL;
CREATE TABLE two (k TEXT, v INT, PRIMARY KEY (k COLLATE NOCASE));
CREATE TABLE three (k TEXT PRIMARY KEY COLLATE NOCASE, v INT) WITHOUT ROWID;
INSERT INTO one VALUES (1, 'ann', 'ann@x', 1), (2, 'bob', 'bob@x', 1), (3, 'cid', 'cid@x', NULL);
INSERT INTO two VALUES ('a', 1), ('b', 1);
INSERT INTO three VALUES ('a', 1), ('b', 1);
"""


def test_rows_that_an_index_of_sqlite_replaces_go_from_the_copy(
    pairs: list[Pair], tmp_path: Path
) -> None:
    """By its own collation, or by an expression."""
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(REPLACED)
    pair = Pair(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    pairs.append(pair)
    pair.begin()
    for statement in (
        "INSERT OR REPLACE INTO one VALUES (4, 'ANN', 'new@x', 1)",
        "INSERT OR REPLACE INTO one VALUES (5, 'eve', ' BOB@X', 1)",
        "INSERT OR REPLACE INTO one VALUES (6, 'fay', 'CID@X', NULL)",
        "UPDATE OR REPLACE one SET mail = 'NEW@x' WHERE id = 5",
        "INSERT OR REPLACE INTO two VALUES ('A', 2)",
        "UPDATE OR REPLACE two SET k = 'B' WHERE k = 'A'",
        "INSERT OR REPLACE INTO three VALUES ('A', 2)",
        "UPDATE three SET k = 'a' WHERE v = 2",
    ):
        db.execute(statement)
        pair.go_on()
        with sqlite3.connect(tmp_path / "b.db") as copy:
            for table in ("one", "two", "three"):
                query = f"SELECT * FROM {table} ORDER BY 1"
                assert copy.execute(query).fetchall() == db.execute(query).fetchall(), statement
        copy.close()
    assert len(db.execute("SELECT * FROM one").fetchall()) == 3
    db.close()


def test_keys_of_mariadb_by_a_prefix_and_a_log_without_the_database(
    maria: MariadbServer, pairs: list[Pair]
) -> None:
    names = [maria.database(), maria.database()]
    urls = [f"mariadb://root@localhost/{name}?unix_socket={maria.socket}" for name in names]
    with pymysql.connect(unix_socket=maria.socket, user="root", database=names[0]) as link:
        link.query("CREATE TABLE t (k text, v int, PRIMARY KEY (k(9)))")
        link.query("INSERT INTO t VALUES ('abc', 1), ('abd', 2)")
        link.commit()
    pair = Pair(*urls)
    pairs.append(pair)
    pair.begin()
    assert pair.verified(1).identical
    with (
        pytest.raises(pymysql.OperationalError) as found,
        pymysql.connect(unix_socket=maria.socket, user="root", database=names[1]) as link,
    ):
        link.query("CREATE TABLE bad (k text PRIMARY KEY)")
    assert not is_passing(found.value)


def test_errors_of_sqlite_that_do_not_pass(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "b.db") as copy, pytest.raises(sqlite3.Error) as found:
        copy.execute("SELECT * FROM t")
    copy.close()
    assert not is_passing(found.value)
    with pytest.raises(sqlite3.OperationalError) as away:
        open_destination("x", f"sqlite:{tmp_path / 'no' / 'b.db'}")
    assert is_passing(away.value)
    assert not is_passing(SyncError("no"))
