"""PostgreSQL as a source: its own log, decoded in the order of commits.

A publication says which tables, a replication slot keeps the log until the stream has it. The
slot's position is a copy of what the stream says, and never ahead of it: one that is, was made
again or moved by somebody else, and what came between is lost (`SourceLostError`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from canopy.sync.changes import (
    DELETE,
    END,
    INSERT,
    MARK,
    TRUNCATE,
    UPDATE,
    Change,
    Commit,
    Table,
    check_table,
)
from canopy.sync.errors import SchemaError, SourceLostError, SyncError
from canopy.sync.servers.postgres_values import SESSION
from canopy.sync.sources import pgoutput
from canopy.sync.sources.altered_rows import Resending, added, filled
from canopy.sync.sources.postgres_tables import (
    ALTERED,
    PUBLIC,
    TAKEN_IN,
    Shape,
    TablePlace,
    TablePublication,
    behind,
    has_dropped_columns,
    scan,
    shape_of,
)
from canopy.sync.sources.replication import Replication, lsn_number, lsn_text
from canopy.sync.sources.source import (
    ASKED,
    SourceView,
    check_source,
    check_there,
    is_wanted,
    snapshot,
)
from canopy.sync.values import ABSENT, Row

ECHO: Final = "canopy"
"""Prefix of the message with which a destination begins what it applies."""
NOTE: Final = "canopy-note"
"""Prefix of messages that are no changes: "mark", "target", and which table is taken in."""
LOOK_EVERY: Final = 1.0
"""Seconds between two looks for tables that are new."""
WHOLE: Final = 60.0
"""Seconds for the rest of a transaction."""
PATIENCE: Final = 10.0
"""Seconds for the server to end another connection."""


def slot_of(name: str) -> str:
    """Return the name of the slot and the publication of a sync."""
    return "canopy_" + "".join(c if c.isalnum() else "_" for c in name.lower())


def free_slot(link: psycopg.Connection[Any], slot: str) -> bool:
    """End the connection of a process that has used the slot before, and can no longer append.
    Returns whether there is a slot."""
    until = time.monotonic() + PATIENCE
    while True:
        found = link.execute(
            "SELECT active_pid, pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE slot_name = %s",
            (slot,),
        ).fetchone()
        if found is None or found[0] is None:
            return found is not None
        if time.monotonic() > until:
            raise SyncError(f"the replication slot {slot} is used by process {found[0]}")
        time.sleep(0.02)


def drop_slot(link: psycopg.Connection[Any], slot: str) -> None:
    """Remove a slot, if there is one."""
    if free_slot(link, slot):
        link.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


def remove_slot(name: str, conninfo: str) -> None:
    """Take away what a sync has put into the database."""
    with psycopg.connect(conninfo, autocommit=True, options=SESSION) as link:
        drop_slot(link, slot_of(name))
        TablePublication(link, slot_of(name), ()).remove()


class PostgresSource:
    """Tables of one database: those of the schema `public` by their names, others as
    `schema.name`."""

    mark_every = 16 * 1024 * 1024  # bytes of its log

    def __init__(
        self, name: str, conninfo: str, tables: Sequence[str] = (), echoes: bool = False
    ) -> None:
        """`name`: of the sync; `tables`: those that are captured, also by patterns (`*`, `?`),
        () for all that there are and will be; `echoes`: also what other syncs apply here."""
        self._slot = slot_of(name)
        self._conninfo = conninfo
        self._tables = tuple(name.removeprefix(f"{PUBLIC}.") for name in tables)
        self._echoes = echoes
        self._sql = psycopg.connect(conninfo, autocommit=True, options=SESSION)
        with ExitStack() as failed:
            failed.callback(self._sql.close)
            if self._one("SHOW wal_level") != "logical":
                raise SyncError("the server needs wal_level = logical (and a restart)")
            self._link = Replication(conninfo)
            failed.callback(self._link.close)
            self.id = "/".join(self._link.identify())
            self._publication = TablePublication(self._sql, self._slot, self._tables)
            self._publication.publish()
            failed.pop_all()
        self._shapes: dict[int, Shape] = {}  # by the relation's id
        self._keys: dict[int, tuple[bool, ...]] = {}
        self._resending = Resending(self._piece)
        self._known: Mapping[str, Table] = self._resending.known
        self._ends: dict[str, int] = {}  # by table, to where the log is read after its last piece
        self._position = 0
        self._looked = time.monotonic()  # for new tables
        self._seen: dict[TablePlace, int] = {}  # of which shape they were then

    def close(self) -> None:
        """End the connections for statements and for the log."""
        self._link.close()
        self._sql.close()

    def target(self) -> int:
        """Write a message into the log, and return its position."""
        self._look()
        return self._note("target")

    def reached(self, target: int) -> bool:
        """Whether the log was read up to a position, and no table is being sent again."""
        return self._position >= target and not self._resending

    def mark(self) -> int:
        """Write a mark into the log, and return its position."""
        return self._note("mark")

    @contextmanager
    def view(self) -> Iterator[SourceView]:
        """See `Source`. A slot for a moment says at which position the transaction is."""
        link = Replication(self._conninfo)
        reader = psycopg.connect(self._conninfo, autocommit=True, options=SESSION)
        try:
            name = f"canopy_view_{reader.info.backend_pid}"
            position, snapshot = link.create_slot(name, for_a_moment=True)
            shapes = self._shapes_in(reader, snapshot)
            link.close()
            decoders = {shape.table.name: shape.decoders for shape in shapes}
            yield SourceView(
                position,
                [shape.table for shape in shapes],
                lambda table: scan(reader, table, decoders[table.name]),
            )
        finally:
            link.close()
            reader.close()

    def resume(self, commit: Commit, known: Mapping[str, Table]) -> None:
        """Read the log from the slot's position on."""
        check_source(commit, self.id)
        found = self._sql.execute(
            "SELECT confirmed_flush_lsn::text, wal_status, plugin FROM pg_replication_slots "
            "WHERE slot_name = %s",
            (self._slot,),
        ).fetchone()
        advice = "take a new snapshot (canopy sync run --snapshot)"
        if found is None:
            raise SourceLostError(
                f"the replication slot {self._slot} is gone, and with it what was committed since "
                f"{lsn_text(commit.position)}; {advice}"
            )
        if found[1] in ("lost", "unreserved"):
            raise SourceLostError(f"the server has removed the log of {self._slot}; {advice}")
        if lsn_number(found[0]) > commit.position:
            raise SourceLostError(
                f"the replication slot {self._slot} begins at {found[0]}, the stream ends at "
                f"{lsn_text(commit.position)}: it was made again, or moved; {advice}"
            )
        self._resending.resume(known)
        self._begin(commit.position)

    def snapshot(self) -> Iterator[Change | Commit]:
        """See `Source`. The slot is made again."""
        drop_slot(self._sql, self._slot)
        position, name = self._link.create_slot(self._slot)
        with psycopg.connect(self._conninfo, autocommit=True, options=SESSION) as reader:
            shapes = self._shapes_in(reader, name)
            for shape in shapes:
                self._resending.learn(shape.table)
            yield from snapshot((s.table, scan(reader, s.table, s.decoders)) for s in shapes)
        yield Change(END)
        yield Commit(position, 0, 0.0, self.id)
        self._begin(position)

    def _shapes_in(self, reader: psycopg.Connection[Any], snapshot: str) -> list[Shape]:
        """Begin a transaction that sees an exported snapshot. Return the captured tables' shapes in
        it."""
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
        return [shape_of(reader, place) for place in self._publication.tables()]

    def changes(self, wait: float) -> Iterator[Change | Commit]:
        """Yield the transactions of the slot, and pieces of tables sent again."""
        if time.monotonic() > self._looked + LOOK_EVERY:
            self._look()
        commit = Commit(self._position, 0, time.time(), self.id)
        for piece in self._resending.piece(commit):
            yield piece
            wait = 0.0
        while (data := self._link.receive(wait)) is not None:
            found = pgoutput.decode(data)
            if isinstance(found, pgoutput.Begin):
                yield from self._transaction(found)
                wait = 0.0
        if self._link.end > self._position + self.mark_every:
            self._position = self._link.end  # only what nobody wants is in between
            yield Commit(self._position, 0, 0.0, self.id)

    def _transaction(self, begun: pgoutput.Begin) -> Iterator[Change | Commit]:
        """The changes of a transaction that has begun, and its commit."""
        echo = False
        while (data := self._link.receive(WHOLE)) is not None:
            found = pgoutput.decode(data)
            if isinstance(found, pgoutput.End):
                if found.position > self._position:  # else it was read before
                    self._position = found.position
                    yield Commit(found.position, begun.transaction, begun.time, self.id)
                return
            if isinstance(found, pgoutput.LogMessage):
                echo = echo or (found.prefix == ECHO and not self._echoes)
                if found.prefix == NOTE:
                    yield from self._noted(found.content)
            elif isinstance(found, pgoutput.Relation) or (found is not None and not echo):
                # A relation is described once, be it for rows that are passed over.
                yield from self._changes_of(found)
        raise SyncError("the server has sent a part of a transaction, and no more")

    def confirm(self, position: int) -> None:
        """Let the server forget the log up to a position."""
        self._link.confirm(position)

    def _begin(self, position: int) -> None:
        self._position = position
        self._link.close()
        self._link = Replication(self._conninfo)
        free_slot(self._sql, self._slot)
        self._link.start(self._slot, self._slot, position)

    def _changes_of(self, found: pgoutput.Decoded) -> Iterator[Change]:
        if isinstance(found, pgoutput.Relation):
            yield from self._learn(found)
        elif isinstance(found, pgoutput.RowChange):
            shape = self._shapes[found.relation]
            table = shape.table
            after = None if found.after is None else shape.row(found.after)
            before = None
            if found.before is not None and found.before_is_key:
                before = shape.key_row(found.before, self._keys[found.relation])
            elif found.before is not None:
                before = shape.row(found.before)
            if before is not None and after is not None and ABSENT in after:
                self._resending.again(table.name)  # the row may have moved to where pieces were
            op = DELETE if after is None else UPDATE if found.is_update else INSERT
            yield Change(op, table.name, before, after, table)
        elif isinstance(found, pgoutput.Truncated):
            for relation in found.relations:
                table = self._shapes[relation].table
                yield Change(TRUNCATE, table.name, schema=table)

    def _look(self) -> None:
        """Look for tables that are new, gone, or have another shape."""
        self._looked = time.monotonic()
        self._publication.take_in(NOTE)
        known = [name for name in self._known if is_wanted(name, self._tables)]
        check_there(known, self._names())
        shapes = self._publication.shapes()
        for place in [place for place in shapes if self._seen.get(place) != shapes[place]]:
            if shape_of(self._sql, place).table != self._known.get(place.name):
                self._note(ALTERED.decode() + place.name)
        self._seen = shapes

    def _names(self) -> list[str]:
        return [place.name for place in self._publication.user_tables()]

    def _noted(self, note: bytes) -> Iterator[Change]:
        """Yield the changes for a note in the log."""
        if note == b"mark":
            yield Change(MARK, ASKED)
        elif note.startswith(TAKEN_IN):
            yield from self._taken_in(note[len(TAKEN_IN) :].decode())
        elif note.startswith(ALTERED):
            yield from self._altered(note[len(ALTERED) :].decode())

    def _altered(self, name: str) -> Iterator[Change]:
        """The shape of a table, and its rows, unless the stream has that shape."""
        place, known = self._publication.place(name), self._known.get(name)
        if place is None or (table := shape_of(self._sql, place).table) == known:
            return
        if not self._resending.is_under_way(table):
            yield from self._reshaped(known, check_table(table))

    def _taken_in(self, name: str) -> Iterator[Change]:
        """Yield the shape and present rows of a table whose changes are in the log from here on;
        nothing if the table no longer exists. A table that is already known was dropped or renamed,
        and made again: its former rows are gone."""
        place = self._publication.place(name)
        if place is not None:
            table = shape_of(self._sql, place).table
            yield from self._resending.replaced(table, self._rows(table))

    def _learn(self, found: pgoutput.Relation) -> Iterator[Change]:
        place = TablePlace(found.schema, found.name)
        shape = shape_of(self._sql, place, [(c[0], c[1], c[2]) for c in found.columns])
        if (known := self._known.get(place.name)) == shape.table and known is not None:
            shape.table = known
        self._shapes[found.id] = shape
        self._keys[found.id] = tuple(column[3] for column in found.columns)
        if not all(self._keys[found.id][number] for number in shape.table.key):
            raise SchemaError(
                f"table {place.name} has a REPLICA IDENTITY without its primary key, so the server "
                f"does not say which row has changed: ALTER TABLE … REPLICA IDENTITY DEFAULT, and "
                f"take a new snapshot (canopy sync run --snapshot)"
            )
        if known != shape.table and not self._resending.is_under_way(shape.table):
            if not shape.table.key:
                check_there((place.name,), self._names())
            yield from self._reshaped(known, check_table(shape.table))

    def _reshaped(self, known: Table | None, table: Table) -> Iterator[Change]:
        """Yield the shape of a table, and the values of its rows in new columns, which the log does
        not contain. Rows are as they are at present; later entries of the log lead to the same
        rows."""
        place = TablePlace(table.schema or PUBLIC, table.bare)
        count = added(known, table)
        if count and not has_dropped_columns(self._sql, place):
            with psycopg.connect(self._conninfo, autocommit=True, options=SESSION) as reader:
                now = shape_of(reader, place)
                changes = None
                if now.table == table:
                    changes = filled(table, count, scan(reader, table, now.decoders))
                yield from self._resending.barrier(table, changes)
                return
        yield from self._resending.barrier(table, None)

    def _piece(self, table: Table, after: Row | None, most: int) -> list[Row] | None:
        """Read the next rows of a table that is sent again (`ReadPiece`)."""
        now = shape_of(self._sql, TablePlace(table.schema or PUBLIC, table.bare))
        if now.table != table:
            return None
        rows = list(scan(self._sql, table, now.decoders, behind(table, after, most)))
        if rows:
            self._ends.pop(table.name, None)
            return rows
        # A row that has moved to where pieces were, without its large values, is in the log by now.
        if table.name not in self._ends:
            self._ends[table.name] = self._note("target")
        return rows if self._position >= self._ends[table.name] else None

    def _rows(self, table: Table) -> Iterator[Row]:
        """All rows as they are now; what follows in the log brings about the same rows. None, if
        the table has another shape by now: then they are sent for that one."""
        with psycopg.connect(self._conninfo, autocommit=True, options=SESSION) as reader:
            now = shape_of(reader, TablePlace(table.schema or PUBLIC, table.bare))
            if now.table == table:
                yield from scan(reader, table, now.decoders)

    def _note(self, content: str) -> int:
        """Commit a message of ours in the server's log: its position."""
        found = self._one("SELECT pg_logical_emit_message(true, %s, %s)", NOTE, content)
        return lsn_number(str(found))

    def _one(self, statement: str, *values: str) -> Any:
        row = self._sql.execute(statement, values or None).fetchone()
        return None if row is None else row[0]
