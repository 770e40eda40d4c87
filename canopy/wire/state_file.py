"""The file ``state`` of a data folder: the node's stored records, their owner, and the detection of
a file that can no longer be written.

overlay/records.py describes format, torn tails, damage, and when a record is durable. One record of
each start is the file's own: the *owner*, the id and the incarnation of the node whose records
follow. It shows whether ``node.json`` and ``state`` belong to the same node.

After a failed write the contents of the disk are unknown, and a file that was deleted or replaced
under the running node is lost with the process. In both cases nothing more is stored: every later
`write` raises the same error.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from canopy.wire.constants import STATE_LIMIT
from canopy.wire.durable import DiskError, FolderError, refused, sync_data, write_durably
from overlay.records import StateRecords, pack_block, recover

OWNER: Final = re.compile(rb"owner:([0-9a-f]{16}(?:[0-9a-f]{16})?):([1-9][0-9]{0,18})")
"""The file's own record. The node's are MessagePack arrays, which begin with another byte."""


class NodeIdentity(NamedTuple):
    """The node whose records a state file has, as it was at its last start."""

    node: str
    incarnation: int


class StoredState(NamedTuple):
    """The contents of a state file. `size`: its bytes; `owner`: None for a file without one."""

    found: StateRecords
    size: int
    owner: NodeIdentity | None

    @property
    def records(self) -> list[bytes]:
        """The node's records in the order in which they were written, without the file's own."""
        return [record for record in self.found.records if not OWNER.fullmatch(record)]


def read_state(path: Path) -> StoredState:
    """Read a state file; a missing one counts as empty. Raises FolderError if it is too large,
    OSError if it cannot be read."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) > STATE_LIMIT:
        raise FolderError(f"{path} is larger than {STATE_LIMIT} bytes")
    found = recover(data)
    owners = [match for record in found.records if (match := OWNER.fullmatch(record))]
    owner = NodeIdentity(owners[-1][1].decode(), int(owners[-1][2])) if owners else None
    return StoredState(found, len(data), owner)


