"""Reads one socket with few calls.

trio's `receive_some` first tries to read, fails if nothing is there yet, waits, and tries again,
each time through several layers. A connection between nodes nearly always has to wait. So `Inlet`
waits first and then reads from the descriptor, at about half the cost; for small batches a
`receive_some` took longer than the node's handling of them.
"""

from __future__ import annotations

import os

import trio

from canopy.wire.transport.room import ROOM


class Inlet:
    """The incoming bytes of one stream."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._file = stream.socket.fileno() if isinstance(stream, trio.SocketStream) else None

    async def read(self, most: int) -> bytes | bytearray:
        """Return between one and `most` bytes, as soon as there are any; b"" if the other side has
        closed.

        Raises trio.BrokenResourceError and trio.ClosedResourceError as `receive_some` does.
        """
        if self._file is None:
            return await self._stream.receive_some(most)
        while True:
            await trio.lowlevel.wait_readable(self._file)
            try:
                room = ROOM.of(most)[:most]
                return bytes(room[: os.readv(self._file, [room])])
            except BlockingIOError:  # a spurious wake-up
                continue
            except OSError as error:
                raise trio.BrokenResourceError(f"reading failed: {error}") from error
