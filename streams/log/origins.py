"""What a shard's log says of rows that came from elsewhere: which numbers of their origin it has.

An origin is a publisher whose events the stream captures, by (node, start of its process), or a
shard of another stream that is copied. Its numbers have gaps, since a selector chooses among its
rows. Captured events may come out of order: so of a publisher the runs of numbers are kept that
were appended, and a `floor`. All below the floor counts as appended: there it is not known any
more, and a second copy would be worse than a late event that is missing. Rows of a shard are
copied in order: there the floor alone says everything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import msgspec

from streams.log.batches import BatchHead

CAPTURED: Final = "@>"
"""Begins the producer of a batch of captured events; the publisher's node follows, and the batch's
session is that node's incarnation. Programs' producers do not begin with "@"."""

COPIED: Final = "@<"
"""Begins the producer of a batch of rows of another stream; the shard that had them follows, and
the batch's session is how many times that shard's log had lost rows (`lost_rows`)."""

RUNS_MOST: Final = 4_096
"""Runs of numbers that are kept of one publisher: so many of its events, if it publishes others
between them, and all of them if it does not. A publisher has at most 20,000 (event, tree) pairs
under way (`tree.pending`), in order where nothing fails. Guess; `captures_late` counts what comes
later than that."""

RUNS_ALL: Final = 65_536
"""The same of all publishers together: 200 KB of state."""

ORIGINS_MOST: Final = 4_096
"""Publishers and shards of which something is known; who was silent for longest is forgotten."""


class OriginNumbers(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """What the state says of one origin. `session`: as in its batches' heads. `runs`: from
    the floor on, in turns how many numbers are missing and how many are there."""

    name: str
    session: int
    floor: int
    runs: tuple[int, ...] = ()


class OriginScanned(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """Nothing is wanted any more of an origin's numbers below `floor`, which was told when its log
    had lost rows so many times."""

    name: str
    floor: int
    losses: int = 0


OriginEntry = OriginNumbers | OriginScanned
ORIGIN_ENTRIES: Final = (OriginNumbers, OriginScanned)


class _Numbers:
    """Of one origin: runs [start, end) above the floor, ascending, with gaps between them."""

    __slots__ = ("ends", "floor", "losses", "starts")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.losses = 0  # of the log of a copied shard, when the floor was told
        self.starts: list[int] = []
        self.ends: list[int] = []

    def has(self, number: int) -> bool:
        if number < self.floor:
            return True
        place = bisect_right(self.starts, number) - 1
        return place >= 0 and number < self.ends[place]

    def add(self, first: int, end: int) -> None:
        """Take a run in, and join it with those that it touches."""
        starts, ends = self.starts, self.ends
        if not ends or first > ends[-1]:
            starts.append(first)
            ends.append(end)
            return
        low = bisect_right(ends, first - 1)
        high = bisect_right(starts, end)
        if low < high:
            first, end = min(first, starts[low]), max(end, ends[high - 1])
        starts[low:high], ends[low:high] = [first], [end]

    def forget(self, runs: int) -> None:
        """Forget the lowest runs: everything up to them counts as appended."""
        self.raise_floor(self.ends[runs - 1])

    def raise_floor(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        gone = bisect_right(self.ends, self.floor)
        del self.starts[:gone], self.ends[:gone]


class OriginStates:
    """The origins of a shard's rows, those last that were heard of last."""

    def __init__(self) -> None:
        self._origins: dict[tuple[str, int], _Numbers] = {}
        self._runs = 0

    def has(self, name: str, session: int, number: int) -> bool:
        """Whether the row with this number is appended, or counts as such."""
        known = self._origins.get((name, session))
        return known is not None and known.has(number)

    def is_forgotten(self, name: str, session: int, number: int) -> bool:
        """Whether it only counts as appended, because too much came after it."""
        known = self._origins.get((name, session))
        return known is not None and number < known.floor

    def floor(self, name: str) -> int:
        """All numbers of a copied shard below it are dealt with; 0: nothing is known of it."""
        known = self._origins.get((name, 0))
        return 0 if known is None else known.floor

    def losses(self, name: str) -> int:
        """How many times the log of a copied shard had lost rows, when the floor was told."""
        known = self._origins.get((name, 0))
        return 0 if known is None else known.losses

    def entries(self) -> Iterator[OriginEntry]:
        """All that there is to know."""
        for (name, session), known in self._origins.items():
            runs: list[int] = []
            at = known.floor
            for start, end in zip(known.starts, known.ends, strict=True):
                runs += (start - at, end - start)
                at = end
            yield OriginNumbers(name, session or known.losses, known.floor, tuple(runs))

    def take(self, entry: OriginEntry) -> None:
        """What a chunk says of an origin."""
        if isinstance(entry, OriginScanned):
            self._copied(entry.name, entry.floor, entry.losses)
            return
        if entry.name.startswith(COPIED):
            self._copied(entry.name, entry.floor, entry.session)
            return
        known = self._origins[entry.name, entry.session] = _Numbers(entry.floor)
        at = entry.floor
        for missing, there in zip(entry.runs[::2], entry.runs[1::2], strict=True):
            known.starts.append(at + missing)
            at += missing + there
            known.ends.append(at)
        self._runs += len(known.ends)

    def appended(self, head: BatchHead) -> None:
        """A batch whose producer begins with `CAPTURED` or `COPIED` is in the log."""
        end = head.sequence + head.count
        if head.producer.startswith(COPIED):
            self._copied(head.producer, end, head.session)
            return
        known = self._touch(head.producer, head.session)
        before = len(known.ends)
        known.add(head.sequence, end)
        if len(known.ends) > RUNS_MOST:
            known.forget(RUNS_MOST // 4)
        self._runs += len(known.ends) - before
        if self._runs > RUNS_ALL:
            self._forget_runs()

    def _copied(self, name: str, floor: int, losses: int) -> None:
        known = self._touch(name, 0)
        known.raise_floor(floor)
        known.losses = max(known.losses, losses)

    def _touch(self, name: str, session: int) -> _Numbers:
        known = self._origins.pop((name, session), None) or _Numbers()
        self._origins[name, session] = known
        while len(self._origins) > ORIGINS_MOST:
            gone = self._origins.pop(next(iter(self._origins)))
            self._runs -= len(gone.ends)
        return known

    def _forget_runs(self) -> None:
        """Forget the runs of who was silent for longest, until a quarter is free."""
        for known in self._origins.values():
            if self._runs <= RUNS_ALL * 3 // 4:
                return
            if known.ends:
                self._runs -= len(known.ends)
                known.forget(len(known.ends))
