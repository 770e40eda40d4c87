"""How forks of a shard are named.

A fork is the log of rows that a shard's replica took while it could not reach a majority of the
replicas (streams/services/fork/). Its name has the epoch under which it began, above every epoch
known to its node, and the last chunk of the main log that this node knew to be committed: the fork
did not know the chunks of the main log behind it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FORK: Final = re.compile(r"([0-9]{1,15})_([0-9]{1,15})_([0-9a-f]{8})")


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
    """(the shard of which it is a fork, the fork) of the name of any shard; (it, "") if it is not a
    fork."""
    stream, _, number = shard.rpartition("/")
    main, _, fork = stream.rpartition("-")
    return (f"{main}/{number}", fork) if main and parse_fork(fork) else (shard, "")
