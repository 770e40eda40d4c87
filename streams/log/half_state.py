"""The half messages (V4) of a shard, as its log has them: those that are undecided, and how the
last ones were decided.

The rows of a half are in the chunk that prepared it, and nowhere else until it is committed: the
state of a segment names that chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from overlay.machine import Peer
from streams.log.batches import BatchHead
from streams.log.chunk import Chunk

OUTCOMES_KEPT: Final = 1_000
"""Decided transactions whose outcome is kept, so that a repeated decision gets the first one."""


class PreparedHalf(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A batch that waits for its transaction's decision; the leader asks `node` about it.
    `decider`: the number of the shard that decides for all shards of the transaction; None: each
    decides for itself."""

    transaction: str
    producer: str
    node: Peer
    count: int
    rows: bytes
    decider: int | None = None


class Half(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A half in the state; its rows are in `chunk`, which prepared it."""

    transaction: str
    producer: str
    node: Peer
    chunk: int
    count: int
    size: int
    time: int
    parked: bool = False
    decider: int | None = None


class HalfParked(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The producer does not know how the transaction ended: the half waits for an operator."""

    transaction: str


class HalfRolledBack(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The transaction is rolled back."""

    transaction: str


class OutcomeKnown(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The outcome of a transaction, the chunk that decided it, and the place of its rows if it was
    committed; `prepared`: the chunk that prepared the half."""

    transaction: str
    committed: bool
    offset: int = 0
    count: int = 0
    chunk: int = 0
    epoch: int = 0
    prepared: int = 0


HalfEntry = PreparedHalf | Half | HalfParked | HalfRolledBack | OutcomeKnown
HALF_ENTRIES: Final = (PreparedHalf, Half, HalfParked, HalfRolledBack, OutcomeKnown)


class HalfStates:
    """The undecided halves, and the outcomes of the last `OUTCOMES_KEPT` transactions."""

    def __init__(self) -> None:
        self.halves: dict[str, Half] = {}
        self.outcomes: dict[str, OutcomeKnown] = {}

    def oldest_chunk(self, committed: int) -> int | None:
        """The first chunk that retention has to keep for the rows of a half; None: there is none.
        Chunks behind `committed` may be truncated, and with them the decisions there."""
        needed = [half.chunk for half in self.halves.values()]
        needed += [o.prepared for o in self.outcomes.values() if o.chunk > committed]
        return min(needed, default=None)

    def entries(self) -> Iterator[HalfEntry]:
        """The halves and outcomes as entries, in the order of their chunks."""
        yield from self.halves.values()
        yield from self.outcomes.values()

    def take(self, entry: HalfEntry, chunk: Chunk) -> None:
        """Apply an entry of a chunk."""
        if isinstance(entry, PreparedHalf):
            about = (chunk.number, entry.count, len(entry.rows), chunk.time)
            half = Half(
                entry.transaction, entry.producer, entry.node, *about, decider=entry.decider
            )
            self.halves.setdefault(entry.transaction, half)
        elif isinstance(entry, Half):
            self.halves[entry.transaction] = entry
        elif isinstance(entry, HalfParked):
            known = self.halves.get(entry.transaction)
            if known is not None:
                self.halves[entry.transaction] = replace(known, parked=True)
        elif isinstance(entry, HalfRolledBack):
            place = (0, 0, chunk.number, chunk.epoch)
            self._decided(OutcomeKnown(entry.transaction, False, *place))
        else:
            self.outcomes[entry.transaction] = entry

    def committed(self, head: BatchHead, offset: int, chunk: Chunk) -> None:
        """Note that the rows of a half are in the log, visible to readers."""
        place = (offset, head.count, chunk.number, chunk.epoch)
        self._decided(OutcomeKnown(head.transaction, True, *place))

    def _decided(self, outcome: OutcomeKnown) -> None:
        half = self.halves.pop(outcome.transaction, None)
        if half is not None:
            outcome = replace(outcome, prepared=half.chunk)
        self.outcomes.setdefault(outcome.transaction, outcome)
        while len(self.outcomes) > OUTCOMES_KEPT:
            del self.outcomes[next(iter(self.outcomes))]
