"""What trace records say of a durable consumer's rows in one shard: which share was recorded."""

from __future__ import annotations

from collections import deque


class TakeRecords:
    """Up to where the confirmed position is recorded, and by which shares rows were from there."""

    def __init__(self) -> None:
        self.confirmed = 0
        """Offsets below it are in `consume` records."""
        self._shares: deque[tuple[int, float]] = deque()
        """From which offset on which share of the rows has records, until the next says another."""

    def begin(self, position: int) -> None:
        """The reading begins at an offset: nothing below it is recorded."""
        self.confirmed = position

    def note_share(self, offset: int, share: float) -> None:
        """Of the rows from this offset on, this share has records that the program was handed
        them."""
        if (self._shares[-1][1] if self._shares else 1.0) != share:
            self._shares.append((offset, share))

    def confirm(self, position: int) -> float:
        """Rows below `position` are confirmed: the least share of them by which they were
        recorded, of those that were not confirmed before."""
        holds = self._pass(self.confirmed)
        least = min([holds, *(share for offset, share in self._shares if offset < position)])
        holds = self._pass(position, holds)
        if holds != 1.0:
            self._shares.appendleft((position, holds))
        self.confirmed = position
        return least

    def _pass(self, offset: int, holds: float = 1.0) -> float:
        """Forget the shares up to an offset; returns the one that holds there."""
        while self._shares and self._shares[0][0] <= offset:
            _, holds = self._shares.popleft()
        return holds
