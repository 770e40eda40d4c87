"""The folder and files of a node's trace records: this user's own, which it alone can read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from canopy.traces.writer import TraceFile
from canopy.wire.folder import is_foreign
from canopy.wire.process.listening import StartError


def secure_traces(folder: Path) -> None:
    """Raise StartError if the trace folder is there and not this user's own; take from others the
    right to write into it."""
    try:
        if is_foreign(folder):
            raise StartError(
                f"the trace folder {folder} is a link, or another user's, who could lead it "
                "elsewhere: give this user's own folder itself (trace.dir)"
            )
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o022:
            folder.chmod(mode & ~0o022)
    except FileNotFoundError:
        return  # it is made with the first file
    except OSError as error:
        raise StartError(f"cannot use the trace folder {folder}: {error.strerror}") from None


def open_trace(path: str) -> TraceFile:
    """Open a trace file for appending, readable for its owner alone, and make its folders. What
    `write` takes is the system's. Raises OSError, also where the folder of the day or of the node
    is a link or another user's."""
    folder = Path(path).parent
    for each in (*reversed(folder.parents), folder):  # makedirs has a mode for the last one only
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
    for each in (folder.parent, folder):
        if is_foreign(each):
            raise PermissionError(errno.EPERM, "a link, or another user's", str(each))

    def private(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o600)

    return open(path, "ab", buffering=0, opener=private)  # TraceWriter buffers, and closes it
