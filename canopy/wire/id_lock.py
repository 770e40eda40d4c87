"""One process per node id on a machine: a copied data folder has the same id in another folder.

The folder's own lock does not see that. So each process also locks a file named after its node's
id, in a private folder (0700) under the temporary directory; it says which process has it and with
which data folder. Where that folder cannot be used nothing is checked here: the links notice two
processes of one id wherever they run (overlay/links/handshake.py), but only when peers have heard
both.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from canopy.wire.durable import CopiedFolderError

OWNER_LIMIT: Final = 4_096
"""Bytes of a lock file that are read: a process id and a path."""


class IdLock:
    """The lock on a node's id, held until `close`. Raises CopiedFolderError if another process has
    it."""

    def __init__(self, node: str, folder: Path) -> None:
        self._file = -1
        self._path = Path(tempfile.gettempdir()) / f"canopy-ids-{os.getuid()}" / node
        try:
            self._open(node, folder)
        except OSError:
            self.close()

    def _open(self, node: str, folder: Path) -> None:
        home = self._path.parent
        home.mkdir(mode=0o700, exist_ok=True)
        found = home.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            return  # another process's
        while True:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(self._file, OWNER_LIMIT, 0).decode(errors="replace")
                os.close(self._file)
                self._file = -1
                raise CopiedFolderError(id_in_use(node, folder, owner)) from None
            if os.fstat(self._file).st_nlink:
                break
            os.close(self._file)  # its owner removed it while this process waited for it
        with contextlib.suppress(OSError):  # a full disk: who has it is not said
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n{folder.absolute()}".encode(), 0)

    @property
    def is_held(self) -> bool:
        """Whether no other process of this user on this machine has the id."""
        return self._file >= 0

    def close(self) -> None:
        """Release the lock on the id."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def id_in_use(node: str, folder: Path, owner: str) -> str:
    """Why a process may not start with this id, and what to do. `owner`: the lock file's text."""
    process, _, other = owner.partition("\n")
    return (
        f"the node {node} runs on this machine already, with the data folder {other or 'unknown'} "
        f"(process {process or 'unknown'}), and {folder} is a copy of it: delete node.json and "
        f"state in the copy, and it starts as a new node; or stop the other process"
    )
