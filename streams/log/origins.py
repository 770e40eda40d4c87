"""The origins of captured and copied rows, as a shard's log has them: which of their numbers were
appended.

An origin is a publisher whose events the stream captures, by (node, start of its process), or a
shard of another stream that is copied. Its numbers have gaps, since a selector chooses among its
rows. Captured events may come out of order: so the state keeps, for a publisher, the runs of
numbers that were appended, and a `floor`. All numbers below the floor count as appended: the runs
there were forgotten, and a duplicate would be worse than the loss of a late event. Rows of a shard
are copied in order: there the floor suffices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

import msgspec

from streams.log.batches import BatchHead
from streams.log.runs import Run, Runs

CAPTURED: Final = "@>"
"""Begins the producer of a batch of captured events; the publisher's node follows, and the batch's
session is that node's incarnation. Programs' producers do not begin with "@"."""

COPIED: Final = "@<"
"""Begins the producer of a batch of rows of another stream; the origin's shard follows, and the
batch's session is the number of losses of that shard's log (`lost_rows`)."""

RUNS_MOST: Final = 4_096
"""Runs of numbers that are kept of one publisher. A run is one event where the publisher has others
between its captured ones, and all of them where it has none. A publisher has up to 20,000 (event,
tree) pairs pending (`tree.pending`), in order where nothing fails. Guess; `captures_late` counts
the events that come after their run was forgotten."""

RUNS_ALL: Final = 65_536
"""Runs of numbers of all publishers together: 200 KB of state."""

ORIGINS_MOST: Final = 4_096
"""Origins in the state; beyond it the one without rows for the longest time is forgotten."""


class OriginNumbers(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """An origin in the state. `session`: as in the heads of its batches. `runs`: from the floor on,
    alternately the count of missing and of appended numbers."""

    name: str
    session: int
    floor: int
    runs: tuple[int, ...] = ()


class OriginScanned(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """The numbers of an origin below `floor` are scanned, those without a match included.
    `losses`: the losses of the origin's log when it reported that offset."""

    name: str
    floor: int
    losses: int = 0


OriginEntry = OriginNumbers | OriginScanned
ORIGIN_ENTRIES: Final = (OriginNumbers, OriginScanned)


class _Numbers(Runs):
    """The numbers of one origin. Those below the floor that were not appended count as such."""

    __slots__ = ("losses",)

    def __init__(self, floor: int = 0, runs: Iterable[Run] = ()) -> None:
        super().__init__(floor, runs)
        self.losses = 0  # of the copied shard's log, when it reported the floor


class OriginStates:
    """The origins of a shard's rows, in the order of their last rows."""

    def __init__(self) -> None:
        self._origins: dict[tuple[str, int], _Numbers] = {}
        self._runs = 0

    def has(self, name: str, session: int, number: int) -> bool:
        """Whether the row with this number was appended, or counts as appended."""
        known = self._origins.get((name, session))
        return known is not None and number in known

    def is_forgotten(self, name: str, session: int, number: int) -> bool:
        """Whether the row counts as appended only because its run was forgotten."""
        known = self._origins.get((name, session))
        return known is not None and number < known.floor

    def floor(self, name: str) -> int:
        """The offset of a copied shard up to which it is copied; 0: it is not known."""
        known = self._origins.get((name, 0))
        return 0 if known is None else known.floor

    def losses(self, name: str) -> int:
        """The losses of a copied shard's log when it reported the floor."""
        known = self._origins.get((name, 0))
        return 0 if known is None else known.losses

    def entries(self) -> Iterator[OriginEntry]:
        """The origins as entries of a segment's state, in the order of their last rows."""
        for (name, session), known in self._origins.items():
            runs: list[int] = []
            at = known.floor
            for start, end in known.runs:
                runs += (start - at, end - start)
                at = end
            yield OriginNumbers(name, session or known.losses, known.floor, tuple(runs))

    def take(self, entry: OriginEntry) -> None:
        """Apply an entry of a chunk."""
        if isinstance(entry, OriginScanned):
            self._copied(entry.name, entry.floor, entry.losses)
            return
        if entry.name.startswith(COPIED):
            self._copied(entry.name, entry.floor, entry.session)
            return
        places = list(accumulate(entry.runs, initial=entry.floor))
        known = _Numbers(entry.floor, zip(places[1::2], places[2::2], strict=True))
        self._origins[entry.name, entry.session] = known
        self._runs += known.count

    def appended(self, head: BatchHead) -> None:
        """Note a batch whose producer begins with `CAPTURED` or `COPIED`."""
        end = head.sequence + head.count
        if head.producer.startswith(COPIED):
            self._copied(head.producer, end, head.session)
            return
        known = self._touch(head.producer, head.session)
        before = known.count
        known.add(head.sequence, end)
        if known.count > RUNS_MOST:
            known.forget(RUNS_MOST // 4)
        self._runs += known.count - before
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
            self._runs -= gone.count
        return known

    def _forget_runs(self) -> None:
        """Forget the runs of the origins without rows for the longest time, until a quarter of
        `RUNS_ALL` is free."""
        for known in self._origins.values():
            if self._runs <= RUNS_ALL * 3 // 4:
                return
            if known.count:
                self._runs -= known.count
                known.forget(known.count)
