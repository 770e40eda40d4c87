"""From the URLs of databases to what captures them, or applies to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from canopy.sync.errors import SyncError
from canopy.sync.sources.source import Source

SQLITE_PASSING: Final = frozenset((5, 6, 7, 8, 9, 10, 13, 14, 15))
"""Busy, locked, no memory, read-only, interrupted, input or output, full, cannot open, protocol of
locks (https://sqlite.org/rescode.html)."""
MARIADB_PASSING: Final = frozenset(
    (
        *(1040, 1041, 1042, 1043, 1047, 1053, 1077, 1079, 1129, 1152, 1154, 1155, 1156),
        *(1157, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1290, 1836, 1927, 4031),
    )
)
"""Too many connections, shutting down, a connection that breaks, waits for locks, read-only; its
client's own are those from 2000 on (https://mariadb.com/kb/en/mariadb-error-code-reference/)."""


def kind_of(url: str) -> str:
    """The kind of database: sqlite, postgresql, duckdb, or SQLAlchemy's dialect. Raises
    SyncError."""
    found = re.match(r"([a-z0-9]+)(\+[a-z0-9_]+)?:", url)
    if found is None:
        raise SyncError(
            f"{shown(url)} is no URL of a database: sqlite:FILE, duckdb:FILE, "
            f"postgresql://…, mariadb://…"
        )
    return "postgresql" if found[1] == "postgres" else found[1]


def shown(url: str) -> str:
    """`url` without its password."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:…@", url)


def _path(url: str) -> str:
    rest = url.partition(":")[2]
    return rest[3:] if rest.startswith("///") else rest


def absolute(url: str) -> str:
    """`url`, such that it means the same file wherever it is used."""
    if url and kind_of(url) in ("sqlite", "duckdb"):
        return f"{url.partition(':')[0]}:{Path(_path(url)).expanduser().absolute()}"
    return url


def _conninfo(url: str) -> str:
    return "postgresql:" + url.partition(":")[2]


def open_source(name: str, url: str, tables: tuple[str, ...] = (), forward: bool = False) -> Source:
    """The database as a source. Raises SyncError, and what its driver does."""
    kind = kind_of(url)
    if kind == "sqlite":
        from canopy.sync.sources.sqlite import SqliteSource

        return SqliteSource(name, _path(url), tables, forward)
    if kind == "postgresql":
        from canopy.sync.sources.postgres import PostgresSource

        return PostgresSource(name, _conninfo(url), tables, forward)
    if kind == "mariadb":
        from canopy.sync.sources.mariadb import MariadbSource

        return MariadbSource(name, url, tables, forward)
    raise SyncError(
        f"{kind} is no source: changes are captured from sqlite, postgresql and mariadb"
    )


def open_destination(name: str, url: str) -> Any:
    """The database as a destination: by a module of its own, or by SQLAlchemy's dialect, which
    sqlalchemy:URL asks for in any case. Raises as `open_source`."""
    kind = kind_of(url)
    if kind == "sqlite":
        from canopy.sync.destinations.sqlite import SqliteDestination

        return SqliteDestination(name, _path(url))
    if kind == "postgresql":
        from canopy.sync.destinations.postgres import PostgresDestination

        return PostgresDestination(name, _conninfo(url))
    if kind == "duckdb":
        from canopy.sync.destinations.duckdb import DuckdbDestination

        return DuckdbDestination(name, _path(url))
    if kind == "mariadb":
        from canopy.sync.destinations.mariadb import MariadbDestination

        return MariadbDestination(name, url)
    from canopy.sync.destinations.alchemy import AlchemyDestination

    return AlchemyDestination(name, url.removeprefix("sqlalchemy:"))


def is_passing(error: BaseException) -> bool:
    """Whether an error of a node or a driver may pass: the database is away, or busy."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"UnreachableError", "CommandTimeoutError", "OpenStreamError"}:
        return True
    if "OperationalError" not in names:
        return False
    error = getattr(error, "orig", None) or error  # of SQLAlchemy: the driver's own
    if (code := getattr(error, "sqlite_errorcode", None)) is not None:
        return code & 0xFF in SQLITE_PASSING
    if state := getattr(error, "sqlstate", None):
        return state[:2] not in ("28", "3D", "42")
    code = error.args[0] if error.args else None
    if type(error).__module__.startswith("pymysql") and type(code) is int:
        return code in MARIADB_PASSING or 2000 <= code < 3000
    return True


def is_known(error: BaseException) -> bool:
    """Whether an error is one of a driver, or of the system: a person has to see to it, and it is
    no fault of ours."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"DatabaseError", "InterfaceError", "DBAPIError", "OSError"})
