"""The rows of one group that its leader has found and that are not done, and their order.

Soft state: a later leader finds the rows again. A row is *waiting*, *delayed*, *leased* to a
member, or *settled*: done, but not yet in the log as done.

Rows are delivered in the order of their ranks: the offset, or with a priority the time of the
append less `AGEING` for each step of priority. So a row of low priority waits for a bounded time,
and ageing rows are not sorted again. With a key, only the lowest offset of each key may be leased,
and one row of a key at a time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import isfinite
from typing import Final

from matching import Value
from streams.log.chunk import NANOSECONDS
from streams.log.group_state import GroupOptions
from streams.log.runs import Run

AGEING: Final = 5.0
"""Seconds of one step of priority: a row waits no longer than `PRIORITY_MOST` times this for later
rows. Guess: people wait no longer than some half a minute."""

PRIORITY_MOST: Final = 9
"""Priorities are 0 to 9, as those of JMS (Message.setJMSPriority); others count as the nearest."""

DELAY_MOST: Final = 30 * 86_400.0
"""The limit of a row's delay in seconds; a longer one counts as this. Guess."""

Key = tuple[type, Value]


@dataclass(eq=False, slots=True)
class Pending:
    """A row that is not done."""

    offset: int
    time: int
    row: bytes
    key: Key | None
    rank: float
    due: float = 0.0
    """The time of its delivery at the earliest, by the node's clock."""
    deliveries: int = 0
    lease: int = 0
    holder: int = 0
    """The leader's number of the member that has it; 0: none."""
    until: float = 0.0
    is_settled: bool = False
    reason: str = ""
    """The reason of its last return."""


def pending(
    options: GroupOptions,
    offset: int,
    time: int,
    attributes: dict[str, Value | None],
    row: bytes,
) -> Pending:
    """The row for the window of a group with these options."""
    value = attributes.get(options.by) if options.by else None
    key = None if value is None else (bool if isinstance(value, bool) else _kind(value), value)
    return Pending(offset, time, row, key, rank_of(options, offset, time, attributes))


def rank_of(
    options: GroupOptions, offset: int, time: int, attributes: dict[str, Value | None]
) -> float:
    """The rank of a row: of two waiting rows the one with the lower rank comes first."""
    if not options.priority:
        return offset
    steps = min(max(_number(attributes.get(options.priority)), 0), PRIORITY_MOST)
    return time / NANOSECONDS - AGEING * steps


def delay_of(options: GroupOptions, attributes: dict[str, Value | None]) -> float:
    """Seconds from a row's append to its delivery."""
    found = _number(attributes.get(options.delay)) if options.delay else 0.0
    return min(max(found, 0.0) + options.delay_seconds, DELAY_MOST)


def _kind(value: Value) -> type:
    return str if isinstance(value, str) else float  # 1 and 1.0 are the same key


