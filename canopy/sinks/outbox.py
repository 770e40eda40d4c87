"""Events that are appended to a stream exactly if a transaction of a database is committed.

The events of a transaction are prepared in the stream, invisible, before the transaction of the
database commits; its record commits with it; and what the record says is then said to the stream.
A program that is killed at any point says it when it starts again (`relay`), or when the stream
asks (`answer`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Generic

from canopy.client.client import Client
from canopy.client.errors import CommandFailed, ControlError
from canopy.client.faces import either, run
from canopy.client.publication import Attributes
from canopy.client.streams.transaction import UNKNOWN_TRANSACTION, Decided
from canopy.sinks.database import Database, H, Run, SinkError
from canopy.sinks.records import COLUMNS, COMMITTED, KEPT, PREPARING, ROLLED_BACK, TABLE, Records
from overlay.client import Draft

RUNNING: Final[set[str]] = set()
"""Transactions that this process has in preparation, of all its outboxes and threads."""


class OutboxTransaction(Generic[H]):
    """One transaction of the program: statements go through `db`, events through `send`."""

    def __init__(self, db: H, transaction: str) -> None:
        self.db = db
        """The cursor or connection of the database's transaction."""
        self.id = transaction
        self.events: list[Attributes | Draft] = []
        self.decided: Decided | None = None
        """The stream's answer to the commit; None: there is none yet."""

    def send(self, event: Attributes | Draft) -> None:
        """Append this event to the stream if the transaction commits."""
        self.events.append(event)


class OutboxCore:
    """The common part of the faces of an outbox. `do` carries out a job for the database in a
    transaction of its own."""

    def __init__(
        self,
        do: Callable[[Callable[[Run], Any]], Awaitable[Any]],
        client: Any,
        stream: str,
        producer: str,
    ) -> None:
        """`client`: a `canopy.Client` or `AsyncClient`; `do` blocks where the former does."""
        self._do = do
        self._client = client
        self._stream = stream
        self._producer = producer
        self._records = Records(stream, producer)
        self._reviews = client.reviews(stream, producer)

    async def _beginning(self, half: Any) -> None:
        """Before the transaction of the database."""
        RUNNING.add(half.id)
        await self._do(lambda run: self._records.add(run, half.id))

    async def _preparing(
        self,
        made: OutboxTransaction[Any],
        half: Any,
        inside: Callable[[Callable[[Run], Any]], Awaitable[Any]],
        timeout: float,
    ) -> None:
        """Carries out `inside` at the end of the database's transaction."""
        if not made.events:
            await inside(lambda run: self._records.drop(run, half.id))
            return
        found = await either(half.prepare(made.events, timeout))
        if found.outcome != "prepared":
            raise SinkError(f"the transaction is {found.outcome} already, by somebody else")
        if not await inside(lambda run: self._records.settle(run, half.id, COMMITTED)):
            raise SinkError(f"another process that is {self._producer} has rolled this back")

    async def _undoing(self, half: Any, error: BaseException) -> None:
        """The transaction of the database was rolled back."""
        with contextlib.suppress(Exception):  # else the next relay does it
            if half.is_asked:
                await self._settle(half.id, is_final=isinstance(error, CommandFailed))
            else:
                await self._drop(half.id)

    async def _following(self, made: OutboxTransaction[Any]) -> None:
        """The transaction of the database is committed."""
        if made.events:
            with contextlib.suppress(ControlError):
                made.decided = await self._say(made.id, COMMITTED)

    async def _relaying(self) -> int:
        records = await self._do(self._records.all)
        late = time.time() - KEPT
        count = 0
        for record in records:
            if record.id not in RUNNING:
                count += await self._settle(record.id, record.began < late)
        return count

    async def _answering(self, timeout: float) -> int:
        asked = await either(self._reviews.take(timeout))
        for transaction in asked:
            state = await self._do(partial(self._records.state, transaction=transaction))
            if state is None or transaction in RUNNING:
                await either(self._reviews.not_known(transaction))
            else:
                await self._settle(transaction)
        return len(asked)

    async def _settle(self, transaction: str, is_final: bool = False) -> bool:
        """Roll back a transaction in preparation, and tell the stream the outcome on record. Return
        whether the stream has confirmed it. `is_final`: a half that the stream does not know will
        not come."""

        def settled(run: Run) -> str | None:
            self._records.settle(run, transaction, ROLLED_BACK)
            return self._records.state(run, transaction)

        state = await self._do(settled)
        if state is None:
            return False
        assert state != PREPARING
        if await self._say(transaction, state) is not None:
            return True
        if is_final:
            await self._drop(transaction)
        return False

    async def _say(self, transaction: str, state: str) -> Decided | None:
        """Decide; None: the stream does not know the transaction (any more)."""
        half = self._client.transaction(self._stream, self._producer, transaction)
        try:
            found = await either(half.commit() if state == COMMITTED else half.roll_back())
        except CommandFailed as error:
            if error.code != UNKNOWN_TRANSACTION:
                raise
            found = None  # prepared, and so decided: by this program, long ago
        if found is None and state == ROLLED_BACK:
            return None
        await self._drop(transaction)
        if found is not None and found.outcome != state:
            said = f"an operator has it {found.outcome}"
            raise SinkError(f"{transaction} is {state} in this database, and {said}")
        decided: Decided | None = found
        return decided

    async def _drop(self, transaction: str) -> None:
        await self._do(lambda run: self._records.drop(run, transaction))


