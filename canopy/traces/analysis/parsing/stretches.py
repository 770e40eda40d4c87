"""Files are divided into stretches, and these among tasks, each of which writes Parquet.

A line belongs to the stretch in which it begins. Compressed files are not divided. A task writes a
file for each kind of its records, with the columns that any of these has: where one is absent, a
reader finds nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from canopy.traces.analysis.parsing.blocks import BLOCK, CORRUPT, BlockParser, columns
from canopy.traces.analysis.parsing.lines import DAMAGED, blocks_of, pieces
from canopy.traces.analysis.parsing.tally import by_kind, offsets, tally

STRETCH: Final = 1 << 26
"""Bytes of text that a task reads. Its records take as much memory again as an Arrow table, and
as much once more while they are written."""

FILE_COST: Final = 1 << 16
"""The cost of opening a file, in bytes, when files are divided among tasks. Reading 64 KB takes as
long as opening a file on a local disk."""


REPEATED: Final = [
    *("v", "node", "run", "file", "peer", "subscription", "attribute", "walk", "lo", "hi"),
    *("overlay", "reason", "what", "by", "kind", "problem"),
]
"""The columns with few different values, which Parquet stores as numbers. For the others looking
for such costs a third of the time of writing, and as much room."""


class Stretch(NamedTuple):
    """The bytes of a file from `begin` to before `end`."""

    path: str
    begin: int
    end: int


class Bounds(NamedTuple):
    """Records of the times from `since` to before `until`, seconds since 1970; None: unbounded."""

    since: float | None
    until: float | None


def shared_out(files: Iterable[tuple[Path, int]]) -> list[list[Stretch]]:
    """Divide files, given with their bytes of text, into stretches. Returns those of each task."""
    tasks: list[list[Stretch]] = []
    room = 0
    for path, size in files:
        parts = 1 if path.suffix == ".gz" else max(1, -(-size // STRETCH))
        for part in range(parts):
            begin, end = (size * at // parts for at in (part, part + 1))
            cost = end - begin + FILE_COST
            if cost > room or not tasks:
                tasks.append([])
                room = STRETCH + FILE_COST
            tasks[-1].append(Stretch(str(path), begin, end))
            room -= cost
    return tasks


def records_of(stretches: Sequence[Stretch], bounds: Bounds) -> Any:
    """Return an Arrow table of all lines of these stretches that are within the `bounds` or have no
    time."""
    import pyarrow as pa

    parser = BlockParser()
    tables = [columns().empty_table()]
    for stretch in stretches:
        name = Path(stretch.path).as_uri()
        try:
            for block in blocks_of(texts_of(stretch)):
                tables.append(_within(parser.parse(block, name), bounds))
        except DAMAGED as error:
            if isinstance(error, FileNotFoundError):
                raise
            reason = getattr(error, "strerror", None) or error
            problem = f"the file cannot be read to its end: {reason}"
            row = {"kind": CORRUPT, "problem": problem, "line": "", "file": name}
            tables.append(pa.Table.from_pylist([row], columns()))
    return pa.concat_tables(tables, promote_options="default")


def texts_of(stretch: Stretch) -> Iterator[bytes]:
    """The text of the lines that begin within the stretch."""
    path = Path(stretch.path)
    if path.suffix == ".gz":
        yield from _gathered(pieces(path))
        return
    with path.open("rb") as file:
        at = stretch.begin
        if at:  # whether a line begins here says the byte before
            file.seek(at - 1)
            while not (part := file.readline(BLOCK)).endswith(b"\n"):
                if not part or file.tell() >= stretch.end:
                    return
            at = file.tell()
        last = b"\n"
        while at < stretch.end and (text := file.read(min(BLOCK, stretch.end - at))):
            at += len(text)
            last = text
            yield text
        while not last.endswith(b"\n") and (last := file.readline(BLOCK)):
            yield last


def _gathered(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield `texts` in pieces of at least `BLOCK` bytes, including the text before an error."""
    held: list[bytes] = []
    size = 0
    try:
        for text in texts:
            held.append(text)
            size += len(text)
            if size >= BLOCK:
                yield b"".join(held)
                held, size = [], 0
    except DAMAGED:
        yield b"".join(held)
        raise
    yield b"".join(held)


def _within(table: Any, bounds: Bounds) -> Any:
    import pyarrow.compute as pc

    for bound, compare in ((bounds.since, pc.greater_equal), (bounds.until, pc.less)):
        if bound is not None:
            table = table.filter(pc.fill_null(compare(table["time"], bound), True))
    return table


def write_by_kind(kinds: Mapping[str, Any], folder: str, name: str) -> None:
    """Write the records of each kind (`by_kind`) below `folder`, as Parquet files `name`."""
    from pyarrow import parquet

    for kind, records in kinds.items():
        place = os.path.join(folder, f"kind={kind}")
        os.makedirs(place, exist_ok=True)
        there = [
            each
            for each in records.column_names
            if each != "kind" and records[each].null_count < len(records)
        ]
        draft = os.path.join(place, f".{name}.parquet.{os.getpid()}")
        parquet.write_table(
            records.select(there), draft, compression="zstd", use_dictionary=REPEATED
        )
        os.replace(draft, os.path.join(place, f"{name}.parquet"))  # a task may run twice


Share = Sequence[tuple[str, int, int]]
"""The stretches of a task as plain tuples, which any worker can load."""


def store(records: Any, folder: str, name: str) -> tuple[Any, Any]:
    """Write these `records` as above. Returns their `tally` and their `offsets`."""
    kinds = by_kind(records)
    write_by_kind(kinds, folder, name)
    return tally(kinds), offsets(records)


def task(
    folder: str, bounds: Bounds
) -> Callable[[int, Iterator[Share]], Iterator[tuple[Any, Any]]]:
    """Return the function of Spark's tasks, called with the task's number and its share; it yields
    the results of `store`."""

    def run(number: int, shares: Iterator[Share]) -> Iterator[tuple[Any, Any]]:
        for share in shares:
            records = records_of([Stretch(*each) for each in share], bounds)
            yield store(records, folder, f"part-{number:05}")

    return run