def _number(value: Value | None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return 0.0
    return value


class Window:
    """The rows of one group that may be delivered now: from its floor on, within the bounds of the
    window."""

    def __init__(self) -> None:
        self.rows: dict[int, Pending] = {}
        self.bytes = 0
        self.leased = 0
        self._offsets: list[int] = []  # of all rows, and of those being fetched
        self._ready: list[tuple[float, int]] = []  # heaps, which keep stale entries
        self._delayed: list[tuple[float, int]] = []
        self._leases: list[tuple[float, int, int]] = []
        self._by_key: dict[Key, list[int]] = {}
        self._held: dict[Key, int] = {}  # the offset that is leased

    def __len__(self) -> int:
        return len(self._offsets)

    # -- coming and going ------------------------------------------------------------------------

    def expect(self, offset: int) -> None:
        """Expect a row that is being fetched."""
        if not self.has(offset):
            insort(self._offsets, offset)

    def has(self, offset: int) -> bool:
        """Whether the row is here, or expected."""
        place = bisect_left(self._offsets, offset)
        return self._offsets[place : place + 1] == [offset]

    def add(self, row: Pending) -> None:
        """Add a row that was found."""
        self.rows[row.offset] = row
        self.bytes += len(row.row)
        if self._offsets and row.offset <= self._offsets[-1]:
            self.expect(row.offset)
        else:
            self._offsets.append(row.offset)
        if row.key is not None:
            heappush(self._by_key.setdefault(row.key, []), row.offset)
        self._offer(row)

    def done(self, offset: int) -> None:
        """Remove a row that the log has as done."""
        if self.has(offset):
            del self._offsets[bisect_left(self._offsets, offset)]
        row = self.rows.pop(offset, None)
        if row is not None:
            self.bytes -= len(row.row)

    def settle(self, row: Pending, is_certain: bool = True) -> None:
        """Settle a row: its lease ends. The next row of its key may be delivered at once if the
        settlement `is_certain`, else after `free`."""
        row.is_settled = True
        self._unlease(row)
        if row.key is not None:
            if is_certain:
                self._next_of(row.key)
            else:
                self._held[row.key] = row.offset

    def free(self, row: Pending) -> None:
        """Let the next row of the key go, now that the settlement of this one is certain."""
        if row.key is not None and self._held.get(row.key) == row.offset:
            del self._held[row.key]
            self._next_of(row.key)

    def runs_around(self, offsets: Iterable[int], scanned: int) -> list[Run]:
        """The runs of done rows around these removed offsets, up to the next rows that are not
        done; all rows below `scanned` were matched."""
        runs: dict[Run, None] = {}
        for offset in offsets:
            first, end = offset, offset + 1
            if offset < scanned:
                place = bisect_left(self._offsets, offset)
                first = self._offsets[place - 1] + 1 if place else 0
                end = min(*self._offsets[place : place + 1], scanned, scanned)
            runs[first, end] = None
        return list(runs)

    def floor(self, scanned: int) -> int:
        """The lowest offset that is not done."""
        return min(*self._offsets[:1], scanned, scanned)

    # -- what comes next -------------------------------------------------------------------------

    def _offer(self, row: Pending) -> None:
        if row.due > 0.0:
            heappush(self._delayed, (row.due, row.offset))
        else:
            heappush(self._ready, (row.rank, row.offset))

    def _next_of(self, key: Key) -> None:
        """Make the lowest row of a key ready."""
        offsets = self._by_key.get(key, [])
        while offsets and ((row := self.rows.get(offsets[0])) is None or row.is_settled):
            heappop(offsets)
        if not offsets:
            self._by_key.pop(key, None)
        elif row is not None:
            self._offer(row)

    def _may_go(self, row: Pending) -> bool:
        if row.lease or row.is_settled:
            return False
        return row.key is None or (
            row.key not in self._held and self._by_key[row.key][0] == row.offset
        )

    def next(self, now: float) -> Pending | None:
        """The next row to deliver; None: there is none now."""
        while self._delayed and self._delayed[0][0] <= now:
            row = self.rows.get(heappop(self._delayed)[1])
            if row is not None and row.due <= now:
                row.due = 0.0
                self._offer(row)
        while self._ready:
            row = self.rows.get(self._ready[0][1])
            if row is not None and row.due <= 0.0 and self._may_go(row):
                return row
            heappop(self._ready)
        return None

    @property
    def ready(self) -> int:
        """An upper bound of the waiting rows."""
        return len(self._ready)

    def delayed(self) -> int:
        """The number of delayed rows."""
        return sum(row.due > 0.0 and not row.lease for row in self.rows.values())

    def arrange(self) -> None:
        """Sort the waiting rows again, after a change of ranks or delays."""
        self._ready.clear()
        self._delayed.clear()
        for row in self.rows.values():
            if not row.lease and not row.is_settled:
                self._offer(row)

    # -- leases ----------------------------------------------------------------------------------

    def lease(self, row: Pending, lease: int, holder: int, until: float) -> None:
        """Lease the row that `next` returned to a member."""
        row.lease, row.holder, row.until = lease, holder, 0.0
        row.deliveries += 1
        self.leased += 1
        if row.key is not None:
            self._held[row.key] = row.offset
        self.extend(row, until)

    def extend(self, row: Pending, until: float) -> None:
        """Move the end of a lease to `until`, but never to an earlier time."""
        row.until = max(row.until, until)
        heappush(self._leases, (row.until, row.offset, row.lease))

    def give_back(self, row: Pending, due: float = 0.0) -> None:
        """End a lease and deliver the row again, not before `due` (0: at once)."""
        self._unlease(row)
        row.due = due
        if row.key is None:
            self._offer(row)
        else:
            self._next_of(row.key)

    def _unlease(self, row: Pending) -> None:
        if row.lease:
            row.lease = row.holder = 0
            self.leased -= 1
            if row.key is not None:
                self._held.pop(row.key, None)

    def take_expired(self, now: float) -> list[Pending]:
        """The rows whose leases have ended; the caller gives them back."""
        found = []
        while self._leases and self._leases[0][0] <= now:
            _, offset, lease = heappop(self._leases)
            row = self.rows.get(offset)
            if row is not None and row.lease == lease and lease and row.until <= now:
                found.append(row)
        return found
