"""Whether source and destination have the same rows, at one position.

The source is read in a transaction at its position P, the destination in one at P' ≥ P. What the
source has changed between is in the stream: those rows are expected as the stream has them. Rows
are compared by hashes of ranges (of their keys' hashes), so that neither side has to sort them; of
ranges that differ the rows are read again, in the same transactions. The stream is not believed for
good: rows that were expected as it has them are compared once more, with a later state of the
source, so that a change that no source has made is found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec

from canopy.sync.assembler import Assembler
from canopy.sync.changes import DELETE, FILL, SNAPSHOT, TRUNCATE, Change, Table, merged
from canopy.sync.conversions import Fit, canonical
from canopy.sync.destinations.destination import Destination, DestinationView, SyncProgress
from canopy.sync.errors import SyncError, UnfitError
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources.source import Source, SourceView
from canopy.sync.stream import TIMEOUT, Stream, change_in
from canopy.sync.values import ABSENT, Row, Value, pack

Believed = dict[str, "set[Row] | None"]
"""By table, the keys of rows that were expected as the stream has them; None: of all rows."""
RANGES: Final = 1 << 12
LOOK: Final = 0.05
"""Seconds between two looks how far the destination is."""
ATTEMPTS: Final = 3
SHOWN: Final = 100
"""Rows that differ and are named, of a table."""


class RowDifference(msgspec.Struct, frozen=True):
    """One row that is not the same at both sides, with its key in words."""

    table: str
    key: str
    what: str
    """missing (at the destination), surplus (there only), different, or unfit."""


class VerifiedRows(msgspec.Struct):
    """The result of a comparison: the source's position, the stream's offset, and by table the
    numbers of rows that were compared and that differ; of `differences` the first ones."""

    position: int = 0
    offset: int = 0
    rows: dict[str, int] = msgspec.field(default_factory=dict)
    """By table, the rows of the source that belong to the sync."""
    differing: dict[str, int] = msgspec.field(default_factory=dict)
    """By table, how many rows differ."""
    differences: list[RowDifference] = msgspec.field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether the rows of all tables are the same at both sides."""
        return not any(self.differing.values())


