"""Transactions of a stream: prepared, decided and reviewed over either face's connections (no IO).

Every request may be repeated: the same transaction is prepared once, and its first decision stays.
So a request that was not answered, since the node has gone, is sent again within its time-out.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from canopy.client.errors import NodeLeavingError, UnreachableError
from canopy.client.publishing import Attributes, Drafting
from canopy.client.resubscription import Backoff
from canopy.client.session import expected
from canopy.client.steps import Link, Steps
from overlay.client import Command, Done, Draft, Reply
from overlay.info import AppendReceipt, TransactionInfo
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

UNKNOWN_TRANSACTION: Final = "unknown-transaction"
"""Code of a `CommandFailed`: there is no such transaction, or it was decided long ago."""

R = TypeVar("R", bound=Reply)
L = TypeVar("L", bound=Link)


class Decided(msgspec.Struct, frozen=True):
    """How a transaction was decided: by this program, or by whoever came first."""

    outcome: str
    """committed or rolled-back; a half that was asked for only: prepared."""
    stream: str
    """The stream's id."""
    receipts: tuple[AppendReceipt, ...] = ()
    """Where its events are, shard by shard; none where that was long ago."""


class Transacting(Generic[L]):
    """How a face asks about the transactions of one stream. Times are seconds."""

    def __init__(
        self,
        begin: Callable[[Any, float], Any],
        pause: Callable[[float], Any],
        patience: float,
        stream: str,
    ) -> None:
        """The parameters are those of `appending.Appending`."""
        self._begin = begin
        self._pause = pause
        self._patience = patience
        self.stream = stream
        self._taking: tuple[L, int] | None = None  # a TakeReviews that is not answered

    def preparing(
        self, transaction: str, producer: str, events: Iterable[Draft], timeout: float
    ) -> Steps[Decided]:
        """Have a half kept in each shard to which events belong."""
        command = PrepareEvents(0, self.stream, transaction, producer, tuple(events))
        return (yield from self._deciding(command, timeout))

    def deciding(self, transaction: str, commit: bool, timeout: float) -> Steps[Decided]:
        """Commit or roll back. The answer is the first decision, whoever took it."""
        command = DecideTransaction(0, self.stream, transaction, commit)
        return (yield from self._deciding(command, timeout))

    def _deciding(self, command: Command, timeout: float) -> Steps[Decided]:
        state = yield from self._asking(command, TransactionState, timeout)
        return Decided(state.outcome, state.stream, state.receipts)

    def listing(self, producer: str, timeout: float) -> Steps[tuple[TransactionInfo, ...]]:
        """The transactions that are not decided."""
        command = GetTransactions(0, self.stream, producer)
        return (yield from self._asking(command, Transactions, timeout)).transactions

    def leaving_unknown(self, transaction: str, timeout: float) -> Steps[None]:
        """Answer a review: it is not known here."""
        yield from self._asking(LeaveUnknown(0, self.stream, transaction), Done, timeout)

    def taking_reviews(self, producer: str, timeout: float) -> Steps[tuple[str, ...]]:
        """The transactions of which leaders want to know what became; none: not in time. The
        question stays open until the next call."""
        until = time.monotonic() + timeout
        while True:
            try:
                if self._taking is None:
                    command = TakeReviews(0, self.stream, producer)
                    self._taking = yield partial(self._begin, command, timeout)
                assert self._taking is not None
                link, number = self._taking
                left = max(0.0, until - time.monotonic())
                if not (yield partial(link.is_answered, number, left)):
                    return ()
                self._taking = None
                reply = yield partial(link.finish, number, 0.0)
                return expected(reply, ReviewsAsked).transactions
            except UnreachableError:
                self._taking = None
                if time.monotonic() >= until:
                    return ()

    def _asking(self, command: Command, kind: type[R], timeout: float) -> Steps[R]:
        """Ask until it is answered, of a node that comes back as well."""
        until = time.monotonic() + timeout
        patience = time.monotonic() + min(timeout, self._patience)
        backoff = Backoff()
        while True:
            try:
                link, number = yield partial(self._begin, command, timeout)
                left = max(0.0, until - time.monotonic())
                return expected((yield partial(link.finish, number, left)), kind)
            except (UnreachableError, NodeLeavingError):
                delay = backoff.next()
                late = time.monotonic() + delay >= patience
                if late or (yield partial(self._pause, delay)):
                    raise


class TransactionCore(Generic[L]):
    """One transaction of a producer, with events that nobody sees until it is committed."""

    def __init__(
        self, transacting: Transacting[L], drafting: Drafting, producer: str, transaction: str
    ) -> None:
        """`transaction`: its id; "": one of its own."""
        self._transacting = transacting
        self._drafting = drafting
        self.stream = transacting.stream
        self.producer = producer
        self.id = transaction or f"{producer[:80]}.{secrets.token_hex(16)}"
        """By which it is decided, here or elsewhere. No other has it."""
        self.is_asked = False
        """Whether it may be prepared."""
        self.decided: Decided | None = None
        """How it was decided; None: it is not, as far as is known here."""

    def _preparing(self, events: Iterable[Attributes | Draft], timeout: float) -> Steps[Decided]:
        drafts = [self._drafting.draft(event) for event in events]
        self.is_asked = True
        found = yield from self._transacting.preparing(self.id, self.producer, drafts, timeout)
        if found.outcome != "prepared":
            self.decided = found
        return found

    def _deciding(self, commit: bool, timeout: float) -> Steps[Decided]:
        self.decided = yield from self._transacting.deciding(self.id, commit, timeout)
        return self.decided
