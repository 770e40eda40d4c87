"""One shard of a reading, at the program's node.

`Cursor` has the position, `ArrivedRows` the rows that wait for the program and the leader's credit,
`DurablePosition` the position that a durable consumer has confirmed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import lt
from typing import Final

from msgspec.structs import astuple

from overlay.client import PackedEvents, StreamEvent
from streams.log.batches import Row, are_rows, decode_rows
from streams.log.chunk import NANOSECONDS
from streams.programs.reader.messages import (
    KEYS,
    OFFSET_MOST,
    LooseRows,
    Piece,
    ReadFrom,
    ReadingBegan,
    SharedRows,
    cost,
)

WINDOW: Final = 1024 * 1024
"""The credit of a reading in all shards together (`cost`): rows under way, and rows that wait for
the program. At 100 MB/s it lasts 10 ms, some turns of a node."""

WINDOW_LEAST: Final = 64 * 1024
"""The least credit in one shard."""


class ArrivedRows:
    """The rows of one shard that wait for the program, and the credit of the leader."""

    def __init__(self, window: int) -> None:
        self.pieces: deque[Piece] = deque()
        self._rows: deque[tuple[int, Row]] = deque()  # of the first piece, with their offsets
        self._fault = ""
        self._window = window
        self._received = 0  # since the reading was opened at this leader
        self._held = 0  # of what waits for the program
        self._granted = 0

    def open(self) -> int:
        """Begin at another leader, and return the bytes of credit that it gets first."""
        self._received = 0
        self._granted = max(self._window - self._held, 0)
        return self._granted

    @property
    def granted(self) -> int:
        """The credit of the leader: the bytes that it may send in all since the reading began
        there."""
        self._granted = max(self._granted, self._received + self._window - self._held)
        return self._granted

    @property
    def should_grant(self) -> bool:
        """Whether the program has taken half a window since the last credit."""
        return self._received + self._window - self._held - self._granted >= self._window // 2

    def add(self, pieces: Sequence[Piece]) -> None:
        """Take rows of the leader."""
        for piece in pieces:
            self.pieces.append(piece)
            self._received += cost(piece)
            self._held += cost(piece)

    def take(self, place: int, most: int, size: int) -> tuple[list[StreamEvent], int]:
        """Hand over at most `most` events of about `size` bytes. Return them, and their bytes.
        `place`: the shard's number in its stream."""
        found: list[StreamEvent] = []
        taken = 0
        while len(found) < most and taken < size and self.pieces:
            piece = self.pieces[0]
            if not self._rows:
                try:
                    rows = decode_rows(piece.rows, piece.count)
                except ValueError as error:
                    self._drop(f"rows from {piece.first} on cannot be read: {error}")
                    break
                places = (0, *piece.places) if piece.places else range(piece.count)
                offsets = (piece.first + each for each in places)
                self._rows.extend(zip(offsets, rows, strict=True))
            each = len(piece.rows) // piece.count
            time = piece.time / NANOSECONDS
            while self._rows and len(found) < most and taken < size:
                offset, row = self._rows.popleft()
                taken += max(each, len(row.payload))
                found.append(
                    StreamEvent(place, offset, time, row.attributes, row.payload, row.payload_type)
                )
            if not self._rows:
                self.pieces.popleft()
                self._held -= cost(piece)
        return found, taken

    def take_packed(self, size: int) -> tuple[list[Piece], int]:
        """Hand over pieces of about `size` bytes, at least one, without decoding them. Return them,
        and their bytes."""
        found: list[Piece] = []
        taken = 0
        while taken < size and self.pieces:
            piece = self.pieces[0]
            if not are_rows(piece.rows, piece.count):
                self._drop(f"{piece.count} rows from {piece.first} on cannot be read")
                break
            self.pieces.popleft()
            taken += len(piece.rows)
            self._held -= cost(piece)
            found.append(piece)
        return found, taken

    def _drop(self, fault: str) -> None:
        """Drop all waiting rows, since some cannot be read. They are read again."""
        self._fault = fault
        self.pieces.clear()
        self._held = 0

    @property
    def is_spoiled(self) -> bool:
        """Whether rows were dropped that could not be read."""
        return bool(self._fault)

    def pop_fault(self) -> str:
        """Return the reason why rows were dropped, once; "": none were."""
        fault, self._fault = self._fault, ""
        return fault


