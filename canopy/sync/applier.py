"""The destination side of a sync: from events of a stream to rows of a database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from canopy.sync.assembler import LONG, Assembler, TransactionPart
from canopy.sync.changes import (
    END,
    FILL,
    INSERT,
    MARK,
    SCHEMA,
    SNAPSHOT,
    Change,
)
from canopy.sync.conflicts import Conflicts
from canopy.sync.destinations.destination import Destination, SyncProgress
from canopy.sync.errors import SyncError
from canopy.sync.folded import fold
from canopy.sync.row_filter import RowFilter
from canopy.sync.stream import Stream, StreamEvents, change_in

STALL: Final = 10.0
"""Seconds for which a transaction of the destination stays open while no more of it comes."""

Report = Callable[[int, SyncProgress], None]
"""Is told of each commit: how many changes, and how far the sync has come."""


class Applier:
    """Applies a stream, each change once, whenever it is ended and begun again."""

    def __init__(
        self,
        stream: Stream,
        destination: Destination,
        rows: RowFilter,
        report: Report = lambda changes, progress: None,
        clock: Callable[[], float] = time.time,
        most: int = LONG,
        conflicts: Mapping[str, str] | None = None,
    ) -> None:
        """`clock`: seconds since 1970; `most`: changes of one transaction that are kept;
        `conflicts`: by table, the rule for rows that were changed here, too."""
        self._conflicts = Conflicts(conflicts or {}, destination.dialect)
        self.conflicts = 0
        """Number of changes that met another row than they were made from."""
        self.foreign = 0
        """Events of the stream that were no changes, and were passed over."""
        self._stream = stream
        self._destination = destination
        self._rows = rows
        self._report = report
        self._clock = clock
        self._most = most
        self._events: StreamEvents | None = None
        self._assembler = Assembler(most)
        self.progress = SyncProgress()
        self.read_to = 0
        """The offset behind everything that was read; what is not whole is not applied yet."""
        self._is_open = False  # a transaction of the destination
        self._count = 0  # changes in it
        self._cleared: set[str] = set()  # tables that a snapshot has emptied in it
        self._came = 0.0  # when something came last
        self._stalled = False  # a transaction was taken back that the assembler has handed on
        self._snapshot = False  # one is being applied

    def begin(self) -> None:
        """Go on where the destination says. Raises SyncError when the stream is another one."""
        self.close()
        self.progress = self._destination.progress()
        if self.progress.stream not in ("", self._stream.id):
            raise SyncError(
                f"the destination has changes of another stream (id {self.progress.stream}, now "
                f"{self._stream.id}): the stream was removed and founded again; remove the sync, "
                f"add it again and let it take a snapshot"
            )
        for table in self.progress.tables.values():
            self._rows.learn(table)
        self._assembler = Assembler(self._most)
        self._events = self._stream.read(self.progress.offset, self.progress.losses)
        self.read_to = self.progress.offset
        self._came = self._clock()
        self._stalled = False

    def close(self) -> None:
        """Stop, and roll back uncommitted changes."""
        if self._events is not None:
            self._events.close()
            self._events = None
        self._undo()

    def run_once(self, wait: float) -> bool:
        """Apply the changes that have come, and wait for them at most `wait` seconds. Return
        whether any came."""
        assert self._events is not None
        events = self._events.take(wait)
        if not events:
            if self._is_open and self._clock() - self._came > STALL:
                self._undo()
                self._stalled = True
            return False
        if self._stalled:
            self.begin()  # what was taken back is read again, and with it its rest
            return True
        self._came = self._clock()
        self.read_to = events[-1].offset + 1
        changes: list[tuple[int, Change]] = []
        for event in events:
            change = change_in(event)
            if change is None:
                self.foreign += 1
            else:
                changes.append((event.offset, change))
        size = sum(len(event.payload) for event in events)
        for part in self._assembler.feed(changes, size):
            self._take(part)
        return True

    def _take(self, part: TransactionPart) -> None:
        if part.undo:
            self._undo()
            self.progress = self._destination.progress()
            return
        if not self._is_open:
            self._destination.begin()
            self._is_open = True
        rows: list[Change] = []
        for change in part.changes:
            if change.op in (SCHEMA, SNAPSHOT, END, MARK, FILL):
                self._apply(rows)
                rows = []
                self._barrier(change)
            else:
                rows.append(change)
            if change.commit is not None:
                self.progress.commit = change.commit
        self._apply(rows)
        self._count += len(part.changes)
        if part.whole:
            self.progress.offset = part.next
            self.progress.stream, self.progress.losses = self._stream.id, self._stream.losses
            self.progress.name = self._stream.name
            self.progress.applied = self._clock()
            self._destination.store(self.progress)
            self._destination.commit()
            self._is_open = False
            self._cleared.clear()
            self._report(self._count, self.progress)
            self._count = 0

    def _barrier(self, change: Change) -> None:
        if change.op == SNAPSHOT:
            self._snapshot, self.progress.tables = True, {}
            self._cleared.clear()
        elif change.op == END:
            self._snapshot = False
            self._cleared.clear()
        elif change.op == FILL and change.after is not None:
            table = self.progress.tables[change.table]
            # Where both sides are written to, a value that is there may be newer.
            self._destination.fill(table, change.after, self._conflicts.watches(change.table))
        elif change.schema is not None:
            self._destination.take_up(change.schema)
            self._rows.learn(change.schema)
            self.progress.tables[change.table] = change.schema
            if self._snapshot:
                self._destination.clear(change.schema)
                self._cleared.add(change.table)

    def _apply(self, changes: list[Change]) -> None:
        if not changes:
            return
        tables = self.progress.tables
        wanted = changes
        if self._rows.tables:
            wanted = [found for each in changes if (found := self._rows.admit(each)) is not None]
        if self._cleared and all(c.op == INSERT and c.table in self._cleared for c in wanted):
            by_table: dict[str, list[Change]] = {}
            for each in wanted:
                by_table.setdefault(each.table, []).append(each)
            for name, inserts in by_table.items():
                self._destination.load(tables[name], (c.after for c in inserts if c.after))
            return
        if self._conflicts.rules and any(self._conflicts.watches(each.table) for each in wanted):
            wanted = self._without_conflicts(wanted)
        for step in fold(wanted, tables):
            self._destination.apply(step)

    def _without_conflicts(self, changes: list[Change]) -> list[Change]:
        """The changes to apply, table by table, where rows may have been changed here as well: they
        are independent of one another as far as the destination's rows go."""
        by_table: dict[str, list[Change]] = {}
        for change in changes:
            by_table.setdefault(change.table, []).append(change)
        applied: list[Change] = []
        for name, found in by_table.items():
            if self._conflicts.watches(name):
                table = self.progress.tables[name]
                images = [image for c in found for image in (c.before, c.after) if image]
                keys = list(dict.fromkeys(table.key_of(image) for image in images))
                rows = self._destination.fetch(table, keys)
                found, conflicts = self._conflicts.decide(found, table, rows)
                if conflicts:
                    self.conflicts += len(conflicts)
                    self._destination.note(conflicts)
            applied += found
        return applied

    def _undo(self) -> None:
        if self._is_open:
            self._destination.rollback()
            self._is_open = False
        self._count = 0
        self._cleared.clear()
        self._snapshot = False
