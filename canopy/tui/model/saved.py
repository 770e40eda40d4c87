"""The subscriptions that are kept from one start of the TUI to the next, per node.

They are in the user's state folder (XDG base directory specification): one JSON file for each data
folder of a node. Each change replaces it atomically; a damaged file is renamed. Two TUIs of one
node share the file: the last change is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from canopy.tui.constants import SAVED_BYTES, SUBSCRIPTIONS
from canopy.wire.durable import write_durably
from canopy.wire.folder import default_folder
from matching import SelectorError, compile_selector
from overlay.client import LEVELS

FORMAT = 1


class SavedSubscription(NamedTuple):
    """A subscription in the file."""

    selector: str
    name: str
    level: int = 0  # priority; 0: none
    paused: bool = False


class Loaded(NamedTuple):
    """The subscriptions that were read, and a message for the user ("": none)."""

    subscriptions: tuple[SavedSubscription, ...]
    notice: str = ""


def saved_path(node: str | None) -> Path:
    """Return the file for the node of the data folder `node` (None: the default one)."""
    folder = (Path(node).expanduser() if node is not None else default_folder()).resolve()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(state) / "canopy" / "tui" / f"{folder.name}-{digest}.json"


class SavedSubscriptions:
    """The subscriptions of the terminal UI in the file at `path`, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Loaded:
        """Read the file. A damaged file is renamed, and its readable part returned."""
        try:
            with self.path.open("rb") as file:
                content = file.read(SAVED_BYTES + 1)
        except FileNotFoundError:
            return Loaded(())
        except OSError as error:
            return Loaded((), f"the saved subscriptions cannot be read: {error}")
        found, is_whole = _parse(content)
        if is_whole:
            return Loaded(found)
        aside = self.path.with_name(f"{self.path.name}.damaged")
        try:
            self.path.replace(aside)
        except OSError as error:
            return Loaded(found, f"the saved subscriptions are damaged: {self.path} ({error})")
        return Loaded(found, f"the saved subscriptions were damaged; the file is now {aside}")

    def save(self, subscriptions: Iterable[SavedSubscription]) -> None:
        """Replace the file. Raises OSError."""
        listed = [subscription._asdict() for subscription in subscriptions]
        text = json.dumps({"format": FORMAT, "subscriptions": listed}, indent=1)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(self.path, text + "\n")


def _parse(content: bytes) -> tuple[tuple[SavedSubscription, ...], bool]:
    """Return the valid subscriptions, and whether the whole content was valid."""
    try:
        read = json.loads(content)
        listed = read["subscriptions"]
        is_whole = read["format"] == FORMAT and len(content) <= SAVED_BYTES
    except (ValueError, KeyError, TypeError, RecursionError):
        return (), False
    if not isinstance(listed, list):
        return (), False
    checked = [_checked(one) for one in listed]
    found = [one for one in checked if one is not None][:SUBSCRIPTIONS]
    return tuple(found), is_whole and len(found) == len(listed)


def _checked(read: Any) -> SavedSubscription | None:
    try:
        one = SavedSubscription(**read)
        compile_selector(one.selector)
    except (TypeError, AttributeError, SelectorError):
        return None
    is_valid = (
        isinstance(one.name, str)
        and type(one.level) is int
        and 0 <= one.level <= LEVELS
        and type(one.paused) is bool
    )
    return one if is_valid else None