class DurablePosition:
    """The position that a durable consumer has confirmed in one shard; -1 if it has none."""

    def __init__(self) -> None:
        self.attachment = 0
        """The number by which the leader knows this program; 0: it is no durable consumer."""
        self.wanted = -1
        """The position that the program has confirmed."""
        self.committed = -1
        self.recorded = 0
        """The offset below which all rows are in `consume` records."""
        self._shares: deque[tuple[int, float]] = deque()
        """Pairs of an offset and the share of the rows that have `take` records from there on."""

    def wants(self, position: int) -> bool:
        """Note that the program has confirmed all rows below `position`. Return whether that is
        new."""
        is_new = position > self.wanted
        self.wanted = max(self.wanted, position)
        return is_new

    def confirmed(self, position: int) -> int:
        """Note that the leader has committed `position`. Return it, but at most the position that
        was wanted."""
        confirmed = min(position, self.wanted)
        self.committed = max(self.committed, confirmed)
        return confirmed

    # The sampling of trace records.

    def begin(self, position: int) -> None:
        """Begin at an offset. No row below it is recorded."""
        self.recorded = position

    def note_share(self, offset: int, share: float) -> None:
        """Note the share of rows that have `take` records, from an offset on."""
        if (self._shares[-1][1] if self._shares else 1.0) != share:
            self._shares.append((offset, share))

    def record(self, position: int) -> float:
        """Note that rows below `position` are in `consume` records. Return the least share by which
        those had `take` records that were in none before."""
        holds = self._pass(self.recorded)
        least = min([holds, *(share for offset, share in self._shares if offset < position)])
        holds = self._pass(position, holds)
        if holds != 1.0:
            self._shares.appendleft((position, holds))
        self.recorded = position
        return least

    def _pass(self, offset: int, holds: float = 1.0) -> float:
        """Forget the shares up to an offset. Return the one that applies there."""
        while self._shares and self._shares[0][0] <= offset:
            _, holds = self._shares.popleft()
        return holds


class Cursor:
    """The state of a reading in one shard."""

    def __init__(self, place: int, shard: str, start: ReadFrom, window: int) -> None:
        """`window`: the credit of the leader (`cost`)."""
        self.place = place
        """The shard's number in its stream."""
        self.shard = shard
        self.start = start
        """The place at which the reading begins while it has no position."""
        self.position: int | None = None
        """The offset below which all rows have come, or were scanned."""
        self.delivered = -1
        """The offset up to which the program knows the position."""
        self.end = 0
        """The offset after the shard's last row, when the reading began."""
        self.table_end = 0
        """The offset below which the newest rows lie, with which a reading may begin; 0: none."""
        self.losses = -1
        """The number of times the log has lost rows at its end, at the leader; -1: not known."""
        self.arrived = ArrivedRows(window)
        self.durable = DurablePosition()

    # -- the leader ------------------------------------------------------------------------------

    def next_start(self) -> ReadFrom:
        """Return the place at which the next leader has to begin."""
        if self.position is None:
            return self.start
        if self.position < self.table_end:
            until = self.start.until or self.end
            return ReadFrom(KEYS, self.position, until, self.losses)
        return ReadFrom("offset", self.position, 0, self.losses)

    def began(self, message: ReadingBegan) -> bool:
        """Note that the leader has begun. Return False if it has not begun at the position."""
        asked, position = self.next_start(), message.position
        if self.position is None:
            self.position = self.delivered = position
            self.durable.begin(position)
            self.end = message.next
        if asked.kind == KEYS:
            self.table_end = message.next
        self.durable.attachment, self.losses = message.attachment, message.losses
        return position == self.position

    def add(self, position: int, pieces: Sequence[Piece]) -> None:
        """Take rows that were checked (`misfit`), and the position behind them."""
        self.position = position
        self.arrived.add(pieces)

    # -- the program -----------------------------------------------------------------------------

    @property
    def is_in_table(self) -> bool:
        """Whether the program does not have all newest rows yet."""
        return self.delivered < self.table_end

    @property
    def has_news(self) -> bool:
        """Whether the position has moved since the last answer to the program."""
        return self.position is not None and self.position > self.delivered

    @property
    def has_urgent_news(self) -> bool:
        """Whether rows have come, or the position has passed the end that the shard had at the
        beginning, where some programs stop."""
        if self.position is None:
            return False
        end = max(self.end, self.table_end)
        return bool(self.arrived.pieces) or self.delivered < end <= self.position

    def take(self, most: int, size: int) -> tuple[list[StreamEvent], int]:
        """Hand over at most `most` events of about `size` bytes. Return them, and their bytes."""
        found, taken = self.arrived.take(self.place, most, size)
        self._tell(found[-1].offset + 1 if found else self.delivered)
        return found, taken

    def take_packed(self, size: int) -> tuple[list[PackedEvents], int]:
        """Hand over pieces of about `size` bytes, at least one, without decoding them. Return them,
        and their bytes."""
        found, taken = self.arrived.take_packed(size)
        self._tell(end_of(found[-1]) if found else self.delivered)
        return [PackedEvents(self.place, *astuple(piece)) for piece in found], taken

    def _tell(self, behind: int) -> None:
        """Note that the program has all rows below an offset. If none wait, it knows the position;
        after dropped rows the position goes back to the offset."""
        assert self.position is not None, "rows come after the beginning"
        if self.arrived.is_spoiled:
            self.position = behind
        self.delivered = behind if self.arrived.pieces else self.position


