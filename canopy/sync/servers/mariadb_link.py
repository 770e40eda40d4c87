"""Connections to MariaDB from a URL, and its binary log over one of them.

pymysql has no face for the replication protocol: two commands and packets, which are read from its
socket (https://mariadb.com/kb/en/replication-protocol/).
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import pymysql
from pymysql.constants import CLIENT
from pymysql.converters import encoders

from canopy.sync.errors import SourceLostError, SyncError
from canopy.sync.servers.mariadb_values import SESSION

PORT: Final = 3306
HEARTBEAT: Final = 5.0
"""Seconds after which the server says that it is there."""
SILENCE: Final = 60.0
"""Seconds without any word from the server after which it counts as gone."""
_LARGEST: Final = 0xFFFFFF
_KIND: Final = 9
"""Offset of the kind of event in a packet."""
_GTID: Final = 162
_LOG_LOST: Final = 1236


def parameters(url: str) -> dict[str, Any]:
    """pymysql's parameters for mariadb://user:password@host:port/database?unix_socket=…. Raises
    SyncError."""
    parts = urlsplit(url)
    database = parts.path.strip("/")
    if not database or "/" in database:
        raise SyncError("the URL of a MariaDB ends with its database: mariadb://user@host/shop")
    found: dict[str, Any] = {"database": unquote(database), "host": parts.hostname or "localhost"}
    found |= {"port": parts.port or PORT, "user": unquote(parts.username or "")}
    if parts.password:
        found["password"] = unquote(parts.password)
    for name, value in parse_qsl(parts.query):
        if name not in ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key"):
            raise SyncError(f"the URL of a MariaDB has no parameter {name}")
        found[name] = value
    return found


class Streaming(pymysql.cursors.SSCursor):
    """Rows as they are read. pymysql reads the rest when a cursor is closed, and fails in its own
    way where the connection is lost."""

    def close(self) -> None:
        """Close the cursor. Its remaining rows are not read from a connection that has ended."""
        result = cast(Any, self)._result
        if self.connection is not None and not self.connection.open and result is not None:
            result.unbuffered_active = False
        super().close()


def connected(url: str, streaming: bool = False) -> pymysql.Connection[Any]:
    """A connection whose values come as text, or as bytes where they are. `streaming`: rows come
    as they are read."""
    cursor: Any = Streaming if streaming else pymysql.cursors.Cursor
    return pymysql.connect(
        **parameters(url),
        autocommit=True,
        charset="utf8mb4",
        conv=dict[Any, Any](encoders),
        client_flag=CLIENT.FOUND_ROWS,
        cursorclass=cursor,
        init_command=SESSION,
    )


def asked(link: pymysql.Connection[Any], statement: str, values: Sequence[Any] = ()) -> list[Any]:
    """The rows that a statement returns."""
    with link.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


class Declared(msgspec.Struct, frozen=True):
    """A column as the server's catalogue has it."""

    name: str
    type: str
    charset: str
    """The character set of a text, as `collation` is; "" of another type."""
    collation: str
    nullable: bool
    generated: bool
    key: bool
    extra: str

    @property
    def words(self) -> str:
        """The type with its character set and collation."""
        if not self.charset:
            return self.type
        return f"{self.type} CHARACTER SET {self.charset} COLLATE {self.collation}"


def declared_columns(link: pymysql.Connection[Any], table: str) -> list[Declared]:
    """The columns of a table in their order; none, if there is no such table."""
    found = asked(
        link,
        "SELECT COLUMN_NAME, COLUMN_TYPE, coalesce(CHARACTER_SET_NAME, ''), "
        "coalesce(COLLATION_NAME, ''), IS_NULLABLE, EXTRA, COLUMN_KEY "
        "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s "
        "ORDER BY ORDINAL_POSITION",
        [table],
    )
    return [
        Declared(
            *(name, kind, charset, collation),
            nullable=nullable == "YES",
            generated="GENERATED" in extra,
            key=key == "PRI",
            extra=extra,
        )
        for name, kind, charset, collation, nullable, extra, key in found
    ]


class BinlogLink:
    """One connection over which the server sends its log."""

    def __init__(self, url: str, gtid: str) -> None:
        """The transactions behind `gtid`, "": from the first one that is there."""
        self._link = cast(Any, connected(url))  # parts of it are used that have no types
        for statement in (
            "SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@GLOBAL.binlog_checksum",
            f"SET @master_heartbeat_period = {int(HEARTBEAT * 1e9)}",
            f"SET @slave_connect_state = '{gtid}', @slave_gtid_strict_mode = 0, "
            "@slave_gtid_ignore_duplicates = 0",
        ):
            self._link.query(statement)
        number = secrets.randbelow(2**31 - 2) + 2  # that of no other replica
        self._send(b"\x15" + struct.pack("<I", number) + b"\0\0\0" + struct.pack("<HII", 0, 0, 0))
        self._link._read_packet()
        self._send(b"\x12" + struct.pack("<IHI", 4, 0, number))
        self._socket = self._link._sock
        self._buffer = bytearray()
        self._heard = time.monotonic()

    def close(self) -> None:
        """End the connection to the server, if it is open."""
        if self._link.open:
            self._link.close()

    def begins_next(self) -> bool:
        """Whether what comes next is here already, and begins a transaction."""
        return len(self._buffer) > _KIND and self._buffer[_KIND] == _GTID

    def receive(self, wait: float) -> bytes | None:
        """The next event; None if none came within `wait` seconds. Raises SourceLostError when the
        server does not have the log (any more), and OperationalError when it is gone."""
        until = time.monotonic() + wait
        while True:
            packet = self._packet()
            if packet is not None:
                if packet[0] == 0:
                    return packet[1:]
                raise self._error(packet)
            rest = until - time.monotonic()
            self._socket.settimeout(max(rest, 0.0))
            try:
                data = self._socket.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                if time.monotonic() - self._heard > SILENCE:
                    raise pymysql.OperationalError(2013, "the server is silent") from None
                return None
            except OSError as error:
                raise pymysql.OperationalError(2013, f"the connection is lost: {error}") from None
            if not data:
                raise pymysql.OperationalError(2013, "the server has ended the connection")
            self._heard = time.monotonic()
            self._buffer += data

    def _packet(self) -> bytes | None:
        """Return one packet. The parts of one that is larger than 16 MiB are joined."""
        at, parts = 0, []
        while len(self._buffer) >= at + 4:
            size = int.from_bytes(self._buffer[at : at + 3], "little")
            if len(self._buffer) < at + 4 + size:
                return None
            parts.append(bytes(self._buffer[at + 4 : at + 4 + size]))
            at += 4 + size
            if size < _LARGEST:
                del self._buffer[:at]
                return b"".join(parts)
        return None

    def _send(self, command: bytes) -> None:
        self._link._next_seq_id = 0
        self._link.write_packet(command)
        self._link._next_seq_id = 1

    @staticmethod
    def _error(packet: bytes) -> Exception:
        if packet[0] != 0xFF:
            return pymysql.OperationalError(2013, "the server has ended its log")
        (code,) = struct.unpack_from("<H", packet, 1)
        text = packet[9 if packet[3:4] == b"#" else 3 :].decode("utf-8", "replace")
        if code == _LOG_LOST:
            return SourceLostError(
                f"the server cannot go on from there: {text}; take a new snapshot "
                f"(canopy sync run --snapshot)"
            )
        return pymysql.OperationalError(code, text)
