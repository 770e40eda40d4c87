"""The transactions of a node's programs: prepared, decided and reviewed through this node.

A transaction has one half in each shard to which its events belong. The first of these shards
decides for all: each half names it, and the other shards follow its decision. A decision names the
transaction only, so that it can be sent through any node, also after a restart. A leader's question
about a half goes to the program that answers for the producer (`TakeReviews`). A node without such
a program does not answer, and the half is parked in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeGuard

from msgspec.structs import asdict

from overlay.bounded import BoundedDict
from overlay.client import LEAVING, Command, Done, Failed
from overlay.command_faults import fault_in_transaction
from overlay.info import AppendReceipt, TransactionInfo
from overlay.machine import Message, Peer, Port, Timer
from overlay.stream_client import (
    DecideTransaction,
    GetTransactions,
    LeaveUnknown,
    PrepareEvents,
    ReviewsAsked,
    TakeReviews,
    Transactions,
    TransactionState,
)
from streams.access.ask import Ask, AskMachine, LeaderQuestion
from streams.access.locator import StreamLocated, StreamLocator
from streams.access.reasons import (
    BUSY,
    CONFLICT,
    ELSEWHERE,
    FULL,
    MOVED,
    TOO_LARGE,
    UNKNOWN_TRANSACTION,
    Cause,
)
from streams.directory.entry import StreamEntry
from streams.log.batches import Row, encode_rows
from streams.log.chunk import NANOSECONDS
from streams.programs.producer.messages import BATCH_MOST, RowBatch
from streams.programs.producer.producers import by_shard, closed, fault_of
from streams.programs.transaction.messages import (
    COMMITTED,
    PREPARED,
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
)

PREPARING_MOST: Final = 16 * 1024 * 1024
"""The limit of bytes of rows under way to leaders, beyond which nothing is prepared: what two
leaders accept without a commit (`appender.PENDING_MOST`)."""

REVIEWS_KEPT: Final = 10_000
"""The limit of reviews whose leaders are remembered, for the answer that nothing is known."""

Answers = dict[int, Message]
"""The answers of leaders, by number of the shard."""


class LookAtTransactions(Timer, frozen=True):
    """The timer of questions about transactions."""


class Transactors(AskMachine):
    """The transactions of this node's programs."""

    def __init__(self, port: Port, locator: StreamLocator) -> None:
        super().__init__(port, locator, LookAtTransactions())
        self._takers: dict[tuple[str, str], tuple[int, int]] = {}  # by stream id and producer
        self._reviews: BoundedDict[tuple[str, str], dict[str, Peer]] = BoundedDict(REVIEWS_KEPT)
        """The leaders that have asked, by stream id and transaction, and by shard."""
        self._leaving = False

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return the method that carries out each command."""
        return dict.fromkeys(self._methods(), self.ask)

    def _methods(self) -> dict[type, Callable[[int, Command, StreamEntry], None]]:
        return {
            PrepareEvents: self._prepare,
            DecideTransaction: self._decide,
            GetTransactions: self._list,
            TakeReviews: self._take_reviews,
            LeaveUnknown: self._leave_unknown,
        }

    @property
    def unanswered(self) -> int:
        """The number of questions without an answer."""
        return len(self.asks)

    def leave(self) -> None:
        """Refuse new commands, since the node leaves."""
        self._leaving = True

    def client_gone(self, client: int) -> None:
        """Drop the commands of a program that has gone. Its halves stay, and are reviewed."""
        super().client_gone(client)
        self._takers = {key: taker for key, taker in self._takers.items() if taker[0] != client}

    # -- programs --------------------------------------------------------------------------------

    def ask(self, client: int, command: Command) -> None:
        """Locate the stream of a command, and carry it out."""
        stream: str = command.stream  # type: ignore[attr-defined]
        located = self.locator.known.get(stream)
        if self._leaving:
            self.refuse(client, command, (LEAVING, "the node is leaving: it does nothing new"))
        elif located is None:
            self.held.hold(client, stream, command)
        else:
            self.begin(client, command, located)

    def begin(self, client: int, command: Command, located: StreamLocated) -> None:
        """Carry out a command whose stream is located."""
        self._methods()[type(command)](client, command, located.entry)

    def _prepare(self, client: int, command: Command, entry: StreamEntry) -> None:
        assert isinstance(command, PrepareEvents)
        if fault := _unfit(self.port, command):
            self.refuse(client, command, fault)
            return
        if is_closed := closed(entry):
            self.refuse(client, command, ("usage", is_closed))
            return
        batches = {}
        for shard, places in by_shard(command.events, entry).items():
            drafts = [command.events[n] for n in places] if places else command.events
            rows = encode_rows([Row(d.attributes, d.payload, d.payload_type) for d in drafts])
            if len(rows) > BATCH_MOST:
                reason = f"a batch of {len(rows):,} bytes; at most {BATCH_MOST:,} are allowed"
                self.refuse(client, command, (TOO_LARGE, reason))
                return
            batches[shard] = RowBatch(len(drafts), rows)
        sizes = {shard: len(batch.rows) for shard, batch in batches.items()}
        if self.asks.size + sum(sizes.values()) > PREPARING_MOST:
            self.refuse(client, command, (FULL, "this node is preparing as much as it may"))
            return

        def message(shard: int, number: int) -> Message:
            half = (command.transaction, command.producer, batches[shard], min(batches))
            return PrepareHalf(entry.shard(shard), number, *half)

        def answered(answers: dict[int, Message]) -> None:
            self._answer_state(client, command, entry, answers)

        self._ask_all(client, entry, list(batches), command.transaction, message, answered, sizes)

    def _decide(self, client: int, command: Command, entry: StreamEntry) -> None:
        assert isinstance(command, DecideTransaction)
        transaction = command.transaction
        self._reviews.pop((entry.id, transaction), None)
        self.asks.drop_all(lambda ask: _prepares(ask.question, client, entry, transaction))

        def ask(
            shards: Sequence[int], commit: bool, is_final: bool, then: Callable[[Answers], None]
        ) -> None:
            def message(shard: int, number: int) -> Message:
                return DecideHalf(entry.shard(shard), number, transaction, commit, is_final)

            self._ask_all(client, entry, shards, transaction, message, then)

        def answered(answers: Answers) -> None:
            """Let shards that do not decide follow the shard that does."""
            waiting = {n: a.decider or 0 for n, a in answers.items() if _is_elsewhere(a)}
            if waiting and _outcome(answers) is None:
                decider = min(waiting.values())
                ask([decider], command.commit, True, lambda more: follow(answers | more, waiting))
            else:
                follow(answers, waiting)

        def follow(answers: Answers, waiting: Mapping[int, int]) -> None:
            outcome = _outcome(answers)
            rest = {shard: a for shard, a in answers.items() if shard not in waiting}
            if not waiting or outcome is None:
                finish(rest)
            else:
                commit = outcome == COMMITTED
                ask(sorted(waiting), commit, True, lambda more: finish(rest | more))

        def finish(answers: Answers) -> None:
            known = {shard: a for shard, a in answers.items() if not _is_unknown(a)}
            self._answer_state(client, command, entry, known or answers)

        ask(range(len(entry.places)), command.commit, False, answered)

    def _answer_state(
        self, client: int, command: Command, entry: StreamEntry, answers: Mapping[int, Message]
    ) -> None:
        """Answer with a refusal of a shard, or the decision, or *prepared*."""
        decided = {n: a for n, a in answers.items() if isinstance(a, HalfDecided)}
        outcomes = dict.fromkeys(a.outcome for a in decided.values())
        for refusal in answers.values():
            if isinstance(refusal, HalfRefused):
                self.refuse(client, command, (refusal.code, refusal.reason))
                return
        if len(outcomes) > 1:
            said = ", ".join(f"shard {n}: {a.outcome}" for n, a in decided.items())
            self.refuse(client, command, (CONFLICT, f"it was not decided as one: {said}"))
            return
        receipts = tuple(
            AppendReceipt(
                shard,
                run.epoch,
                run.offset,
                run.count,
                run.chunk,
                run.hash.hex(),
                run.replicas,
            )
            for shard, answer in sorted(decided.items())
            if (run := answer.run) is not None and run.hash
        )
        outcome = next(iter(outcomes), PREPARED)
        self.port.reply(client, TransactionState(command.request, outcome, entry.id, receipts))

    def _list(self, client: int, command: Command, entry: StreamEntry) -> None:
        assert isinstance(command, GetTransactions)

        def message(shard: int, number: int) -> Message:
            return AskHalves(entry.shard(shard), number, command.producer)

        def answered(answers: dict[int, Message]) -> None:
            found = []
            for shard, answer in sorted(answers.items()):
                if isinstance(answer, HalfRefused):
                    self.refuse(client, command, (answer.code, answer.reason))
                    return
                assert isinstance(answer, HalvesFound)
                for half in answer.halves:
                    about = {**asdict(half), "node": half.node.id}
                    about["time"] /= NANOSECONDS
                    found.append(TransactionInfo(shard, **about))
            self.port.reply(client, Transactions(command.request, tuple(found)))

        self._ask_all(client, entry, range(len(entry.places)), "", message, answered)

    def _take_reviews(self, client: int, command: Command, entry: StreamEntry) -> None:
        assert isinstance(command, TakeReviews)
        former = self._takers.get((entry.id, command.producer))
        self._takers[entry.id, command.producer] = (client, command.request)
        if former is not None:
            reason = f"another program answers for {command.producer} now"
            self.port.reply(former[0], Failed(former[1], "fenced", reason))

    def _leave_unknown(self, client: int, command: Command, entry: StreamEntry) -> None:
        assert isinstance(command, LeaveUnknown)
        asked = self._reviews.pop((entry.id, command.transaction), {})
        for shard, leader in asked.items():
            self.port.send(leader, HalfNotKnown(shard, command.transaction))
        self.port.reply(client, Done(command.request))

    def refuse(self, client: int, command: Command, reason: Cause | tuple[str, str]) -> None:
        """Refuse a command as `AskMachine` does, and count it."""
        self.port.count("transactions_refused")
        super().refuse(client, command, reason)

    # -- leaders ---------------------------------------------------------------------------------

    def _ask_all(
        self,
        client: int,
        entry: StreamEntry,
        shards: Sequence[int],
        transaction: str,
        message: Callable[[int, int], Message],
        then: Callable[[dict[int, Message]], None],
        sizes: Mapping[int, int] | None = None,
    ) -> None:
        """Ask the leaders of some shards. `then` gets all answers together. `sizes`: the bytes of
        rows of each shard."""

        def question(shard: int) -> LeaderQuestion:
            return LeaderQuestion(
                client,
                entry.name,
                shard,
                lambda number: message(shard, number),
                transaction,
                (sizes or {}).get(shard, 0),
                fits=lambda answer: _fits(message(shard, 0), answer, len(entry.places)),
            )

        def answer(ask: Ask) -> Message:
            if isinstance(ask.answer, Cause):
                return HalfRefused("", 0, transaction, *ask.answer)
            assert ask.answer is not None, "all have answered"
            return ask.answer

        self.ask_all(
            [question(shard) for shard in shards],
            lambda asks: then({shard: answer(ask) for shard, ask in asks.items()}),
        )

    def on_answer(
        self, sender: Peer, message: HalfIsPrepared | HalfDecided | HalfRefused | HalvesFound
    ) -> None:
        """Take the answer of a leader, or ask again."""
        transaction = "" if isinstance(message, HalvesFound) else message.transaction
        ask = self.asks.get(message.request, transaction)
        if ask is None:
            return
        code = message.code if isinstance(message, HalfRefused) else ""
        if isinstance(message, HalfRefused) and code == MOVED:
            self.asks.moved(ask, sender, message.leader)
        elif code == BUSY:
            self.asks.later(ask, sender)
        else:
            self.asks.answered(ask, sender, message)

    def on_review_half(self, sender: Peer, message: ReviewHalf) -> None:
        """Pass a leader's question about a half on to the program that answers for its producer."""
        stream = message.shard.rpartition("/")[0]
        taker = self._takers.pop((stream, message.producer), None)
        if taker is None:
            return
        self.port.count("half_reviews_passed_on")
        self._reviews.setdefault((stream, message.transaction), {})[message.shard] = sender
        self.port.reply(taker[0], ReviewsAsked(taker[1], (message.transaction,)))

    def on_look(self, timer: LookAtTransactions) -> None:
        """Repeat questions without an answer."""
        self.asks.look()


