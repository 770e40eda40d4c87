"""Databases by their URLs: what captures them, applies to them, and removes a sync from them.

To remove a sync its source is not opened as for capturing, which looks at tables and settings
first: a sync may be removed just because these are wrong.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from canopy.sync.errors import SyncError
from canopy.sync.sources.source import Source
from overlay.phrases import in_one_line

SOURCES: Final = ("sqlite", "postgresql", "mariadb")
CONNECT: Final = 10
"""Seconds for a connection to a PostgreSQL."""
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


PASSWORD: Final = re.compile(r"(?<=://)([^:/@]*:)([^?#\0]+)(?=@)|(?<=password=)([^&\0]+)")
"""A password in the URL of a database: before its host, also one whose / and @ are not escaped, or
among its parameters. No further text, so that it is found among the arguments of a process."""


def shown(url: str) -> str:
    """`url` without its password."""
    return PASSWORD.sub(lambda found: f"{found[1] or ''}…", url)


def path_of(url: str) -> str:
    """The file of a SQLite or DuckDB."""
    rest = url.partition(":")[2]
    return rest[3:] if rest.startswith("///") else rest


def absolute(url: str) -> str:
    """`url`, such that it means the same file wherever it is used."""
    if url and kind_of(url) in ("sqlite", "duckdb"):
        return f"{url.partition(':')[0]}:{Path(path_of(url)).expanduser().absolute()}"
    return url


def is_missing(url: str) -> bool:
    """Whether it names a file that is not there."""
    return kind_of(url) in ("sqlite", "duckdb") and not Path(path_of(url)).exists()


def conninfo(url: str) -> str:
    """The URL of a PostgreSQL as its driver reads it. A server that does not answer is given up
    after `CONNECT` seconds, unless the URL says otherwise."""
    found = "postgresql:" + url.partition(":")[2]
    if "connect_timeout=" in found:
        return found
    return f"{found}{'&' if '?' in found else '?'}connect_timeout={CONNECT}"


def check_source(url: str) -> None:
    """Raises SyncError where changes can never be captured from it, as far as that can be told
    without asking the database."""
    kind = kind_of(url)
    if kind not in SOURCES:
        raise SyncError(
            f"{kind} is no source: changes are captured from {', '.join(SOURCES)}"
            + (" (of a MySQL they cannot be)" if kind == "mysql" else "")
        )
    if is_missing(url):
        raise SyncError(f"there is no database {path_of(url)}")
    _check_url(kind, url)


def check_destination(url: str) -> None:
    """Raises SyncError where changes can never be applied to it, as far as that can be told without
    asking the database."""
    kind = kind_of(url)
    if kind in ("sqlite", "duckdb"):
        folder = Path(path_of(url)).parent
        if not folder.is_dir():
            raise SyncError(f"there is no folder {folder} for the database {path_of(url)}")
    elif kind in SOURCES:
        _check_url(kind, url)
    else:
        import sqlalchemy as sa

        try:
            sa.create_engine(url.removeprefix("sqlalchemy:"))  # it connects later
        except (sa.exc.ArgumentError, ImportError) as error:
            said = in_one_line(error)
            advice = "mariadb://… for a MariaDB" if kind == "mysql" else "install its dialect"
            raise SyncError(
                f"{kind} is no database that is known here ({said}): {', '.join(SOURCES)}, duckdb, "
                f"or one for which SQLAlchemy has a dialect and its driver is installed: {advice}"
            ) from None


def _check_url(kind: str, url: str) -> None:
    if kind == "mariadb":
        from canopy.sync.servers.mariadb_link import parameters

        try:
            parameters(url)
        except ValueError as error:
            raise SyncError(f"{shown(url)} is no URL of a MariaDB: {error}") from None
    elif kind == "postgresql":
        import psycopg

        try:
            psycopg.conninfo.conninfo_to_dict(conninfo(url))
        except psycopg.Error as error:
            said = in_one_line(error)
            raise SyncError(f"{shown(url)} is no URL of a PostgreSQL: {said}") from None


def open_source(name: str, url: str, tables: tuple[str, ...] = (), forward: bool = False) -> Source:
    """The database as a source. Raises SyncError, and what its driver does."""
    kind = kind_of(url)
    if kind == "sqlite":
        from canopy.sync.sources.sqlite import SqliteSource

        return SqliteSource(name, path_of(url), tables, forward)
    if kind == "postgresql":
        from canopy.sync.sources.postgres import PostgresSource

        return PostgresSource(name, conninfo(url), tables, forward)
    if kind == "mariadb":
        from canopy.sync.sources.mariadb import MariadbSource

        return MariadbSource(name, url, tables, forward)
    raise SyncError(f"{kind} is no source: changes are captured from {', '.join(SOURCES)}")


def open_destination(name: str, url: str) -> Any:
    """The database as a destination: by a module of its own, or by SQLAlchemy's dialect, which
    sqlalchemy:URL asks for in any case. Raises as `open_source`."""
    kind = kind_of(url)
    if kind == "sqlite":
        from canopy.sync.destinations.sqlite import SqliteDestination

        return SqliteDestination(name, path_of(url))
    if kind == "postgresql":
        from canopy.sync.destinations.postgres import PostgresDestination

        return PostgresDestination(name, conninfo(url))
    if kind == "duckdb":
        from canopy.sync.destinations.duckdb import DuckdbDestination

        return DuckdbDestination(name, path_of(url))
    if kind == "mariadb":
        from canopy.sync.destinations.mariadb import MariadbDestination

        return MariadbDestination(name, url)
    from canopy.sync.destinations.alchemy import AlchemyDestination

    return AlchemyDestination(name, url.removeprefix("sqlalchemy:"))


def remove_from_source(name: str, url: str) -> None:
    """Triggers and log, or publication and slot. Raises what the driver does."""
    kind = kind_of(url)
    if is_missing(url):
        return
    if kind == "sqlite":
        from canopy.sync.sources.sqlite import open_sqlite, remove_reader

        with closing(open_sqlite(path_of(url))) as database:
            remove_reader(database, name)
    elif kind == "postgresql":
        from canopy.sync.sources.postgres import remove_slot

        remove_slot(name, conninfo(url))
    elif kind == "mariadb":
        from canopy.sync.sources.mariadb import remove_tables

        remove_tables(url)


def remove_from_destination(name: str, url: str) -> None:
    """The position. Raises what the driver does."""
    if not is_missing(url):
        with closing(open_destination(name, url)) as target:
            target.remove()


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
