"""One shard of a program's reading, at the program's node: where it is, and what has come."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec.structs import astuple

from overlay.client import PackedEvents, StreamEvent
from streams.log.batches import Row, are_rows, decode_rows
from streams.programs.reader.messages import KEYS, OFFSET_MOST, Piece, ReadFrom, cost
from streams.programs.reader.take_records import TakeRecords

WINDOW: Final = 1024 * 1024
"""What may be on its way to a program, or wait for it, in all shards of a reading (`cost`). At
100 MB/s it lasts 10 ms, some turns of a node."""

WINDOW_LEAST: Final = 64 * 1024
"""The same in one shard, at least."""

NANOSECONDS: Final = 1e9


class Cursor:
    """One shard of a reading."""

    def __init__(self, place: int, shard: str, start: ReadFrom, window: int) -> None:
        self.place = place
        """The shard's number in its stream."""
        self.shard = shard
        self.start = start
        """Where to begin while there is no position."""
        self.position: int | None = None
        """All rows below it have come here, or were scanned."""
        self.delivered = -1
        """The program has been told of everything below it."""
        self.end = 0
        """The offset after the shard's last row, when the reading began."""
        self.table_end = 0
        """Of one that begins with the newest rows: these lie below it. 0: not known."""
        self.attachment = 0
        self.losses = -1
        """How many times the log had lost rows at its end, when the leader began; -1: not known."""
        self.wanted = -1
        """The position that a durable consumer wants to be committed; -1: none."""
        self.committed = -1
        self.records = TakeRecords()
        self._fault = ""
        """Why rows that waited for the program cannot be handed over: they are read anew."""
        self._window = window
        self._received = 0  # since the reading was opened at this leader
        self._held = 0  # of what waits for the program
        self._granted = 0
        self._pieces: deque[Piece] = deque()
        self._rows: deque[tuple[int, Row]] = deque()  # of the first piece, with their offsets

    # -- the reading at a leader -----------------------------------------------------------------

    def open(self) -> int:
        """The reading is asked for at a leader. Returns the credit."""
        self._received = 0
        self._granted = max(self._window - self._held, 0)
        return self._granted

    def next_start(self) -> ReadFrom:
        """Where a reading has to begin."""
        if self.position is None:
            return self.start
        if self.position < self.table_end:
            until = self.start.until or self.end
            return ReadFrom(KEYS, self.position, until, self.losses)
        return ReadFrom("offset", self.position, 0, self.losses)

    @property
    def is_in_table(self) -> bool:
        """Whether the program has not been told of all newest rows yet."""
        return self.delivered < self.table_end

    def began_wrong(self, position: int, end: int, is_own: bool) -> str:
        """Why a leader cannot have begun there; "": it can. `is_own`: where the reading begins is
        not a durable consumer's affair."""
        asked = self.next_start()
        if is_own and asked.kind in ("offset", KEYS) and position != asked.at:
            return f"the reading begins at {position}, not at {asked.at}"
        if max(position, end) > OFFSET_MOST:
            return f"there is no offset {max(position, end)}"
        if asked.kind != KEYS and position > end:
            return f"the reading begins at {position}, behind the shard's end {end}"
        return ""

    def began(self, position: int, end: int, attachment: int, losses: int) -> bool:
        """The leader has begun. Returns False if that is not where it should have."""
        asked = self.next_start()
        if self.position is None:
            self.position = self.delivered = position
            self.records.begin(position)
            self.end = end
        if asked.kind == KEYS:
            self.table_end = end
        self.attachment, self.losses = attachment, losses
        return position == self.position

    def add(self, position: int, pieces: tuple[Piece, ...]) -> None:
        """Take rows that follow, and fit (`pieces.misfit`), and the position behind them."""
        self.position = position
        for piece in pieces:
            self._pieces.append(piece)
            self._received += cost(piece)
            self._held += cost(piece)

    @property
    def granted(self) -> int:
        """What the leader may send in all since the reading was opened there."""
        self._granted = max(self._granted, self._received + self._window - self._held)
        return self._granted

    @property
    def should_grant(self) -> bool:
        """Whether the program has taken so much that the leader should hear of it."""
        return self._received + self._window - self._held - self._granted >= self._window // 2

    def wants(self, position: int) -> bool:
        """A durable consumer is done with what is below `position`. Returns whether that is new."""
        is_new = position > self.wanted
        self.wanted = max(self.wanted, position)
        return is_new

    def confirmed(self, position: int) -> int:
        """The leader has committed `position`. Returns as far as that was wanted."""
        confirmed = min(position, self.wanted)
        self.committed = max(self.committed, confirmed)
        return confirmed

    # -- the program -----------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell the program."""
        return self.position is not None and self.position > self.delivered

    @property
    def has_urgent_news(self) -> bool:
        """Whether that is rows, or that all which was there at the beginning has been looked at:
        programs end that read up to there."""
        if self.position is None:
            return False
        return bool(self._pieces) or self.delivered < max(self.end, self.table_end) <= self.position

    def take(self, most: int, size: int) -> tuple[list[StreamEvent], int]:
        """At most `most` events of some `size` bytes; returns them and their bytes."""
        found: list[StreamEvent] = []
        taken = 0
        while len(found) < most and taken < size and self._pieces:
            piece = self._pieces[0]
            if not self._rows:
                try:
                    rows = decode_rows(piece.rows, piece.count)
                except ValueError as error:
                    behind = found[-1].offset + 1 if found else self.delivered
                    self._spoiled(behind, f"rows from {piece.first} on cannot be read: {error}")
                    break
                places = (0, *piece.places) if piece.places else range(piece.count)
                offsets = (piece.first + place for place in places)
                self._rows.extend(zip(offsets, rows, strict=True))
            each = len(piece.rows) // piece.count
            time = piece.time / NANOSECONDS
            while self._rows and len(found) < most and taken < size:
                offset, row = self._rows.popleft()
                taken += max(each, len(row.payload))
                found.append(
                    StreamEvent(
                        *(self.place, offset, time),
                        *(row.attributes, row.payload, row.payload_type),
                    )
                )
            if not self._rows:
                self._pieces.popleft()
                self._held -= cost(piece)
        self._tell(found[-1].offset + 1 if found else self.delivered)
        return found, taken

    def take_packed(self, size: int) -> tuple[list[PackedEvents], int]:
        """Pieces of some `size` bytes, or one, as they are; returns them and their bytes."""
        found: list[PackedEvents] = []
        taken = 0
        behind = self.delivered
        while taken < size and self._pieces:
            piece = self._pieces[0]
            if not are_rows(piece.rows, piece.count):
                self._spoiled(behind, f"{piece.count} rows from {piece.first} on cannot be read")
                break
            self._pieces.popleft()
            taken += len(piece.rows)
            self._held -= cost(piece)
            behind = piece.first + (piece.places[-1] if piece.places else piece.count - 1) + 1
            found.append(PackedEvents(self.place, *astuple(piece)))
        self._tell(behind)
        return found, taken

    def pop_fault(self) -> str:
        """Why rows that waited for the program could not be handed over, once; "": they could."""
        fault, self._fault = self._fault, ""
        return fault

    def _spoiled(self, behind: int, fault: str) -> None:
        """What waits for the program is not what it should be: all that it has not been told, from
        the offset `behind` on, is looked at anew."""
        self._fault, self.position = fault, behind
        self._pieces.clear()
        self._held = 0

    def _tell(self, behind: int) -> None:
        """The program is told of rows below this offset, of all of them where no more wait."""
        assert self.position is not None, "rows come after the beginning"
        self.delivered = behind if self._pieces else self.position