def _prepares(asked: LeaderQuestion, client: int, entry: StreamEntry, transaction: str) -> bool:
    """Whether a question prepares this transaction; it must not be repeated after a decision."""
    is_same = (asked.client, asked.stream, asked.subject) == (client, entry.name, transaction)
    return is_same and isinstance(asked.make(0), PrepareHalf)


def _fits(asked: Message, answer: Message, shards: int) -> bool:
    """Whether an honest leader can give this answer. `shards`: how many the stream has."""
    if isinstance(answer, HalfRefused):
        return answer.decider is None or answer.decider < shards
    if isinstance(asked, AskHalves):
        return isinstance(answer, HalvesFound)
    if isinstance(answer, HalfDecided):
        is_right = answer.outcome in (COMMITTED, ROLLED_BACK)
        return is_right and (answer.run is None or len(answer.run.hash) in (0, 32))
    return isinstance(asked, PrepareHalf) and isinstance(answer, HalfIsPrepared)


def _is_elsewhere(answer: Message) -> TypeGuard[HalfRefused]:
    return isinstance(answer, HalfRefused) and answer.code == ELSEWHERE


def _outcome(answers: Answers) -> str | None:
    """Return the decision of a shard; None: no shard has decided."""
    decided = (a.outcome for a in answers.values() if isinstance(a, HalfDecided))
    return next(decided, None)


def _is_unknown(answer: Message) -> bool:
    return isinstance(answer, HalfRefused) and answer.code == UNKNOWN_TRANSACTION


def _unfit(port: Port, command: PrepareEvents) -> tuple[str, str] | None:
    """Return code and reason why a transaction cannot be prepared; None: it can."""
    if refused := fault_in_transaction(command):
        return refused
    if fault := fault_of(port, command.events):
        return "event", fault
    return None
