"""The vocabulary of half messages, between a producer's node and the leader of a shard.

No node takes these messages yet, so the wire's codec does not look for them here."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from overlay.machine import Message
from streams.producing.messages import Number, ProducerName, RowBatch, Run
from streams.replication.messages import Shard

TRANSACTION_MOST: Final = 128
"""Characters of a transaction's id at most."""

UNKNOWN_TRANSACTION: Final = "unknown-transaction"
"""Code of `AppendRefused`: there is no such half, or it was decided too long ago."""

CONFLICT: Final = "conflict"
"""Code of `AppendRefused`: the transaction's id is taken by another producer."""

COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled-back"

Transaction = Annotated[str, msgspec.Meta(min_length=1, max_length=TRANSACTION_MOST)]


class PrepareHalf(Message, frozen=True):
    """Keep a batch until `transaction` is decided. Asked twice, it is the same half. Answered by
    HalfIsPrepared, HalfDecided or AppendRefused."""

    shard: Shard
    request: Number
    transaction: Transaction
    producer: ProducerName
    batch: RowBatch


class HalfIsPrepared(Message, frozen=True):
    """The half is committed to the log, and invisible."""

    shard: Shard
    request: Number
    transaction: Transaction


class DecideHalf(Message, frozen=True):
    """Commit the half of this transaction, or roll it back. Answered by HalfDecided, with the first
    decision, whichever that was, or by AppendRefused."""

    shard: Shard
    request: Number
    transaction: Transaction
    commit: bool


class HalfDecided(Message, frozen=True):
    """The decision, for ever, is in the log. `run`: where the rows are, if it was committed."""

    shard: Shard
    request: Number
    transaction: Transaction
    outcome: Annotated[str, msgspec.Meta(max_length=16)]
    run: Run | None


class ReviewHalf(Message, frozen=True):
    """The leader asks the producer's node what became of a transaction. Answered by DecideHalf
    (request 0), or by HalfNotKnown."""

    shard: Shard
    transaction: Transaction


class HalfNotKnown(Message, frozen=True):
    """The producer cannot say (yet): the half stays."""

    shard: Shard
    transaction: Transaction
