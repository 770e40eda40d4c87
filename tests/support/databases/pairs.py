"""One database and those that are kept in sync with it, all in this process: random work at the
first, and whether the others have the same rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.databases import open_destination, open_source
from canopy.sync.row_filter import RowFilter
from harness.databases.comparing import plain_rows
from harness.databases.database import Database
from harness.databases.drawing import Draw, Kind, nullable
from tests.support.databases.memory import MemoryStream

NAME: Final = "pairs"
ROWS: Final = 4
"""Different ids in the wide table: few, so that rows meet."""


class Copied:
    """A table of the source, with the meanings of its columns."""

    def __init__(self, name: str, columns: Sequence[tuple[str, Kind]], key: int) -> None:
        """The first `key` columns are the primary key."""
        self.name = name
        self.columns = tuple(columns)
        self.names = tuple(column for column, _ in columns)
        self.means = tuple(kind.means for _, kind in columns)
        self.key = key

    def create(self, at: Database) -> str:
        columns = [f"{at.named(name)} {kind.declared}" for name, kind in self.columns]
        keys = ", ".join(map(at.named, self.names[: self.key]))
        return f"CREATE TABLE {at.named(self.name)} ({', '.join(columns)}, PRIMARY KEY ({keys}))"


class Work:
    """Random statements for one table."""

    def __init__(self, table: Copied, source: Database) -> None:
        self._table = table
        self._source = source
        self._keys: list[tuple[Any, ...]] = []  # that were inserted: some are there
        name, self._named = source.named(table.name), source.named
        marks = ", ".join("?" * len(table.columns))
        self._where = " AND ".join(f"{source.named(k)} = ?" for k in table.names[: table.key])
        self._insert = f"INSERT INTO {name} VALUES ({marks})"
        self._delete = f"DELETE FROM {name} WHERE {self._where}"
        self._name = name

    def clear(self) -> None:
        self._source.execute(f"DELETE FROM {self._name}")
        self._keys = []

    def step(self, draw: Draw) -> None:
        """One change, of one row mostly."""
        columns = self._table.columns[: self._table.key]
        way = draw.integer(0, 5) if self._keys else 0
        if way <= 1:
            key = tuple(kind.value(draw) for _, kind in columns)
            self._source.execute(self._delete, key)
            self._keys.append(key)
            rest = [nullable(kind, draw) for _, kind in self._table.columns[len(columns) :]]
            self._source.execute(self._insert, [*key, *rest])
            return
        key = draw.choice(self._keys)
        if way == 2:
            self._source.execute(self._delete, key)
        elif way == 3:
            new = tuple(kind.value(draw) for _, kind in columns)
            self._source.execute(self._delete, new)
            self._keys.append(new)
            sets = ", ".join(f"{self._named(name)} = ?" for name, _ in columns)
            self._source.execute(
                f"UPDATE {self._name} SET {sets} WHERE {self._where}", [*new, *key]
            )
        else:
            name, kind = draw.choice(self._table.columns[len(columns) :])
            self._source.execute(
                f"UPDATE {self._name} SET {self._named(name)} = ? WHERE {self._where}",
                [nullable(kind, draw), *key],
            )


class Pairs:
    """A source, tables with columns of all of its types, and destinations."""

    def __init__(self, source: Database, targets: Sequence[Database]) -> None:
        self.source = source
        self.targets = tuple(targets)
        few = Kind(source.keys[0].declared, "int", lambda d: d.integer(1, ROWS))
        self.tables = [
            Copied("wide", [("id", few), *_numbered(source.kinds)], 1),
            *(
                Copied(f"key {number}", [("k", key), ("v", source.keys[0])], 1)
                for number, key in enumerate(source.keys)
            ),
            Copied("both", [*_numbered(source.keys[:3]), ("v", source.keys[1])], 2),
        ]
        for table in self.tables:
            source.execute(table.create(source))
        self.stream = MemoryStream()
        self._works = [Work(table, source) for table in self.tables]
        self._closing: list[Callable[[], object]] = []
        self._captured: Any = open_source(NAME, source.url)
        self._capture = Capture(self._captured, self.stream, RowFilter({}))
        self._capture.begin()
        self._applies = []
        for target in targets:
            made = open_destination(NAME, target.url)
            self._closing.append(made.close)
            self._applies.append(Applier(self.stream, made, RowFilter({})))
            self._applies[-1].begin()

    def clear(self) -> None:
        """No rows, as at the beginning of an example."""
        for work in self._works:
            work.clear()

    def work(self, draw: Draw, most: int = 6) -> None:
        """Some transactions of random changes, of which some are taken back."""
        for _ in range(draw.integer(1, 3)):
            self.source.execute("BEGIN")
            try:
                for _ in range(draw.integer(1, most)):
                    draw.choice((self._works[0], draw.choice(self._works))).step(draw)
                end = "COMMIT" if draw.integer(0, 4) else "ROLLBACK"
            except BaseException:  # hypothesis ends an example that draws too much
                self.source.execute("ROLLBACK")
                raise
            self.source.execute(end)

    def snapshot(self) -> None:
        """Begin the source side again, with all rows."""
        self._captured.close()
        self._captured = open_source(NAME, self.source.url)
        self._capture = Capture(self._captured, self.stream, RowFilter({}))
        self._capture.begin(snapshot=True)

    def drain(self) -> None:
        """Bring everything that is committed by now to all destinations."""
        target = self._captured.target()
        while not self._captured.reached(target):
            self._capture.run_once(0.05)
        self._capture.run_once(0)
        for apply in self._applies:
            while apply.run_once(0):
                pass

    def compare(self) -> None:
        """Raises AssertionError with the rows that differ."""
        for table in self.tables:
            ours = plain_rows(table.means, self.source.read(table.name, table.names))
            for target in self.targets:
                theirs = plain_rows(table.means, target.read(table.name, table.names))
                if ours != theirs:
                    raise AssertionError(_told(table, target, ours, theirs))

    def close(self) -> None:
        for apply in self._applies:
            apply.close()
        with suppress(Exception):
            self._captured.remove()
        for close in (*self._closing, self._captured.close, self.source.close):
            close()
        for target in self.targets:
            target.close()


def _numbered(kinds: Sequence[Kind]) -> list[tuple[str, Kind]]:
    return [(f"c{number} %", kind) for number, kind in enumerate(kinds)]


def _told(table: Copied, target: Database, ours: list[Any], theirs: list[Any]) -> str:
    lines = [f"{table.name} at {target.url} differs:"]
    right = {row[: table.key]: row for row in theirs}
    left = {row[: table.key]: row for row in ours}
    for key in sorted({*left, *right}, key=repr):
        one, other = left.get(key), right.get(key)
        if one is None or other is None:
            lines.append(f"  {key}: {'missing' if other is None else 'surplus'}")
            continue
        for (name, kind), here, there in zip(table.columns, one, other, strict=True):
            if here != there:
                lines.append(f"  {key} {name} {kind.declared}: {here!r} is {there!r}")
    return "\n".join(lines)
