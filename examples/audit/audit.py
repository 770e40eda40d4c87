"""An audit of a database: which rows that match a rule were changed, from what to what, and when.

    canopy node &
    canopy stream add audit
    canopy sync add audit --stream audit --from sqlite:shop.db --no-snapshot \\
        --where 'orders: total > 1000' --where "staff: role = 'admin'"
    canopy sync run audit &
    python examples/audit/audit.py audit trail.db

The rules are filters at the source: a change of a row that matches, before or after it, goes to the
stream. An order that rises above 1,000 is an insert there, one that sinks below it a delete. This
program keeps each change in the table `trail` of trail.db, once, whichever process is killed: its
position in the stream is committed with what it has kept. An entry `snapshot` says that all rows
come again as inserts behind it. A row of more than 160 KiB is kept as far as a selector sees it.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import canopy
from canopy.sinks.sqlite import SqliteSink
from canopy.sync.changes import ABORT, END, LAST, MARK, OPERATIONS, PART, SCHEMA
from canopy.sync.stream import change_in
from canopy.sync.values import ABSENT, NativeText, Row, Value
from overlay.client import StreamEvent

TABLES = """
CREATE TABLE IF NOT EXISTS trail (place INTEGER PRIMARY KEY, committed REAL, name TEXT, op TEXT,
    before TEXT, after TEXT);
CREATE TABLE IF NOT EXISTS shapes (name TEXT PRIMARY KEY, columns TEXT);
"""


class Trail:
    """The tables `trail`, of which an entry without `committed` belongs to a transaction whose end
    has not come, and `shapes`, the columns of the audited tables."""

    def __init__(self, database: sqlite3.Connection) -> None:
        database.executescript(TABLES)
        self._columns = {
            name: json.loads(columns) for name, columns in database.execute("SELECT * FROM shapes")
        }

    def take(self, cursor: sqlite3.Cursor, events: Iterable[StreamEvent]) -> Iterator[str]:
        """Keep what events of the stream say, within the transaction of `cursor`. Yields a line for
        each change."""
        for event in events:
            change = change_in(event)
            if change is None or change.op == PART:
                continue
            if change.op == SCHEMA and change.schema is not None:
                self._columns[change.table] = list(change.schema.names)
                shape = (change.table, json.dumps(change.schema.names))
                cursor.execute("INSERT OR REPLACE INTO shapes VALUES (?, ?)", shape)
            elif change.op == ABORT:
                cursor.execute("DELETE FROM trail WHERE committed IS NULL")
            elif change.op not in (SCHEMA, END, MARK):
                if change.op == LAST:
                    op = str(event.attributes["_op"])
                    seen = json.dumps(self._seen(event.attributes))
                    images = (seen, None) if op == "delete" else (None, seen)
                else:
                    op = OPERATIONS[change.op]
                    images = (
                        self._image(change.table, change.before),
                        self._image(change.table, change.after),
                    )
                entry = (event.offset, change.table, op, *images)
                cursor.execute("INSERT INTO trail VALUES (?, NULL, ?, ?, ?, ?)", entry)
                yield f"{op} {change.table} {images[0] or ''} -> {images[1] or ''}"
            if change.commit is not None:
                when = (change.commit.time,)
                cursor.execute("UPDATE trail SET committed = ? WHERE committed IS NULL", when)

    def _image(self, table: str, row: Row | None) -> str | None:
        """A row as JSON, without the columns that the source does not say."""
        if row is None:
            return None
        named = zip(self._columns[table], row, strict=True)
        return json.dumps({name: plain(value) for name, value in named if value is not ABSENT})

    def _seen(self, attributes: Mapping[str, object]) -> dict[str, object]:
        return {name: value for name, value in attributes.items() if name not in ("_table", "_op")}


def plain(value: Value) -> object:
    """A value as JSON has it: bytes as hexadecimal digits, as a text what JSON has no type for."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, NativeText):
        return value.text
    return value if value is None or isinstance(value, bool | int | str | float) else str(value)


def main(args: Sequence[str]) -> int:
    """Follow a stream until Ctrl-C."""
    if len(args) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    stream, path = args
    database = sqlite3.connect(path)
    trail = Trail(database)
    sink = SqliteSink(database, "audit")
    with canopy.connect() as client, sink.read(client, stream) as reading:
        while True:
            if events := reading.take(timeout=60):
                with sink.transaction(reading) as cursor:
                    lines = list(trail.take(cursor, events))
                for line in lines:
                    print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
