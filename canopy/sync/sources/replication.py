"""PostgreSQL's streaming replication over psycopg's connection to libpq.

psycopg has no face for the replication protocol; libpq carries it like any COPY. What is used of
it: a slot is created with an exported snapshot, its log is streamed, and the server is told how far
it may forget (https://www.postgresql.org/docs/current/protocol-replication.html).
"""

from __future__ import annotations

import select
import struct
import time
from typing import Final

import psycopg
from psycopg import pq

from canopy.sync.errors import SyncError
from canopy.sync.servers.postgres_values import SESSION
from overlay.phrases import in_one_line

STATUS_EVERY: Final = 5.0
"""Seconds between two messages to the server, which gives a receiver up after a minute."""
_STATUS: Final = struct.Struct(">cQQQqB")
_EPOCH: Final = 946_684_800


def lsn_text(position: int) -> str:
    """A position in PostgreSQL's log as it writes them."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The position in the log that `text` (XXX/XXX, hexadecimal) stands for."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


class Replication:
    """A connection over which the server sends the decoded log of one slot."""

    def __init__(self, conninfo: str) -> None:
        self._connection = psycopg.connect(
            conninfo, autocommit=True, replication="database", options=SESSION
        )
        self._link = self._connection.pgconn
        self._confirmed = 0
        self._told = 0.0  # when the server was
        self.end = 0
        """The end of the server's log when it spoke last; all before it was received."""

    def close(self) -> None:
        """End the connection to the server."""
        self._connection.close()

    def identify(self) -> tuple[str, str]:
        """The server's system identifier, and the database."""
        found = self._ask("IDENTIFY_SYSTEM")
        return found[0], found[3]

    def create_slot(self, name: str, for_a_moment: bool = False) -> tuple[int, str]:
        """Make a slot: the position with which it begins, and the name of the snapshot of just that
        position, which is there until the next command. `for_a_moment`: it goes with this
        connection."""
        kind = "TEMPORARY LOGICAL" if for_a_moment else "LOGICAL"
        found = self._ask(f'CREATE_REPLICATION_SLOT "{name}" {kind} pgoutput EXPORT_SNAPSHOT')
        return lsn_number(found[1]), found[2]

    def start(self, slot: str, publication: str, position: int) -> None:
        """Stream the slot's transactions behind `position`."""
        self._confirmed = self.end = position
        self._link.send_query(
            f"START_REPLICATION SLOT \"{slot}\" LOGICAL {lsn_text(position)} (proto_version '1', "
            f"publication_names '\"{publication}\"', messages 'true')".encode()
        )
        result = self._link.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            raise SyncError(f"the replication does not start: {self._said()}")

    def receive(self, wait: float) -> bytes | None:
        """The next message of the plugin; None if none came within `wait` seconds. Raises SyncError
        when the server ends the replication."""
        until = time.monotonic() + wait
        while True:
            size, data = self._link.get_copy_data(1)
            if size > 0:
                found = self._unwrapped(bytes(data))
                if found is not None:
                    return found
                continue
            if size < 0:
                raise SyncError(f"the server has ended the replication: {self._said()}")
            self._tell(0.0)
            rest = until - time.monotonic()
            if rest <= 0:
                return None
            select.select([self._link.socket], [], [], min(rest, STATUS_EVERY))
            self._link.consume_input()

    def confirm(self, position: int) -> None:
        """The server may forget everything up to `position`."""
        self._confirmed = max(self._confirmed, position)
        self._tell(1.0)

    def _unwrapped(self, data: bytes) -> bytes | None:
        if data[0] == 0x77:  # w: 8 bytes begin, 8 end, 8 time
            return data[25:]
        if data[0] == 0x6B:  # k: keepalive
            self.end = int.from_bytes(data[1:9], "big")
            if data[17]:
                self._told = 0.0
                self._tell(0.0)
        return None

    def _tell(self, soon: float) -> None:
        """Say how far it may forget, unless that was said within `soon` seconds."""
        now = time.monotonic()
        if self._told and now - self._told < (soon or STATUS_EVERY):
            return
        self._told = now
        micros = int((time.time() - _EPOCH) * 1e6)
        flushed = self._confirmed
        self._link.put_copy_data(_STATUS.pack(b"r", flushed, flushed, flushed, micros, 0))
        self._link.flush()

    def _ask(self, command: str) -> list[str]:
        result = self._link.exec_(command.encode())
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise SyncError(f"{command.split()[0]}: {self._said()}")
        found = (result.get_value(0, place) for place in range(result.nfields))
        return [(value or b"").decode() for value in found]

    def _said(self) -> str:
        return in_one_line(self._link.error_message.decode(errors="replace"))
