"""MariaDB as a source: its own log by rows, in the order of commits.

The position is the sequence of the GTID of the last transaction, and the GTID's server is the
transaction's id: together with the domain they say from where the server is asked to go on. A
server that does not know that GTID refuses (`SourceLostError`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any, Final

import pymysql

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
from canopy.sync.errors import SourceLostError, SyncError
from canopy.sync.servers.mariadb_link import BinlogLink, asked, connected
from canopy.sync.sources import binlog
from canopy.sync.sources.altered_rows import Resending, added, filled
from canopy.sync.sources.mariadb_cascades import Cascades
from canopy.sync.sources.mariadb_tables import (
    PREFIX,
    Logged,
    behind,
    is_paged,
    is_sequence,
    scan,
    shape_of,
    user_tables,
)
from canopy.sync.sources.source import (
    ASKED,
    SourceView,
    check_source,
    check_there,
    inserts,
    is_wanted,
    snapshot,
    wanted_of,
)
from canopy.sync.values import Row

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS canopy_source (id varchar(36) PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS canopy_marks (id int PRIMARY KEY, n bigint NOT NULL)",
    "INSERT IGNORE INTO canopy_marks VALUES (1, 0)",
    "INSERT INTO canopy_source SELECT UUID() WHERE NOT EXISTS (SELECT 1 FROM canopy_source)",
)
APPLYING: Final = "canopy_applying"
"""The table of which a destination changes a row first in each of its transactions."""
NEEDED: Final = {
    "log_bin": ("1", "log_bin (and a restart)"),
    "binlog_format": ("ROW", "binlog_format = ROW"),
    "binlog_row_image": ("FULL", "binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "binlog_row_metadata = FULL"),
}
_BLANK: Final = r"(?:\s|/\*.*?\*/|(?:--\s|#)[^\n]*(?:\n|$))"
"""A blank or a comment, which clients put in front of statements, too."""
_NAME: Final = r"(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[^\s.;/`\"]+)"
_DML: Final = re.compile(rf"{_BLANK}*(insert|update|delete|replace|load)\b", re.IGNORECASE)
_TRUNCATE: Final = re.compile(
    rf"{_BLANK}*truncate\b{_BLANK}*(?:table\b{_BLANK}*)?"
    rf"(?:{_NAME}{_BLANK}*\.{_BLANK}*)?{_NAME}",
    re.IGNORECASE | re.DOTALL,
)

_RENEWED: Final = re.compile(
    rf"{_BLANK}*(?:drop\b|rename\b|create\s+or\s+replace\b|"
    r"alter\b.*\b(?:rename|partition|drop\s+(?:foreign|constraint))\b)",
    re.IGNORECASE | re.DOTALL,
)
"""Statements after which a name may stand for a table with other rows, of which the log says
nothing, or after which it is no longer known which rows a foreign key has changed."""
_ALTERED: Final = re.compile(
    rf"{_BLANK}*(?:alter\b|create\b).*\btable\b", re.IGNORECASE | re.DOTALL
)
"""Statements after which a table has another shape, or is there."""
_MOVED: Final = re.compile(
    rf"{_BLANK}*alter\b.*\b(?:change|first|after|drop\s+(?!(?:index|key|primary|foreign|constraint|"
    r"check|partition|period|system)\b))",
    re.IGNORECASE | re.DOTALL,
)
"""Statements after which a column may be another one, and the shape of the table the same."""
_WORD: Final = re.compile(r"`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+")


WHOLE: Final = 60.0
"""Seconds for the rest of a transaction."""
MERGED: Final = 1_000
"""Transactions that are handed on as one at most, so that a table which is sent again for each of
them is sent once."""


def remove_tables(url: str) -> None:
    """Take away what a sync has put into the database."""
    with closing(connected(url)) as link:
        for table in ("canopy_source", "canopy_marks"):
            link.query(f"DROP TABLE IF EXISTS {table}")


class MariadbSource:
    """The tables of one database of a server."""

    mark_every = 10_000  # transactions of the server that nobody wants

    def __init__(
        self, name: str, url: str, tables: Sequence[str] = (), echoes: bool = False
    ) -> None:
        """`name`: the name of the sync; `tables`: the captured tables, () for all present and
        future ones; `echoes`: also capture what other syncs apply here."""
        self._url = url
        self._wanted = tuple(tables)
        self._echoes = echoes
        self._sql = connected(url)
        self._schema: str = ""
        with ExitStack() as failed:
            failed.callback(self._sql.close)
            for variable, (value, advice) in NEEDED.items():
                if self._one(f"SELECT @@GLOBAL.{variable}") != value:
                    raise SyncError(f"the server needs {advice}")
            self._schema = self._one("SELECT DATABASE()")
            self._check_log()
            self.id = self._identify()
            for table in self._captured():
                check_table(shape_of(self._sql, table))
            failed.pop_all()
        self._log: BinlogLink | None = None
        self._binlog = binlog.Binlog(dict(self._collations()))
        self._position = 0
        self._server = 0  # of the GTID there
        self._logged: dict[str, Logged] = {}  # by table, as the log has it
        self._cascades = Cascades(self._sql)
        self._resending = Resending(self._piece)
        self._known: Mapping[str, Table] = self._resending.known
        self._touched: set[str] = set()  # tables of which rows may have been changed unseen

    def close(self) -> None:
        """End the connections for statements and for the log."""
        if self._log is not None:
            self._log.close()
            self._log = None
        self._sql.close()

    def _check_log(self) -> None:
        """Raises SyncError where the server leaves the database out of its log."""
        for *_, only, but in asked(self._sql, "SHOW MASTER STATUS"):
            named = [each for each in only.split(",") if each]
            if self._schema in but.split(",") or (named and self._schema not in named):
                raise SyncError(
                    f"the server leaves the database {self._schema} out of its log: see "
                    f"binlog_do_db and binlog_ignore_db in its settings"
                )

    def target(self) -> int:
        """Return the sequence of the newest GTID in the server's log."""
        return self._gtid()[2]

    def reached(self, target: int) -> bool:
        """Whether the log was read up to a sequence, and no table is being sent again."""
        return self._position >= target and not self._resending

    def mark(self) -> int:
        """Change the row of `canopy_marks`, and return the sequence of that transaction."""
        self._sql.query("UPDATE canopy_marks SET n = n + 1")
        return int(self._one("SELECT @@last_gtid").rpartition("-")[2])

    @contextmanager
    def view(self) -> Iterator[SourceView]:
        """Read all tables as of one GTID, in a transaction with a consistent snapshot."""
        reader, (_, _, position) = self._reader()
        try:
            tables = [shape_of(self._sql, name) for name in self._captured()]
            yield SourceView(position, tables, partial(scan, reader))
        finally:
            reader.close()

    def resume(self, commit: Commit, known: Mapping[str, Table]) -> None:
        """Read the log behind the stream's last transaction."""
        check_source(commit, self.id)
        end = self.target()
        if end < commit.position:
            raise SourceLostError(
                f"the server was put back to an older state: its log ends at {end}, and the "
                f"stream has {commit.position}; take a new snapshot (canopy sync run --snapshot)"
            )
        self._resending.resume(known)
        self._begin(commit.transaction, commit.position)

    def snapshot(self) -> Iterator[Change | Commit]:
        """See `Source`. Nobody is locked out meanwhile."""
        reader, (_, server, position) = self._reader()
        try:
            tables = [check_table(shape_of(self._sql, name)) for name in self._captured()]
            for table in tables:
                self._resending.learn(table)
            yield from snapshot((table, scan(reader, table)) for table in tables)
        finally:
            reader.close()
        yield Change(END)
        yield Commit(position, server, 0.0, self.id)
        self._begin(server, position)

    def changes(self, wait: float) -> Iterator[Change | Commit]:
        """Yield the transactions that the server has logged, and pieces of tables sent again."""
        assert self._log is not None
        commit = Commit(self._position, self._server, time.time(), self.id)
        for piece in self._resending.piece(commit):
            yield piece
            wait = 0.0
        while (data := self._log.receive(wait)) is not None:
            found = self._binlog.decode(data)
            if isinstance(found, binlog.TransactionBegin):
                self._check(found)
                yield from self._transaction(self._log, found)
                wait = 0.0

    def _transaction(
        self, log: BinlogLink, begun: binlog.TransactionBegin
    ) -> Iterator[Change | Commit]:
        """The changes of a transaction that has begun, and its commit; where tables are sent again
        for it, those of the next ones that are there as well, as one."""
        echo, merged = False, 0
        while (data := log.receive(WHOLE)) is not None:
            found = self._binlog.decode(data)
            if isinstance(found, binlog.TransactionBegin):
                self._check(found)
                begun, echo = found, False
            elif isinstance(found, binlog.RowsChange) and self._is_own(found, APPLYING):
                echo = not self._echoes
            elif isinstance(found, binlog.RowsChange) and self._is_own(found, "canopy_marks"):
                yield Change(MARK, ASKED)
            elif not echo:
                yield from self._changes_of(found)
            if isinstance(found, binlog.TransactionEnd) or (
                isinstance(found, binlog.Statement) and begun.is_standalone
            ):
                if self._touched and merged < MERGED and log.begins_next():
                    merged += 1
                    continue
                yield from self._acted()
                self._position, self._server = begun.sequence, begun.server
                yield Commit(begun.sequence, begun.server, float(begun.time), self.id)
                return
        raise pymysql.OperationalError(2013, "the server has sent a part of a transaction")

    def confirm(self, position: int) -> None:
        """See `Source`. The server keeps its log by its own rules."""

    def _check(self, begun: binlog.TransactionBegin) -> None:
        if begun.domain != self._domain:
            raise SyncError(
                f"the server's log has a GTID of the domain {begun.domain} beside those of "
                f"{self._domain}: transactions of several domains have no common order"
            )
        if begun.is_prepared:
            raise SyncError("the server's log has an XA transaction, which cannot be captured")

    def _begin(self, server: int, position: int) -> None:
        self._position, self._server = position, server
        if self._log is not None:
            self._log.close()
        gtid = f"{self._domain}-{server}-{position}" if position else ""
        self._log = BinlogLink(self._url, gtid)

    def _identify(self) -> str:
        known = "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'canopy_marks'"
        if not asked(self._sql, f"SELECT 1 FROM information_schema.TABLES {known}"):
            for statement in TABLES:
                self._sql.query(statement)
        self._domain = self._gtid()[0]
        return f"{self._one('SELECT min(id) FROM canopy_source')}/{self._domain}"

    def _gtid(self, text: str | None = None) -> tuple[int, int, int]:
        """The GTID up to which the log goes, or another one, as domain, server and sequence."""
        found = self._one("SELECT @@GLOBAL.gtid_binlog_pos") if text is None else text
        if "," in found:
            raise SyncError(
                f"the server's log has several GTID domains ({found}), whose transactions have no "
                f"common order"
            )
        if not found:
            return int(self._one("SELECT @@GLOBAL.gtid_domain_id")), 0, 0
        domain, server, sequence = found.split("-")
        return int(domain), int(server), int(sequence)

    def _reader(self) -> tuple[pymysql.Connection[Any], tuple[int, int, int]]:
        """A transaction, and the GTID up to which it sees everything."""
        reader = connected(self._url, streaming=True)
        reader.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        found = dict(asked(reader, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
        file, place = found["Binlog_snapshot_file"], int(found["Binlog_snapshot_position"])
        ((gtid,),) = asked(reader, "SELECT BINLOG_GTID_POS(%s, %s)", [file, place])
        return reader, self._gtid(gtid)

    def _captured(self) -> list[str]:
        return wanted_of(self._wanted, user_tables(self._sql))

    def _is_own(self, found: binlog.RowsChange, table: str) -> bool:
        return (found.layout.schema, found.layout.name) == (self._schema, table)

    def _wants(self, schema: str, table: str) -> bool:
        if schema != self._schema or table.startswith(PREFIX):
            return False
        return is_wanted(table, self._wanted)

    def _changes_of(self, found: binlog.Decoded) -> Iterator[Change]:
        if isinstance(found, binlog.RowsChange):
            layout = found.layout
            for schema, name in self._cascades.changed_with(found):
                if self._wants(schema, name):
                    self._touched.add(name)
            if not self._wants(layout.schema, layout.name) or is_sequence(layout):
                return
            logged = yield from self._learn(layout)
            table, row = logged.table, logged.row
            op = {binlog.WRITE_ROWS: INSERT, binlog.UPDATE_ROWS: UPDATE}.get(found.kind, DELETE)
            for before, after in found.rows:
                yield Change(op, table.name, row(before), row(after), table)
        elif isinstance(found, binlog.Statement):
            yield from self._statement(found)

    def _statement(self, found: binlog.Statement) -> Iterator[Change]:
        if _DML.match(found.text) and found.schema == self._schema:
            raise SyncError(
                f"a session has logged a statement and not its rows (binlog_format): "
                f"{found.text[:60]}; take a new snapshot"
            )
        match = _TRUNCATE.match(found.text)
        if match is not None:
            name = _unquoted(match[2])
            schema = _unquoted(match[1]) if match[1] else found.schema
            if self._wants(schema, name) and name in self._known:
                yield Change(TRUNCATE, name, schema=self._known[name])
            return
        if found.schema == self._schema or self._schema in found.text:
            self._cascades.learn()
            known = [name for name in self._known if is_wanted(name, self._wanted)]
            check_there(known, user_tables(self._sql))
            named = {_unquoted(name) for name in _WORD.findall(found.text)}
            if _RENEWED.match(found.text):
                for name in named.intersection(self._captured()):
                    yield from self._renewed(name)
            elif _ALTERED.match(found.text):
                for name in named.intersection(self._captured()):
                    yield from self._altered(name, bool(_MOVED.match(found.text)))

    def _renewed(self, name: str) -> Iterator[Change]:
        """A table that was dropped, renamed or made again, and is there by now: its shape, and its
        rows instead of those that it had."""
        table = check_table(shape_of(self._sql, name))
        self._logged.pop(name, None)
        yield from self._resending.replaced(table, self._rows(table))

    def _altered(self, name: str, is_moved: bool) -> Iterator[Change]:
        """A table that may be new, or have another shape: its shape, and its rows, if it has. One
        without a key has its say when rows of it come. `is_moved`: its columns may be others."""
        table = shape_of(self._sql, name)
        known = self._known.get(name)
        if not table.key or (not is_moved and table == known):
            return
        if is_moved or not self._resending.is_under_way(table):
            self._logged.pop(name, None)
            yield from self._reshaped(None if is_moved else known, table, known is None)

    def _acted(self) -> Iterator[Change]:
        """Yield the tables in which a foreign key may have changed rows, with their present rows;
        later entries of the log lead to the same rows."""
        touched, self._touched = self._touched, set()
        for name in sorted(touched.intersection(self._captured())):
            if name in self._known:
                yield from self._renewed(name)

    def _learn(self, layout: binlog.Layout) -> Generator[Change, None, Logged]:
        """Changes before a row of this layout: its schema, if the stream has another one, and all
        rows as they are now, since a new column may have a value in each."""
        name = layout.name
        seen = self._logged.get(name)
        if seen is not None and seen.layout is layout:
            return seen
        made = Logged(self._sql, layout)
        known = self._known.get(name)
        if known is not None and known == made.table:
            made.table = known
        elif known is None:
            yield from self._resending.barrier(check_table(made.table), ())
        elif not self._resending.is_under_way(made.table):
            yield from self._reshaped(known, check_table(made.table), False)
        self._logged[name] = made
        return made

    def _reshaped(self, known: Table | None, table: Table, is_new: bool) -> Iterator[Change]:
        """Yield the shape of a table, and the values of its rows in new columns, which the log does
        not contain. `known`: the former shape, if columns were only added; `is_new`: the stream has
        nothing of the table yet."""
        count = added(known, table)
        is_whole = is_new or not is_paged(table)
        if (is_whole or count) and shape_of(self._sql, table.name) == table:
            with closing(connected(self._url, streaming=True)) as reader:
                rows = scan(reader, table)
                changes = filled(table, count, rows) if count else None
                if changes is None and is_whole:
                    changes = inserts(table, self._rows(table))
                yield from self._resending.barrier(table, changes)
                return
        yield from self._resending.barrier(table, None)

    def _piece(self, table: Table, after: Row | None, most: int) -> list[Row] | None:
        """Read the next rows of a table that is sent again (`ReadPiece`)."""
        if shape_of(self._sql, table.name) != table:
            return None
        if not is_paged(table):
            return list(scan(self._sql, table)) if after is None else []
        return list(scan(self._sql, table, behind(self._sql, table, after, most)))

    def _rows(self, table: Table) -> Iterator[Row]:
        """All rows as they are now; what follows in the log brings about the same rows. None, if
        the table has another shape by now: then they are sent for that one."""
        if shape_of(self._sql, table.name) != table:
            return
        with closing(connected(self._url, streaming=True)) as reader:
            yield from scan(reader, table)

    def _collations(self) -> list[tuple[int, str]]:
        found = asked(
            self._sql,
            "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS "
            "WHERE ID IS NOT NULL AND CHARACTER_SET_NAME IS NOT NULL UNION SELECT ID, "
            "CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY",
        )
        return [(int(number), name) for number, name in found]

    def _one(self, statement: str) -> str:
        ((found,),) = asked(self._sql, statement)
        return str(found)


def _unquoted(name: str) -> str:
    """Return a name of a statement without its quotes, as the catalogue has it."""
    if name[0] not in '`"':
        return name
    return name[1:-1].replace(2 * name[0], name[0])
