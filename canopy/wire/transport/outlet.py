"""The write queue of one socket, which is written at once as far as the socket accepts it.

Waking a writer task costs some 20 µs in trio, and every other ready task runs before it. So
`send_now`, called at the end of a turn, writes to the non-blocking descriptor until the queue is
empty or the socket is full. The writer task (`drain`) waits for room and writes the rest in the
same way. Both take from the front of one list, so bytes stay in order. Nothing is copied: several
sockets may queue the same bytes object. An encrypted stream (tls.py) is encrypted when it is
written: once for all that a turn has queued.

A write error in `send_now` leaves the bytes in the queue, and `drain` meets and reports the error
when it writes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from canopy.wire.constants import WRITE_PIECES

Encrypt = Callable[[Sequence[bytes | memoryview]], bytes]
"""Returns the encrypted bytes of some pieces."""


@dataclass(slots=True)
class Counters:
    """Totals over the connections of one process (``wire_…`` in `canopy status`)."""

    bytes_in: int = 0
    bytes_out: int = 0
    errors: int = 0
    frames_in: int = 0
    frames_out: int = 0
    sends: int = 0
    tls_refused: int = 0  # connections whose peer did not authenticate itself
    accepts_refused: int = 0  # those beyond what one address may have
    key_refused: int = 0  # those that were cut off for newer ones of the same key
    shared_refused: int = 0  # those beyond what an address or a tenant may have open
    users_refused: int = 0  # those with programs of other users of this machine


class Outlet:
    """The write queue of one stream. `counters` counts the writes and the written bytes."""

    def __init__(self, counters: Counters) -> None:
        self.waiting = 0
        """The bytes in the queue."""
        self._counters = counters
        self._pieces: list[bytes | memoryview] = []
        self._encrypt: Encrypt | None = None
        self._encrypted = 0  # so many of the pieces are already
        self._file: int | None = None
        self._lot = trio.lowlevel.ParkingLot()

    def __bool__(self) -> bool:
        """Whether anything is queued."""
        return bool(self._pieces)

    def open(
        self,
        stream: trio.SocketStream,
        encrypt: Encrypt | None = None,
    ) -> None:
        """Write to this stream's socket from now on. `encrypt` turns all waiting pieces into the
        bytes to write; None: they are written unchanged."""
        self._encrypt = encrypt
        self._file = stream.socket.fileno()

    def close(self) -> None:
        """Stop using the stream's descriptor, which the system may reuse after it is closed."""
        self._file = None

    def put(self, data: bytes) -> None:
        """Queue `data`; `send_now` or `wake` must follow."""
        self._pieces.append(data)
        self.waiting += len(data)

    def send_now(self) -> None:
        """Write what the socket accepts now, and wake the writer task for the rest."""
        try:
            self._write()
        except OSError:
            self.wake()  # `drain` meets it again
        else:
            if self._pieces:
                self.wake()

    def wake(self) -> None:
        """Wake the writer task, which has something to write or has to end."""
        self._lot.unpark_all()

    async def idle(self) -> None:
        """Wait for `wake`; called by the writer task."""
        await self._lot.park()

    async def drain(self) -> None:
        """Wait until the socket has room, and write; called by the writer task.

        Raises trio.BrokenResourceError and trio.ClosedResourceError as `send_all` does.
        """
        if self._file is None:
            raise trio.ClosedResourceError("the stream was closed")
        await trio.lowlevel.wait_writable(self._file)
        try:
            self._write()
        except OSError as error:
            raise trio.BrokenResourceError(f"writing failed: {error}") from error

    def _write(self) -> None:
        """Write until the queue is empty or the socket is full. Raises OSError of the socket."""
        pieces = self._pieces
        if self._encrypt is not None and self._encrypted < len(pieces) and self._file is not None:
            plain = pieces[self._encrypted :]
            data = self._encrypt(plain)
            self.waiting += len(data) - sum(map(len, plain))
            pieces[self._encrypted :] = [data]
            self._encrypted = len(pieces)
        while pieces and self._file is not None:
            some = pieces if len(pieces) <= WRITE_PIECES else pieces[:WRITE_PIECES]
            try:
                count = os.writev(self._file, some)
            except BlockingIOError:
                return
            self._counters.sends += 1
            self._counters.bytes_out += count
            self.waiting -= count
            done = 0
            while done < len(some) and count >= len(some[done]):
                count -= len(some[done])
                done += 1
            is_full = done < len(some)
            if count:
                pieces[done] = memoryview(some[done])[count:]
            del pieces[:done]
            self._encrypted = max(0, self._encrypted - done)
            if is_full:
                return
