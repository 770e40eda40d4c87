"""The names of shards, of their forks, and of rows in trace records.

A fork is the log of rows that a shard's replica took while it could not reach a majority of the
replicas (streams/services/fork/). Its name has the epoch under which it began, above every epoch
known to its node, and the last chunk of the main log that this node knew to be committed: the fork
did not know the chunks of the main log behind it.

A hash of a row's name samples the same rows at every node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

TRACES: Final = "application/x-canopy-traces"
"""The payload type of rows that contain trace records. Such rows have no trace records: each would
cause others without end."""

HASHES: Final = 2**32
"""The number of CRC-32 values."""

_FORK: Final = re.compile(r"([0-9]{1,15})_([0-9]{1,15})_([0-9a-f]{8})")


def shard_name(stream: str, shard: int) -> str:
    """The name of a shard: the stream's id and the shard's number. The log begins with a hash of
    this name (`chunk.genesis`)."""
    return f"{stream}/{shard}"


class ForkName(NamedTuple):
    """`epoch`: the fork epoch; `base`: the last chunk of the main log that the fork knows; `mark`:
    distinguishes forks of the same epoch at different nodes."""

    epoch: int
    base: int
    mark: int

    def __str__(self) -> str:
        return f"{self.epoch}_{self.base}_{self.mark:08x}"


def parse_fork(text: str) -> ForkName | None:
    """A fork's name from its text; None if it is none."""
    found = _FORK.fullmatch(text)
    return ForkName(int(found[1]), int(found[2]), int(found[3], 16)) if found else None


def fork_shard(shard: str, fork: str) -> str:
    """The name of the shard that is the fork `fork` of `shard`."""
    stream, _, number = shard.rpartition("/")
    return f"{stream}-{fork}/{number}"


def split_shard(shard: str) -> tuple[str, str]:
    """Split the name of a shard: (the shard, the fork) for a fork of a shard, (the name, "") for
    any other."""
    stream, _, number = shard.rpartition("/")
    main, _, fork = stream.rpartition("-")
    return (f"{main}/{number}", fork) if main and parse_fork(fork) else (shard, "")


def sampled(shard: str, offsets: Sequence[int], share: float) -> Sequence[int]:
    """Those of these offsets whose row's name, SHARD/OFFSET, has a CRC-32 below this share of all:
    a smaller share has some of those of a larger one (as of events, canopy/traces/writer.py)."""
    if share <= 0.0:
        return ()
    if share >= 1.0:
        return offsets
    begin, limit = crc32(f"{shard}/".encode()), share * HASHES
    return [offset for offset in offsets if crc32(b"%d" % offset, begin) < limit]
