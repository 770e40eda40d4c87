"""What a shard's log says of the forks that were copied into it (streams/services/fork/).

A batch that is copied names the fork and the offset there, so that the rows and how far the fork
was copied are in one chunk. Behind the rows of a fork's chunk the log names that chunk, by number
and hash: so whoever has a receipt of the fork can prove from the main log alone that the chunk was
copied, when the fork is no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from streams.log.batches import BatchHead

FORKS_KEPT: Final = 256
"""Forks of a shard that its state names; the one that was copied longest ago is
forgotten then. Guess:
one comes of each partition, and side of it."""


class ForkCopied(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """The chunk of the fork `fork` with this number and hash, which ends before the offset `next`,
    is in the log, and all before it. Of the fork's rows so far `rows` were appended, of which
    `conflicting` without their producer's numbers since other rows have these, and `repeated` were
    in the log before."""

    fork: str
    chunk: int
    hash: bytes
    next: int
    rows: int = 0
    conflicting: int = 0
    repeated: int = 0


class ForkStates:
    """The forks of a shard, those last that were copied last."""

    def __init__(self) -> None:
        self.known: dict[str, ForkCopied] = {}

    def floor(self, fork: str) -> int:
        """All rows of the fork below this offset are dealt with."""
        known = self.known.get(fork)
        return 0 if known is None else known.next

    def entries(self) -> Iterator[ForkCopied]:
        """All that there is to know."""
        yield from self.known.values()

    def take(self, entry: ForkCopied) -> None:
        """What a chunk says of a fork."""
        self._put(entry)

    def appended(self, head: BatchHead) -> None:
        """A batch that was copied is in the log."""
        known = self.known.get(head.fork) or ForkCopied(head.fork, 0, b"", 0)
        conflicting = 0 if head.producer else head.count
        self._put(
            replace(
                known,
                next=max(known.next, head.at + head.count),
                rows=known.rows + head.count,
                conflicting=known.conflicting + conflicting,
            )
        )

    def _put(self, entry: ForkCopied) -> None:
        self.known.pop(entry.fork, None)
        self.known[entry.fork] = entry
        while len(self.known) > FORKS_KEPT:
            del self.known[next(iter(self.known))]
