"""What a test asks of a database that it changes and reads by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from harness.databases.drawing import Kind


class Database(Protocol):
    """A new database, and a connection to it."""

    url: str
    """As `canopy sync` takes it."""
    kinds: tuple[Kind, ...]
    """The types that it has; one that can be a key comes first in `keys`."""
    keys: tuple[Kind, ...]

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Execute SQL with parameters written `?`; each statement is a transaction unless BEGIN was
        executed."""

    def named(self, name: str) -> str:
        """A name for SQL."""

    def read(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """All rows, with values as this database shows them to anybody."""

    def close(self) -> None:
        """End the connection."""
