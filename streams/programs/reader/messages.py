"""The vocabulary between a reader's node and the leader of a shard.

A *reading* is one program's scan of one shard with one selector; the reader's node chooses its
number. Its *position* is the next offset to scan: all rows below it were matched. A message that
moves a position names the position before (`since`). So the reader's node notices a lost message,
and opens the reading again from its position.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from matching import Value
from overlay.command_faults import SELECTOR_MOST
from overlay.machine import Message, Peer, Uint53, Uint63
from streams.shard.messages import Shard

NAME_MOST: Final = 128
"""The limit of characters of a durable consumer's name."""

LISTED_MOST: Final = 4_096
"""The limit of readings in one message."""

OFFSET_MOST: Final = 2**48
"""All offsets are below it: a million rows a second for nine years. A greater number is no offset,
and must not be noted as a position."""

ROW_COST: Final = 32
"""The bytes of credit that each row takes in addition to its size, for its memory."""

FIRST: Final = "first"
NEW: Final = "new"
OFFSET: Final = "offset"
KEYS: Final = "keys"
TIME: Final = "time"


Number = Uint53
DurableName = Annotated[str, msgspec.Meta(max_length=NAME_MOST)]
Token = Annotated[str, msgspec.Meta(max_length=NAME_MOST)]


class ReadFrom(msgspec.Struct, frozen=True, array_like=True):
    """The place where a reading begins. *first*: the oldest row that is kept; *new*: the next row
    that is committed; *offset*: the row at `at`; *time*: the first row that was appended at `at` or
    later (nanoseconds since 1970, by leaders' clocks); *keys*, in a stream with a key: the newest
    row of each key at the offset `at` or above, and then all rows from `until` on (0: from the
    table's present end). `losses`: the number of times that the log had lost rows at its end when
    the offsets were known, -1: unknown."""

    kind: Literal["first", "new", "offset", "time", "keys"]
    at: Uint63 = 0
    until: Uint53 = 0
    losses: Annotated[int, msgspec.Meta(ge=-1, lt=2**53)] = -1


class Durable(msgspec.Struct, frozen=True, array_like=True):
    """The durable consumer as which a program reads. `token`: identifies the program's start; a
    program with another token ends this one. `resume`: the program was attached before, and
    continues at its position; it is refused as fenced if another program has attached since.
    `expire_after`: seconds, 0: never. `own`: the program keeps its position itself and begins at
    `start`; the position in the log serves retention only."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MOST)]
    token: Token
    resume: bool
    expire_after: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    own: bool = False


class ReadShard(Message, frozen=True):
    """Begin a reading. `credit`: the bytes that the leader may send (`cost`); the last piece may
    exceed it. A known durable consumer begins at its position instead of `start`, unless it resumes
    or keeps its own position. `permitted`: the selector of the rows that the reader's tenant may
    see, set by the leader's node; "": all. `shares`: the reader's node takes SharedRows. Answered
    by ReadingBegan or ReadingRefused."""

    shard: Shard
    reading: Number
    start: ReadFrom
    selector: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)]
    credit: Number
    durable: Durable | None = None
    permitted: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    shares: bool = False


class ReadingBegan(Message, frozen=True):
    """The reading begins at `position`. `next`: the offset of the shard's next row; if the reading
    begins with the newest rows, they lie below it. `attachment`: the number of the durable
    consumer's attachment, 0: none. `losses`: the number of times that the log has lost rows at its
    end."""

    shard: Shard
    reading: Number
    position: Number
    next: Number
    attachment: Number
    losses: Number = 0


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rows of one chunk (`streams.log.batches.encode_rows`), appended at `time`. `first`: the first
    row's offset; `places`: the offsets of the others, relative to it; empty: the rows are
    consecutive."""

    time: Uint63
    first: Uint53
    count: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    places: tuple[Uint53, ...]
    rows: bytes


def cost(piece: Piece) -> int:
    """Return the credit that a piece takes."""
    return len(piece.rows) + ROW_COST * piece.count


class StreamRows(Message, frozen=True):
    """Rows for some readings, each with its position before. They all move to `position`."""

    shard: Shard
    readings: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]
    position: Number
    pieces: tuple[Piece, ...]


