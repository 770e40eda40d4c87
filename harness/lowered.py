"""Programs that refuse to run as root, run by root: as the user *nobody*, who has to reach their
files, also those in a folder of root's own (`/root`, a container)."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

USER = "nobody"
OPEN = stat.S_IROTH | stat.S_IXOTH


def as_nobody() -> dict[str, Any]:
    """Arguments of subprocess by which a process of root's is one of `USER`; {} for others."""
    if os.geteuid():
        return {}
    found = pwd.getpwnam(USER)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def is_open(path: Path) -> bool:
    """Whether everybody may read a file or folder, and pass all folders above it."""
    path = path.resolve()
    above = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    return above and path.stat().st_mode & OPEN == OPEN


def open_folder(prefix: str) -> Path:
    """A new folder for `USER`, who owns it: where temporary files are, or in /tmp if these are in a
    folder of root's own."""
    base = Path(tempfile.gettempdir())
    if not os.geteuid() and not is_open(base):
        base = Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    if not os.geteuid():
        shutil.chown(folder, USER)
    folder.chmod(0o755)
    return folder


@cache
def reached(folder: Path, *parts: str) -> Path:
    """`folder`, or a copy of its `parts` (paths below it) that everybody may read and execute,
    until this process ends."""
    if os.geteuid() or all(is_open(folder / part) for part in parts):
        return folder
    copy = open_folder("canopy-programs-")
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for part in parts:
        there, here = folder / part, copy / part
        here.parent.mkdir(parents=True, exist_ok=True)
        if there.is_dir():
            shutil.copytree(there, here, symlinks=True)
        else:
            shutil.copy2(there, here)
    for path in copy.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
            if path.stat().st_mode & stat.S_IXUSR:
                path.chmod(path.stat().st_mode | 0o111)
    return copy
