"""A feed's bytes, with a look ahead at those that come next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO


class FeedSource:
    """A stream with `read`, `read1` and `readline` of `io.BufferedIOBase`, and methods that look
    ahead. These wait for the bytes, so that a slow pipe gives the same result as a file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: Any = stream
        self._ahead = bytearray()

    def ahead(self, count: int) -> bytes:
        """Return the next `count` bytes without consuming them; fewer at the end of the stream."""
        while len(self._ahead) < count:
            data = self._stream.read(count - len(self._ahead))
            if not data:
                break
            self._ahead += data
        return bytes(self._ahead[:count])

    def lines_ahead(self, limit: int) -> Iterator[bytes]:
        """Yield the next lines with their ends without consuming them, `limit` bytes in total; the
        last one may be cut off there."""
        at = 0
        while at < limit:
            end = self._ahead.find(b"\n", at) + 1
            if not end:
                self._ahead += self._stream.readline(limit - len(self._ahead))
                end = len(self._ahead)
            if end == at:
                return
            yield bytes(self._ahead[at : min(end, limit)])
            at = end

    def put_back(self, data: bytes) -> None:
        """Put the last read bytes back, to be read again."""
        self._ahead[:0] = data

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, or all that follow (-1)."""
        if not self._ahead:
            return bytes(self._stream.read(size))
        taken = self._take(len(self._ahead) if size < 0 else size)
        return taken + bytes(self._stream.read(size if size < 0 else size - len(taken)))

    def read1(self, size: int = -1) -> bytes:
        """Return the available bytes without waiting for more, as `io.BufferedIOBase` does."""
        return self._take(size) if self._ahead else bytes(self._stream.read1(size))

    def readline(self, size: int = -1) -> bytes:
        """Read one line, of at most `size` bytes."""
        if not self._ahead:
            return bytes(self._stream.readline(size))
        end = self._ahead.find(b"\n") + 1 or len(self._ahead)
        taken = self._take(end if size < 0 else min(end, size))
        if taken.endswith(b"\n") or len(taken) == size:
            return taken
        return taken + bytes(self._stream.readline(size if size < 0 else size - len(taken)))

    def readable(self) -> bool:
        """Whether it can be read: it can."""
        return True

    def _take(self, size: int) -> bytes:
        size = len(self._ahead) if size < 0 else size
        taken = bytes(self._ahead[:size])
        del self._ahead[:size]
        return taken
