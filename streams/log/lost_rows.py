"""Rows at the end of a log that are lost, and the positions that have not survived that.

A log that ends before it did, since nobody has what was damaged, takes new rows at offsets that
other rows have had. Whoever was beyond that place would go on behind them, and never know. So the
log says from which offset on it has lost rows, and how many times that has happened: a position is
told with that count, and one that is beyond the place and of a time before is refused (as a
position beyond the end of its leader's epoch is in Kafka, KIP-320). Durable consumers and groups,
which the log itself keeps, go back to that place; the next program that comes as one is told first.
"""

from __future__ import annotations

from typing import Final

import msgspec

KEPT: Final = 64
"""Losses of a shard that its log goes on to name."""


class LostRows(msgspec.Struct, frozen=True, array_like=True):
    """The log has lost its rows from `offset` on, which were below `end`, or, where that is the
    next offset, nobody knows how many. `number`: it was the first loss, the second and so on."""

    number: int
    offset: int
    end: int

    @property
    def which(self) -> str:
        """The rows in words."""
        to = f"to {self.end - 1}" if self.end > self.offset + 1 else "on"
        return f"rows from offset {self.offset} {to}"


def lost_to(lost: tuple[LostRows, ...], position: int, losses: int) -> LostRows | None:
    """The loss that a position has not survived, which was told when the log had so many; None:
    all rows below the position are those that were."""
    return next((one for one in lost if one.number > losses and one.offset < position), None)


def losses_of(lost: tuple[LostRows, ...]) -> int:
    """How many times a log has lost rows."""
    return lost[-1].number if lost else 0


def with_loss(lost: tuple[LostRows, ...], offset: int, end: int) -> tuple[LostRows, ...]:
    """With one more loss."""
    return (*lost, LostRows(losses_of(lost) + 1, offset, end))[-KEPT:]


def lost_reason(who: str, position: int, lost: LostRows) -> str:
    """That rows at a position are lost, in words."""
    return (
        f"{who} was at offset {position}, and the log has lost its {lost.which} "
        f"by damage: others may have these offsets since. Begin at {lost.offset} "
        "for all that came after"
    )
