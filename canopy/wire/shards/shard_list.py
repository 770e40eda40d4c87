"""The shards of this node: the file ``shards`` of its data folder, and the folders of `streams`.

A shard's folder is ``streams/ID/NUMBER``. The list is written after a folder was made, with an
empty hard state in it, and before anything else is written there. So

- a listed shard without a folder has lost its vote: it must not begin as one that never voted
  (`is_missing`); nor must one whose hard state is gone;
- an unlisted folder is not this node's, or was left by a crash in between: it is moved to
  ``streams/quarantine``, with an alarm, and never deleted (unless it never voted and so has nothing
  to keep).

The list is beside ``streams`` and not in it, so that it survives the loss of that folder. It names
the node: under another id, which a node takes when it has lost its state, no shard is its own. A
list that is damaged, or missing while there are folders, is rebuilt from these.

A shard is removed in two steps, of which the list has the first: an interrupted removal is finished
at the next start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Final

import msgspec

from canopy.wire.durable import FolderError, sync_folder, write_durably
from canopy.wire.log import Log

SHARD: Final = re.compile(r"([0-9a-z][0-9a-z_-]{0,63})/(0|[1-9][0-9]{0,5})")
"""Names of shards that can be folder names on every file system: no path leads out of the data
folder, and names differ even if case is ignored."""

QUARANTINE: Final = "quarantine"

HARD_STATE: Final = "promise"
"""The file with a replica's vote, and other state that the log does not have."""

NO_HARD_STATE: Final = bytes(4)
"""The file of a replica that has not voted yet: the CRC-32 of an empty state, and that state."""


class _Listed(msgspec.Struct, forbid_unknown_fields=True):
    node: str
    shards: list[str]
    removing: list[str] = []


def is_shard_name(shard: str) -> bool:
    """Return whether `shard` can be a folder's name."""
    found = SHARD.fullmatch(shard)
    return found is not None and found[1] != QUARANTINE


class ShardList:
    """The shards of one node. The constructor reads the list, finishes changes that a crash
    interrupted, and sets unlisted folders aside. Raises FolderError."""

    def __init__(self, path: Path, node: str, log: Log) -> None:
        """`path` is the data folder, `node` the id of its node."""
        self._path = path / "shards"
        self.root = path / "streams"
        self._log = log
        self._listed = _Listed(node, [])
        try:
            self._begin(node)
        except OSError as error:
            reason = error.strerror or str(error)
            raise FolderError(f"cannot use {self.root} and {self._path}: {reason}") from None

    @property
    def shards(self) -> list[str]:
        """The names of the shards, including those whose folder is missing."""
        return list(self._listed.shards)

    def folder(self, shard: str) -> Path:
        """Return the folder of a shard's files. Raises ValueError if the name is invalid."""
        if not is_shard_name(shard):
            raise ValueError(f"{shard!r} is no name of a shard")
        return self.root / shard

    def is_missing(self, shard: str) -> bool:
        """Return whether this node had the shard, and its folder is gone."""
        return shard in self._listed.shards and not self.folder(shard).is_dir()

    def add(self, shard: str) -> None:
        """Make the folder of a shard, and list it, durably; does nothing if it is listed. Raises
        OSError."""
        if shard in self._listed.shards:
            return
        folder = self.folder(shard)
        if folder.is_dir():
            self._set_aside(shard)
        for part in (self.root, folder.parent, folder):
            with contextlib.suppress(FileExistsError):
                part.mkdir(mode=0o700)
                sync_folder(part.parent)
        write_durably(folder / HARD_STATE, NO_HARD_STATE)
        self._write([*self._listed.shards, shard], self._listed.removing)

    def remove(self, shard: str) -> None:
        """Delete a shard's folder and forget the shard, durably; does nothing if it is not listed.
        Raises OSError."""
        if shard not in self._listed.shards:
            return
        rest = [name for name in self._listed.shards if name != shard]
        self._write(rest, [*self._listed.removing, shard])
        self._finish_removing()

    # -- at the start ----------------------------------------------------------------------------

    def _begin(self, node: str) -> None:
        there = self._folders()
        found = self._read()
        if isinstance(found, str):
            if found or there:
                reason = found or "it is missing"
                self._log.warning(
                    "shard_list_lost", file=self._path, reason=reason, kept=len(there)
                )
                self._write(there, [])
        elif found.node != node:
            self._log.warning("shards_of_another_node", was=found.node, now=node)
            self._write([], found.removing)
        else:
            self._listed = found
        if self._listed.removing:
            self._finish_removing()
        for shard in there:
            if shard not in self._listed.shards and self.folder(shard).is_dir():
                self._set_aside(shard)
        for shard in self._listed.shards:
            if self.is_missing(shard):
                self._log.warning("shard_missing", shard=shard, folder=self.folder(shard))

    def _read(self) -> _Listed | str:
        """Return the list, or why it cannot be used; "" if there is none."""
        try:
            text, _, digest = self._path.read_bytes().rstrip(b"\n").rpartition(b"\n")
        except FileNotFoundError:
            return ""
        if digest != _digest(text):
            return "its checksum is wrong"
        try:
            found = msgspec.json.decode(text, type=_Listed)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return str(error)
        wrong = [name for name in (*found.shards, *found.removing) if not is_shard_name(name)]
        return f"{wrong[0]!r} is no name of a shard" if wrong else found

    def _folders(self) -> list[str]:
        """Return the shards that have a folder. Folders with other names are ignored."""
        if not self.root.is_dir():
            return []
        names = (
            f"{stream.name}/{number.name}"
            for stream in sorted(self.root.iterdir())
            if stream.is_dir() and not stream.is_symlink()
            for number in sorted(stream.iterdir())
            if number.is_dir() and not number.is_symlink()
        )
        return [name for name in names if is_shard_name(name)]

    # -- changes ---------------------------------------------------------------------------------

    def _write(self, shards: list[str], removing: list[str]) -> None:
        listed = _Listed(self._listed.node, shards, removing)
        text = msgspec.json.encode(listed)
        write_durably(self._path, text + b"\n" + _digest(text) + b"\n")
        self._listed = listed

    def _finish_removing(self) -> None:
        for shard in self._listed.removing:
            folder = self.folder(shard)
            if folder.is_dir():
                shutil.rmtree(folder)
                sync_folder(folder.parent)
            with contextlib.suppress(OSError):  # other shards of the stream are there
                folder.parent.rmdir()
        self._write(self._listed.shards, [])

    def _has_nothing(self, folder: Path) -> bool:
        """Return whether the folder has neither a vote nor a log."""
        vote = folder / HARD_STATE
        if set(os.listdir(folder)) - {HARD_STATE, f"{HARD_STATE}.new"}:  # the latter: of a crash
            return False
        return not vote.exists() or vote.read_bytes() == NO_HARD_STATE

    def _set_aside(self, shard: str) -> None:
        folder, quarantine = self.folder(shard), self.root / QUARANTINE
        with contextlib.suppress(OSError):
            if self._has_nothing(folder):  # a crash left it between the folder and the list
                shutil.rmtree(folder)
                return
        quarantine.mkdir(mode=0o700, exist_ok=True)
        name = shard.replace("/", ".")
        place, number = quarantine / name, 0
        while place.exists():
            number += 1
            place = quarantine / f"{name}.{number}"
        folder.rename(place)
        for each in (folder.parent, quarantine, self.root):
            sync_folder(each)
        self._log.warning("shard_set_aside", shard=shard, kept=place)


def _digest(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
