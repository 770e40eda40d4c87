"""A producer with an outbox that is killed at one point of its transaction; started by a test."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from typing import Any

import canopy
from canopy.sinks.outbox import Outbox
from canopy.sinks.records import Records
from canopy.sinks.sqlite import SqliteOutbox


def die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def main(data: str, database: str, where: str) -> None:
    """Order number 1 and send it, and be killed when its half is `prepared` in the stream, or when
    it is `committed` in the database."""
    if where == "prepared":
        Records.settle = die  # type: ignore[method-assign]
    else:
        Outbox._say = die  # type: ignore[method-assign]
    with canopy.connect(data) as client:
        outbox = SqliteOutbox(sqlite3.connect(database), client, "orders", f"shop {where}")
        with outbox.transaction() as one:
            one.db.execute("INSERT INTO sold VALUES (?)", (where,))
            one.send({"sold": where})


if __name__ == "__main__":
    main(*sys.argv[1:])