# -- what a leader says ----------------------------------------------------------------------------


def end_of(piece: Piece) -> int:
    """Return the offset behind a piece's last row."""
    return piece.first + (piece.places[-1] if piece.places else piece.count - 1) + 1


def false_start(asked: ReadFrom, position: int, end: int, is_own: bool) -> str:
    """Return the reason why no honest leader begins at `position`; "": one can. `is_own`: the
    program says where the reading begins, not a durable consumer's position."""
    if is_own and asked.kind in ("offset", KEYS) and position != asked.at:
        return f"the reading begins at {position}, not at {asked.at}"
    if max(position, end) > OFFSET_MOST:
        return f"there is no offset {max(position, end)}"
    if asked.kind != KEYS and position > end:
        return f"the reading begins at {position}, behind the shard's end {end}"
    return ""


def misfit(since: int, position: int, pieces: Sequence[Piece]) -> str:
    """Return the reason why no honest leader sends these pieces as the rows that matched from
    `since` to `position`; "": one can. The rows are not decoded."""
    if position < since:
        return f"the position goes back, from {since} to {position}"
    if position > OFFSET_MOST:
        return f"there is no offset {position}"
    at = since
    for piece in pieces:
        places = piece.places
        if places and (len(places) != piece.count - 1 or places[0] < 1):
            return f"{len(places) + 1} places are not those of {piece.count} rows"
        if places and not all(map(lt, places, places[1:])):
            return "rows are not in the order of their offsets"
        end = end_of(piece)
        if piece.first < at or end > position:
            return f"rows {piece.first} to {end - 1} are not between {at} and {position}"
        at = end
    return ""


class Shared:
    """The rows of a message for several readings, and the pieces of each. ValueError if no honest
    leader sends them."""

    def __init__(self, message: SharedRows) -> None:
        if any(len(each.rows) != len(each.places) or not each.rows for each in message.chunks):
            raise ValueError("shared rows are not as many as their places")
        self._rows: list[tuple[LooseRows, int]] = [
            (chunk, index) for chunk in message.chunks for index in range(len(chunk.rows))
        ]

    def pieces(self, rows: Sequence[int]) -> tuple[Piece, ...]:
        """Return the rows with these numbers in the message, ascending."""
        if not rows or max(rows) >= len(self._rows):
            raise ValueError("a reading shares rows that are not there")
        if len(rows) == 1:
            chunk, index = self._rows[rows[0]]
            return (Piece(chunk.time, chunk.first + chunk.places[index], 1, (), chunk.rows[index]),)
        by_chunk: dict[int, tuple[LooseRows, list[int]]] = {}
        for row in rows:
            chunk, index = self._rows[row]
            by_chunk.setdefault(id(chunk), (chunk, []))[1].append(index)
        return tuple(_piece(chunk, indices) for chunk, indices in by_chunk.values())


def _piece(chunk: LooseRows, indices: Sequence[int]) -> Piece:
    start = chunk.places[indices[0]]
    places = tuple([chunk.places[index] - start for index in indices[1:]])
    if places and min(places) < 1:
        raise ValueError("shared rows are not in order")
    rows = b"".join([chunk.rows[index] for index in indices])
    return Piece(chunk.time, chunk.first + start, len(indices), places, rows)