class _Changed:
    """The rows that changed between the two positions, as the stream has them."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Row, Row | None]] = {}
        self.cleared: set[str] = set()
        self.filled: dict[str, Row] = {}
        """By table, the values that all rows have got in new columns."""

    def note(self, change: Change, table: Table) -> None:
        rows = self.rows.setdefault(table.name, {})
        if change.op == TRUNCATE:
            rows.clear()
            self.cleared.add(table.name)
            return
        if change.op == FILL and change.after is not None:
            self.filled[table.name] = change.after
            for key, row in rows.items():
                if row is not None:
                    rows[key] = _widened(row, change.after)
            return
        if change.before is not None:
            rows[table.key_of(change.before)] = None
        if change.op != DELETE and change.after is not None:
            key = table.key_of(change.after)
            known = rows.get(key)
            rows[key] = change.after if known is None else merged(known, change.after)

    def expected(self, table: Table, rows: Iterable[Row]) -> Iterator[Row]:
        """The source's rows as they are at the destination's position."""
        changed = self.rows.get(table.name, {})
        known: dict[Row, Row] = {}
        fill = self.filled.get(table.name, ())
        if table.name not in self.cleared:
            for found in rows:
                row = found if len(found) >= len(fill) else _widened(found, fill)
                key = table.key_of(row)
                if key not in changed:
                    yield row
                else:
                    known[key] = row
        for key, last in changed.items():
            if last is None:
                continue
            if any(value is ABSENT for value in last):
                if key not in known:
                    continue  # it had another key before: its large values are not known here
                last = merged(known[key], last)
            yield last


def _widened(row: Row, fill: Row) -> Row:
    """A row, perhaps of before new columns were there, with their values."""
    return merged((*row, *[None] * (len(fill) - len(row))), fill)


class SyncComparison:
    """Compares the tables of one source with those of one destination at one position."""

    def __init__(
        self,
        source: Source,
        destination: Destination,
        stream: Stream,
        rows: RowFilter,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        """`pause` waits for a number of seconds, in which others go on; `say` is called with the
        progress about once a second."""
        self._say = say
        self._said = 0.0
        self._source = source
        self._destination = destination
        self._stream = stream
        self._rows = rows
        self._clock = clock
        self._pause = pause

    def run(self, timeout: float = TIMEOUT) -> VerifiedRows:
        """Compare. Raises SyncError when the destination does not come so far within `timeout`
        seconds."""
        self._said = self._clock()
        found: VerifiedRows | None = None
        believed: Believed | None = None  # None: all rows are to be compared
        for _ in range(ATTEMPTS):
            looked = self._run(timeout, believed)
            if looked is None:
                continue
            later, changed = looked
            found = later if found is None else _together(found, later)
            believed = changed if believed is None else _both(believed, changed)
            if not believed:
                return found
        if found is None:
            raise SyncError("one snapshot after the other was taken meanwhile: verify again")
        return found

    def _run(self, timeout: float, only: Believed | None) -> tuple[VerifiedRows, Believed] | None:
        """The result, and the rows for which the stream was believed. `only`: rows to be compared.
        None: a snapshot was taken meanwhile, which says nothing of what was before."""
        begin = self._destination.progress().offset
        with self._source.view() as source:
            for table in source.tables:
                self._rows.learn(table)
            self._await(self._source.mark(), timeout)
            with self._destination.view() as target:
                changed = self._changed(begin, source, target.progress)
                if changed is None:
                    return None
                position = target.progress.commit
                found = VerifiedRows(position.position if position else 0, target.progress.offset)
                believed: Believed = {}
                for table in source.tables:
                    if only is not None and table.name not in only:
                        continue
                    shape = target.progress.tables.get(table.name)
                    if shape is None and not any(True for _ in source.rows(table)):
                        continue  # the stream has not heard of it, since it has no rows yet
                    if shape is None:
                        raise SyncError(f"the destination knows nothing of table {table.name} yet")
                    wanted = None if only is None else only[table.name]
                    self._compare(shape, source, target, changed, found, wanted)
                    if table.name in changed.cleared or table.name in changed.filled:
                        believed[table.name] = None
                    elif keys := self._keys(shape, changed):
                        believed[table.name] = keys
                return found, believed

    def _keys(self, table: Table, changed: _Changed) -> set[Row]:
        fit = self._destination.dialect.comparables(table)
        found = set()
        for key in changed.rows.get(table.name, {}):
            try:
                found.add(tuple(fit[p](v) for p, v in zip(table.key, key, strict=True)))
            except UnfitError:
                continue  # the destination has no place for it, which is found
        return found

    def _await(self, position: int, timeout: float) -> None:
        until = self._clock() + timeout
        while True:
            progress = self._destination.progress()
            commit = progress.commit
            partial = [table.name for table in progress.tables.values() if table.is_partial]
            if commit is not None and commit.position >= position and not partial:
                return
            if self._clock() > until and partial:
                raise SyncError(
                    f"table {partial[0]} was altered, and its rows were not all sent again within "
                    f"{timeout:g} s: verify again when they are (--timeout waits longer)"
                )
            if self._clock() > until:
                raise SyncError(
                    f"the destination has not reached position {position} within {timeout:g} s: is "
                    f"canopy sync run running, for both sides?"
                )
            at = "nothing" if commit is None else f"position {commit.position:,}"
            self._tell(
                f"waiting for the destination, which has {at} of {position:,}: "
                f"{until - self._clock():.0f} s are left (canopy sync run has to run)"
            )
            self._pause(LOOK)

    def _tell(self, text: str) -> None:
        now = self._clock()
        if now >= self._said + 1.0:
            self._said = now
            self._say(text)

    def _told(self, what: str, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows, of which it is told how many have been read."""
        for count, row in enumerate(rows):
            if count % 10_000 == 9_999:
                self._tell(f"{what}: {count + 1:,} rows")
            yield row

    def _changed(self, begin: int, source: SourceView, progress: SyncProgress) -> _Changed | None:
        changed = _Changed()
        assembler = Assembler(1 << 60)
        at = begin
        reading = self._stream.read(begin)
        try:
            while at < progress.offset:
                events = [e for e in reading.take(TIMEOUT) if e.offset < progress.offset]
                if not events:
                    raise SyncError("the stream does not answer")
                at = events[-1].offset + 1
                changes = [(e.offset, c) for e in events if (c := change_in(e)) is not None]
                for part in assembler.feed(changes):
                    if not self._note(part.changes, source.position, progress, changed):
                        return None
        finally:
            reading.close()
        return changed

    @staticmethod
    def _note(
        changes: Iterable[Change], position: int, progress: SyncProgress, changed: _Changed
    ) -> bool:
        """False: a snapshot was taken meanwhile."""
        open_: list[Change] = []
        for change in changes:
            open_.append(change)
            if change.commit is None:
                continue
            if change.commit.position > position:
                for each in open_:
                    if each.op == SNAPSHOT:
                        return False
                    if (table := progress.tables.get(each.table)) and each.schema is None:
                        changed.note(each, table)
            open_ = []
        return True

    def _compare(
        self,
        table: Table,
        source: SourceView,
        target: DestinationView,
        changed: _Changed,
        found: VerifiedRows,
        only: set[Row] | None,
    ) -> None:
        dialect = self._destination.dialect
        fit, kept = dialect.comparables(table), dialect.comparables(table, is_kept=True)

        def expected() -> Iterator[Row]:
            rows = self._told(f"{table.name} of the source", source.rows(table))
            for row in changed.expected(table, rows):
                if self._rows.wants(table.name, row):
                    yield row

        ours, count = _sums(table, expected(), fit, only)
        there = self._told(f"{table.name} of the destination", target.rows(table))
        theirs, _ = _sums(table, there, kept, only)
        found.rows[table.name] = count
        found.differing[table.name] = 0
        ranges = {place for place in range(RANGES) if ours[place] != theirs[place]}
        if not ranges:
            return
        left = _rows_in(table, expected(), fit, ranges)
        right = _rows_in(table, target.rows(table), kept, ranges)
        for key in sorted({*left, *right}, key=repr):
            if left.get(key) == right.get(key) or not (only is None or key in only):
                continue
            what = "different"
            if key not in right:
                what = "missing" if left[key] else "unfit"
            elif key not in left:
                what = "surplus"
            found.differing[table.name] += 1
            if found.differing[table.name] <= SHOWN:
                found.differences.append(RowDifference(table.name, _spelled(key), what))


