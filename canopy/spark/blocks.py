"""Rows of one shard as one Arrow batch: encoded as in the log, with their places.

Most of what reading a row costs in Python is making objects of it. So a block is decoded at once,
and only the attributes that are columns: of each row a struct of these, not a dictionary of all.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from canopy.spark.rows import SparkSourceError
from matching import Value
from overlay.client import PackedEvents
from streams.log.batches import Row

BLOCK_ROWS: Final = 10_000
"""Rows of one block: Spark's own size of a batch (spark.sql.execution.arrow.maxRecordsPerBatch)."""

EVERYTHING: Final = 2**63 - 1
"""Behind any offset."""

_HEADER: Final = b"\xdd"  # MessagePack's array 32: this byte, 4 bytes of length, the items

Column = list[Value | None]


class Block:
    """The rows of some pieces of one shard, in order, from the offset `begin` to before `end`."""

    def __init__(
        self, pieces: Sequence[PackedEvents], begin: int = 0, end: int = EVERYTHING
    ) -> None:
        self.shard = pieces[0].shard
        counts = [piece.count for piece in pieces]
        offsets = np.concatenate([offsets_of(piece) for piece in pieces])
        times = np.repeat(np.array([piece.time for piece in pieces], np.int64), counts)
        first, behind = np.searchsorted(offsets, (begin, end))
        self._first = pieces[0].first
        self._all = len(offsets)
        self._kept = slice(int(first), int(behind))
        self._encoded = b"".join([piece.rows for piece in pieces])
        self.offsets: npt.NDArray[np.int64] = offsets[self._kept]
        self.times: npt.NDArray[np.int64] = times[self._kept]
        """When each row was appended, in nanoseconds since 1970."""

    def __len__(self) -> int:
        return len(self.offsets)

    def columns(self, names: Sequence[str]) -> list[Column]:
        """Return the values of these attributes; None where a row lacks one."""
        decoder = _decoder(tuple(names))
        if not names:
            return []
        if decoder is None:
            rows = [row.attributes for row in self._rows()]
            return [[row.get(name) for row in rows] for name in names]
        found = [row.attributes for row in self._decoded(decoder.decode)]
        return [list(map(attrgetter(f"f{place}"), found)) for place in range(len(names))]

    def payloads(self) -> tuple[list[bytes], list[str]]:
        """The payloads of all rows, and their types."""
        rows = self._decoded(_PAYLOADS.decode)
        return [row.payload for row in rows], [row.payload_type for row in rows]

    def attributes(self) -> list[dict[str, Value | None]]:
        """All attributes of each row."""
        return [row.attributes for row in self._rows()]

    def _rows(self) -> Sequence[Any]:
        return self._decoded(_ROWS.decode)

    def _decoded(self, decode: Callable[[bytes], Sequence[Any]]) -> Sequence[Any]:
        try:
            found = decode(_HEADER + self._all.to_bytes(4, "big") + self._encoded)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SparkSourceError(
                f"shard {self.shard}: rows from offset {self._first} on cannot be read: {error}"
            ) from None
        return found if len(self) == self._all else found[self._kept]


def offsets_of(piece: PackedEvents) -> npt.NDArray[np.int64]:
    """The offset of each row in a piece, which need not follow on one another."""
    if not piece.places:
        return np.arange(piece.first, piece.first + piece.count)
    return piece.first + np.array((0, *piece.places), np.int64)


def behind(piece: PackedEvents) -> int:
    """The offset that follows on a piece's last row."""
    return piece.first + (piece.places[-1] if piece.places else piece.count - 1) + 1


def blocks(pieces: Iterable[PackedEvents], begin: int, end: int) -> Iterator[Block]:
    """Blocks of `BLOCK_ROWS` rows and more, the last of fewer."""
    held: list[PackedEvents] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += piece.count
        if count >= BLOCK_ROWS:
            yield Block(held, begin, end)
            held, count = [], 0
    if held:
        yield Block(held, begin, end)


class _Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    attributes: msgspec.Raw
    payload: bytes = b""
    payload_type: str = ""


_ROWS: Final = msgspec.msgpack.Decoder(tuple[Row, ...])
_PAYLOADS: Final = msgspec.msgpack.Decoder(tuple[_Payload, ...])


@lru_cache
def _decoder(names: tuple[str, ...]) -> msgspec.msgpack.Decoder[Any] | None:
    """Return a decoder of rows that decodes only these attributes, as the fields f0, f1, …; None if
    msgspec rejects a name as a field's."""
    fields = [(f"f{place}", Any, None) for place in range(len(names))]
    rename = {f"f{place}": name for place, name in enumerate(names)}
    try:
        attributes = msgspec.defstruct("Attributes", fields, rename=rename, gc=False)
    except ValueError:
        return None
    row = msgspec.defstruct("Row", [("attributes", attributes)], array_like=True, gc=False)
    kind: Any = types.GenericAlias(tuple, (row, ...))
    return msgspec.msgpack.Decoder(kind)
