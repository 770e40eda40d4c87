"""Trace records as a stream has them that nodes send theirs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

import msgspec

from overlay.client import StreamEvent
from streams.log.names import TRACES


def sent(folder: Path, lines: int = 20) -> list[StreamEvent]:
    """The trace files below a folder, so many lines in an event: of all files in turns, some twice,
    as after the start of a node, and one event that is something else."""
    files = [
        [each for event in _pieces(folder, path, lines) for each in (event, event)][1:]
        for path in sorted(folder.rglob("*.jsonl"))
    ]
    events = [event for turn in zip_longest(*files) for event in turn if event is not None]
    events.insert(1, StreamEvent(0, 0, 0.0, {"n": 1}))
    return events


def _pieces(folder: Path, path: Path, lines: int) -> Iterator[StreamEvent]:
    at = 0
    found = path.read_bytes().splitlines(keepends=True)
    for place in range(0, len(found), lines):
        data = b"".join(found[place : place + lines])
        attributes = {"file": str(path.relative_to(folder)), "at": at}
        yield StreamEvent(0, 0, 0.0, attributes, data, TRACES)
        at += len(data)


class SentRecords:
    """A client of a node with such a stream, of one shard."""

    def __init__(self, folder: Path) -> None:
        self._events = [
            msgspec.structs.replace(event, offset=place) for place, event in enumerate(sent(folder))
        ]
        self.ends = {0: len(self._events)}
        self.positions = {0: 0}

    @contextmanager
    def read(self, stream: str, *, start: str, timeout: float) -> Iterator[SentRecords]:
        """As `Client.read`."""
        yield self

    def take(self, timeout: float) -> list[StreamEvent]:
        """As `Reading.take`, some events at a time."""
        begin = self.positions[0]
        self.positions[0] = min(begin + 7, len(self._events))
        return self._events[begin : self.positions[0]]
