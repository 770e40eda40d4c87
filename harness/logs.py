"""Logs of a shard for tests, and an independent, naive reader of their bytes."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from overlay.machine import Peer
from streams.log.batches import BatchHead, Row, encode_rows, join_batches
from streams.log.chunk import CUT, EVENTS, STATE, Chunk, genesis, pack, read
from streams.log.shard_log import ShardLog
from streams.log.state import Floor, ShardState, encode_entries
from streams.log.zones import encode_zones, zone_map
from streams.shard.leader import ShardLeader

SHARD = "stream/0"


class WrongError(AssertionError):
    """A checker of a world has found something."""


class EventBatch(NamedTuple):
    """Rows that are appended together, or not at all."""

    head: BatchHead
    rows: tuple[Row, ...]


def encode_batches(batches: Sequence[EventBatch]) -> bytes:
    """The rows of a chunk with these batches."""
    return join_batches([b.head for b in batches], [encode_rows(b.rows) for b in batches])


def append_batches(leader: ShardLeader, batches: Sequence[EventBatch], time: int) -> Chunk:
    """Append one chunk with these batches at `time`, nanoseconds since 1970."""
    encoded = [encode_rows(batch.rows) for batch in batches]
    rows = [row for batch in batches for row in batch.rows]
    return leader.append_rows([batch.head for batch in batches], encoded, rows, time)


def batch(producer: str, session: int, sequence: int, rows: int, size: int = 3) -> EventBatch:
    items = tuple(Row({"n": sequence + i, "who": producer}, b"x" * size) for i in range(rows))
    return EventBatch(BatchHead(producer, session, sequence, rows), items)


class LogWriter:
    """Writes a log as a leader would, into files in memory."""

    def __init__(self, shard: str = SHARD) -> None:
        self.log = ShardLog(genesis(shard))
        self.state = ShardState()
        self.state.replicas = (Peer("a" * 16, "127.0.0.1:1"), Peer("b" * 16, "127.0.0.1:2"))
        self.files: dict[str, bytearray] = {}
        self.chunks: list[Chunk] = []
        self.time = 1_000

    def begin_segment(self, epoch: int = 1) -> None:
        for piece, flags in self.state.pieces():
            self._add(STATE, epoch, piece, flags=flags)

    def events(self, *batches: EventBatch, epoch: int = 1) -> Chunk:
        rows = [row for one in batches for row in one.rows]
        zones = encode_zones(zone_map(rows))
        return self._add(EVENTS, epoch, encode_batches(batches), len(rows), zones=zones)

    def cut(self, floor: int, epoch: int = 1) -> Chunk:
        return self._add(CUT, epoch, encode_entries([Floor(floor)]))

    def _add(
        self,
        kind: int,
        epoch: int,
        rows: bytes,
        offsets: int = 0,
        *,
        flags: int = 0,
        zones: bytes = b"",
    ) -> Chunk:
        self.time += 7
        log = self.log
        chunk = pack(
            *(kind, epoch, log.end, log.next_offset, offsets, self.time, rows),
            zones=zones,
            flags=flags,
            committed=log.end.number,
        )
        line = log.add(chunk)
        self.state.apply(chunk)
        self.files.setdefault(line.segment, bytearray()).extend(chunk.data)
        self.chunks.append(chunk)
        return chunk

    def load(self, name: str) -> bytes:
        return bytes(self.files[name])


def chunks_of(data: bytes) -> Iterator[Chunk]:
    """The chunks at the beginning of these bytes."""
    at = 0
    while (chunk := read(data, at)) is not None:
        yield chunk
        at += len(chunk.data)


def committed_chunks(data: bytes, truth: Mapping[int, bytes]) -> Iterator[Chunk]:
    """The chunks of a log, and whether it has all that was committed. `truth`: the hashes of chunks
    that were, by number. Raises WrongError."""
    number = 0
    for chunk in chunks_of(data):
        if number not in (0, chunk.number - 1) or truth.get(chunk.number, chunk.hash) != chunk.hash:
            raise WrongError(f"chunk {chunk.number} is not what was committed")
        number = chunk.number
        yield chunk
    if number < max(truth, default=0):
        raise WrongError(f"the log ends with {number}, and {max(truth)} was committed")


def random_log(rng: Random, chunks: int = 12, segments: int = 3) -> LogWriter:
    """A log of a few segments, producers and epochs."""
    made = LogWriter()
    sequences: dict[str, int] = {}
    epoch = 1
    begins = sorted(rng.sample(range(1, chunks), segments - 1))
    made.begin_segment()
    for place in range(chunks):
        epoch += rng.random() < 0.2
        if place in begins:
            made.begin_segment(epoch)
        batches = []
        for _ in range(rng.randint(1, 3)):
            producer, rows = rng.choice(("", "p", "q")), rng.randint(1, 4)
            batches.append(batch(producer, 1, sequences.get(producer, 0), rows, rng.randrange(40)))
            sequences[producer] = sequences.get(producer, 0) + rows
        made.events(*batches, epoch=epoch)
    return made


def naive_chunks(data: bytes) -> list[tuple[int, int, int, int, bytes]]:
    """(number, epoch, first, offsets, hash) of the valid chunks from the beginning on, read by
    fixed places: written from the format's description, without the product's code."""
    found = []
    at = 0
    while data[at : at + 4] == b"\x93csl" and len(data) - at >= 92:
        length, digest = struct.unpack(">II", data[at + 4 : at + 12])
        whole = data[at : at + length]
        if length < 96 or len(whole) < length or zlib.crc32(whole[:8] + whole[12:]) != digest:
            break
        epoch, number, first = struct.unpack(">QQQ", whole[16:40])
        (offsets,) = struct.unpack(">I", whole[40:44])
        found.append((number, epoch, first, offsets, hashlib.sha256(whole).digest()))
        at += length
    return found