class LooseRows(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Single rows of one chunk (`streams.log.batches.encode_rows`), appended at `time`. `places`:
    the offsets of all rows relative to `first`, ascending."""

    time: Uint63
    first: Uint53
    places: tuple[Uint53, ...]
    rows: tuple[bytes, ...]


class Share(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The rows of a message that some readings get, each reading with its position before. `rows`:
    their indices over all chunks of the message, from 0, ascending."""

    readings: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]
    rows: tuple[Uint53, ...]


class SharedRows(Message, frozen=True):
    """The rows that matched for readings of one node, each row once. All readings move to
    `position`. Sent to nodes that have asked for it (`ReadShard.shares`)."""

    shard: Shard
    position: Number
    chunks: tuple[LooseRows, ...]
    shares: Annotated[tuple[Share, ...], msgspec.Meta(max_length=LISTED_MOST)]


class ReadingsScanned(Message, frozen=True):
    """Readings that move without a row: (reading, position before, position now)."""

    shard: Shard
    marks: Annotated[
        tuple[tuple[Uint53, Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)
    ]


class KeepReadings(Message, frozen=True):
    """The keep-alive of readings: (reading, credit in all since it began). Sent when a program has
    taken rows, and every second, since a leader ends silent readings. Answered by ReadingsKept."""

    shard: Shard
    readings: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]


class ReadingsKept(Message, frozen=True):
    """The answer to a keep-alive. `positions`: (reading, last position that was sent) of the
    readings that the leader has; `missing`: the others. `cut_off`: no majority of the shard's
    replicas answers the leader, so that it commits nothing."""

    shard: Shard
    positions: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]
    missing: Annotated[tuple[Uint53, ...], msgspec.Meta(max_length=LISTED_MOST)]
    cut_off: bool = False


class EndReadings(Message, frozen=True):
    """End these readings of a shard at its leader, which sends nothing more for them. Not
    answered."""

    shard: Shard
    readings: Annotated[tuple[Uint53, ...], msgspec.Meta(max_length=LISTED_MOST)]


class CommitPosition(Message, frozen=True):
    """Commit the position of a durable consumer. Answered by PositionCommitted or
    ReadingRefused."""

    shard: Shard
    reading: Number
    durable: DurableName
    attachment: Number
    position: Number


class PositionCommitted(Message, frozen=True):
    """The log has this position of the durable consumer, or a higher one."""

    shard: Shard
    reading: Number
    position: Number


class ReadingRefused(Message, frozen=True):
    """The leader refuses or ends a reading. With OUT_OF_RANGE, `first` is the oldest offset that is
    kept and `next` the next one to be appended."""

    shard: Shard
    reading: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    first: Uint53 = 0
    next: Uint53 = 0


class AskRow(Message, frozen=True):
    """Ask a shard's leader about the fate of a row. Answered by RowFacts."""

    shard: Shard
    ticket: Number
    offset: Number


class RowFacts(Message, frozen=True):
    """The fate of a row. `state`: *kept*, *past its time*, *removed* (by retention) or *not yet*.
    The log has the offsets `first` to `next`. `producer` and `number`: from the head of its batch.
    `readers`: the name, selector and position of each durable consumer and group, and the state of
    the row there (`overlay.stream_client.RowReader`). `fork`: the fork from which the row was
    copied, in which it had the offset `at`."""

    shard: Shard
    ticket: Number
    state: Annotated[str, msgspec.Meta(max_length=16)]
    first: Number
    next: Number
    producer: str = ""
    number: Number = 0
    epoch: Number = 0
    chunk: Number = 0
    time: Uint63 = 0
    attributes: dict[str, Value | None] = {}
    readers: tuple[tuple[str, str, Uint53, str], ...] = ()
    fork: Annotated[str, msgspec.Meta(max_length=64)] = ""
    at: Uint53 = 0


class ReadingsMoved(Message, frozen=True):
    """The sender does not serve these readings. `leader`: the leader that it knows."""

    shard: Shard
    readings: Annotated[tuple[Uint53, ...], msgspec.Meta(max_length=LISTED_MOST)]
    leader: Peer | None
