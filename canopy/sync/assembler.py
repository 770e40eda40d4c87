"""From the events of a stream to whole transactions of the source (no IO).

Transactions are small mostly, and many are applied together; one that is too large for the memory
is applied in parts, and may have to be taken back when it is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from canopy.sync.changes import ABORT, LAST, PART, SNAPSHOT, Change, change_of
from canopy.sync.errors import MalformedError

LONG: Final = 20_000
"""Changes of one transaction that are kept until it is whole; a longer one comes in parts."""
LARGE: Final = 64 * 1024 * 1024
"""Bytes of one transaction that are kept, about."""


class TransactionPart(msgspec.Struct, frozen=True):
    """Changes of a stream in its order, and how far they reach."""

    changes: tuple[Change, ...]
    next: int
    """The offset behind them."""
    whole: bool
    """Whether the last one closes a transaction: all before it may be committed."""
    undo: bool = False
    """Instead of changes: what was handed on since the last whole part is to be taken back."""


class Assembler:
    """Puts together what the events of one shard say, in order."""

    def __init__(self, most: int = LONG) -> None:
        """`most`: changes that are kept of one transaction."""
        self._most = most
        self._kept: list[Change] = []
        self._ends: list[int] = []  # the offset behind each of them: others lie between
        self._pieces: list[bytes] = []  # of a change that is cut
        self._size = 0  # bytes of those kept, about
        self._handed_on = False  # a part of this transaction
        self._next = 0

    def feed(
        self, changes: Iterable[tuple[int, Change]], size: int = 0
    ) -> Iterator[TransactionPart]:
        """Yield the parts of transactions that can be applied after these changes, each change with
        its offset. `size`: the bytes of all changes. Raises MalformedError if pieces do not form a
        change."""
        self._size += size
        whole = 0  # of those kept
        for offset, found in changes:
            change = found if found.op not in (PART, LAST) else self._joined(found)
            if change is None:
                continue
            if change.op in (ABORT, SNAPSHOT):
                if whole:
                    yield self._part(whole)
                    whole = 0
                yield from self._undo(offset)
                if change.op == ABORT:
                    self._next = offset + 1
                    continue
            self._kept.append(change)
            self._ends.append(offset + 1)
            self._next = offset + 1
            if change.commit is not None:
                whole = len(self._kept)
                if self._handed_on or whole >= self._most:
                    yield self._part(whole)
                    whole = 0
            elif len(self._kept) - whole >= self._most or self._size > LARGE:
                if whole:
                    yield self._part(whole)
                    whole = 0
                self._handed_on = True
                parts, self._kept, self._ends, self._size = tuple(self._kept), [], [], 0
                yield TransactionPart(parts, self._next, False)
        if whole:
            yield self._part(whole)

    def _joined(self, found: Change) -> Change | None:
        """Return the change that this last piece completes; None: further pieces follow."""
        number, piece = found.before or (-1, b"")
        if number == 0:
            self._pieces = []  # of one that was taken back
        if number != len(self._pieces) or not isinstance(piece, bytes):
            raise MalformedError(f"a piece of a large row of {found.table} is missing")
        self._pieces.append(piece)
        if found.op == PART:
            return None
        pieces, self._pieces = self._pieces, []
        return msgspec.structs.replace(change_of(b"".join(pieces)), commit=found.commit)

    def _part(self, count: int) -> TransactionPart:
        changes, self._kept = tuple(self._kept[:count]), self._kept[count:]
        after, self._ends = self._ends[count - 1], self._ends[count:]
        self._size = 0
        self._handed_on = False
        return TransactionPart(changes, after, True)

    def _undo(self, offset: int) -> Iterator[TransactionPart]:
        self._kept, self._ends, self._pieces, self._size = [], [], [], 0
        if self._handed_on:
            self._handed_on = False
            yield TransactionPart((), offset, False, undo=True)