def _together(first: VerifiedRows, second: VerifiedRows) -> VerifiedRows:
    """The joint result of two looks, of which the second was at some rows only."""
    known = {(each.table, each.key) for each in first.differences}
    more = [each for each in second.differences if (each.table, each.key) not in known]
    differing = dict(first.differing)
    for each in more:
        differing[each.table] = differing.get(each.table, 0) + 1
    return VerifiedRows(
        *(second.position, second.offset, first.rows, differing, [*first.differences, *more])
    )


def _both(first: Believed, second: Believed) -> Believed:
    """Rows that are in both."""
    found: Believed = {}
    for table in first.keys() & second.keys():
        ours, theirs = first[table], second[table]
        both = theirs if ours is None else ours if theirs is None else ours & theirs
        if both is None or both:
            found[table] = both
    return found


def _hashed(table: Table, row: Row, fit: list[Fit]) -> tuple[Row, int, bytes]:
    """Its key, the range that has it, and its hash; b"": the destination has no place for it."""
    try:
        values = tuple([make(value) for make, value in zip(fit, row, strict=True)])
        key = tuple([values[place] for place in table.key])
        return key, hash_of(key)[0] % RANGES, hash_of(values)[1]
    except UnfitError:
        key = tuple([_printable(canonical(row[place])) for place in table.key])
        return key, hash_of(key)[0] % RANGES, b""


def _printable(value: Value) -> Value:
    return value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value


def hash_of(values: Row) -> tuple[int, bytes]:
    """A hash that is the same in every process, as a number and as bytes."""
    digest = blake2b(pack(0, values), digest_size=8).digest()
    return int.from_bytes(digest, "big"), digest


def _sums(
    table: Table, rows: Iterable[Row], fit: list[Fit], only: set[Row] | None
) -> tuple[list[int], int]:
    """By range, the sum of its rows' hashes, which has no order; how many rows there are."""
    sums = [0] * RANGES
    count = 0
    for row in rows:
        key, place, digest = _hashed(table, row, fit)
        if only is not None and key not in only:
            continue
        sums[place] = (sums[place] + int.from_bytes(digest, "big") + 1) & (2**64 - 1)
        count += 1
    return sums, count


def _rows_in(
    table: Table, rows: Iterable[Row], fit: list[Fit], ranges: set[int]
) -> dict[Row, bytes]:
    found = {}
    for row in rows:
        key, place, digest = _hashed(table, row, fit)
        if place in ranges:
            found[key] = digest
    return found


def _spelled(key: Row) -> str:
    values: list[Any] = [value if value is not None else "NULL" for value in key]
    return ", ".join(repr(v) if isinstance(v, bytes) or _is_digits(v) else str(v) for v in values)


def _is_digits(value: Value) -> bool:
    """Whether it is a text that would look like a number."""
    return type(value) is str and value[:1].isdigit()
