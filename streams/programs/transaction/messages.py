"""The vocabulary of half messages, between a producer's node and the leader of a shard."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from overlay.machine import Message, Peer, Uint53, Uint63
from streams.programs.producer.messages import Number, ProducerName, RowBatch, Run
from streams.shard.messages import Shard

TRANSACTION_MOST: Final = 128
"""Characters of a transaction's id at most."""

HALVES_MOST: Final = 1_000
"""Halves of a shard that are not decided, at most."""


PREPARED: Final = "prepared"
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled-back"

Place = Annotated[int, msgspec.Meta(ge=0, lt=2**16)]
Transaction = Annotated[str, msgspec.Meta(min_length=1, max_length=TRANSACTION_MOST)]


class PrepareHalf(Message, frozen=True):
    """Keep a batch until `transaction` is decided. Asked twice, it is the same half. Answered by
    HalfIsPrepared, HalfDecided or HalfRefused."""

    shard: Shard
    request: Number
    transaction: Transaction
    producer: ProducerName
    batch: RowBatch
    decider: Place | None = None
    """The number of the shard that decides for all shards of the transaction; None: each does."""


class HalfIsPrepared(Message, frozen=True):
    """The half is committed to the log, and invisible."""

    shard: Shard
    request: Number
    transaction: Transaction


class DecideHalf(Message, frozen=True):
    """Commit the half of this transaction, or roll it back. Answered by HalfDecided, with the first
    decision, whichever that was, or by HalfRefused."""

    shard: Shard
    request: Number
    transaction: Transaction
    commit: bool
    is_final: bool = False
    """This is the shard that decides for all, or that one has decided so."""


class HalfDecided(Message, frozen=True):
    """The decision, for ever, is in the log. `run`: where the rows are, if it was committed."""

    shard: Shard
    request: Number
    transaction: Transaction
    outcome: Annotated[str, msgspec.Meta(max_length=16)]
    run: Run | None


class HalfRefused(Message, frozen=True):
    """A request was not carried out: `code` says why. `leader`: with MOVED who leads, if that is
    known; with MOVED and BUSY it is to be repeated, and nothing happens twice."""

    shard: Shard
    request: Number
    transaction: Annotated[str, msgspec.Meta(max_length=TRANSACTION_MOST)]
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    leader: Peer | None = None
    decider: Place | None = None


class ReviewHalf(Message, frozen=True):
    """The leader asks the producer's node what became of a transaction. Answered by DecideHalf, or
    by HalfNotKnown; not at all by a node that has no program to ask."""

    shard: Shard
    transaction: Transaction
    producer: ProducerName


class HalfNotKnown(Message, frozen=True):
    """The producer cannot say (yet): the half stays."""

    shard: Shard
    transaction: Transaction


class AskHalves(Message, frozen=True):
    """Asks the leader for the halves that are not decided, of one producer ("": of all). Answered
    by HalvesFound or HalfRefused (MOVED)."""

    shard: Shard
    request: Number
    producer: Annotated[str, msgspec.Meta(max_length=TRANSACTION_MOST)]


class WaitingHalf(msgspec.Struct, frozen=True, array_like=True):
    """A half that is not decided: `count` rows of `size` bytes, prepared at `time` (nanoseconds
    since 1970) by `node`."""

    transaction: Transaction
    producer: ProducerName
    node: Peer
    count: Uint53
    size: Uint53
    time: Uint63
    is_parked: bool


class HalvesFound(Message, frozen=True):
    """Those that were committed to the log when they were asked for."""

    shard: Shard
    request: Number
    halves: Annotated[tuple[WaitingHalf, ...], msgspec.Meta(max_length=HALVES_MOST)]
