"""Durable files of the data folder, and the errors of its disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from functools import partial
from pathlib import Path
from typing import Final

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The error numbers of a full disk, a quota, and a limit on the size of files."""


PRIVATE: Final = 0o600
"""The mode of a file that only its owner can read."""


class FolderError(Exception):
    """The data folder cannot be used; the message says why and what to do."""


class DiskError(FolderError):
    """The running node's folder is gone, or cannot be written. The node has to stop, since it may
    not send what it cannot store."""


class CopiedFolderError(FolderError):
    """Another process runs with the id of this folder's node: one of the two folders is a copy."""


def refused(error: OSError) -> str:
    """Return why the disk failed, and what a person can do about it."""
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        return f"{reason}; make room (or move the folder to another disk) and start the node again"
    return f"{reason}; check the disk and the folder's permissions, and start the node again"


def write_durably(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Replace a file atomically and durably: after a crash either the old or the new one is there.
    After an OSError the old one is. `mode`: the new file's permissions, less the umask."""
    draft = path.with_name(path.name + ".new")
    try:
        draft.unlink(missing_ok=True)  # that of a crash may have other permissions
        with open(draft, "xb", opener=partial(os.open, mode=mode)) as out:
            out.write(content.encode() if isinstance(content, str) else content)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_data(file: int) -> None:
    """Make an open file's data and size durable. Raises OSError."""
    if sys.platform == "darwin":  # no fdatasync, and an fsync that leaves it in the drive's cache
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)


def sync_folder(path: Path) -> None:
    """Make the names of a folder's files durable. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def require_room(folder: Path, size: int) -> None:
    """Write and remove a file of `size` bytes. OSError if there is no room for it."""
    path = folder / "room.new"
    try:
        with path.open("wb") as out:
            out.write(bytes(size))
            out.flush()
            os.fsync(out.fileno())
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
