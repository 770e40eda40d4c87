"""Transactions of a stream: prepared, decided and reviewed (no IO).

Every request may be repeated: the same transaction is prepared once, and its first decision is
final. So a request without an answer, because the node has gone, is sent again within its time-out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from canopy.client.errors import CommandFailed, ControlError, UnreachableError
from canopy.client.faces import (
    Asynchronous,
    AsynchronousContext,
    Blocking,
    BlockingContext,
    Context,
    operation,
)
from canopy.client.link import Link
from canopy.client.node import ClientNode
from canopy.client.publication import Attributes, Drafting
from canopy.client.session import expected
from overlay.client import Command, Done, Draft
from overlay.info import AppendReceipt
from overlay.stream_client import (
    DecideTransaction,
    LeaveUnknown,
    PrepareEvents,
    ReviewsAsked,
    TakeReviews,
    TransactionState,
)

UNKNOWN_TRANSACTION: Final = "unknown-transaction"
"""The code of a `CommandFailed` for a transaction that does not exist, or was decided long ago."""


class Decided(msgspec.Struct, frozen=True):
    """The outcome of a transaction, decided by this program or by another."""

    outcome: str
    """"committed" or "rolled-back"; "prepared" after `prepare`."""
    stream: str
    """The stream's id."""
    receipts: tuple[AppendReceipt, ...] = ()
    """The places of its events, shard by shard; none if it was decided long ago."""


class TransactionCore(Context):
    """A transaction of a producer. Its events are invisible until it is committed."""

    def __init__(
        self, node: ClientNode, drafting: Drafting, stream: str, producer: str, transaction: str
    ) -> None:
        """`transaction`: its id; "": a new one."""
        self._node = node
        self._drafting = drafting
        self.stream = stream
        self.producer = producer
        self.id = transaction or f"{producer[:80]}.{secrets.token_hex(16)}"
        """The unique id by which it is decided, here or in another program."""
        self.is_asked = False
        """Whether the stream may have prepared it."""
        self.decided: Decided | None = None
        """The decision; None: undecided, as far as is known here."""

    @operation
    async def prepare(self, events: Iterable[Attributes | Draft], timeout: float = 30.0) -> Decided:
        """Have a majority of the stream's replicas store the events, invisible to readers. To be
        called once for a transaction. Raises CommandFailed (unknown, event, conflict, full,
        too-large), and as `Client.ask`. If no answer arrived, the events may be stored, so the
        transaction has to be decided nevertheless."""
        drafts = tuple(self._drafting.draft(event) for event in events)
        self.is_asked = True
        command = PrepareEvents(0, self.stream, self.id, self.producer, drafts)
        found = await self._ask(command, timeout)
        if found.outcome != "prepared":
            self.decided = found
        return found

    @operation
    async def commit(self, timeout: float = 30.0) -> Decided:
        """Commit: the events are appended to the stream. Returns the first decision on the
        transaction, which may have been another program's. Raises CommandFailed
        (unknown-transaction: it was never prepared, or decided long ago)."""
        return await self._decide(True, timeout)

    @operation
    async def roll_back(self, timeout: float = 30.0) -> Decided | None:
        """Roll back: the events are dropped. Returns the first decision on the transaction; None if
        it was never prepared."""
        return await self._drop(timeout)

    async def _drop(self, timeout: float = 30.0) -> Decided | None:
        try:
            return await self._decide(False, timeout)
        except CommandFailed as error:
            if error.code != UNKNOWN_TRANSACTION:
                raise
            return None

    async def _decide(self, commit: bool, timeout: float) -> Decided:
        command = DecideTransaction(0, self.stream, self.id, commit)
        self.decided = await self._ask(command, timeout)
        return self.decided

    async def _ask(self, command: Command, timeout: float) -> Decided:
        state = await self._node.ask_until(command, TransactionState, timeout)
        return Decided(state.outcome, state.stream, state.receipts)

    async def _leave(self, failed: bool) -> None:
        """Roll the transaction back if it is undecided."""
        if self.decided is None:
            try:
                await self._drop()
            except ControlError:  # it stays undecided, and is asked about
                if not failed:
                    raise


class ReviewsCore:
    """Answers the stream's questions about the outcome of a producer's transactions."""

    def __init__(self, node: ClientNode, stream: str, producer: str) -> None:
        self._node = node
        self._stream = stream
        self._producer = producer
        self._taking: tuple[Link, int] | None = None  # a TakeReviews that is not answered

    @operation
    async def take(self, timeout: float = 60.0) -> tuple[str, ...]:
        """Wait for the stream's questions, at most `timeout` seconds. Returns the ids of the
        transactions; () if none came. Each is to be answered by a decision on the transaction, or
        by `not_known`. Raises CommandFailed (fenced: another program answers now)."""
        until = time.monotonic() + timeout
        while True:
            try:
                if self._taking is None:
                    command = TakeReviews(0, self._stream, self._producer)
                    self._taking = await self._node.begin(command, timeout)
                link, number = self._taking
                left = max(0.0, until - time.monotonic())
                if not await link.is_answered(number, left):
                    return ()
                self._taking = None
                return expected(await link.finish(number, 0.0), ReviewsAsked).transactions
            except UnreachableError:
                self._taking = None
                if time.monotonic() >= until:
                    return ()

    @operation
    async def not_known(self, transaction: str, timeout: float = 30.0) -> None:
        """Answer that this program does not know the transaction's outcome. It stays undecided, is
        reviewed again, and in the end an operator decides."""
        await self._node.ask_until(LeaveUnknown(0, self._stream, transaction), Done, timeout)


class Transaction(TransactionCore, BlockingContext):
    """Events that are durable before they are committed: `prepare` them, do something else that can
    fail, and `commit` or `roll_back`.

    A context manager, which rolls back an undecided transaction. A program that was killed before
    its decision is asked for it later (`Client.reviews`, `canopy.sinks.outbox`).
    """


class AsyncTransaction(TransactionCore, AsynchronousContext):
    """A transaction, as `canopy.Transaction`; enter it with ``async with``."""


class Reviews(ReviewsCore, Blocking):
    """Answers the stream's questions about the outcome of a producer's transactions. One thread
    answers."""


class AsyncReviews(ReviewsCore, Asynchronous):
    """Answers the stream's questions about the outcome of a producer's transactions. One task
    answers."""
