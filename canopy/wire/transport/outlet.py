"""What waits to be written to one socket, and leaves at once where the socket takes it.

A task that has to be woken before anything leaves costs some 20 µs of trio's and puts every other
ready task before it. So whoever has queued something calls `send_now` at the end of the turn: it
writes straight to the descriptor, which does not block, until nothing waits or the socket is full.
Only what is left then is the writer task's (`drain`), which waits for room and writes in the same
way. Whoever writes takes from the front of one list, so bytes never overtake each other; and what
several sockets are to get may be one object, since nothing is copied here.

Faults are the writer's, too: `send_now` leaves the bytes where they are, and `drain` meets the
fault again when it writes them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import trio

PIECES: Final = 1_024
"""Pieces of one write at most: what Linux and macOS take (IOV_MAX)."""


class Counters:
    """What the connections of one process have moved (shown in `canopy status` as ``wire_…``)."""

    __slots__ = ("bytes_in", "bytes_out", "errors", "frames_in", "frames_out", "sends")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.frames_in = 0
        self.frames_out = 0
        self.sends = 0
        self.errors = 0


class Outlet:
    """The bytes that wait for one stream, in order, and who writes them."""

    def __init__(self, counters: Counters) -> None:
        """`counters`: where what leaves is counted."""
        self.waiting = 0
        """Bytes that nobody has begun to write."""
        self._counters = counters
        self._pieces: list[bytes | memoryview] = []
        self._file: int | None = None
        self._lot = trio.lowlevel.ParkingLot()

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._pieces)

    def open(self, stream: trio.SocketStream) -> None:
        """Write to this stream's socket from now on."""
        self._file = stream.socket.fileno()

    def close(self) -> None:
        """The stream is about to be closed: its descriptor may soon be another's."""
        self._file = None

    def put(self, data: bytes) -> None:
        """Queue; `send_now` or `wake` has to follow."""
        self._pieces.append(data)
        self.waiting += len(data)

    def send_now(self) -> None:
        """Write what the socket takes without waiting; the writer task gets the rest."""
        with suppress(OSError):  # the writer will see
            self._write()
        if self._pieces:
            self.wake()

    def wake(self) -> None:
        """Let the writer task look: at what waits, or at why it should end."""
        self._lot.unpark_all()

    async def idle(self) -> None:
        """The writer task: wait until somebody calls `wake`."""
        await self._lot.park()

    async def drain(self) -> None:
        """The writer task: wait until the socket takes something, and write that.

        Raises trio.BrokenResourceError, and trio.ClosedResourceError as `send_all` does.
        """
        if self._file is None:
            raise trio.ClosedResourceError("it was closed")
        await trio.lowlevel.wait_writable(self._file)
        try:
            self._write()
        except OSError as error:
            raise trio.BrokenResourceError(f"writing failed: {error}") from error

    def _write(self) -> None:
        """Write until nothing waits or the socket is full. OSError: it is at its end."""
        pieces = self._pieces
        while pieces and self._file is not None:
            some = pieces if len(pieces) <= PIECES else pieces[:PIECES]
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
            if is_full:
                return
