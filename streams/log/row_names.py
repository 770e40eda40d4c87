"""The names of rows in trace records. A hash of the name samples the same rows at every node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

TRACES: Final = "application/x-canopy-traces"
"""The payload type of rows that contain trace records. Such rows have no trace records: each would
cause others without end."""

HASHES: Final = 2**32
"""How many CRC-32 there are."""


class RowName(NamedTuple):
    """A row of a shard."""

    shard: str
    offset: int

    @property
    def identity(self) -> str:
        """The same text at every node."""
        return f"{self.shard}/{self.offset}"


def sampled(shard: str, offsets: Iterable[int], share: float) -> Sequence[RowName]:
    """The rows with these offsets whose identity has a CRC-32 below this share of all: a smaller
    share has some of those of a larger one (as of events, canopy/traces/sampling.py)."""
    if share <= 0.0:
        return ()
    if share >= 1.0:
        return [RowName(shard, offset) for offset in offsets]
    begin, limit = crc32(f"{shard}/".encode()), share * HASHES
    return [RowName(shard, o) for o in offsets if crc32(b"%d" % o, begin) < limit]
