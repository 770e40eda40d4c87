"""Events that are appended to a stream exactly if a transaction of a database is committed.

The events of a transaction are prepared in the stream, invisible, before the transaction of the
database commits; its record commits with it; and what the record says is then said to the stream.
A program that is killed at any point says it when it starts again (`relay`), or when the stream
asks (`answer`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic

from canopy.client.errors import CommandFailed, ControlError
from canopy.client.publishing import Attributes
from canopy.client.streams.transacting import UNKNOWN_TRANSACTION, Decided
from canopy.client.synchronous import Client, Transaction
from canopy.sinks.database import Database, H, SinkError
from canopy.sinks.records import COLUMNS, COMMITTED, KEPT, PREPARING, ROLLED_BACK, TABLE, Records
from overlay.client import Draft

_RUNNING: Final[set[str]] = set()
"""Transactions that this process has in preparation, of all its outboxes and threads."""


class OutboxTransaction(Generic[H]):
    """One transaction of the program: statements go through `db`, events with `send`."""

    def __init__(self, db: H, transaction: str) -> None:
        self.db = db
        """The cursor or connection of the database's transaction."""
        self.id = transaction
        self.events: list[Attributes | Draft] = []
        self.decided: Decided | None = None
        """What the stream has said to the commit; None: it has said nothing yet."""

    def send(self, event: Attributes | Draft) -> None:
        """Append this event to the stream if the transaction commits."""
        self.events.append(event)


class Outbox(Generic[H]):
    """A producer of one stream. Only one process uses its name at a time: another one rolls back
    what this one has in preparation. One thread uses an outbox."""

    def __init__(self, database: Database[H], client: Client, stream: str, producer: str) -> None:
        """`producer`: its name in the table `canopy_outbox`, which is made if it is not there."""
        self._database = database
        self._client = client
        self._stream = stream
        self._producer = producer
        self._records = Records(stream, producer)
        self._reviews = client.reviews(stream, producer)
        database.make(TABLE, COLUMNS)

    @contextmanager
    def transaction(self, timeout: float = 30.0) -> Iterator[OutboxTransaction[H]]:
        """A transaction of the database, and the events that belong to it. At its end the events
        are prepared, the database commits, and then the stream does; an error rolls back both.

        The stream is asked while the database's transaction is open, for at most `timeout` seconds;
        what cannot be prepared raises as `canopy.Transaction.prepare`. An answer to the commit that
        does not come raises nothing: the events follow with the next `relay`."""
        half = self._client.transaction(self._stream, self._producer)
        _RUNNING.add(half.id)
        try:
            with self._database.opened() as handle:
                self._records.add(self._database.runner(handle), half.id)
            with self._database.opened() as handle:
                made = OutboxTransaction(handle, half.id)
                yield made
                self._database.check_open()
                self._prepare(made, half, timeout)
        except BaseException as error:
            _RUNNING.discard(half.id)
            with contextlib.suppress(Exception):  # else the next relay does it
                if half.is_asked:
                    self._settle(half.id, is_final=isinstance(error, CommandFailed))
                else:
                    self._drop(half.id)
            raise
        _RUNNING.discard(half.id)
        if made.events:
            with contextlib.suppress(ControlError):
                made.decided = self._say(half.id, COMMITTED)

    def _prepare(self, made: OutboxTransaction[H], half: Transaction, timeout: float) -> None:
        run = self._database.runner(made.db)
        if not made.events:
            self._records.drop(run, half.id)
            return
        found = half.prepare(made.events, timeout)
        if found.outcome != "prepared":
            raise SinkError(f"the transaction is {found.outcome} already, by somebody else")
        if not self._records.settle(run, half.id, COMMITTED):
            raise SinkError(f"another process that is {self._producer} has rolled this back")

    def relay(self) -> int:
        """Tell the stream what became of transactions that it has not confirmed: to be called when
        the program starts, and at times. Those that a former process had in preparation are rolled
        back. Returns how many the stream has confirmed. Raises a ControlError."""
        with self._database.opened() as handle:
            records = self._records.all(self._database.runner(handle))
        late = time.time() - KEPT
        left = [record for record in records if record.id not in _RUNNING]
        return sum(self._settle(record.id, record.began < late) for record in left)

    def answer(self, timeout: float = 60.0) -> int:
        """Wait for the stream to ask what became of transactions, and say it. Returns how many it
        has asked for. Raises CommandFailed (fenced: another process answers), and a ControlError.
        What this database has no record of is not known: the stream keeps it, and asks again, as it
        does after an error of the database (SQLite is locked while `transaction` is open)."""
        asked = self._reviews.take(timeout)
        for transaction in asked:
            with self._database.opened() as handle:
                state = self._records.state(self._database.runner(handle), transaction)
            if state is None or transaction in _RUNNING:
                self._reviews.not_known(transaction)
            else:
                self._settle(transaction)
        return len(asked)

    def _settle(self, transaction: str, is_final: bool = False) -> bool:
        """Roll back what is in preparation, and tell the stream what the record says. Whether the
        stream has confirmed it. `is_final`: a half of which it does not know will not come."""
        with self._database.opened() as handle:
            run = self._database.runner(handle)
            self._records.settle(run, transaction, ROLLED_BACK)
            state = self._records.state(run, transaction)
        if state is None:
            return False
        assert state != PREPARING
        if self._say(transaction, state) is not None:
            return True
        if is_final:
            self._drop(transaction)
        return False

    def _say(self, transaction: str, state: str) -> Decided | None:
        """Decide; None: the stream does not know the transaction (any more)."""
        half = self._client.transaction(self._stream, self._producer, transaction)
        try:
            found = half.commit() if state == COMMITTED else half.roll_back()
        except CommandFailed as error:
            if error.code != UNKNOWN_TRANSACTION:
                raise
            found = None  # prepared, and so decided: by this program, long ago
        if found is None and state == ROLLED_BACK:
            return None
        self._drop(transaction)
        if found is not None and found.outcome != state:
            said = f"an operator has it {found.outcome}"
            raise SinkError(f"{transaction} is {state} in this database, and {said}")
        return found

    def _drop(self, transaction: str) -> None:
        with self._database.opened() as handle:
            self._records.drop(self._database.runner(handle), transaction)
