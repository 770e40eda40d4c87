"""How another thread wakes a task of the node's: a pipe of which the task waits for the end.

trio's own way for other threads (`TrioToken.run_sync_soon`) wakes a task of trio's, which calls
something that wakes the task: two more rounds of its loop, some 50 µs of a busy node's time each.
"""

from __future__ import annotations

import contextlib
import os
import threading

import trio


class Bell:
    """Rung by any thread, heard by one task. To be closed."""

    def __init__(self) -> None:
        self._end, self._rope = os.pipe()
        os.set_blocking(self._end, False)
        os.set_blocking(self._rope, False)
        self._open = threading.Lock()
        self._is_open = True

    def ring(self) -> None:
        """Wake the task, now or when it listens next; nothing happens once it is closed."""
        with self._open:  # else the descriptor may be another file's by now
            if self._is_open:
                with contextlib.suppress(BlockingIOError):  # it has been rung often enough
                    os.write(self._rope, b"\a")

    async def heard(self) -> None:
        """Wait until it is rung, unless that has happened since the last call."""
        await trio.lowlevel.wait_readable(self._end)
        with contextlib.suppress(BlockingIOError):
            os.read(self._end, 4096)

    def close(self) -> None:
        """Let nobody ring any more. Nobody may be listening."""
        with self._open:
            self._is_open = False
            os.close(self._end)
            os.close(self._rope)
