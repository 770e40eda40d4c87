"""A voter's log: its position, its newest configuration and its last entries (P1).

The entries themselves are applied by the registry as they come (`EntryReceived`); what is kept here
is a bounded tail, from which a follower that is a little behind is brought up to date. One that is
further behind, or holds entries that this log does not have, gets a copy of the whole state.
"""

from __future__ import annotations

from collections import deque

from overlay.chord.cluster.messages import Configuration, LogEntry
from overlay.chord.constants import ENTRY_OVERHEAD
from overlay.machine import Key, Version


def size_of(item: LogEntry) -> int:
    """Bytes that an entry takes in memory."""
    return len(item.body) + ENTRY_OVERHEAD


class VoterLog:
    """One cluster's log at one voter: position, configuration, a bounded tail of entries."""

    def __init__(self, key: Key, position: Version, config: Configuration, kept: int) -> None:
        """`kept`: the limit of the bytes of the tail's entries."""
        self.key = key
        self.position = position
        self.config = config
        self._before = position  # of the first entry in the tail
        self._tail: deque[LogEntry] = deque()
        self._bytes = 0
        self._kept = kept

    @property
    def next(self) -> int:
        """The number that the next entry gets; equally, how many entries the log has had."""
        return self.position[1]

    def add(self, item: LogEntry) -> int:
        """Append one entry; returns its number."""
        index = self.next
        self.position = (item.epoch, index + 1)
        if item.config is not None:
            self.config = item.config
        self._tail.append(item)
        self._bytes += size_of(item)
        self._shorten()
        return index

    def keep(self, size: int) -> None:
        """Change the limit of the tail's bytes."""
        self._kept = size
        self._shorten()

    def _shorten(self) -> None:
        while self._bytes > self._kept and self._tail:
            old = self._tail.popleft()
            self._bytes -= size_of(old)
            self._before = (old.epoch, self._before[1] + 1)

    @property
    def tail_bytes(self) -> int:
        """Bytes of the entries that are kept."""
        return self._bytes

    def override(self, config: Configuration) -> None:
        """Use this configuration before it is in the log: the caller leads next and appends an
        entry."""
        self.config = config

    def tail(self) -> tuple[int, tuple[LogEntry, ...]]:
        """The number of the first entry that is kept, and the entries from there on."""
        return self._before[1], tuple(self._tail)

    def after(self, position: Version) -> tuple[LogEntry, ...] | None:
        """The entries after `position`; None if it is not of this log, or lies before its tail."""
        skip = position[1] - self._before[1]
        if not 0 <= skip <= len(self._tail):
            return None
        epoch = self._before[0] if skip == 0 else self._tail[skip - 1].epoch
        if epoch != position[0]:
            return None
        tail = self._tail
        return tuple(tail[at] for at in range(skip, len(tail)))  # mostly few, near the end
