"""Half messages at a shard's leader: rows that are durable before they are decided to happen.

*Promises*: those of `streams.programs.transaction`, where transactions and the messages are.

*Called by*: `streams.machines` builds `TransactionServer`; the nodes of programs that prepare and
decide send messages. `streams.log.half_state` folds what the log says of halves.

A half is a chunk of kind Prepared, which has the rows and no offsets. Its commit is a chunk of
Events whose head names the transaction: so readers, positions and zone maps know nothing of halves,
and a half is visible exactly when the chunk of its commit is. A rollback is a chunk of kind
Decided. Both are decisions by id: they are taken only if the log has that very half, so that one
that comes late touches no other (Jepsen's finding in Bufstream and Kafka).

The leader asks the producer's node about a half that nobody decides. A review counts when it was
answered, and the answer *not known* never ends a half: after `REVIEWS_MOST` of them, or
`PARK_AFTER` without any word, it is parked, which is said in the log, counted, and left to an
operator. A parked half is decided like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from overlay.incidents import Alarmed
from overlay.machine import Message, NodeId, Peer, Timer
from streams.access.reasons import (
    BUSY,
    CONFLICT,
    ELSEWHERE,
    FULL,
    MALFORMED,
    MOVED,
    POLICY,
    QUOTA,
    TOO_LARGE,
    UNKNOWN_TRANSACTION,
)
from streams.log.batches import BatchHead, decode_rows
from streams.log.chunk import DECIDED, PREPARED, Chunk, read
from streams.log.half_state import Half, HalfParked, HalfRolledBack, PreparedHalf
from streams.log.state import entries_of
from streams.log.writers import denial
from streams.programs.producer.messages import BATCH_MOST, Run
from streams.programs.transaction.messages import (
    COMMITTED,
    HALVES_MOST,
    ROLLED_BACK,
    AskHalves,
    DecideHalf,
    HalfDecided,
    HalfIsPrepared,
    HalfNotKnown,
    HalfRefused,
    HalvesFound,
    PrepareHalf,
    ReviewHalf,
    WaitingHalf,
)
from streams.services.service import LedShard, ShardService
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

HALVES_BYTES: Final = 64 * 1024 * 1024
"""Bytes of their rows, at most."""

REVIEW_AFTER: Final = 60 * 1_000_000_000
"""Nanoseconds after which the producer is asked about a half, and asked again."""

REVIEWS_MOST: Final = 15
"""Answers *not known* after which a half is parked: as RocketMQ's transactionCheckMax."""

PARK_AFTER: Final = 20 * REVIEW_AFTER
"""Nanoseconds after which a half is parked of which nobody has said anything: its producer's node
is gone."""

WAITING_MOST: Final = 500
"""Answers that wait for a commit at most: fewer than the outcomes that are kept."""


LOOK: Final = 5.0
"""Seconds between looks at halves that nobody decides."""


class LookAtHalves(Timer, frozen=True):
    """Time to look at halves that nobody decides."""


