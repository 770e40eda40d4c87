"""DuckDB, which is a destination only: its rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from harness.databases.drawing import Kind


class Duck:
    """A database file; a connection for each reading, as only one process may have it."""

    kind = "duckdb"
    kinds: tuple[Kind, ...] = ()
    keys: tuple[Kind, ...] = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"duckdb:{path}"

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with duckdb.connect(self.path) as link:
            return link.execute(statement, list(values)).fetchall()

    def named(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def read(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        with duckdb.connect(self.path) as link:
            found = link.execute(f"DESCRIBE {self.named(table)}").fetchall()
            types = {row[0]: row[1] for row in found}
            shown = ", ".join(
                self.named(c) if types[c] in ("BLOB", "DOUBLE") else f"{self.named(c)}::VARCHAR"
                for c in columns
            )
            rows = link.execute(f"SELECT {shown} FROM {self.named(table)}").fetchall()
        return [
            tuple(
                v.replace(" (BC)", "") + " BC" if isinstance(v, str) and "(BC)" in v else v
                for v in row
            )
            for row in rows
        ]

    def close(self) -> None:
        pass
