"""A reading that begins with the newest row of each key, and goes on with what follows.

Rows come in the order of their offsets: first those of the chunks of kind Table, which lie below
the floor, then those of the log from the floor on. Of the rows below the end of its view only
those that are in the view are wanted; from there on all are. So what has come up to any offset from
the view's end on folds to the table at that offset, and no row comes twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from matching import Predicate
from streams.log.chunk import TABLE
from streams.log.table import TableRow, TableView, table_rows
from streams.programs.reader.messages import Piece, cost
from streams.services.read.history import MESSAGE_BYTES, HistoryScan
from streams.services.service import LedShard
from streams.shard.kept_chunks import CHUNK_WORK, ChunkReader


class TableScan:
    """The position of one reading of a table."""

    def __init__(
        self,
        led: LedShard,
        view: TableView,
        position: int,
        predicate: Predicate | None,
        wake: Callable[[], None],
    ) -> None:
        """From the offset `position` on; `wake` as of `HistoryScan`."""
        self._led = led
        self.position = position
        """All rows of the view below it have been looked at."""
        self._view = view
        self._predicate = predicate
        self._wake = wake
        self._rows: deque[TableRow] = deque()
        self._table, self._floor = led.replica.state.table, led.replica.state.floor
        self.reader = ChunkReader(led.replica.chunks, self._table.first, wake)
        """It reads the table's chunks, or the history."""
        self._history: HistoryScan | None = None
        if not self._table.first or position >= self._floor:
            self._begin_history()

    def _begin_history(self) -> None:
        self.position = max(self.position, self._floor)
        self._history = HistoryScan(
            self._led,
            self._led.replica.log.before_offset(self.position)[0],
            self.position,
            self._predicate,
            self._wake,
            self._view,
        )
        self.reader = self._history.reader

    def is_at(self, number: int) -> bool:
        """Whether everything before chunk `number` has been looked at."""
        return self._history is not None and self._history.is_at(number)

    def step(self, end: int, budget: int, credit: int) -> tuple[list[Piece], int]:
        """Look at rows of the table, and then of the history, as `HistoryScan.step` does."""
        if self._history is None:
            pieces, work = self._step_table(budget, credit)
            if pieces or self._history is None:
                return pieces, work
        assert self._history is not None
        pieces, work = self._history.step(end, budget, credit)
        self.position = self._history.position
        return pieces, work

    def _step_table(self, budget: int, credit: int) -> tuple[list[Piece], int]:
        pieces: list[Piece] = []
        work = sent = 0
        while work < budget and sent < credit:
            if self._rows:
                if pieces and sent + len(self._rows[0].encoded) > MESSAGE_BYTES:
                    break
                work += 1
                piece = self._look_at(self._rows.popleft())
                if piece is not None:
                    pieces.append(piece)
                    sent += cost(piece)
            elif self.reader.number > self._table.last:
                self._begin_history()
                break
            elif (chunk := self.reader.peek()) is not None:
                self.reader.take()
                work += CHUNK_WORK
                if chunk.kind == TABLE:
                    self._rows.extend(table_rows(chunk))
            else:
                break
        return pieces, work

    def _look_at(self, each: TableRow) -> Piece | None:
        if each.offset < self.position:
            return None
        self.position = each.offset + 1
        attributes = each.row.attributes
        if not self._view.has(each.offset, attributes):
            return None
        if self._predicate is not None and not self._predicate.matches(attributes):
            return None
        if self._led.is_row_over(each.time, attributes):
            return None
        return Piece(each.time, each.offset, 1, (), each.encoded)
