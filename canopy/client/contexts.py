"""Named contexts: a user's names for the data folders of nodes, and which is the current one.

One JSON file, ``$XDG_CONFIG_HOME/canopy/contexts.json`` (else under ``~/.config``): an object with
``current`` (a name or "") and ``folders`` (name -> absolute path). `canopy context` writes it
(canopy/cli/contexts.py).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from canopy.client.errors import ContextError, UnknownContextError


@dataclass
class Contexts:
    """The named data folders, and the name of the current one."""

    folders: dict[str, str] = field(default_factory=dict)
    current: str = ""

    def folder(self, name: str) -> str:
        """Return the data folder of the context `name`. Raises UnknownContextError."""
        if name not in self.folders:
            known = ", ".join(sorted(self.folders)) or "none"
            raise UnknownContextError(f"no context {name!r}; there are: {known}")
        return self.folders[name]

    def current_folder(self) -> str | None:
        """Return the data folder of the current context; None without one."""
        return self.folder(self.current) if self.current else None


def contexts_path() -> Path:
    """Return the path of the user's file of contexts."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "canopy" / "contexts.json"


def read_contexts() -> Contexts:
    """Read the user's contexts. Raises ContextError for an invalid file, and OSError."""
    path = contexts_path()
    try:
        found = json.loads(path.read_bytes())
        folders, current = found["folders"], found["current"]
        if not all(isinstance(value, str) for value in (current, *folders.values())):
            raise ValueError("a folder is no text")
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContextError(f"{path} has no contexts ({error}); mend it, or move it away") from None
    return Contexts(folders, current)


def node_of(where: str | Path | None, context: str | None) -> str | Path | None:
    """Return the node for `where` and `context` of `connect`: `where`, or the data folder of the
    context ("": the current one; None without one). Raises ValueError if both are given, and as
    `read_contexts`."""
    if context is None:
        return where
    if where is not None:
        raise ValueError("give `where` or `context`, not both")
    contexts = read_contexts()
    return contexts.folder(context) if context else contexts.current_folder()
