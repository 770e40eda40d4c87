"""Named contexts: names for the data folders of nodes, in the user's configuration.

One JSON file, ``$XDG_CONFIG_HOME/canopy/contexts.json`` (else under ``~/.config``): an object with
``current`` (a name or "") and ``folders`` (name -> absolute path). It is replaced as a whole, under
a lock, so that a reader never sees half of it and two writers lose nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from canopy.cli.errors import USAGE, CommandError

NAME: Final = re.compile(r"[^\W_][\w.-]{0,63}")


@dataclass
class Contexts:
    """The named data folders, and which of them is meant where none is given."""

    folders: dict[str, str] = field(default_factory=dict)
    current: str = ""

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
        """Make it the current one; "": none. Raises CommandError."""
        if name:
            self.folder(name)
        self.current = name

    def remove(self, name: str) -> None:
        """Forget it; the folder stays. Raises CommandError."""
        self.folder(name)
        del self.folders[name]
        if self.current == name:
            self.current = ""

    def folder(self, name: str) -> str:
        """Its data folder. Raises CommandError if there is none of that name."""
        if name not in self.folders:
            known = ", ".join(sorted(self.folders)) or "none"
            raise CommandError(f"no context {name!r}; there are: {known}", USAGE)
        return self.folders[name]


def contexts_path() -> Path:
    """The path of the file with the user's contexts (``$XDG_CONFIG_HOME``, else ``~/.config``)."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "canopy" / "contexts.json"


def read_contexts() -> Contexts:
    """The user's contexts. Raises CommandError for a file that has none, and OSError."""
    path = contexts_path()
    try:
        found = json.loads(path.read_bytes())
        folders, current = found["folders"], found["current"]
        if not all(isinstance(value, str) for value in (current, *folders.values())):
            raise ValueError("a folder is no text")
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} has no contexts ({error}); mend it, or move it away") from None
    return Contexts(folders, current)


@contextmanager
def changed_contexts() -> Iterator[Contexts]:
    """The user's contexts, to be changed: written when the block ends without an error. Raises as
    `read_contexts`."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(path.parent / "contexts.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = read_contexts()
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


def located(where: str | None) -> str | None:
    """The data folder that `--connect` means: that of a context of this name, else `where` itself;
    without one that of the current context, or None (the default folder). A path with a slash is
    never a context. Raises CommandError."""
    if where is None:
        contexts = read_contexts()
        return contexts.folder(contexts.current) if contexts.current else None
    return where if "/" in where else read_contexts().folders.get(where, where)
