"""What comes in on one socket, read as soon as it is there.

trio's own `receive_some` first tries to read, fails where nothing is there yet, waits, and tries
again, each time through several layers. A connection between nodes nearly always has to wait. So
this waits first and then reads straight from the descriptor: about half the cost of a read, which
for small batches was more than what a node does with them.
"""

from __future__ import annotations

import os

import trio


class Inlet:
    """The bytes of one stream as they come."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._file = stream.socket.fileno() if isinstance(stream, trio.SocketStream) else None

    async def read(self, most: int) -> bytes | bytearray:
        """What has come, at least one byte and at most so many; nothing: the other side has closed.

        Raises trio.BrokenResourceError and trio.ClosedResourceError as `receive_some` does.
        """
        if self._file is None:
            return await self._stream.receive_some(most)
        while True:
            await trio.lowlevel.wait_readable(self._file)
            try:
                return os.read(self._file, most)
            except BlockingIOError:  # somebody was woken in vain
                continue
            except OSError as error:
                raise trio.BrokenResourceError(f"reading failed: {error}") from error