class Halves(LedShard):
    """Prepares and decides in one shard, under one epoch of this node's."""

    def __init__(
        self, service: ShardService[Halves], replica: Replica, leader: ShardLeader
    ) -> None:
        super().__init__(service, replica, leader)
        self._asking: dict[tuple[NodeId, int], tuple[Peer, str]] = {}  # requests that wait
        self._committing: dict[str, list[tuple[Peer, int]]] = {}  # whose rows are being read
        self._asked: dict[str, int] = {}  # when a review was asked last, by transaction
        self._unknown: dict[str, int] = {}  # answers *not known*, by transaction
        self.later(LookAtHalves, LOOK)

    @classmethod
    def is_wanted(cls, replica: Replica) -> bool:
        """Somebody has to ask about the halves that there are."""
        return bool(replica.state.transactions.halves)

    @classmethod
    def moved(cls, message: Any, leader: Peer | None) -> Message | None:
        """Return the refusal of a request, because this node does not lead the shard; None: there
        is none."""
        if isinstance(message, HalfNotKnown):
            return None
        transaction = "" if isinstance(message, AskHalves) else message.transaction
        reason = "this node does not lead the shard"
        return HalfRefused(message.shard, message.request, transaction, MOVED, reason, leader)

    # -- preparing -------------------------------------------------------------------------------

    def on_prepare_half(self, sender: Peer, message: PrepareHalf) -> None:
        """A batch is to be kept until it is decided: put it into the log, unless it is there."""
        if reason := denial(self.replica.terms.access, message.producer, sender.id, None):
            self._refuse(sender, message.request, message.transaction, POLICY, reason)
            return
        self.later(LookAtHalves, LOOK)
        state, batch = self.replica.state.transactions, message.batch
        known = state.halves.get(message.transaction)
        if message.transaction in state.outcomes:
            self._answer_decided(sender, message.request, message.transaction)
            return
        if known is not None and known.producer != message.producer:
            reason = f"the transaction is one of producer {known.producer}"
            self._refuse(sender, message.request, message.transaction, CONFLICT, reason)
            return
        if known is None:
            refused = self._unfit(message)
            if refused is not None:
                self._refuse(sender, message.request, message.transaction, *refused)
                return
            entry = PreparedHalf(
                message.transaction,
                message.producer,
                sender,
                batch.count,
                batch.rows,
                message.decider,
            )
            self.append_entries(PREPARED, [entry])
            self.port.count("halves_prepared")
        answer = HalfIsPrepared(self.replica.shard, message.request, message.transaction)
        asked = (sender, message.request, message.transaction)
        self._answer_committed(*asked, lambda: self.port.send(sender, answer))

    def _unfit(self, message: PrepareHalf) -> tuple[str, str] | None:
        halves, batch = self.replica.state.transactions.halves, message.batch
        if len(batch.rows) > BATCH_MOST:
            return TOO_LARGE, f"a batch has {BATCH_MOST} bytes of rows at most"
        size = sum(half.size for half in halves.values()) + len(batch.rows)
        if self._is_crowded():
            return BUSY, "too much is not committed yet"
        if len(halves) >= HALVES_MOST or size > HALVES_BYTES:
            kept = f"at most {HALVES_MOST:,} and {HALVES_BYTES // 2**20} MiB are kept"
            return FULL, f"{len(halves):,} halves of this shard are not decided; {kept}"
        # What waits is in the log once more when it is committed, which is not refused.
        count = sum(half.count for half in halves.values()) + batch.count
        if reason := self.leader.retention.full(size, count):
            self.port.count("halves_over_quota")
            return QUOTA, reason
        try:
            unfit = self.leader.retention.unfit(decode_rows(batch.rows, batch.count))
        except ValueError as error:
            unfit = str(error)
        return (MALFORMED, unfit) if unfit else None

    # -- deciding --------------------------------------------------------------------------------

    def on_decide_half(self, sender: Peer, message: DecideHalf) -> None:
        """Commit a half or roll it back, unless it is decided."""
        transaction = message.transaction
        if transaction in self._committing:
            self._committing[transaction].append((sender, message.request))
            return
        if transaction in self.replica.state.transactions.outcomes:
            self._answer_decided(sender, message.request, transaction)
            return
        half = self.replica.state.transactions.halves.get(transaction)
        asked = (sender, message.request, transaction)
        place = int(self.replica.shard.rpartition("/")[2])
        if half is None and message.is_final and not message.commit:
            # It decides for others, and its own half has not come: that one finds this.
            self.append_entries(DECIDED, [HalfRolledBack(transaction)])
            self._answer_decided(sender, message.request, transaction)
            return
        if half is not None and half.decider not in (None, place) and not message.is_final:
            reason = f"shard {half.decider} decides"
            self._refuse(*asked, ELSEWHERE, reason, decider=half.decider)
            return
        if half is None:
            reason = f"there is no half of transaction {transaction}"
            refused = (*asked, UNKNOWN_TRANSACTION, reason)
            self._answer_committed(*asked, lambda: self._refuse(*refused))
            return
        if self._is_crowded():
            self._refuse(*asked, BUSY, "too much is not committed yet")
            return
        self._asked.pop(transaction, None)
        self._unknown.pop(transaction, None)
        if message.commit:
            self._committing[transaction] = [(sender, message.request)]
            self.replica.chunks.read(half.chunk, lambda chunks: self._found(half, chunks))
        else:
            self.append_entries(DECIDED, [HalfRolledBack(transaction)])
            self.port.count("halves_rolled_back")
            self._answer_decided(sender, message.request, transaction)

    def _found(self, half: Half, chunks: tuple[bytes, ...]) -> None:
        """The chunk of a half was read: append its rows, and answer who waits for that."""
        askers = self._committing.pop(half.transaction, [])
        if not self.leader.leads:
            return
        chunk = read(chunks[0]) if chunks else None
        entry = _prepared(chunk, half) if chunk is not None else None
        if entry is None:
            for sender, request in askers:
                reason = "the half cannot be read just now"
                self._refuse(sender, request, half.transaction, BUSY, reason)
            return
        head = BatchHead(entry.producer, half.chunk, 0, entry.count, entry.transaction)
        rows = decode_rows(entry.rows, entry.count)
        self.leader.append_rows([head], [entry.rows], rows, self.clock())
        self.port.count("halves_committed")
        for sender, request in askers:
            self._answer_decided(sender, request, half.transaction)

    def _answer_decided(self, sender: Peer, request: int, transaction: str) -> None:
        outcome = self.replica.state.transactions.outcomes[transaction]

        def tell() -> None:
            run = None
            if outcome.committed:
                line = self.replica.log.line(outcome.chunk)
                digest = b"" if line is None else line.hash
                holders = self.leader.holders(outcome.chunk)
                place = (outcome.count, outcome.offset, outcome.chunk, outcome.epoch)
                run = Run(0, *place, digest, holders)
            said = COMMITTED if outcome.committed else ROLLED_BACK
            answer = HalfDecided(self.replica.shard, request, transaction, said, run)
            self.port.send(sender, answer)

        self._answer_committed(sender, request, transaction, tell)

    def on_ask_halves(self, sender: Peer, message: AskHalves) -> None:
        """Say which halves are not decided."""
        found = tuple(
            WaitingHalf(
                half.transaction,
                half.producer,
                half.node,
                half.count,
                half.size,
                half.time,
                half.parked,
            )
            for half in self.replica.state.transactions.halves.values()
            if message.producer in ("", half.producer)
        )
        answer = HalvesFound(self.replica.shard, message.request, found)
        asked = (sender, message.request, "")
        self._answer_committed(*asked, lambda: self.port.send(sender, answer))

    # -- reviews ---------------------------------------------------------------------------------

    def on_look(self, timer: LookAtHalves) -> None:
        """Ask about halves that remain undecided. Park those that are still undecided after
        `PARK_AFTER`."""
        now = self.clock()
        for half in list(self.replica.state.transactions.halves.values()):
            since = self._asked.get(half.transaction, half.time)
            if now - since >= REVIEW_AFTER:
                self._asked[half.transaction] = now
                self.port.count("half_reviews")
                review = ReviewHalf(self.replica.shard, half.transaction, half.producer)
                self.port.send(half.node, review)
            if not half.parked and now - half.time >= PARK_AFTER:
                self._park(half)
        if self.replica.state.transactions.halves:
            self.later(LookAtHalves, LOOK)

    def on_half_not_known(self, sender: Peer, message: HalfNotKnown) -> None:
        """The producer cannot say what became of a transaction: the half stays."""
        half = self.replica.state.transactions.halves.get(message.transaction)
        if half is None or half.parked or message.transaction not in self._asked:
            return
        answers = self._unknown[message.transaction] = self._unknown.get(message.transaction, 0) + 1
        if answers >= REVIEWS_MOST:
            self._park(half)

    def _park(self, half: Half) -> None:
        self.port.count("halves_parked")
        self.append_entries(PREPARED, [HalfParked(half.transaction)])
        text = f"{half.transaction} of producer {half.producer}, in shard {self.replica.shard}"
        self.port.emit(Alarmed("half parked", text))

    # -- answers ---------------------------------------------------------------------------------

    def stop(self, leader: Peer | None) -> None:
        """Answer all waiting requests, because this node no longer leads the shard. Their outcome
        is unknown."""
        waiting = [(sender, n, name) for (_, n), (sender, name) in self._asking.items()]
        for transaction, askers in self._committing.items():
            waiting += [(*asker, transaction) for asker in askers]
        self._asking.clear()
        self._committing.clear()
        for sender, request, transaction in waiting:
            reason = "the node has stopped leading the shard"
            self._refuse(sender, request, transaction, MOVED, reason, leader)

    def _answer_committed(
        self, sender: Peer, request: int, transaction: str, then: Callable[[], None]
    ) -> None:
        """Call `then` when the log as it is now is committed. A request that waits already is
        answered once."""
        key = (sender.id, request)

        def committed() -> None:
            self._asking.pop(key, None)
            then()

        if key not in self._asking:
            self._asking[key] = (sender, transaction)
            self.when_committed(committed)

    def _is_crowded(self) -> bool:
        return len(self._asking) >= WAITING_MOST

    def _refuse(
        self,
        sender: Peer,
        request: int,
        transaction: str,
        code: str,
        reason: str,
        leader: Peer | None = None,
        decider: int | None = None,
    ) -> None:
        about = (self.replica.shard, request, transaction, code, reason[:500])
        self.port.send(sender, HalfRefused(*about, leader, decider))


def _prepared(chunk: Chunk, half: Half) -> PreparedHalf | None:
    """The half in its chunk; None: it is another chunk."""
    if chunk.number != half.chunk or chunk.kind != PREPARED:
        return None
    found = [entry for entry in entries_of(chunk) if isinstance(entry, PreparedHalf)]
    return next((entry for entry in found if entry.transaction == half.transaction), None)


class TransactionServer(ShardService[Halves]):
    """Serves those who prepare and decide at the shards that this node leads."""

    kind = Halves
