"""What waits to be written to one socket, and leaves at once where the socket takes it.

A task that has to be woken before anything leaves costs some 20 µs of trio's and puts every other
ready task before it. So whoever has queued something calls `send_now` at the end of the turn: it
writes straight to the descriptor, which does not block, until nothing waits or the socket is full.
Only what is left then is the writer task's (`drain`), which waits for room. While that task is in
the middle of a piece `send_now` does nothing, so that bytes never overtake each other.

Faults are the writer's, too: `send_now` leaves the bytes where they are, and `drain` meets the
fault again when it sends them.
"""

from __future__ import annotations

import os
from typing import Final

import trio

PIECE: Final = 256 * 1024
"""Bytes of one write: a time-out is for the progress of one, not for a whole queue. Wild guess."""


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
        self._pieces: list[bytes] = []
        self._file: int | None = None
        self._is_draining = False
        self._lot = trio.lowlevel.ParkingLot()

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._pieces)

    def open(self, stream: trio.abc.Stream) -> None:
        """Write to this stream from now on: straight to its socket, if it has one."""
        if isinstance(stream, trio.SocketStream):
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
        if self._file is not None and not self._is_draining:
            while self._pieces:
                piece = self._take()
                try:
                    count = os.write(self._file, piece)
                except OSError:  # full, or at its end: the writer will see
                    self._put_back(piece)
                    break
                self._sent(count)
                if count < len(piece):
                    self._put_back(piece[count:])
                    break
        if self._pieces:
            self.wake()

    def wake(self) -> None:
        """Let the writer task look: at what waits, or at why it should end."""
        self._lot.unpark_all()

    async def idle(self) -> None:
        """The writer task: wait until somebody calls `wake`."""
        await self._lot.park()

    async def drain(self, stream: trio.abc.Stream) -> None:
        """The writer task: send one piece, and wait until the socket has taken it.

        Raises what `stream.send_all` raises; then some of the piece may have left.
        """
        piece = self._take()
        self._is_draining = True
        try:
            await stream.send_all(piece)
        finally:
            self._is_draining = False
        self._sent(len(piece))

    def _sent(self, count: int) -> None:
        self._counters.sends += 1
        self._counters.bytes_out += count

    def _take(self) -> bytes:
        """The next bytes in one piece, at most about `PIECE`."""
        pieces = self._pieces
        if self.waiting <= PIECE:
            piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
        else:
            size = count = 0
            while count < len(pieces) and size < PIECE:
                size += len(pieces[count])
                count += 1
            piece = b"".join(pieces[:count])
            del pieces[:count]
        self.waiting -= len(piece)
        return piece

    def _put_back(self, rest: bytes) -> None:
        self._pieces.insert(0, rest)
        self.waiting += len(rest)
