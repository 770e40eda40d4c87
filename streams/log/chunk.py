"""A chunk: the unit in which a shard's log is written, replicated and hashed.

Layout, big-endian: mark, length of the whole chunk, CRC-32 of all but itself, format, kind, flags,
epoch, chunk number (from 1), first offset, number of offsets, length of the zone map, the leader's
time, number of the last chunk known to be committed, SHA-256 of the chunk before; then the zone map
and the rows, both MessagePack. The chunk before the first is the shard's name (`genesis`), so that
a chunk of one shard fits nowhere in another.

The CRC finds damage by a disk or a crash; the hash finds everything else, and identifies a chunk:
replicas compare positions by it, and receipts contain it. Followers copy chunks without decoding
zones or rows, so that all replicas have the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Final, NamedTuple

MARK: Final = b"\x93csl"
"""Begins a chunk, so that valid chunks can be found behind damage."""

FORMAT: Final = 1

HEAD: Final = struct.Struct(">4sIIBBHQQQIIQQ32s")

EVENTS: Final = 1
PREPARED: Final = 2
DECIDED: Final = 3
POSITIONS: Final = 4
DEAD: Final = 5
REPLICAS: Final = 6
CUT: Final = 7
STATE: Final = 8
PRODUCERS: Final = 9
TABLE: Final = 10
KINDS: Final = {
    EVENTS: "Events",
    PREPARED: "Prepared",
    DECIDED: "Decided",
    POSITIONS: "Positions",
    DEAD: "Dead",
    REPLICAS: "Replicas",
    CUT: "Cut",
    STATE: "State",
    PRODUCERS: "Producers",
    TABLE: "Table",
}
"""The kinds by number."""

BEGINS: Final = 1
"""Flag of the first chunk of a segment."""

COMPLETES: Final = 2
"""Flag of the last chunk of the state with which a segment begins."""

NANOSECONDS: Final = 1_000_000_000
"""Of a second: the unit of the times in the log."""

CHUNK_MOST: Final = 960 * 1024
"""The limit of a chunk's bytes: it has to fit into one frame between nodes (1 MiB)."""

CHUNK_TARGET: Final = 256 * 1024
"""Bytes of rows after which a leader begins another chunk. A larger batch has its own chunk."""


class ChunkId(NamedTuple):
    """The number and hash of a chunk, which identify it and all chunks before it."""

    number: int
    hash: bytes


class Chunk(NamedTuple):
    """A chunk with its head decoded, in the order of the layout; `data` are the bytes of the whole
    chunk."""

    data: bytes
    hash: bytes
    kind: int
    flags: int
    epoch: int
    number: int
    first: int  # offset of its first row; of a chunk without rows, that of the next row
    offsets: int  # how many
    zones_length: int
    time: int  # nanoseconds since 1970 by the leader's clock, never less than in the chunk before
    committed: int  # number of a chunk that was committed when this one was made; 0: none
    previous: bytes

    @property
    def id(self) -> ChunkId:
        """The number and hash of the chunk."""
        return ChunkId(self.number, self.hash)

    @property
    def next_offset(self) -> int:
        """The offset after its last row."""
        return self.first + self.offsets

    @property
    def zones(self) -> bytes:
        """The encoded zone map; empty if it has none."""
        return self.data[HEAD.size : HEAD.size + self.zones_length]

    @property
    def rows(self) -> bytes:
        """The bytes behind the zone map."""
        return self.data[HEAD.size + self.zones_length :]

    @property
    def begins_segment(self) -> bool:
        """Whether a segment begins with it."""
        return bool(self.flags & BEGINS)

    @property
    def completes_state(self) -> bool:
        """Whether it is the last chunk of the state with which its segment begins."""
        return bool(self.flags & COMPLETES)


def genesis(shard: str) -> ChunkId:
    """The predecessor of the first chunk of `shard`: chunk 0."""
    return ChunkId(0, hashlib.sha256(b"canopy shard:" + shard.encode()).digest())


def pack(
    kind: int,
    epoch: int,
    after: ChunkId,
    first: int,
    count: int,
    time: int,
    rows: bytes,
    *,
    zones: bytes = b"",
    flags: int = 0,
    committed: int = 0,
) -> Chunk:
    """The chunk that follows on `after`. ValueError if it is longer than `CHUNK_MOST`."""
    length = HEAD.size + len(zones) + len(rows)
    if length > CHUNK_MOST:
        raise ValueError(f"a chunk of {length} bytes is longer than {CHUNK_MOST}")
    number = after.number + 1
    fields = (kind, flags, epoch, number, first, count, len(zones), time, committed, after.hash)
    body = zones + rows
    digest = _crc(HEAD.pack(MARK, length, 0, FORMAT, *fields), body)
    data = HEAD.pack(MARK, length, digest, FORMAT, *fields) + body
    return Chunk(data, hashlib.sha256(data).digest(), *fields)


def read(data: bytes | memoryview, at: int = 0, *, hashed: bool = True) -> Chunk | None:
    """The chunk that begins at `at`; None if there is no whole, valid one. If not `hashed`, its
    hash is empty, for callers that need only its rows: hashing takes four times as long as the
    CRC."""
    if at + HEAD.size > len(data):
        return None
    mark, length, digest, version, *fields = HEAD.unpack_from(data, at)
    if mark != MARK or not HEAD.size <= length <= CHUNK_MOST or at + length > len(data):
        return None
    whole = bytes(data[at : at + length])
    if _crc(whole[: HEAD.size], memoryview(whole)[HEAD.size :]) != digest:
        return None
    chunk = Chunk(whole, hashlib.sha256(whole).digest() if hashed else b"", *fields)
    is_known = version == FORMAT and chunk.kind in KINDS
    return chunk if is_known and HEAD.size + chunk.zones_length <= length else None


def number_of(data: bytes) -> int:
    """The number of a valid chunk."""
    number: int = HEAD.unpack_from(data)[7]
    return number


def _crc(head: bytes, body: bytes | memoryview) -> int:
    """CRC-32 of a chunk without the field that has it (bytes 8 to 11)."""
    return zlib.crc32(body, zlib.crc32(head[12:], zlib.crc32(head[:8])))
