"""The forks of a shard that were copied into its log (streams/services/fork/), as the log has them.

A copied batch names the fork and its offset there, so that one chunk has the rows and the progress
of the copy. Behind the rows of a fork's chunk the log names that chunk, by number and hash: so the
main log alone proves a receipt of the fork after the fork is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from streams.log.batches import BatchHead

FORKS_KEPT: Final = 256
"""Forks that the state of a shard names; beyond it the one copied longest ago is forgotten. Guess:
each side of a partition makes one."""


class ForkCopied(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """The chunk of `fork` with this number and hash, and all chunks before it, are copied; it ends
    before the offset `next` of the fork. Of the fork's rows so far, `rows` were appended,
    `conflicting` of these without their producer's numbers, since other rows have them, and
    `repeated` were in the log already."""

    fork: str
    chunk: int
    hash: bytes
    next: int
    rows: int = 0
    conflicting: int = 0
    repeated: int = 0


class ForkStates:
    """The forks of a shard, in the order of their last copied chunks."""

    def __init__(self) -> None:
        self.known: dict[str, ForkCopied] = {}

    def floor(self, fork: str) -> int:
        """The offset up to which the fork is copied."""
        known = self.known.get(fork)
        return 0 if known is None else known.next

    def entries(self) -> Iterator[ForkCopied]:
        """The forks as entries."""
        yield from self.known.values()

    def take(self, entry: ForkCopied) -> None:
        """Apply an entry of a chunk."""
        self._put(entry)

    def appended(self, head: BatchHead) -> None:
        """Note a batch that was copied from a fork."""
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
