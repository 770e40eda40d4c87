"""Writes the user's named contexts (canopy/client/contexts.py).

The file is replaced as a whole, under a lock, so that a reader never sees half of it and two
writers lose nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from canopy.cli.errors import USAGE, CommandError
from canopy.client.contexts import Contexts, contexts_path, read_contexts
from canopy.wire.durable import PRIVATE, write_durably

NAME: Final = re.compile(r"[^\W_][\w.-]{0,63}")


class ChangedContexts(Contexts):
    """Contexts that are being changed."""

    def add(self, name: str, folder: Path) -> None:
        """Add a context for a folder, which may not exist yet. Raises CommandError if `name` is
        invalid or taken."""
        if not NAME.fullmatch(name):
            raise CommandError(
                f"{name!r} is no name of a context: letters, digits, _ . and -, at most 64", USAGE
            )
        if name in self.folders:
            raise CommandError(f"there is a context {name}, of {self.folders[name]}; rm it first")
        self.folders[name] = os.path.abspath(folder.expanduser())

    def use(self, name: str) -> None:
        """Make the context `name` the current one; "" for none. Raises UnknownContextError."""
        if name:
            self.folder(name)
        self.current = name

    def remove(self, name: str) -> None:
        """Remove the context; its folder stays. Raises UnknownContextError."""
        self.folder(name)
        del self.folders[name]
        if self.current == name:
            self.current = ""


@contextmanager
def changed_contexts() -> Iterator[ChangedContexts]:
    """Give the user's contexts to a block that changes them, and write them when it ends without an
    error. Raises the errors of `read_contexts`."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(path.parent / "contexts.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_contexts()
        found = ChangedContexts(before.folders, before.current)
        yield found
        text = json.dumps({"current": found.current, "folders": found.folders}, indent=2) + "\n"
        write_durably(path, text, PRIVATE)
    finally:
        os.close(lock)


def resolve_folder(where: str | None) -> str | None:
    """Return the data folder that `--connect` names.

    That is the folder of the context `where`, or else `where` itself. A path with a slash is never
    a context. None gives the folder of the current context; without one it gives None, the default
    folder. Raises ContextError; raises UnknownContextError if there are contexts and `where` is
    neither one of them nor a file.
    """
    if where is None:
        return read_contexts().current_folder()
    if "/" in where or ":" in where:
        return where
    contexts = read_contexts()
    if contexts.folders and where not in contexts.folders and not os.path.exists(where):
        return contexts.folder(where)  # raises with the names that there are
    return contexts.folders.get(where, where)
