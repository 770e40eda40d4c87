"""Rows for several readings of one node in one message, each row once. The node takes them apart
(`streams.programs.reader.cursor.Shared`).

With many readings of which each wants few rows, a message for each selector would be most of the
work: for the leader, for the link, and for the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from streams.programs.reader.messages import LISTED_MOST, Share, SharedRows
from streams.services.read.chunk_rows import ChunkRows

SHARED_BYTES: Final = 512 * 1024
"""Bytes of a message, unless one reading's rows have more: as `history.MESSAGE_BYTES`."""

MARK_BYTES: Final = 20
"""Of a reading's number and position in a message, at most; a row's place takes less."""

Mark = tuple[int, int]
"""A reading's number, and the position at which it was."""

Wanted = tuple[list[Mark], list[int]]
"""Readings, and the places of the rows that they get, ascending."""


def shared(
    shard: str, position: int, rows: ChunkRows, wanted: Sequence[Wanted]
) -> Iterator[SharedRows]:
    """Messages to one node with what its readings want of `rows`."""
    sizes = rows.sizes
    some: list[Wanted] = []
    there: set[int] = set()
    size = count = 0
    for marks, places in _parts(wanted):
        new = [place for place in places if place not in there]
        more = sum([sizes[place] for place in new]) + MARK_BYTES * (len(marks) + len(places))
        if some and (size + more > SHARED_BYTES or count + len(marks) > LISTED_MOST):
            yield _message(shard, position, rows, some, there)
            some, there, size, count, new = [], set(), 0, 0, places
            more = rows.cost(places) + MARK_BYTES * (len(marks) + len(places))
        some.append((marks, places))
        there.update(new)
        size, count = size + more, count + len(marks)
    if some:
        yield _message(shard, position, rows, some, there)


def _parts(wanted: Sequence[Wanted]) -> Iterator[Wanted]:
    """The same, with no more readings together than fit into a message."""
    for marks, places in wanted:
        if len(marks) <= LISTED_MOST:
            yield marks, places
        else:
            for start in range(0, len(marks), LISTED_MOST):
                yield marks[start : start + LISTED_MOST], places


def _message(
    shard: str, position: int, rows: ChunkRows, wanted: Sequence[Wanted], there: set[int]
) -> SharedRows:
    places = sorted(there)
    number = {place: at for at, place in enumerate(places)}
    numbered = number.__getitem__
    shares = tuple([Share(tuple(marks), tuple(map(numbered, mine))) for marks, mine in wanted])
    return SharedRows(shard, position, rows.loose(places), shares)
