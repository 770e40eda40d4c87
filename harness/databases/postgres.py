"""PostgreSQL: each value is handed over, and read, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

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
    moment,
    one_of,
    single,
    text,
    whole,
    zoned,
)
from harness.postgres import Server

MOODS = ("sad", "ok", "très bien", "")


def _hex(draw: Draw) -> str:
    return f"\\x{binary(draw).hex()}"


def _array(draw: Draw) -> str:
    return draw.choice(("{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={5,6}"))


def _interval(draw: Draw) -> str:
    return draw.choice(
        ("1 year -3 days 04:05:06.789", "-00:00:00.000001", "0", "1 mon", "-40 days")
    )


KEYS: tuple[Kind, ...] = (
    Kind("bigint", "int", whole(64)),
    Kind("text", "text", text),
    Kind("numeric", "decimal", decimal(25, 6)),
    Kind("varchar(40)", "text", text),
    Kind("date", "date", day),
    Kind("uuid", "text", lambda d: f"{d.integer(0, 2**64):032x}"),
    Kind("boolean", "bool", lambda d: d.choice(("t", "f"))),
    Kind("timestamptz", "instant", zoned),
    Kind("integer", "int", whole(32)),
)
KINDS: tuple[Kind, ...] = (
    *KEYS,
    Kind("smallint", "int", whole(16)),
    Kind("numeric", "decimal", one_of("NaN", "Infinity", "-Infinity", "0.000", decimal(70, 40))),
    Kind("numeric(12,3)", "decimal", decimal(9, 3)),
    Kind("double precision", "float", one_of("NaN", "Infinity", "-Infinity", floating, floating)),
    Kind("real", "float", one_of("NaN", "-Infinity", single, single, single)),
    Kind("text", "text", large),
    Kind("char(5)", "text", lambda d: text(d, 5)),
    Kind("bytea", "bytes", _hex),
    Kind("date", "date", one_of("infinity", "-infinity", "0044-03-15 BC", "10000-01-01", day)),
    Kind("time", "time", one_of("24:00:00", clock, clock)),
    Kind("timestamp", "timestamp", one_of("infinity", "0044-03-15 01:02:03 BC", moment, moment)),
    Kind("timestamptz", "instant", one_of("infinity", "-infinity", zoned, zoned, zoned)),
    Kind("json", "text", json_text),
    Kind("jsonb", "text", json_text),
    Kind("int[]", "text", _array),
    Kind("interval", "text", _interval),
    Kind("timetz", "text", lambda d: f"{clock(d)}+02"),
    Kind("bit varying(9)", "text", lambda d: d.choice(("", "1", "010", "111111111"))),
    Kind("inet", "text", lambda d: d.choice(("10.0.0.1/8", "::1", "192.168.0.1"))),
    Kind("mood", "text", lambda d: d.choice(MOODS)),
)

_PLAIN: dict[str, Callable[[Draw], Any]] = {
    "double precision": floating,
    "real": single,
    "date": day,
    "time": clock,
    "timestamp": moment,
    "timestamptz": zoned,
}
FINITE: tuple[Kind, ...] = tuple(
    Kind(k.declared, k.means, _PLAIN.get(k.declared, k.value)) for k in KINDS
)
"""Without NaN and infinities in floats and dates, dates out of Python's years and 24 o'clock."""


class Postgres:
    """A new database of a server."""

    kind = "postgresql"
    kinds, keys = KINDS, KEYS

    def __init__(self, server: Server, finite: bool = False) -> None:
        """`finite`: values that MariaDB has, too."""
        if finite:
            self.kinds = FINITE
        self.dsn = server.database()
        name = self.dsn.rpartition("=")[2]
        self.url = f"postgresql:///{name}?host={server.folder}&user=canopy"
        self.reconnect()
        moods = ", ".join(f"'{mood}'" for mood in MOODS)
        self._link.execute(f"CREATE TYPE mood AS ENUM ({moods})")

    def reconnect(self) -> None:
        self._link = psycopg.connect(self.dsn, autocommit=True)
        self._link.execute("SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'")
        self._link.execute("SET client_min_messages = warning")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        for number in range(1, len(values) + 1):
            statement = statement.replace("?", f"${number}", 1)
        texts = [None if value is None else str(value).encode() for value in values]
        found = self._link.pgconn.exec_params(statement.encode(), texts or None)
        if found.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise ValueError(f"{statement}: {found.error_message.decode()}")
        return [
            tuple(
                None if (cell := found.get_value(row, place)) is None else cell.decode()
                for place in range(found.nfields)
            )
            for row in range(found.ntuples)
        ]

    def named(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def read(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return self.execute(
            f"SELECT {', '.join(map(self.named, columns))} FROM {self.named(table)}"
        )

    def close(self) -> None:
        self._link.close()
