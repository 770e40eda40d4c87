"""The subscriptions that are kept from one start of the TUI to the next, per node.

They lie in the user's folder for state (XDG base directory specification): one JSON file for each
data folder of a node. It is replaced at each change, atomically; a damaged one is put aside. Two
TUIs of one node share it: what changed last is kept.
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
    """A subscription as it is kept."""

    selector: str
    name: str
    level: int = 0  # priority; 0: none
    paused: bool = False


class Loaded(NamedTuple):
    """What was read, and what a person should know of it ("": nothing)."""

    subscriptions: tuple[SavedSubscription, ...]
    notice: str = ""


def saved_path(node: str | None) -> Path:
    """The file of the node whose data folder is `node` (None: the default one)."""
    folder = (Path(node).expanduser() if node is not None else default_folder()).resolve()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(state) / "canopy" / "tui" / f"{folder.name}-{digest}.json"


class SavedSubscriptions:
    """The subscriptions of the terminal UI that are kept in the file at `path`, which need not
    exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Loaded:
        """Read the file. One that is damaged is renamed, and what is readable in it is returned."""
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
        """Replace what is kept. Raises OSError."""
        listed = [subscription._asdict() for subscription in subscriptions]
        text = json.dumps({"format": FORMAT, "subscriptions": listed}, indent=1)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(self.path, text + "\n")


def _parse(content: bytes) -> tuple[tuple[SavedSubscription, ...], bool]:
    """The valid subscriptions, and whether that is all of the content."""
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
