"""The vocabulary between a reader's node and the leader of a shard.

A *reading* is one program's way through one shard with one selector; its number is chosen by the
reader's node. Its *position* is the offset that is scanned next: all rows below it were looked at.
Whatever moves a position names the one before (`since`), so that the reader's node notices what was
lost with a link, and opens the reading anew from where it is.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from matching import Value
from overlay.machine import Message, Peer, Uint53, Uint63
from streams.shard.messages import Shard

NAME_MOST: Final = 128
"""Characters of a durable consumer's name at most."""

SELECTOR_MOST: Final = 16 * 1024
"""Characters of a selector at most (`matching.selector.expression.MAX_TEXT`)."""

LISTED_MOST: Final = 4_096
"""Readings in one message at most."""

OFFSET_MOST: Final = 2**48
"""Offsets are below it: a million rows a second for nine years. What is beyond it is no offset of a
row, but a number that would be noted as how far something was read."""

ROW_COST: Final = 32
"""Bytes of credit that a row takes beside its own: small rows take memory, too."""

FIRST: Final = "first"
NEW: Final = "new"
OFFSET: Final = "offset"
KEYS: Final = "keys"
TIME: Final = "time"


Number = Uint53
DurableName = Annotated[str, msgspec.Meta(max_length=NAME_MOST)]
Token = Annotated[str, msgspec.Meta(max_length=NAME_MOST)]


class ReadFrom(msgspec.Struct, frozen=True, array_like=True):
    """Where a reading begins: with the oldest row that is kept, with what is committed next, with
    the row that has the offset `at`, or with the first row that was appended at the time `at` or
    later (nanoseconds since 1970, by leaders' clocks); or, in a stream with a key, with the newest
    row of each key: those from the offset `at` on, and all rows from `until` on (0: from the end
    that the table has now on). `losses`: how many times the log had lost rows at its end when
    offsets were told, -1: that is not known."""

    kind: Literal["first", "new", "offset", "time", "keys"]
    at: Uint63 = 0
    until: Uint53 = 0
    losses: Annotated[int, msgspec.Meta(ge=-1, lt=2**53)] = -1


class Durable(msgspec.Struct, frozen=True, array_like=True):
    """As which durable consumer a program reads. `token`: the program's start; one with another
    token ends it. `resume`: the program was attached already, and goes on where it is: refused as
    fenced if another is attached by now. `expire_after`: seconds, 0: never. `own`: the program
    keeps its position itself, and begins at `start`; the log's, behind it, is for retention."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MOST)]
    token: Token
    resume: bool
    expire_after: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    own: bool = False


class ReadShard(Message, frozen=True):
    """Begin a reading. `credit`: how much may be sent (`cost`); the last piece may have more than
    is left. A durable consumer that is known begins at its position, whatever `start` says, unless
    it resumes or keeps its own. `permitted`: what the reader's tenant may see, as the leader's node
    fills in; "": all. `shares`: the reader's node takes SharedRows. Answered by ReadingBegan or
    ReadingRefused."""

    shard: Shard
    reading: Number
    start: ReadFrom
    selector: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)]
    credit: Number
    durable: Durable | None = None
    permitted: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    shares: bool = False


class ReadingBegan(Message, frozen=True):
    """The reading begins at `position`; the shard's next row will have the offset `next`, or,
    of one that begins with the newest rows, these lie below `next`.
    `attachment`: that of the durable consumer, 0: none. `losses`: how many times the log has lost
    rows at its end."""

    shard: Shard
    reading: Number
    position: Number
    next: Number
    attachment: Number
    losses: Number = 0


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rows of one chunk (`streams.log.batches.encode_rows`), appended at `time`. The first has the
    offset `first`; `places` are the others' offsets less that one, in order; empty: they follow on
    one another."""

    time: Uint63
    first: Uint53
    count: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    places: tuple[Uint53, ...]
    rows: bytes


