"""`canopy sync` with a real node and real processes, which are killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import canopy
from canopy.cli.main import main
from canopy.cli.sync.manage import lag_picture
from canopy.client.errors import CommandFailed
from canopy.sync.changes import MARK, Change, ChangeDrafts, Commit
from canopy.sync.definitions import Definition, read_definitions, write_definitions
from harness.real_overlay import PATIENCE, Overlay, wait_ready
from overlay.client import Streams
from overlay.stream_client import AddStream

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With a node at 0, a stream, and a source."""
    overlay = Overlay(tmp_path)
    wait_ready(overlay.start())
    monkeypatch.setenv("CANOPY_SYNCS", str(tmp_path / "syncs.json"))
    monkeypatch.setenv("CANOPY_CONNECT", str(tmp_path / "0"))
    with canopy.connect(tmp_path / "0") as client:
        client.ask(AddStream(0, "shop", replicas=1), Streams, PATIENCE)
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, total REAL)")
        rows = ((n, f"item {n}", n / 2) for n in range(3_000))
        db.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    db.close()
    yield tmp_path
    overlay.stop()


def ran(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["sync", *args])
    found = capsys.readouterr()
    return code, found.out, found.err


def rows(path: Path, where: str = "") -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as db:
        found = db.execute(f"SELECT * FROM orders {where} ORDER BY id").fetchall()
    db.close()
    return found


def nobody_else_appends(folder: Path) -> None:
    with canopy.connect(folder / "0") as client:
        forged = ChangeDrafts().draft(Change(MARK), Commit(1 << 40, 1, 0.0, ""))
        with pytest.raises(CommandFailed, match="rows of its writers only, producer:sync"):
            client.append("shop", [forged])
        with pytest.raises(CommandFailed, match="writers only"):
            client.producer("shop", "sync.other")


def test_a_sync_is_killed_again_and_again_and_both_sides_are_identical(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = folder / "a.db", folder / "b.db"
    where = "total >= 100"
    args = ("--stream", "shop", "--from", f"sqlite:{source}", "--where", f"orders: {where}")
    assert ran(capsys, "add", "shop", *args)[0] == 0
    assert ran(capsys, "add", "shop", "--stream", "shop", "--to", f"sqlite:{target}")[0] == 0
    assert ran(capsys, "add", "shop", *args)[0] == 1
    rng = Random(1)
    db = sqlite3.connect(source, timeout=PATIENCE)
    command = [sys.executable, "-m", "canopy", "sync", "run"]
    for _ in range(3):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        there, until = folder / ".syncs-shop.status", 0.0
        while not until or time.monotonic() < until:
            if not until and there.exists():
                there.unlink()
                until = time.monotonic() + rng.uniform(0.1, 0.6)
            with db:
                db.execute("UPDATE orders SET total = abs(random() % 200) WHERE id % 31 = 3")
                db.execute("DELETE FROM orders WHERE id = ?", (rng.randrange(3_000),))
        process.send_signal(signal.SIGKILL)
        process.wait()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        code, out, err = ran(capsys, "verify", "shop", "--json")
        assert not err
        found = json.loads(out)
        assert (code, found["identical"], found["differences"]) == (0, True, [])
        with db:
            db.execute("DELETE FROM orders WHERE total >= 100 AND id > 1000")
        until = time.monotonic() + PATIENCE
        sides: dict[str, dict[str, Any]] = {}
        lag = None  # not known before a change has come
        while lag is None or {each["state"] for each in sides.values()} != {"running"}:
            assert time.monotonic() < until, sides
            _, out, _ = ran(capsys, "ls", "--json")
            sides = {each["side"]: each for each in json.loads(out)}
            lag = sides.get("destination", {}).get("lag")
        assert set(sides) == {"source", "destination"}
        assert lag >= 0
        while "shop, lag in the last minute, at most" not in ran(capsys, "ls")[1]:
            assert time.monotonic() < until
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    with db:  # two images of it are far more than one event may have
        db.execute("UPDATE orders SET total = 150, item = hex(zeroblob(400000)) WHERE id = 1000")
        db.execute("UPDATE orders SET total = 151 WHERE id = 1000")
    assert ran(capsys, "run", "shop", "--once")[0] == 0
    nobody_else_appends(folder)
    assert rows(target) == rows(source, f"WHERE {where}")
    assert rows(target)
    db.execute("DROP TABLE orders")
    code, _, err = ran(capsys, "run", "--once")
    assert code == 1
    assert "no table orders" in err or "orders is gone" in err
    out = ran(capsys, "ls")[1]
    assert "failed" in out
    assert f"shop, from sqlite:{folder / 'a.db'} over the stream shop\n" in out
    assert any(f"shop, source: {said}" in out for said in ("the source has no", "table orders is"))
    assert os.stat(folder / "syncs.json").st_mode & 0o077 == 0
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, total REAL)")
    assert ran(capsys, "rm", "shop")[0] == 0
    assert json.loads((folder / "syncs.json").read_text()) == []
    left = db.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'canopy%'").fetchall()
    assert left == [("canopy_applying",)]
    db.close()


