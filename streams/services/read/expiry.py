"""Rows that are past their time: a stream may say how long a row is of use, and so may each row.

The age of a row is counted from the time of its chunk by the clock of the shard's leader. Rows that
are past it are not delivered any more; they are removed by retention, a segment at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matching import Value
from streams.shard.retention import Keep, life_of


class Expiry:
    """The times of the rows of one shard that this node leads."""

    def __init__(self, keep: Callable[[], Keep], clock: Callable[[], int]) -> None:
        """`keep`: what the stream says now; `clock`: nanoseconds since 1970."""
        self._keep = keep
        self._clock = clock

    @property
    def by_row(self) -> bool:
        """Whether each row may have a time of its own."""
        return bool(self._keep().ttl_by)

    def is_over(self, time: int) -> bool:
        """Whether all rows that were appended at `time` are past theirs, as far as that can be said
        without looking at them."""
        keep = self._keep()
        return bool(keep.ttl) and not keep.ttl_by and time + keep.ttl <= self._clock()

    def is_row_over(self, time: int, attributes: Mapping[str, Value | None]) -> bool:
        """Whether a row that was appended at `time` is past its time."""
        life = life_of(self._keep(), attributes)
        return bool(life) and time + life <= self._clock()
