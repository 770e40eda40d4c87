"""The temporary folder of an analysis: configuration, log, and what Spark writes and reads back.

It is removed at the end. A process that is killed leaves its folder, of some megabytes, or of
gigabytes where records were shuffled: the next analysis removes those whose process has ended. A
living process holds a lock, which the operating system takes from a dead one.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "canopy-spark-"
LOCK: Final = "lock"

UNLOCKED_SECONDS: Final = 86_400.0
"""After which a folder without a lock is removed, too: its process was killed before it made one,
or was of a version that made none. Guess: longer than an analysis takes."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder within the `with`. Folders that dead processes have left are removed before."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        draft = folder / f"{LOCK}.new"
        with draft.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            draft.rename(folder / LOCK)  # held as soon as it is there
            yield folder


def _sweep(folder: Path) -> None:
    """Remove what dead processes of this user have left in `folder`."""
    for left in folder.glob(f"{PREFIX}*"):
        if left.is_symlink() or not left.is_dir():
            continue
        try:
            if _is_dead(left):
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # another user's, or gone meanwhile
            continue


def _is_dead(left: Path) -> bool:
    try:
        lock = (left / LOCK).open("rb")
    except FileNotFoundError:
        return left.stat().st_mtime < time.time() - UNLOCKED_SECONDS
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
