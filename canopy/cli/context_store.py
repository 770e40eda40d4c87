"""Writes the user's named contexts (canopy/client/contexts.py).

The file is replaced as a whole, under a lock, so that a reader never sees half of it and two
writers lose nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from canopy.cli.errors import USAGE, CommandError
from canopy.client.contexts import Contexts, contexts_path, read_contexts

NAME: Final = re.compile(r"[^\W_][\w.-]{0,63}")


class ChangedContexts(Contexts):
    """Contexts that are being changed."""

    def add(self, name: str, folder: Path) -> None:
        """Name a folder, which need not exist yet. Raises CommandError for what is no name, or is
        one already."""
        if not NAME.fullmatch(name):
            raise CommandError(
                f"{name!r} is no name of a context: letters, digits, _ . and -, at most 64", USAGE
            )
        if name in self.folders:
            raise CommandError(f"there is a context {name}, of {self.folders[name]}; rm it first")
        self.folders[name] = os.path.abspath(folder.expanduser())

    def use(self, name: str) -> None:
        """Make it the current one; "": none. Raises UnknownContextError."""
        if name:
            self.folder(name)
        self.current = name

    def remove(self, name: str) -> None:
        """Forget it; the folder stays. Raises UnknownContextError."""
        self.folder(name)
        del self.folders[name]
        if self.current == name:
            self.current = ""


@contextmanager
def changed_contexts() -> Iterator[ChangedContexts]:
    """The user's contexts, to be changed: written when the block ends without an error. Raises as
    `read_contexts`."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(path.parent / "contexts.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_contexts()
        found = ChangedContexts(before.folders, before.current)
        yield found
        _write(path, found)
    finally:
        os.close(lock)


def _write(path: Path, found: Contexts) -> None:
    """Put a new file in the place of the old one."""
    text = json.dumps({"current": found.current, "folders": found.folders}, indent=2) + "\n"
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def resolve_folder(where: str | None) -> str | None:
    """The data folder that `--connect` means: that of a context of this name, else `where` itself;
    without one that of the current context, or None (the default folder). A path with a slash is
    never a context. Raises ContextError, and UnknownContextError for what is neither a context nor
    a file, where there are contexts."""
    if where is None:
        return read_contexts().current_folder()
    if "/" in where or ":" in where:
        return where
    contexts = read_contexts()
    if contexts.folders and where not in contexts.folders and not os.path.exists(where):
        return contexts.folder(where)  # raises with the names that there are
    return contexts.folders.get(where, where)