def test_the_demo_ends_with_two_sides_that_are_identical(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = ran(capsys, "demo", "--duration", "3")
    assert code == 0
    assert "killed 2 times" in out
    assert "identical at position" in out
    assert "lag of the copy, at most" in out


def test_a_picture_of_the_lag() -> None:
    assert lag_picture([None, 0.0, 0.006, 0.012]) == "12 ms: ? ▄█"
    assert lag_picture([30.0], unknown=" ") == "30.0 s: █"
    assert lag_picture([]) == "0 ms: "


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("add", "x", "--stream", "s"), "--from URL, --to URL"),
        (("add", "X!", "--stream", "s", "--to", "sqlite:b.db"), "is no name of a sync"),
        (("add", "x", "--stream", "s", "--to", "b.db"), "is no URL of a database"),
        (("add", "x", "--stream", "s", "--to", "sqlite:b", "--where", "t: n > 1"), "need --from"),
        (("add", "x", "--stream", "s", "--from", "sqlite:a", "--where", "n > 1"), "give TABLE:"),
        (("add", "x", "--stream", "s", "--from", "sqlite:a", "--where", "t: n >"), "selector"),
        (("add", "x", "--stream", "s", "--to", "sqlite:a", "--conflict", ": latest"), "no rule"),
        (("add", "x", "--stream", "s", "--from", "mysql://x"), "mysql is no source"),
        (("add", "x", "--stream", "s", "--from", "duckdb:b.duck"), "duckdb is no source"),
        (("add", "x", "--stream", "s", "--to", "mysql://x"), "mariadb://… for a MariaDB"),
        (("add", "x", "--stream", "s", "--to", "nosuch://x/y"), "no database that is known here"),
        (("add", "x", "--stream", "s", "--to", "mariadb://localhost"), "ends with its database"),
        (("add", "x", "--stream", "s", "--from", "mariadb://x:y/z"), "no URL of a MariaDB"),
        (("add", "x", "--stream", "s", "--to", "postgresql://x?y=1"), "no URL of a PostgreSQL"),
        (("add", "x", "--stream", "s", "--from", "sqlite:/no/such.db"), "there is no database"),
        (("add", "x", "--stream", "s", "--to", "sqlite:/no/such/b.db"), "there is no folder"),
        (("run",), "there are no syncs"),
        (("run", "x"), "there is no sync x"),
        (("rm", "x"), "there is no sync x"),
    ],
)
def test_what_cannot_be_is_said(
    args: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CANOPY_SYNCS", str(tmp_path / "syncs.json"))
    code, _, err = ran(capsys, *args)
    assert code in (1, 2)
    assert said in err
    assert ran(capsys, "ls")[1].strip() == "there are no syncs"


WRONG = (
    ("sqlite:{folder}/typo.db", "sqlite:{folder}/copy.db"),
    ("mysql://x", "oracle+nothing://x"),
    ("sqlite:{folder}/keyless.db", "duckdb:{folder}/copy.duck"),
    ("postgresql://127.0.0.1:1/x", "mariadb://127.0.0.1:1/x"),
    ("mariadb://x", "no url at all"),
)


def test_any_sync_can_be_removed_however_wrong_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CANOPY_SYNCS", str(tmp_path / "syncs.json"))
    with sqlite3.connect(tmp_path / "keyless.db") as db:
        db.execute("CREATE TABLE t (a, b)")
    db.close()
    made = [
        Definition(f"s{number}", "shop", *(url.format(folder=tmp_path) for url in urls))
        for number, urls in enumerate(WRONG)
    ]
    write_definitions(tmp_path / "syncs.json", {each.name: each for each in made})
    assert ran(capsys, "ls")[0] == 0
    for number, (source, _) in enumerate(WRONG):
        code, _, err = ran(capsys, "rm", f"s{number}")
        assert code == 0
        assert f"s{number} is removed" in err
        assert ("still has" in err) == (not source.startswith("sqlite"))
    assert read_definitions(tmp_path / "syncs.json") == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keyless.db", "syncs.json"]


def test_a_run_ends_at_once_while_a_database_is_away(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--stream", "shop", "--from", f"sqlite:{folder / 'a.db'}")
    assert ran(capsys, "add", "away", *args, "--to", "postgresql://127.0.0.1:1/x")[0] == 0
    command = [sys.executable, "-m", "canopy", "sync", "run", "away", "--once"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "destination waiting" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 130
        process.stderr.read()
