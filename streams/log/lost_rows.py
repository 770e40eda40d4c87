"""Losses of rows at the end of a log, and positions that are invalid after a loss.

A log that is truncated, since no replica has its damaged chunks, gives new rows the offsets of the
lost ones. A reader beyond the truncation would miss the new rows without an error. So the log
records the offset of each loss and counts the losses: a position comes with the count at its time,
and the leader refuses a position that lies beyond a loss with a higher number (as Kafka refuses a
position beyond the end of its leader's epoch, KIP-320). The log itself sets durable consumers and
groups back to the place of the loss; the next program that attaches as one gets an error first.
"""

from __future__ import annotations

from typing import Final

import msgspec

KEPT: Final = 64
"""The newest losses of a shard, which its state keeps."""


class LostRows(msgspec.Struct, frozen=True, array_like=True):
    """The log has lost its rows from `offset` to before `end`; if `end` is the next offset, the
    number of lost rows is not known. `number`: 1 for the shard's first loss, 2 for the second."""

    number: int
    offset: int
    end: int

    @property
    def which(self) -> str:
        """The lost rows, in words."""
        to = f"to {self.end - 1}" if self.end > self.offset + 1 else "on"
        return f"rows from offset {self.offset} {to}"


def lost_to(lost: tuple[LostRows, ...], position: int, losses: int) -> LostRows | None:
    """The first loss that invalidates a position, which was reported when the log had `losses`;
    None: the position is valid."""
    return next((one for one in lost if one.number > losses and one.offset < position), None)


def losses_of(lost: tuple[LostRows, ...]) -> int:
    """The number of losses of a log."""
    return lost[-1].number if lost else 0


def with_loss(lost: tuple[LostRows, ...], offset: int, end: int) -> tuple[LostRows, ...]:
    """The losses with another one behind them."""
    return (*lost, LostRows(losses_of(lost) + 1, offset, end))[-KEPT:]


def lost_reason(who: str, position: int, lost: LostRows) -> str:
    """The reason for a reader whose position lies in lost rows."""
    return (
        f"{who} was at offset {position}, and the log has lost its {lost.which} "
        f"by damage: others may have these offsets since. Begin at {lost.offset} "
        "for all that came after"
    )


def set_back_reason(who: str, was_at: int, position: int, lost: tuple[LostRows, ...]) -> str:
    """The reason for a consumer or group that the log has set back to `position`, since its rows
    below `was_at` were lost there."""
    found = lost_to(lost, was_at, 0) or LostRows(0, position, was_at)  # it was too long ago
    return f"{lost_reason(who, was_at, found)}. Come again to go on at offset {position}"