class StateFile:
    """The open state file of a running node, used by one thread at a time. Its constructor raises
    OSError."""

    def __init__(self, path: Path, owner: NodeIdentity, stored: StoredState) -> None:
        """Continue after the records of `stored`, once its torn tail is cut off; begin again if it
        is damaged."""
        self.path = path
        self._owner = f"owner:{owner.node}:{owner.incarnation}".encode()
        self._error: DiskError | None = None  # why nothing is stored any more
        found = stored.found
        if found.damaged:
            self._file = -1
            self._replace(())
            return
        self._number = found.number  # of the next block
        self.size = found.end
        """The durable size of the file, in bytes."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if stored.size > found.end:
            os.ftruncate(self._file, found.end)
        self._append((self._owner,))

    def write(self, records: Sequence[bytes], replace: bool) -> None:
        """Append records as one block, or replace all records by them (`replace`). They are durable
        when this returns.

        A DiskError is fatal for the caller: output that depends on these records must not be sent.
        Every later call raises it again.
        """
        if self._error is not None:
            raise self._error
        try:
            if replace:
                self._check()
                self._replace(records)
            else:
                self._append(records)
                self._check()
        except OSError as error:
            raise self._failed(f"cannot write {self.path}: {refused(error)}") from None

    def check(self) -> None:
        """Raise DiskError if the file was deleted or replaced, or a write has failed."""
        if self._error is not None:
            raise self._error
        try:
            self._check()
        except OSError as error:
            raise self._failed(f"cannot find {self.path}: {refused(error)}") from None

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _check(self) -> None:
        """Raise OSError or DiskError unless the file at the path is the open one."""
        try:
            there = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._failed(
                f"{self.path} was deleted while the node was running: what it stores would be "
                f"lost with its process. Put the folder back, or start a new node in another one "
                f"(--data)"
            ) from None
        if not os.path.samestat(there, os.fstat(self._file)):
            raise self._failed(
                f"{self.path} was replaced while the node was running: what it stored since is "
                f"not in it. Give each node a folder of its own, and exchange its files only while "
                f"it is stopped"
            )

    def _failed(self, reason: str) -> DiskError:
        self._error = DiskError(reason)
        return self._error

    def _append(self, records: Sequence[bytes]) -> None:
        data, at = pack_block(self._number, records), self.size
        while data:
            written = os.pwrite(self._file, data, at)
            data, at = data[written:], at + written
        sync_data(self._file)
        self._number, self.size = self._number + 1, at

    def _replace(self, records: Sequence[bytes]) -> None:
        """Replace the whole file by one block."""
        block = pack_block(0, (self._owner, *records))
        write_durably(self.path, block)
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self.close()
        self._file = file
        self._replaces, self._number, self.size = False, 1, len(block)


# --- what a node stores, on its way to the state file: at the end of the turn, or behind it ---
#
# Records of `store` are durable when `sync` returns, which waits for the disk. Those of
# `store_later` are written by a thread, while the node's goes on: *group commit*, since all that
# comes during one fdatasync is one block, and so shares the next. There is one order: a block has
# all that waits when it is written, whichever thread writes it, so that what is durable is never
# without what was stored before it.
#
# An error of the disk is the end of the process (canopy/wire/state_file.py): `sync` and `take`
# raise it, and so does every later call.


class StateCommits:
    """Makes the records of one state file durable, and closes it. The node's thread calls all
    methods except `_run`."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._writing = threading.Lock()  # held while what waits is taken and written
        self._taking = threading.Lock()  # held while what waits is changed
        self._waiting: list[bytes] = []
        self._bytes = 0  # of these
        self._replaces = False  # they take the place of the whole file
        self._is_urgent = False  # some are of `store`
        self._ticket = 0
        self._durable = self._taken = 0  # tickets
        self._error: BaseException | None = None
        self._wake: Callable[[], None] = lambda: None
        self._asked: SimpleQueue[bool] = SimpleQueue()  # False: the end
        self._thread: threading.Thread | None = None

    def store(self, *records: bytes, replace: bool = False) -> None:
        """Append records, which are durable after `sync`; with `replace` instead of all stored.

        Raises DiskError if the file would exceed `STATE_LIMIT`.
        """
        self._put(records, replace)
        self._is_urgent = True

    def store_later(self, *records: bytes, replace: bool = False) -> int:
        """Append records and return a ticket: they are durable when `take` returns this ticket or a
        later one. `replace` and DiskError as in `store`."""
        self._put(records, replace)
        self._ticket += 1
        return self._ticket

    def sync(self) -> None:
        """At the end of a turn, make all stored records durable if some of them came from `store`;
        otherwise let the thread do so. Raises DiskError, or the error that has ended the thread."""
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
        """Call `wake`, in any thread, whenever there is another ticket to `take`."""
        self._wake = wake

    def take(self) -> int:
        """Return the last ticket whose records are durable; 0 if it was returned before. Raises the
        error that has ended the thread."""
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
        """Write pending records, as far as the disk allows, and close the file; a second call does
        nothing."""
        if self._thread is not None:
            self._asked.put(False)
            self._thread.join()
            self._thread = None
        if self._error is None:
            with suppress(DiskError):
                self._commit()
        self._file.close()

    def _put(self, records: tuple[bytes, ...], replace: bool) -> None:
        with self._taking:
            if replace:
                self._waiting, self._bytes, self._replaces = [], 0, True
            self._waiting += records
            self._bytes += sum(map(len, records))
            size = self._bytes + (0 if self._replaces else self._file.size)
        if size > STATE_LIMIT:
            self._error = DiskError(f"{self._file.path} would exceed {STATE_LIMIT} bytes")
            raise self._error

    def _commit(self) -> None:
        """Make pending records durable. Raises the disk's error, from then on in every call."""
        with self._writing:
            with self._taking:
                records, replace, ticket = self._waiting, self._replaces, self._ticket
                self._waiting, self._bytes, self._replaces = [], 0, False
            if not records and not replace:
                return
            try:
                self._file.write(records, replace)
            except BaseException as error:
                self._error = error
                raise
            self._durable = ticket

    def _run(self) -> None:
        """Run in a thread: write all pending records whenever asked."""
        while self._asked.get():
            while not self._asked.empty():
                if not self._asked.get():
                    return
            with suppress(BaseException):  # the node's thread raises it
                self._commit()
            self._wake()
