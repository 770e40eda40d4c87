"""What a program may ask of its node about streams, beside what `overlay.client` has of them."""

from __future__ import annotations

import msgspec

from matching import Value
from overlay.client import Command, Reply


class EditStream(Command, frozen=True):
    """Change a stream's options; None: as they are. Answered as AddStream, or by Failed
    (unknown)."""

    name: str
    keep_seconds: float | None = None
    keep_bytes: int | None = None
    capture: str | None = None


class WhyRow(Command, frozen=True):
    """Ask what became of the row with this offset. Answered by RowExplained, or by Failed (unknown,
    usage, time-out)."""

    stream: str
    shard: int
    offset: int


class RowReader(msgspec.Struct, frozen=True, array_like=True):
    """What a durable consumer has to do with a row. `what`: "read" (below its position, and its
    selector is true for it), "passed over" (its selector is not), "waits", "will pass over"; of a
    row that is not there: "unread" (its position is not beyond it) or "passed"."""

    name: str
    selector: str
    position: int
    what: str


class RowExplained(Reply, frozen=True):
    """A row, as its shard's leader knows it. `state`: kept, removed, or not yet; the offsets from
    `first` up to `next` are there. `producer` and `number` are its identity in the shard; `time`:
    when it was appended, seconds since 1970."""

    state: str
    first: int
    next: int
    producer: str
    number: int
    epoch: int
    chunk: int
    time: float
    attributes: dict[str, Value | None]
    readers: tuple[RowReader, ...]
