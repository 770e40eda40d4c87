"""What a node stores, on its way to the state file: at the end of the turn, or behind it.

Records of `store` are durable when `sync` returns, which waits for the disk. Those of `store_later`
are written by a thread, while the node's goes on: *group commit*, since all that comes during one
fdatasync is one block, and so shares the next. There is one order: a block has all that waits when
it is written, whichever thread writes it, so that what is durable is never without what was stored
before it.

An error of the disk is the end of the process (canopy/wire/state_file.py): `sync` and `take` raise
it, and so does every later call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from canopy.wire.constants import STATE_LIMIT
from canopy.wire.durable import DiskError
from canopy.wire.state_file import StateFile


class StateCommits:
    """Of one state file, which it closes. Called by the node's thread, but for `_run`."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._writing = threading.Lock()  # held while what waits is taken and written
        self._taking = threading.Lock()  # held while what waits is changed
        self._waiting: list[bytes] = []
        self._bytes = 0  # of these
        self._anew = False  # they take the place of the whole file
        self._is_urgent = False  # some are of `store`
        self._ticket = 0
        self._durable = self._taken = 0  # tickets
        self._error: BaseException | None = None
        self._wake: Callable[[], None] = lambda: None
        self._asked: SimpleQueue[bool] = SimpleQueue()  # False: no more come
        self._thread: threading.Thread | None = None

    def store(self, *records: bytes, anew: bool = False) -> None:
        """Append records, which are durable after `sync`; with `anew` they replace all stored ones.

        Raises DiskError if the file would exceed `STATE_LIMIT`.
        """
        self._put(records, anew)
        self._is_urgent = True

    def store_later(self, *records: bytes, anew: bool = False) -> int:
        """Append records, which are durable when `take` returns this ticket or a later one; `anew`
        and DiskError as in `store`."""
        self._put(records, anew)
        self._ticket += 1
        return self._ticket

    def sync(self) -> None:
        """At the end of a turn: make all that was stored durable, if something of `store` is among
        it; else let the thread do so. Raises DiskError, or what has ended the thread."""
        if self._error is not None:
            raise self._error
        if self._is_urgent:
            self._is_urgent = False
            self._commit()
            if self._durable > self._taken:
                self._wake()
        elif self._waiting:
            self._asked.put(True)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="state", daemon=True)
                self._thread.start()

    def on_durable(self, wake: Callable[[], None]) -> None:
        """Call `wake`, in whatever thread, whenever there is another ticket to `take`."""
        self._wake = wake

    def take(self) -> int:
        """The last ticket whose records are durable; 0: it was taken before. Raises what has ended
        the thread."""
        if self._error is not None:
            raise self._error
        durable = self._durable
        if durable == self._taken:
            return 0
        self._taken = durable
        return durable

    def check(self) -> None:
        """Raise DiskError if the file was deleted or replaced, or a write has failed."""
        if self._error is not None:
            raise self._error
        if self._writing.acquire(blocking=False):  # else it is looked at by whoever writes
            try:
                self._file.check()
            finally:
                self._writing.release()

    def close(self) -> None:
        """Write what waits, as far as the disk does, and close the file; a second call does
        nothing."""
        if self._thread is not None:
            self._asked.put(False)
            self._thread.join()
            self._thread = None
        if self._error is None:
            with suppress(DiskError):
                self._commit()
        self._file.close()

    def _put(self, records: tuple[bytes, ...], anew: bool) -> None:
        with self._taking:
            if anew:
                self._waiting, self._bytes, self._anew = [], 0, True
            self._waiting += records
            self._bytes += sum(map(len, records))
            size = self._bytes + (0 if self._anew else self._file.size)
        if size > STATE_LIMIT:
            self._error = DiskError(f"{self._file.path} would exceed {STATE_LIMIT} bytes")
            raise self._error

    def _commit(self) -> None:
        """Make durable what waits. Raises what the disk says, from then on in every call."""
        with self._writing:
            with self._taking:
                records, anew, ticket = self._waiting, self._anew, self._ticket
                self._waiting, self._bytes, self._anew = [], 0, False
            if not records and not anew:
                return
            try:
                self._file.write(records, anew)
            except BaseException as error:
                self._error = error
                raise
            self._durable = ticket

    def _run(self) -> None:
        """The thread: whenever it is asked, write all that waits by then."""
        while self._asked.get():
            while not self._asked.empty():
                if not self._asked.get():
                    return
            with suppress(BaseException):  # the node's thread raises it
                self._commit()
            self._wake()
