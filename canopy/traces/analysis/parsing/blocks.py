"""Blocks of whole lines become Arrow tables of records.

Arrow's JSON reader parses a block of lines in a fifth of the time that is needed line by line, but
knows only right and wrong of all of them, and is lenient where one line has two objects. So its
table is taken if each line of the block is one object, and each of these a record; otherwise the
lines of the block are parsed one by one (``lines.py``).
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from canopy.traces.analysis.constants import LINE_BYTES, LINE_CHARACTERS
from canopy.traces.analysis.parsing.lines import REQUIRED, LineParser, is_utf8
from canopy.traces.schema import COMMON, FIELDS, KINDS, READABLE

BLOCK: Final = 1 << 22
"""Bytes of text that are parsed at once. Measured with 1, 4 and 8 MB: 2.8, 2.9 and 4.8 µs of CPU
per record."""

CORRUPT: Final = "corrupt"
"""The kind of lines that are not records; no kind of the schema has this name."""


def columns() -> Any:
    """The Arrow schema of a table of records: `FIELDS`, then problem, line and file."""
    import pyarrow as pa

    types = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64()}
    fields = [(name, types[kind]) for name, kind in FIELDS.items()]
    return pa.schema([*fields, *((name, pa.string()) for name in ("problem", "line", "file"))])


class BlockParser:
    """Parses one block after another.

    Read are the common fields and those of the kinds that were seen so far; a block with a kind
    that is new is parsed again with its fields.
    """

    def __init__(self) -> None:
        self._columns = columns()
        self._lines = LineParser()
        self._kinds: set[str] = set()
        self._options = self._reading(self._kinds)

    def _reading(self, kinds: set[str]) -> Any:
        """Return Arrow's options for records of these `kinds`: each column costs time in every
        row."""
        import pyarrow as pa
        from pyarrow import json

        names = dict.fromkeys(COMMON)
        for kind in sorted(kinds & KINDS.keys()):
            names |= dict.fromkeys(KINDS[kind])
        return json.ParseOptions(
            explicit_schema=pa.schema([self._columns.field(name) for name in names]),
            unexpected_field_behavior="ignore",
        )

    def parse(self, block: bytes, file: str) -> Any:
        """Return the table of all lines of `block`. A line that is no record has the kind
        `CORRUPT`, the problem, the beginning of the line, and the time if there is one. Columns
        without a value may be absent."""
        import pyarrow as pa

        table = self._at_once(block)
        if table is None:
            return self.one_by_one(block, file)
        nothing = pa.nulls(len(table), pa.string())
        names = pa.array([file], pa.string()).take(pa.array([0] * len(table), pa.int32()))
        for name, column in (("problem", nothing), ("line", nothing), ("file", names)):
            table = table.append_column(name, column)
        return table

    def _at_once(self, block: bytes) -> Any:
        """The table without problem, line and file; None if a line may not be a record."""
        import pyarrow as pa
        from pyarrow import json

        text = block.strip(b"\n")
        ends = text.count(b"\n")
        whole = text.startswith(b"{") and text.endswith(b"}")
        if not whole or len(text) >= LINE_BYTES:  # perhaps as one line
            return None
        if text.count(b"}\n{") != ends or not is_utf8(text):
            return None
        reading = json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        while True:
            try:
                table = json.read_json(pa.BufferReader(text), reading, self._options)
            except pa.ArrowException:
                return None
            kinds = {kind for kind in table["kind"].unique().to_pylist() if kind in KINDS}
            if kinds <= self._kinds:
                break
            self._kinds |= kinds
            self._options = self._reading(self._kinds)
        return table if len(table) == ends + 1 and _all_records(table) else None

    def one_by_one(self, block: bytes, file: str) -> Any:
        """The same table, by the rules for a line."""
        import pyarrow as pa

        rows = []
        for line in block.split(b"\n"):
            if not line or line.isspace():
                continue
            record, problem = self._lines.decode(line)
            if not problem:
                row = {name: getattr(record, name) for name in (*COMMON, *KINDS[record.kind])}
            else:
                shown = line[: 4 * LINE_CHARACTERS].decode(errors="replace")[:LINE_CHARACTERS]
                row = {"kind": CORRUPT, "problem": problem, "line": shown}
                row["time"] = record and record.time
            row["file"] = file
            rows.append(row)
        return pa.Table.from_pylist(rows, self._columns)


def _all_records(table: Any) -> bool:
    """Whether each row is a record, by the rules of ``lines.py``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def both(one: Any, other: Any) -> Any:
        return pc.and_(one, other)

    if any(table[name].null_count for name in ("v", "kind", "node", "time", "run")):
        return False
    kinds = table["kind"]
    numbered = pc.or_(
        both(pc.is_valid(table["n"]), pc.is_valid(table["hlc"])), pc.equal(kinds, "file")
    )
    right = [pc.is_in(table["v"], pa.array(READABLE, pa.int32())), numbered]
    right.append(pc.is_in(kinds, pa.array(list(REQUIRED), pa.string())))
    for field in dict.fromkeys(name for names in REQUIRED.values() for name in names):
        # Where no kind here has the field, no column was read.
        if field in table.column_names and table[field].null_count:
            needing = [kind for kind, names in REQUIRED.items() if field in names]
            needs = pc.is_in(kinds, pa.array(needing, pa.string()))
            right.append(pc.or_(pc.is_valid(table[field]), pc.invert(needs)))
    return bool(pc.all(reduce(both, right)).as_py())
