"""Records of transactions with a stream, in a program's database.

A transaction is *preparing* from before its half leaves until its local transaction commits, which
makes it *committed*; only from preparing can it become *rolled-back*. Both are one UPDATE that
names the state before, so that a review which rolls a transaction back and the local transaction
that would commit it cannot both happen. Of what it has no record it knows nothing, and says so.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from canopy.sinks.database import ColumnDefinition, Run

TABLE: Final = "canopy_outbox"

COLUMNS: Final = (
    ColumnDefinition("transaction_id", "VARCHAR(128)", is_key=True),
    ColumnDefinition("stream", "VARCHAR(128)"),
    ColumnDefinition("producer", "VARCHAR(128)"),
    ColumnDefinition("state", "VARCHAR(128)"),
    ColumnDefinition("began", "BIGINT"),
)

PREPARING: Final = "preparing"
COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled-back"

KEPT: Final = 24 * 3_600
"""Seconds for which a transaction that was rolled back is kept where the stream has not said that
it has it: a half that was held up on its way may still arrive, and is asked about then."""

_OURS: Final = "stream = :stream AND producer = :producer"
_FIND: Final = f"SELECT transaction_id, state, began FROM {TABLE} WHERE {_OURS}"
_GET: Final = f"SELECT state FROM {TABLE} WHERE transaction_id = :id AND {_OURS}"
_ADD: Final = (
    f"INSERT INTO {TABLE} (transaction_id, stream, producer, state, began)"
    f" VALUES (:id, :stream, :producer, '{PREPARING}', :began)"
)
_SETTLE: Final = (
    f"UPDATE {TABLE} SET state = :state WHERE transaction_id = :id AND state = '{PREPARING}'"
)
_DROP: Final = f"DELETE FROM {TABLE} WHERE transaction_id = :id"


class Record(NamedTuple):
    """The record of one transaction. `began`: seconds since 1970."""

    id: str
    state: str
    began: int


class Records:
    """The records of one producer of one stream."""

    def __init__(self, stream: str, producer: str) -> None:
        self._ours = {"stream": stream, "producer": producer}

    def all(self, run: Run) -> list[Record]:
        """All that are kept, the oldest first."""
        rows = run(_FIND, self._ours).rows
        found = [Record(str(row[0]), str(row[1]), int(row[2])) for row in rows]
        return sorted(found, key=lambda record: record.began)

    def state(self, run: Run, transaction: str) -> str | None:
        """Return the state of one transaction; None: there is no record of it."""
        rows = run(_GET, {**self._ours, "id": transaction}).rows
        return str(rows[0][0]) if rows else None

    def add(self, run: Run, transaction: str) -> None:
        """Record that a transaction begins."""
        run(_ADD, {**self._ours, "id": transaction, "began": int(time.time())})

    def settle(self, run: Run, transaction: str, state: str) -> bool:
        """Say what becomes of a transaction that is in preparation; whether it was."""
        return run(_SETTLE, {"id": transaction, "state": state}).changed == 1

    def drop(self, run: Run, transaction: str) -> None:
        """Delete the record of a transaction whose decision the stream has."""
        run(_DROP, {"id": transaction})
