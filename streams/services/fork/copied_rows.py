"""Which rows of a fork the main log lacks.

A fork knows the main log up to its base (streams/log/names.py). What a producer had under way
when the network broke may stand behind that in the main log, and was repeated in the fork; rows
that went to several forks may have been copied from another one. So for all chunks behind the base
it is noted which numbers of which producers are in which chunk; where numbers of the fork are among
them, the rows are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streams.log.batches import BatchHead, Row, encode_rows, heads_of, rows_of
from streams.log.chunk import EVENTS, Chunk

NEW: Final = "new"
REPEATED: Final = "repeated"
CONFLICTING: Final = "conflicting"


class MainRun(NamedTuple):
    """Rows `sequence` to `end - 1` of a producer are in this chunk of the main log, from its row
    `place` on."""

    sequence: int
    end: int
    chunk: int
    place: int


class MainRows:
    """The numbers of producers in the main log, from behind chunk `base` on."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.end = base
        """The last chunk that was noted."""
        self._runs: dict[str, list[MainRun]] = {}

    def note(self, chunk: Chunk) -> None:
        """The next chunk of the main log."""
        self.end = chunk.number
        place = 0
        for head in heads_of(chunk) if chunk.kind == EVENTS else ():
            if head.producer and not head.transaction:
                self._note(head, chunk.number, place)
            place += head.count

    def _note(self, head: BatchHead, chunk: int, place: int) -> None:
        runs = self._runs.setdefault(head.producer, [])
        end = head.sequence + head.count
        if runs:
            last = runs[-1]
            follows = (last.chunk, last.end) == (chunk, head.sequence)
            if follows and last.place + last.end - last.sequence == place:
                runs[-1] = last._replace(end=end)
                return
        runs.append(MainRun(head.sequence, end, chunk, place))

    def runs(self, head: BatchHead) -> list[MainRun]:
        """Where there are rows with numbers of this batch."""
        end = head.sequence + head.count
        runs = self._runs.get(head.producer, ())
        return [run for run in runs if run.sequence < end and run.end > head.sequence]


class JudgedRows(NamedTuple):
    """Rows of a fork that follow on one another and have one verdict."""

    verdict: str
    head: BatchHead
    rows: list[Row]


def chunks_needed(chunk: Chunk, main: MainRows) -> set[int]:
    """The chunks of the main log that a fork's chunk has to be compared with."""
    return {run.chunk for head in heads_of(chunk) for run in main.runs(head)}


def parts(
    fork: str,
    chunk: Chunk,
    floor: int,
    main: MainRows,
    chunks: Mapping[int, Chunk],
) -> list[JudgedRows]:
    """What is to be done with the rows of a fork's chunk, in their order. `floor`: rows below this
    offset are dealt with; `chunks`: those of `chunks_needed`."""
    rows, offset, found = rows_of(chunk), chunk.first, list[JudgedRows]()
    known = {number: rows_of(each) for number, each in chunks.items()}
    for head in heads_of(chunk):
        runs = main.runs(head)
        for n in range(head.count):
            row = rows[offset + n - chunk.first]
            if offset + n >= floor:
                verdict = _verdict(head.sequence + n, row, runs, known)
                _add(found, verdict, fork, head, head.sequence + n, offset + n, row)
        offset += head.count
    return found


def _verdict(
    sequence: int, row: Row, runs: Iterable[MainRun], known: Mapping[int, tuple[Row, ...]]
) -> str:
    there = [
        known[run.chunk][run.place + sequence - run.sequence]
        for run in runs
        if run.sequence <= sequence < run.end
    ]
    if not there:
        return NEW
    mine = encode_rows((row,))
    return REPEATED if any(encode_rows((other,)) == mine for other in there) else CONFLICTING


def _add(
    found: list[JudgedRows],
    verdict: str,
    fork: str,
    head: BatchHead,
    sequence: int,
    at: int,
    row: Row,
) -> None:
    last = found[-1] if found else None
    if last is not None and last.verdict == verdict and _follows(last.head, head, sequence, at):
        longer = BatchHead(
            *(last.head.producer, last.head.session, last.head.sequence, last.head.count + 1),
            fork=fork,
            at=last.head.at,
        )
        last.rows.append(row)
        found[-1] = JudgedRows(verdict, longer, last.rows)
        return
    begun = (head.producer, head.session, sequence) if verdict != CONFLICTING else ("", 0, 0)
    found.append(JudgedRows(verdict, BatchHead(*begun, 1, fork=fork, at=at), [row]))


def _follows(last: BatchHead, head: BatchHead, sequence: int, at: int) -> bool:
    if last.at + last.count != at:
        return False
    same = (last.producer, last.session) == (head.producer, head.session)
    return not last.producer or (same and last.sequence + last.count == sequence)
