"""A shop that sends its orders to a stream, and is killed at each of its statements."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import canopy
from canopy.sinks import outbox as outbox_module
from canopy.sinks.sqlite import SqliteOutbox
from tests.canopy.sinks.doomed import Doom, KilledError, open_database
from tests.support.real.scripted_stream import ScriptedStream


def shop(path: Path) -> Path:
    """A database with a table of orders."""
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE orders (n)")
    db.close()
    return path


def orders(path: Path, table: str = "orders") -> list[Any]:
    """What is committed, in order."""
    db = sqlite3.connect(path)
    found = sorted(row[0] for row in db.execute(f"SELECT * FROM {table}"))
    db.close()
    return found


def killed_everywhere(
    client: canopy.Client,
    stream: ScriptedStream,
    folder: Path,
    work: Callable[[sqlite3.Connection], None],
) -> Iterator[tuple[int, str]]:
    """What is wrong if `work`, which sells to the stream "s" as "shop" and sends with each order n
    the events n and n + 1, is killed at its n-th statement, and started again."""
    for at in itertools.count(1):
        path, doom = shop(folder / f"{at}.db"), Doom(at)
        stream.shards[0].clear()
        db = open_database(path, doom)
        try:
            work(db)
        except KilledError:
            outbox_module.RUNNING.clear()  # the process is gone
            db.close()
            db = open_database(path)
            SqliteOutbox(db, client, "s", "shop").relay()
        db.close()
        expected = [n for order in orders(path) for n in (order, order + 1)]
        if stream.shards[0] != expected:
            yield at, f"in the database {orders(path)}, in the stream {stream.shards[0]}"
        if stream.halves:
            yield at, f"not decided: {stream.halves}"
            stream.halves.clear()
        if doom.count < at:
            assert at > 30, at
            return
