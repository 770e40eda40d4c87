"""One shard's folder: its segments, its hard state, and their syncs.

After a power loss the folder has the effect of a prefix of the requests, except that writes into
one segment since the last `sync` may be missing individually: recovery distinguishes both from a
whole log (streams/log/recovery.py). So at most one file is written and not synced; a request for
another file syncs it first.

The hard state, with the replica's vote, is a file of its own with a CRC-32 before it, replaced as a
whole.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from canopy.wire.durable import sync_data, sync_folder, write_durably
from canopy.wire.shards.shard_list import HARD_STATE
from streams.log.recovery import Recovered, recover
from streams.log.shard_log import parse_name

BLOCK: Final = 4096
"""The unit, in bytes, that a disk fails to read."""

DIGEST: Final = 4  # bytes of the CRC-32 before the hard state

DURABLY: Final = getattr(os, "RWF_DSYNC", 0)
"""The flag for a write that is durable when it returns (pwritev2(2)), if the system has it (Linux):
one call instead of two, for each of which the disk's thread has to wait for Python's lock."""

LOOK: Final = 1.0
"""Seconds between two checks whether the written segment was deleted."""


class ShardFolder(NamedTuple):
    """The contents of a folder. `damaged`: its hard state is missing or cannot be read."""

    recovered: Recovered
    hard_state: bytes | None
    damaged: bool


class ShardFiles:
    """The folder at `path`. Methods raise OSError, and ValueError for a name that is not a
    segment's."""

    def __init__(self, path: Path, shard: str) -> None:
        self.path = path
        self._shard = shard
        self._segment = ""  # the one that is open
        self._file = -1
        self._written = False  # since the last sync
        self._loose = False  # the system has some of that, and not durably
        self._looked = 0.0  # when it was seen last that the segment is in the folder
        self._pieces: list[bytes] = []  # that were written and the system does not have yet
        self._end = 0  # the byte of the segment behind them
        self._made = False  # a segment since the last sync of the folder

    @property
    def segment(self) -> str:
        """The name of the open segment; "" if none is open."""
        return self._segment

    def open(self) -> ShardFolder:
        """Read the folder. Its contents may have been written by a process that was killed before
        its sync; they are durable when this returns."""
        self.close()
        self._made = False
        names = sorted(name for name in os.listdir(self.path) if parse_name(name))
        recovered = recover(self._shard, names, self._load, self._size)
        sync_folder(self.path)
        try:
            stored = self._load(HARD_STATE)
        except FileNotFoundError:
            return ShardFolder(recovered, None, True)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return ShardFolder(recovered, None, True)
        data = stored[DIGEST:]
        if stored[:DIGEST] != _digest(data):
            return ShardFolder(recovered, None, True)
        return ShardFolder(recovered, data or None, False)

    def write(self, segment: str, at: int, data: bytes) -> None:
        """Write into a segment. The data is durable after `sync`, which also raises an error of the
        write."""
        if self._segment != segment or self._file < 0:
            self._open_segment(segment)
        if at != self._end or not self._pieces:
            self._write_pieces()
            self._end = at
        self._written = True
        self._pieces.append(data)
        self._end += len(data)

    def _write_pieces(self, flags: int = 0) -> None:
        """Write the queued adjacent pieces in one system call. Each call releases Python's lock,
        and then has to wait for it while the node has a turn."""
        pieces, self._pieces = self._pieces, []
        if not pieces:
            return
        self._loose = self._loose or not flags
        left = memoryview(b"".join(pieces) if len(pieces) > 1 else pieces[0])
        at = self._end - len(left)
        while left:
            written = os.pwritev(self._file, [left], at, flags)
            left, at = left[written:], at + written

    def sync(self) -> None:
        """Make the written data durable. A segment that was deleted in the meantime is reported as
        an error within `LOOK` seconds, because its data would be lost with the process."""
        if self._written:
            if DURABLY and not self._loose:
                self._write_pieces(DURABLY)
            else:
                self._write_pieces()
                sync_data(self._file)
            self._written = self._loose = False
            if time.monotonic() - self._looked >= LOOK:
                self._look()
        if self._made:
            sync_folder(self.path)
            self._made = False

    def _look(self) -> None:
        if os.fstat(self._file).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, f"{self._segment} was deleted")
        self._looked = time.monotonic()

    def put(self, data: bytes) -> None:
        """Replace the hard state, durably, after all earlier writes."""
        self.sync()
        write_durably(self.path / HARD_STATE, _digest(data) + data)

    def cut(self, segment: str, size: int) -> None:
        """Cut a segment to `size` bytes, durably; does nothing if it does not exist or is
        shorter."""
        self.sync()
        path = self._path_of(segment)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if os.fstat(file).st_size > size:
                os.ftruncate(file, size)
                os.fsync(file)
        finally:
            os.close(file)

    def drop(self, segment: str) -> None:
        """Delete a segment, durably."""
        self.sync()
        if segment == self._segment:
            self.close()
        self._path_of(segment).unlink(missing_ok=True)
        sync_folder(self.path)

    def save(self, segment: str) -> Path:
        """Copy a segment to another name, durably. Returns the copy's."""
        self.sync()
        path = self._path_of(segment)
        kept = path.with_name(f"{segment}.damaged")
        write_durably(kept, path.read_bytes())
        return kept

    def read(self, segment: str, at: int, size: int) -> bytes:
        """Return at most `size` bytes of a segment; b"" if it does not exist."""
        self._write_pieces()
        try:
            file = os.open(self._path_of(segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return _read(file, at, size)
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the open segment, without a sync."""
        if self._file >= 0:
            os.close(self._file)
        self._segment, self._file, self._written, self._loose = "", -1, False, False
        self._looked = 0.0
        self._pieces.clear()

    def _open_segment(self, segment: str) -> None:
        path = self._path_of(segment)
        self.sync()
        self.close()
        flags = os.O_WRONLY | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags)
        except FileNotFoundError:
            self._file = os.open(path, flags | os.O_CREAT, 0o600)
            self._made = True
        self._segment = segment

    def _path_of(self, segment: str) -> Path:
        if parse_name(segment) is None:
            raise ValueError(f"{segment!r} is no name of a segment")
        return self.path / segment

    def _size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def _load(self, name: str) -> bytes:
        """Return all bytes of a file as the disk has them. After a failed sync the system may keep
        pages that it takes for written and the disk lacks, so they are dropped first."""
        file = os.open(self.path / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_data(file)
            if hasattr(os, "posix_fadvise"):  # not on macOS
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            return _read(file, 0, os.fstat(file).st_size)
        finally:
            os.close(file)


def _read(file: int, at: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := _read_some(file, at, size)):
        parts.append(part)
        at, size = at + len(part), size - len(part)
    return b"".join(parts)


def _read_some(file: int, at: int, size: int) -> bytes:
    """Read the bytes at `at`, with zeros in place of a block that cannot be read (EIO). Zeros are
    not a chunk, and so count as damage of that place, and not of the file."""
    try:
        return os.pread(file, size, at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    most = min(size, BLOCK - at % BLOCK, os.fstat(file).st_size - at)
    try:
        return os.pread(file, most, at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return bytes(max(most, 0))


def _digest(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(DIGEST, "big")
