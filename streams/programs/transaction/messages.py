"""The vocabulary of half messages, between a producer's node and the leader of a shard."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from overlay.command_faults import TRANSACTION_MOST
from overlay.machine import Message, Peer, Uint53, Uint63
from streams.programs.producer.messages import Number, ProducerName, RowBatch, Run
from streams.shard.messages import Shard

HALVES_MOST: Final = 1_000
"""The limit of undecided halves of a shard."""


PREPARED: Final = "prepared"
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled-back"

Place = Annotated[int, msgspec.Meta(ge=0, lt=2**16)]
Transaction = Annotated[str, msgspec.Meta(min_length=1, max_length=TRANSACTION_MOST)]


class PrepareHalf(Message, frozen=True):
    """Keep a batch until `transaction` is decided. A repeat is the same half. Answered by
    HalfIsPrepared, HalfDecided or HalfRefused."""

    shard: Shard
    request: Number
    transaction: Transaction
    producer: ProducerName
    batch: RowBatch
    decider: Place | None = None
    """The number of the shard that decides for the whole transaction; None: each decides."""


class HalfIsPrepared(Message, frozen=True):
    """The log has the half, and readers do not see it."""

    shard: Shard
    request: Number
    transaction: Transaction


class DecideHalf(Message, frozen=True):
    """Commit a half, or roll it back. Answered by HalfDecided, with the first decision, or by
    HalfRefused."""

    shard: Shard
    request: Number
    transaction: Transaction
    commit: bool
    is_final: bool = False
    """The shard decides for all, or follows the one that does."""


class HalfDecided(Message, frozen=True):
    """The final decision is in the log. `run`: the place of the rows, if it is a commit."""

    shard: Shard
    request: Number
    transaction: Transaction
    outcome: Annotated[str, msgspec.Meta(max_length=16)]
    run: Run | None


class HalfRefused(Message, frozen=True):
    """A request is refused with a code of `streams.access.reasons`. After MOVED and BUSY it is
    repeated, and nothing is done twice. `leader`: with MOVED, the leader that the sender knows.
    `decider`: with ELSEWHERE, the number of the shard that decides."""

    shard: Shard
    request: Number
    transaction: Annotated[str, msgspec.Meta(max_length=TRANSACTION_MOST)]
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    leader: Peer | None = None
    decider: Place | None = None


class ReviewHalf(Message, frozen=True):
    """Ask the producer's node for the decision of a transaction. Answered by DecideHalf or
    HalfNotKnown, or not at all by a node without a program that knows it."""

    shard: Shard
    transaction: Transaction
    producer: ProducerName


class HalfNotKnown(Message, frozen=True):
    """The producer does not know the decision (yet). The half stays."""

    shard: Shard
    transaction: Transaction


class AskHalves(Message, frozen=True):
    """Ask for the undecided halves of a producer ("": of all). Answered by HalvesFound or
    HalfRefused (MOVED)."""

    shard: Shard
    request: Number
    producer: Annotated[str, msgspec.Meta(max_length=TRANSACTION_MOST)]


class WaitingHalf(msgspec.Struct, frozen=True, array_like=True):
    """An undecided half of `count` rows and `bytes`, which `node` has prepared at `time`
    (nanoseconds since 1970)."""

    transaction: Transaction
    producer: ProducerName
    node: Peer
    count: Uint53
    bytes: Uint53
    time: Uint63
    parked: bool


class HalvesFound(Message, frozen=True):
    """The undecided halves that the log had when the question came."""

    shard: Shard
    request: Number
    halves: Annotated[tuple[WaitingHalf, ...], msgspec.Meta(max_length=HALVES_MOST)]