class Outbox(OutboxCore, Generic[H]):
    """A producer of one stream. Only one process uses its name at a time: another one rolls back
    what this one has in preparation. One thread uses an outbox."""

    def __init__(self, database: Database[H], client: Client, stream: str, producer: str) -> None:
        """`producer`: its name in the table `canopy_outbox`, which is made if it is not there."""
        super().__init__(self._carried_out, client, stream, producer)
        self._database = database
        database.make(TABLE, COLUMNS)

    @contextmanager
    def transaction(self, timeout: float = 30.0) -> Iterator[OutboxTransaction[H]]:
        """A transaction of the database, and the events that belong to it. At its end the events
        are prepared, the database commits, and then the stream does; an error rolls back both.

        The stream is asked while the database's transaction is open, for at most `timeout` seconds;
        what cannot be prepared raises as `canopy.Transaction.prepare`. An answer to the commit that
        does not come raises nothing: the events follow with the next `relay`."""
        half = self._client.transaction(self._stream, self._producer)
        try:
            run(self._beginning(half))
            with self._database.opened() as handle:
                made = OutboxTransaction(handle, half.id)
                yield made
                self._database.check_open()

                async def inside(job: Callable[[Run], Any]) -> Any:
                    return job(self._database.runner(handle))

                run(self._preparing(made, half, inside, timeout))
        except BaseException as error:
            RUNNING.discard(half.id)
            run(self._undoing(half, error))
            raise
        RUNNING.discard(half.id)
        run(self._following(made))

    def relay(self) -> int:
        """Tell the stream how the transactions were decided that it has not confirmed; those that a
        former process left in preparation are rolled back. To be called when the program starts,
        and from time to time. Returns how many the stream has confirmed. Raises a ControlError."""
        return run(self._relaying())

    def answer(self, timeout: float = 60.0) -> int:
        """Wait for the stream to ask about transactions, and answer from the database's record.
        Returns how many it has asked about. Raises CommandFailed (fenced: another process answers),
        and a ControlError. If the database has no record of a transaction, or raises an error
        (SQLite is locked while `transaction` is open), the stream keeps the transaction and asks
        again."""
        return run(self._answering(timeout))

    async def _carried_out(self, job: Callable[[Run], Any]) -> Any:
        with self._database.opened() as handle:
            return job(self._database.runner(handle))