def cost(piece: Piece) -> int:
    """The credit that a piece takes."""
    return len(piece.rows) + ROW_COST * piece.count


class StreamRows(Message, frozen=True):
    """Rows for some readings, each with the position at which it was. All of them are at `position`
    now."""

    shard: Shard
    readings: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]
    position: Number
    pieces: tuple[Piece, ...]


class LooseRows(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rows of one chunk, appended at `time`, each by itself (`streams.log.batches.encode_rows`).
    The first has the offset `first`; `places` are all offsets less that one, ascending."""

    time: Uint63
    first: Uint53
    places: tuple[Uint53, ...]
    rows: tuple[bytes, ...]


class Share(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which rows of a message some readings get, counted over all of its chunks from 0, ascending;
    each reading with the position at which it was."""

    readings: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]
    rows: tuple[Uint53, ...]


class SharedRows(Message, frozen=True):
    """What has matched of the same chunks for readings of one node, each row once. All of the
    readings are at `position` now. Sent to who has asked for it (`ReadShard`)."""

    shard: Shard
    position: Number
    chunks: tuple[LooseRows, ...]
    shares: Annotated[tuple[Share, ...], msgspec.Meta(max_length=LISTED_MOST)]


class ReadingsScanned(Message, frozen=True):
    """Nothing matched: (reading, position before, position now)."""

    shard: Shard
    marks: Annotated[
        tuple[tuple[Uint53, Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)
    ]


class KeepReadings(Message, frozen=True):
    """The reader's node has these readings: (reading, how much may be sent in all since it
    began). Sent when a program has taken rows, and every few seconds, since a leader ends readings
    of which it does not hear. Answered by ReadingsKept."""

    shard: Shard
    readings: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]


class ReadingsKept(Message, frozen=True):
    """(reading, the last position that was sent for it) of those that were named and are there, and
    the others. `cut_off`: no majority of the shard's replicas answers the leader, so that nothing
    new is committed."""

    shard: Shard
    positions: Annotated[tuple[tuple[Uint53, Uint53], ...], msgspec.Meta(max_length=LISTED_MOST)]
    missing: Annotated[tuple[Uint53, ...], msgspec.Meta(max_length=LISTED_MOST)]
    cut_off: bool = False


class EndReadings(Message, frozen=True):
    """The reader's node has these readings no more."""

    shard: Shard
    readings: Annotated[tuple[Uint53, ...], msgspec.Meta(max_length=LISTED_MOST)]


class CommitPosition(Message, frozen=True):
    """A durable consumer is done with all offsets below `position`. Answered by PositionCommitted
    or ReadingRefused."""

    shard: Shard
    reading: Number
    durable: DurableName
    attachment: Number
    position: Number


class PositionCommitted(Message, frozen=True):
    """The durable consumer's position is in the log, and is this one or a higher one."""

    shard: Shard
    reading: Number
    position: Number


class ReadingRefused(Message, frozen=True):
    """A reading has not begun, or ends. `first`, `next`: with OUT_OF_RANGE, the oldest offset that
    is kept and the one that comes next."""

    shard: Shard
    reading: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    first: Uint53 = 0
    next: Uint53 = 0


class AskRow(Message, frozen=True):
    """Asks a shard's leader what became of a row. Answered by RowFacts, by a leader."""

    shard: Shard
    ticket: Number
    offset: Number


class RowFacts(Message, frozen=True):
    """`state`: kept, past its time, removed (by retention) or not yet; `first` to `next` are there.
    `producer` and `number`: whose row it is, by its batch's head. `readers`: each durable
    consumer's name, selector, position, and what became of the row
    (`overlay.stream_client.RowReader`). `fork`: it was copied from there, where its offset was
    `at`."""

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
    """These readings are not served here (any more); `leader`: who leads, if that is known."""

    shard: Shard
    readings: Annotated[tuple[Uint53, ...], msgspec.Meta(max_length=LISTED_MOST)]
    leader: Peer | None
