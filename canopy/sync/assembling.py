"""From the events of a stream to whole transactions of the source (no IO).

Transactions are small mostly, and many are applied together; one that is too large for the memory
is applied in parts, and may have to be taken back when it is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from canopy.sync.changes import ABORT, SNAPSHOT, Change

LONG: Final = 20_000
"""Changes of one transaction that are kept until it is whole; a longer one comes in parts."""


class Part(msgspec.Struct, frozen=True):
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
        self._handed_on = False  # a part of this transaction
        self._next = 0

    @property
    def is_between(self) -> bool:
        """Whether no transaction is open."""
        return not self._kept and not self._handed_on

    def feed(self, changes: Iterable[tuple[int, Change]]) -> Iterator[Part]:
        """What can be applied after these changes, each with its offset."""
        whole = 0  # of those kept
        for offset, change in changes:
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
            elif len(self._kept) - whole >= self._most:
                if whole:
                    yield self._part(whole)
                    whole = 0
                self._handed_on = True
                parts, self._kept, self._ends = tuple(self._kept), [], []
                yield Part(parts, self._next, False)
        if whole:
            yield self._part(whole)

    def _part(self, count: int) -> Part:
        changes, self._kept = tuple(self._kept[:count]), self._kept[count:]
        after, self._ends = self._ends[count - 1], self._ends[count:]
        self._handed_on = False
        return Part(changes, after, True)

    def _undo(self, offset: int) -> Iterator[Part]:
        self._kept, self._ends = [], []
        if self._handed_on:
            self._handed_on = False
            yield Part((), offset, False, undo=True)
