"""MariaDB, in a session that takes days 0 and out of which values come as text."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any
from uuid import UUID

from canopy.sync.servers.mariadb_link import asked, connected
from harness.databases.drawing import (
    Draw,
    Kind,
    binary,
    clock,
    day,
    decimal,
    floating,
    json_text,
    large,
    one_of,
    single,
    text,
    whole,
)
from harness.mariadb import MariadbServer

BINARY = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


def _moment(draw: Draw) -> str:
    return f"{day(draw, 1000)} {clock(draw)}"


def _stamp(draw: Draw) -> str:
    """What fits into 32 bits of seconds."""
    return f"{draw.integer(1971, 2037)}-0{draw.integer(1, 9)}-{draw.integer(10, 28)} {clock(draw)}"


def _span(draw: Draw) -> str:
    sign = draw.choice(("", "-"))
    return (
        f"{sign}{draw.integer(0, 838):02}:{draw.integer(0, 59):02}:59.{draw.integer(0, 999999):06}"
    )


def _some(draw: Draw) -> str:
    return ",".join(one for one in ("x", "é", "z z") if draw.integer(0, 1))


def _latin(draw: Draw) -> str:
    return "".join(
        draw.choice(("a", "é", "€", " ", "\x81", "ß")) for _ in range(draw.integer(0, 6))
    )


KEYS: tuple[Kind, ...] = (
    Kind("bigint", "int", whole(64)),
    Kind(f"varchar(40) {BINARY}", "text", lambda d: text(d).rstrip(" ")),
    Kind("bigint unsigned", "int", whole(64, False)),
    Kind("decimal(30,6)", "decimal", decimal(20, 6)),
    Kind(
        "varchar(40) COLLATE utf8mb4_general_ci", "text", lambda d: d.choice(("a", "A", "b", "é"))
    ),
    Kind("date", "date", lambda d: day(d, 1000)),
    Kind("int unsigned", "int", whole(32, False)),
)
KINDS: tuple[Kind, ...] = (
    *KEYS,
    Kind("tinyint(1)", "int", whole(8)),
    Kind("bit(9)", "int", whole(9, False)),
    Kind("smallint unsigned", "int", whole(16, False)),
    Kind("mediumint", "int", whole(24)),
    Kind("mediumint unsigned", "int", whole(24, False)),
    Kind("int", "int", whole(32)),
    Kind("year", "int", lambda d: d.choice((0, 1901, 2026, 2155))),
    Kind("decimal(65,30)", "decimal", decimal(35, 30)),
    Kind("decimal(5,0)", "decimal", decimal(5, 0)),
    Kind("decimal(9,9)", "decimal", decimal(0, 9)),
    Kind("double", "float", floating),
    Kind("float", "float", single),
    Kind("char(6)", "text", lambda d: text(d, 5)),
    Kind("varchar(20) CHARACTER SET latin1", "text", _latin),
    Kind("varchar(300)", "text", text),
    Kind("longtext", "text", large),
    Kind("binary(6)", "bytes", lambda d: binary(d)[:6]),
    Kind("varbinary(300)", "bytes", binary),
    Kind("mediumblob", "bytes", binary),
    Kind("datetime", "timestamp", lambda d: _moment(d)[:19]),
    Kind("datetime(3)", "timestamp", lambda d: f"{_moment(d)[:19]}.125"),
    Kind("datetime(6)", "timestamp", _moment),
    Kind("timestamp(6) NULL", "instant", _stamp),
    Kind("time", "text", one_of("838:59:59", "-00:00:01", lambda d: _span(d)[:-7])),
    Kind("time(6)", "text", _span),
    Kind("time(1)", "text", lambda d: f"{_span(d)[:-7]}.5"),
    Kind("enum('x','é','')", "text", lambda d: d.choice(("x", "é", ""))),
    Kind("set('x','é','z z')", "text", _some),
    Kind("json", "text", json_text),
    Kind(
        "uuid",
        "text",
        lambda d: str(UUID(int=d.integer(0, 2**128 - 1), version=d.choice((1, 4, 5)))),
    ),
    Kind("inet6", "text", lambda d: d.choice(("::1", "2001:db8::ff00", "::ffff:1.2.3.4"))),
)
DAY_ZERO: tuple[Kind, ...] = (
    Kind("date", "date", one_of("0000-00-00", "2026-00-00", "2026-02-31", day)),
    Kind("datetime(6)", "timestamp", one_of("0000-00-00 00:00:00", "2026-02-31 01:02:03.5")),
    Kind("timestamp NULL", "instant", one_of("0000-00-00 00:00:00", _stamp)),
)
"""With values that no other database has as a date."""


class Mariadb:
    """A new database of a server."""

    kind = "mariadb"
    kinds, keys = KINDS, KEYS

    def __init__(self, server: MariadbServer, zero: bool = False) -> None:
        """`zero`: some days are 0."""
        if zero:
            self.kinds = (*KINDS, *DAY_ZERO)
        self.url = server.url(server.database())
        self._link = connected(self.url)

    def again(self) -> Mariadb:
        """Another connection to the same database."""
        made = copy(self)
        made._link = connected(self.url)
        return made

    def reconnect(self) -> None:
        self._link = connected(self.url)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        texts = [f"{v!r}" if isinstance(v, float) else v for v in values]
        return asked(self._link, statement.replace("%", "%%").replace("?", "%s") if values else
                     statement, texts)  # fmt: skip

    def named(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def read(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        types = dict(self.execute("SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS "
                     f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"))  # fmt: skip
        shown = [
            {"float": f"CAST({self.named(c)} AS DOUBLE)", "bit": f"{self.named(c)} + 0"}.get(
                types[c], self.named(c)
            )
            for c in columns
        ]
        return self.execute(f"SELECT {', '.join(shown)} FROM {self.named(table)}")

    def close(self) -> None:
        if self._link.open:
            self._link.close()
