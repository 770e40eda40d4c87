"""The source side of a sync: from a database's changes to events of a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from canopy.sync.changes import (
    ABORT,
    END,
    INSERT,
    MARK,
    SNAPSHOT,
    Change,
    ChangeDrafts,
    Commit,
    Table,
)
from canopy.sync.errors import SchemaError, UnfitError
from canopy.sync.row_filter import RowFilter
from canopy.sync.sources.source import Source
from canopy.sync.stream import Stream, last_commit, shapes
from canopy.sync.values import pack
from overlay.client import Draft

BYTES: Final = 384 * 1024
"""Bytes of one batch, about: far below what a stream takes (BATCH_MOST in
streams/programs/producer/messages.py), as weights are estimates."""

Report = Callable[[int, Commit | None], None]
"""Is told of each batch that is in the stream: how many events, and its newest commit."""


class Capture:
    """Appends what a source commits, each change once, whenever it is ended and begun again."""

    def __init__(
        self,
        source: Source,
        stream: Stream,
        rows: RowFilter,
        report: Report = lambda events, commit: None,
    ) -> None:
        self._source = source
        self._stream = stream
        self._rows = rows
        self._report = report
        self._shapes: dict[str, Table] = {}  # that the filter knows
        self._drafting = ChangeDrafts()
        self._batch: list[Draft] = []
        self._size = 0
        self._whole = 0  # events of the batch up to the last commit
        self._commit: Commit | None = None  # the last in the batch
        self._held: Change | None = None  # until it is known whether it is the last one
        self._marked = 0  # position that was appended
        self._closed = 0  # transactions that were taken
        self._foreign: set[int] = set()  # offsets of events that are no changes
        self._under_way: deque[tuple[int, Commit | None]] = deque()  # batches, as for `Report`

    @property
    def foreign(self) -> int:
        """The number of events near the stream's end that were no changes, and were ignored."""
        return len(self._foreign)

    def begin(self, snapshot: bool = False, from_now: bool = False) -> None:
        """Go on behind what the stream has; with a snapshot if it has nothing, or if asked to.
        `from_now`: an empty stream needs none. Raises SourceLostError."""
        self._stream.begin()
        commit, unfinished, behind = last_commit(self._stream, self._foreign.add)
        if commit is not None and not snapshot and unfinished != SNAPSHOT:
            self._source.resume(commit, shapes(self._stream, behind))
            self._marked = commit.position
            if unfinished:
                self._stream.append([self._drafting.draft(Change(ABORT))])
                self._stream.settle()
            return
        self._take(self._source.snapshot(), schemas_only=from_now and commit is None)
        self._flush()
        self.settle()

    def run_once(self, wait: float) -> bool:
        """Append the changes committed since the last call, and wait for them at most `wait`
        seconds. Return whether there were any. They are durable in the stream when a later call
        finds no further ones, or after `settle`."""
        before = self._closed
        if self._under_way:
            self._take(self._source.changes(0.0))
            if self._closed == before:
                self.settle()
        if self._closed == before:
            self._take(self._source.changes(wait))
        self._flush()
        return self._closed != before

    def settle(self) -> None:
        """Wait until everything that was appended is in the stream for good."""
        if self._under_way:
            self._stream.settle()
            self._settled(0)

    def _take(self, read: Iterable[Change | Commit], schemas_only: bool = False) -> None:
        for change in read:
            if isinstance(change, Commit):
                self._close(change)
                continue
            schema = change.schema
            if schema is not None and self._shapes.get(change.table) is not schema:
                self._shapes[change.table] = schema
                self._rows.learn(schema)
            if not (schemas_only and change.op in (INSERT, SNAPSHOT, END)):
                self._hold(change)
            if change.op == END:
                self._check_filters()

    def _check_filters(self) -> None:
        """A filter whose table is spelled otherwise would let every row pass."""
        for name in self._rows.tables:
            if name not in self._shapes:
                raise SchemaError(f"there is a filter of {name}, and no such table is captured")

    def _hold(self, change: Change) -> None:
        if (found := self._rows.admit(change)) is not None:
            if self._held is not None:
                self._add(self._held, None)
            self._held = found

    def _close(self, commit: Commit) -> None:
        """End a transaction in which some changes, or none, were wanted."""
        if self._held is not None:
            self._add(self._held, commit)
            self._held = None
        elif commit.position - self._marked < self._source.mark_every:
            return
        else:
            self._add(Change(MARK), commit)
        self._whole, self._commit = len(self._batch), commit
        self._marked = commit.position
        self._closed += 1

    def _add(self, change: Change, commit: Commit | None) -> None:
        try:
            drafts = self._drafting.drafts(change, commit)
        except UnfitError as error:
            raise _located(change, error) from None
        for draft in drafts:
            size = _weight(draft)
            if self._batch and self._size + size > BYTES:
                self._flush_part()
            self._batch.append(draft)
            self._size += size

    def _flush_part(self) -> None:
        """Append the complete transactions of the batch, or else the part of a transaction that is
        larger than a batch."""
        count = self._whole or len(self._batch)
        self._under_way.append((count, self._commit))
        self._settled(self._stream.append(self._batch[:count]))
        self._batch = self._batch[count:]
        self._size = sum(map(_weight, self._batch))
        self._whole, self._commit = 0, None

    def _settled(self, left: int) -> None:
        """All but the last `left` batches are in the stream: the source need not keep them."""
        while len(self._under_way) > left:
            count, commit = self._under_way.popleft()
            self._report(count, commit)
            if commit is not None:
                self._source.confirm(commit.position)

    def _flush(self) -> None:
        while self._batch:
            self._flush_part()


def _weight(draft: Draft) -> int:
    """Bytes of an event in a batch, about: the values of its attributes are in the payload, too."""
    return 2 * len(draft.payload) + 2 * sum(map(len, draft.attributes)) + 64


def _located(change: Change, error: UnfitError) -> UnfitError:
    """`error` with the table, the key and the columns of the value that a stream cannot carry."""
    table = change.schema
    if table is None:
        return error
    columns: dict[str, None] = {}
    for row in (change.before, change.after):
        for name, value in zip(table.names, row or (), strict=False):
            try:
                pack(0, (value,))
            except UnfitError:
                columns[name] = None
    key = table.key_of(change.after or change.before or ())
    return UnfitError(
        f"{table.name}.{', '.join(columns)}, key {key}: {error}; mend the value at the source, and "
        f"take a new snapshot (canopy sync run --snapshot)"
    )
