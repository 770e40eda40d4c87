"""A consumer that adds each event to a database, slowly; started and killed by a test."""

from __future__ import annotations

import sqlite3
import sys
import time

import canopy
from canopy.sinks.sqlite import SqliteSink


def main(data: str, database: str) -> None:
    """Follow the stream "s" of the node at `data` to its end."""
    db = sqlite3.connect(database, timeout=30)
    sink = SqliteSink(db, "sum")
    with canopy.connect(data) as client, sink.read(client, "s") as reading:
        while events := reading.take(30):
            with sink.transaction(reading) as cursor:
                for event in events:
                    cursor.execute("INSERT INTO seen VALUES (?)", (event.attributes["n"],))
                    time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])
