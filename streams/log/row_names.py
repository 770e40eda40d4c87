"""The names of rows in trace records. A hash of the name samples the same rows at every node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, overload

import msgspec

TRACES: Final = "application/x-canopy-traces"
"""The payload type of rows that contain trace records. Such rows have no trace records: each would
cause others without end."""


class RowName(msgspec.Struct, frozen=True):
    """A row of a shard."""

    shard: str
    offset: int

    @property
    def traced(self) -> bool:
        """Rows are not marked: their hash alone decides."""
        return True

    @property
    def identity(self) -> str:
        """The same text at every node."""
        return f"{self.shard}/{self.offset}"


class RowNames(Sequence[RowName]):
    """The rows with these offsets. Names are made on access: a node without traces makes none."""

    def __init__(self, shard: str, offsets: Sequence[int]) -> None:
        self._shard = shard
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, place: int) -> RowName: ...
    @overload
    def __getitem__(self, place: slice) -> RowNames: ...
    def __getitem__(self, place: int | slice) -> RowName | RowNames:
        if isinstance(place, slice):
            return RowNames(self._shard, self._offsets[place])
        return RowName(self._shard, self._offsets[place])
