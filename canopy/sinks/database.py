"""The database of a program, as sinks and outboxes use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)


class SinkError(Exception):
    """Something cannot take effect in this database. The text says why, and what to do."""


class Answer(NamedTuple):
    """The result of a statement: the number of changed rows, and the rows found."""

    changed: int
    rows: Sequence[Sequence[Any]] = ()


Run = Callable[[str, Mapping[str, object]], Answer]
"""Carries out a statement with its `:named` parameters, in the transaction that is open."""


class ColumnDefinition(NamedTuple):
    """A column of one of our own tables. None may be NULL."""

    name: str
    kind: str
    """As in SQL: VARCHAR(128), INTEGER, BIGINT or TEXT."""
    is_key: bool = False


def quoted(name: str) -> str:
    """A name in double quotes, as SQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


def create_table(name: str, columns: Sequence[ColumnDefinition], kinds: Mapping[str, str]) -> str:
    """The statement that makes a table, unless it is there. `kinds`: other words for types."""
    parts = [f"{quoted(each.name)} {kinds.get(each.kind, each.kind)} NOT NULL" for each in columns]
    keys = [quoted(each.name) for each in columns if each.is_key]
    key = f", PRIMARY KEY ({', '.join(keys)})" if keys else ""
    return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)}{key})"


class Database(Protocol[H]):
    """One database. `H` is the object through which a program's statements go."""

    def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""

    def opened(self) -> AbstractContextManager[H]:
        """A transaction: committed at the end, rolled back by an error."""

    def runner(self, handle: H) -> Run:
        """Return a function that carries out statements in an open transaction."""

    def check_open(self) -> None:
        """SinkError if a program has ended the transaction that was opened last."""


Runner = Callable[[Callable[[Run], Any]], Awaitable[Any]]
"""Carries out a job in a transaction that is open, and is awaited."""


class AsyncDatabase(Protocol[H_co]):
    """One database, awaited. One task has a transaction at a time. `H_co` is the object with which
    it works."""

    async def make(self, table: str, columns: Sequence[ColumnDefinition]) -> None:
        """Make a table, unless it is there."""

    def opened(self) -> AbstractAsyncContextManager[tuple[H_co, Runner]]:
        """A transaction, and how jobs are carried out in it: committed at the end, rolled back by
        an error, and where the task is cancelled."""

    def check_open(self) -> None:
        """SinkError if a program has ended the transaction that was opened last."""


async def carry_out(database: AsyncDatabase[Any], job: Callable[[Run], Any]) -> Any:
    """Run `job` in a transaction of its own, and return its result."""
    async with database.opened() as (_, inside):
        return await inside(job)
