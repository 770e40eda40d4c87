"""The syncs defined on this machine: a JSON file, ``syncs.json`` beside the user's contexts.

It may have passwords (in URLs), so only the user can read it. It has no positions: the stream has
the source's, the destination its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from canopy.client.contexts import contexts_path
from canopy.sync.errors import SyncError
from canopy.wire.durable import PRIVATE, write_durably

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class Definition(msgspec.Struct):
    """One sync, whose source, destination, or both are on this machine."""

    name: str
    stream: str
    source: str = ""
    """The URL of the database whose changes are captured; "": not by this machine."""
    target: str = ""
    """The URL of the database to which they are applied; "": not by this machine."""
    tables: tuple[str, ...] = ()
    """The captured tables; (): all."""
    where: dict[str, str] = msgspec.field(default_factory=dict)
    """By table, a selector of the rows that belong to the sync."""
    snapshot: bool = True
    """Whether an empty stream begins with all rows, or with the next change."""
    forward: bool = False
    """Whether what other syncs have applied to the source is captured, too."""
    conflicts: dict[str, str] = msgspec.field(default_factory=dict)
    """By table ("": any other), the rule for rows that were changed at the destination as well."""
    connect: str = ""
    """The data folder of the node; "": as the command says."""


def definitions_path() -> Path:
    """Return the default path of the definitions."""
    return contexts_path().parent / "syncs.json"


def read_definitions(path: Path) -> dict[str, Definition]:
    """All definitions, by name. Raises SyncError for a file that has none."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[Definition])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise SyncError(f"{path} has no syncs: {error}") from None
    return {each.name: each for each in found}


def write_definitions(path: Path, definitions: dict[str, Definition]) -> None:
    """Replace the file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = msgspec.json.format(msgspec.json.encode(list(definitions.values())), indent=2) + b"\n"
    write_durably(path, data, PRIVATE)


def joined(known: Definition | None, new: Definition) -> Definition:
    """`new`, or `known` with the side that it lacked. Raises SyncError."""
    if not NAME.fullmatch(new.name):
        raise SyncError(
            f"{new.name!r} is no name of a sync: a letter or digit, then small letters, digits, _ "
            f"and -, at most 40"
        )
    if not (new.source or new.target):
        raise SyncError("a sync needs --from URL, --to URL, or both")
    if known is None:
        return new
    if (known.source and new.source) or (known.target and new.target):
        raise SyncError(f"there is a sync {new.name}; canopy sync rm {new.name} first")
    if known.stream != new.stream:
        raise SyncError(f"the sync {new.name} has the stream {known.stream}, not {new.stream}")
    own, other = (new, known) if new.source else (known, new)
    return msgspec.structs.replace(own, target=other.target, conflicts=other.conflicts)
