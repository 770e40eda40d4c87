"""What is new in the trace files since the last round.

Nodes append to their files, so what is new are new files and the ends of known ones. These ends, up
to their last whole line, are copied into a folder of their own, and only that folder is read by
Spark. A file that nothing was written to within the half hour that counts is not read at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from canopy.traces.analysis.read import trace_files

PIECE: Final = 1 << 20
"""Bytes that are copied at once."""


class TraceTails:
    """Remembers how far each file was read. `clock` gives seconds since 1970."""

    def __init__(
        self, traces: Path, seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        """`seconds`: files that were last written to longer ago are left out."""
        self._traces = traces
        self._seconds = seconds
        self._clock = clock
        self._read: dict[Path, int] = {}

    def copy_new(self, folder: Path) -> int:
        """Copy what is new into the empty `folder`. Returns how many bytes these are."""
        oldest = self._clock() - self._seconds
        copied = 0
        read: dict[Path, int] = {}
        for number, path in enumerate(trace_files(self._traces)):
            if path.suffix == ".gz":  # compressed once it was complete
                continue
            try:
                found = path.stat()
                before = self._read.get(path, 0)
                if found.st_mtime < oldest or found.st_size <= before:
                    read[path] = before
                    continue
                done = self._copy(path, before, found.st_size, folder / f"{number}.jsonl")
            except OSError:  # it was removed meanwhile
                continue
            read[path] = before + done
            copied += done
        self._read = read
        return copied

    def _copy(self, path: Path, begin: int, end: int, target: Path) -> int:
        """Copy the whole lines of `path` between the two offsets. Returns their bytes."""
        done = 0
        with path.open("rb") as source, target.open("wb") as sink:
            source.seek(begin)
            while done < end - begin:
                piece = source.read(min(PIECE, end - begin - done))
                if not piece:
                    break
                sink.write(piece)
                done += len(piece)
        whole = self._whole_lines(target, done)
        with target.open("r+b") as sink:
            sink.truncate(whole)
        return whole

    @staticmethod
    def _whole_lines(path: Path, size: int) -> int:
        """Bytes of the file up to and with its last line feed."""
        with path.open("rb") as source:
            end = size
            while end > 0:
                begin = max(0, end - PIECE)
                source.seek(begin)
                place = source.read(end - begin).rfind(b"\n")
                if place >= 0:
                    return begin + place + 1
                end = begin
        return 0
