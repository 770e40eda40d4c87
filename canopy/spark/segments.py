"""Rows from folders of segments, with no node: those of one replica of a shard, or of several.

What a log says itself to be committed is read. Behind that a replica may have rows that no majority
ever had. They are read if there are folders of all replicas of the shard, and of the furthest log
as far as a majority has the same chunks: what that log would lead with.

A chunk that is damaged in one folder is taken from another, as far as that one's own log says that
it is committed. Chunks whose zone maps exclude the selector are passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from msgspec.structs import astuple

from canopy.spark.rows import RowRange, RowsLostError, ShardEnds, SparkSourceError, check_same
from matching import Predicate, compile_selector
from overlay.client import PackedEvents
from streams.directory.entry import decode_entry
from streams.log.batches import MalformedChunkError, rows_of
from streams.log.chunk import EVENTS, HEAD, MARK, Chunk, read
from streams.log.recovery import Recovered, recover
from streams.log.shard_log import Line, parse_name
from streams.log.zones import decode_zones
from streams.services.read.chunk_rows import RowPieces, whole_piece
from streams.services.read.history import ChunkFilter

NANOSECONDS: Final = 1e9

HEADS: Final = 64 * 1024
"""Bytes that are read at once where chunks are passed over: many small ones, or the head of a large
one."""

_opened: Final[dict[tuple[tuple[str, ...], str], FolderRows]] = {}
"""The opened folders of this process, in which tasks follow on one another: each would read the
newest segments to learn what is committed."""


def folder_rows(folders: tuple[str, ...], stream: str) -> FolderRows:
    """This process's view of a stream's folders."""
    return _opened.setdefault((folders, stream), FolderRows(folders, stream))


class _Found(NamedTuple):
    """One shard's folder as it was recovered; `recovered` is kept while its files are the same."""

    folder: Path
    sizes: tuple[tuple[str, int], ...]
    recovered: Recovered


class _Replica(NamedTuple):
    """A folder, and its first offset that is not known to be committed."""

    folder: Path
    end: int


class _Shard(NamedTuple):
    """One shard: its ends, and its replicas, the first of which has all rows."""

    ends: ShardEnds
    replicas: tuple[_Replica, ...]


class FolderRows:
    """`canopy.spark.rows.Rows` of folders: of shards (STREAM/NUMBER), of streams, or data folders
    of nodes, below which the folders of the stream are looked for."""

    def __init__(self, folders: Sequence[str], stream: str) -> None:
        """`stream`: its name or id; "": the only one that is there."""
        self._paths = [Path(each.removeprefix("file://")).expanduser() for each in folders]
        self._stream = stream
        self._known: dict[Path, _Found] = {}
        self._shards: dict[int, _Shard] = {}
        self.stream_id = ""

    def ends(self) -> dict[int, ShardEnds]:
        """Return the present offsets by shard."""
        self._look()
        return {number: shard.ends for number, shard in self._shards.items()}

    def at_time(self, time: int) -> dict[int, int]:
        """By shard, the first offset at this time (nanoseconds since 1970) or later."""
        self._look()
        found = {}
        for number, shard in self._shards.items():
            chunks = self._chunks(number, shard.ends.first, shard.ends.next)
            found[number] = next((c.first for c in chunks if c.time >= time), shard.ends.next)
        return found

    def read(self, wanted: RowRange, selector: str) -> Iterator[PackedEvents]:
        """Yield the rows of the range that the selector matches (`Rows.read`)."""
        known = self._shards.get(wanted.shard)
        is_other = wanted.stream not in ("", self.stream_id)
        if known is None or is_other or wanted.end > known.ends.next:
            self._look()
        check_same(wanted.stream, self.stream_id)
        self._kept(wanted.shard, wanted.begin, wanted.end)
        predicate = compile_selector(selector) if selector else None
        for chunk in self._chunks(wanted.shard, wanted.begin, wanted.end, predicate):
            if wanted.until is not None and chunk.time / NANOSECONDS >= wanted.until:
                return
            if (found := _matching(chunk, wanted.shard, predicate)) is not None:
                yield found

    # -- which rows there are --------------------------------------------------------------------

    def _look(self) -> None:
        by_shard: dict[int, list[_Found]] = {}
        streams: dict[str, str] = {}
        for path in self._folders():
            found = self._recovered(path)
            entry = decode_entry(found.recovered.state.stream)
            name, number = path.parent.name, int(path.name)
            known = (name, "" if entry is None else entry.name)
            if not self._stream or self._stream in known:
                streams[name] = known[1]
                by_shard.setdefault(number, []).append(found)
        if not by_shard:
            what = f"of stream {self._stream}" if self._stream else "of a stream"
            places = ", ".join(map(str, self._paths))
            raise SparkSourceError(f"there are no segments {what} in {places}")
        if len(streams) > 1:
            names = ", ".join(streams[each] or each for each in sorted(streams))
            raise SparkSourceError(f'name one of the streams by .option("stream", …): {names}')
        (self.stream_id,) = streams
        self._shards = {number: _shard_of(found) for number, found in sorted(by_shard.items())}

    def _folders(self) -> Iterator[Path]:
        """The folders of shards: they have segments."""
        for path in self._paths:
            if not path.is_dir():
                raise SparkSourceError(
                    f"there is no folder {path} (each machine of Spark needs it)"
                )
            for folder in (path, *path.glob("*/"), *path.glob("*/*/"), *path.glob("*/*/*/")):
                is_shard = folder.name.isdecimal() and folder.parent.parent.name != "quarantine"
                if is_shard and any(parse_name(each.name) for each in folder.iterdir()):
                    yield folder

    def _kept(self, number: int, begin: int, end: int) -> _Shard:
        """A shard that has this range of offsets. Raises RowsLostError."""
        there = self._shards.get(number, _Shard(ShardEnds(0, 0), ()))
        first, behind = there.ends
        if begin < first:
            raise RowsLostError(
                f"shard {number}: the rows from offset {begin} on are no longer kept: {first} "
                "is the first"
            )
        if end > behind:
            raise RowsLostError(
                f"shard {number}: rows up to offset {end} were there, and now there are {behind}"
            )
        return there

    def _recovered(self, folder: Path) -> _Found:
        names = [each for each in folder.iterdir() if parse_name(each.name)]
        sizes = tuple(sorted((each.name, each.stat().st_size) for each in names))
        known = self._known.get(folder)
        if known is None or known.sizes != sizes:
            try:
                recovered = recover(
                    f"{folder.parent.name}/{folder.name}",
                    [name for name, _ in sizes],
                    lambda name: (folder / name).read_bytes(),
                    dict(sizes).__getitem__,
                )
            except (OSError, MalformedChunkError) as error:
                raise SparkSourceError(f"{folder}: {error}") from None
            known = self._known[folder] = _Found(folder, sizes, recovered)
        return known

    # -- chunks ----------------------------------------------------------------------------------

    def _chunks(
        self, number: int, begin: int, end: int, predicate: Predicate | None = None
    ) -> Iterator[Chunk]:
        """The chunks of events with offsets from `begin` to before `end`, each from the first
        replica that has it whole."""
        skips = None if predicate is None else ChunkFilter(predicate)
        shard = self._shards[number]
        at, missed = begin, -1
        while at < end:
            before = at
            for replica in shard.replicas:
                for chunk in _walk(replica.folder, at, min(end, replica.end)):
                    at = chunk.next_offset
                    if chunk.kind != EVENTS:
                        continue
                    if skips is None or skips.may_match(decode_zones(chunk.zones)):
                        yield chunk
            if at == before and at != missed:
                self._look()  # it was removed meanwhile, or another replica has it by now
                shard, missed = self._kept(number, at, end), at
            elif at == before:
                folders = ", ".join(str(replica.folder) for replica in shard.replicas)
                raise SparkSourceError(
                    f"the chunk with offset {at} is damaged or missing in {folders}: add the "
                    "folder of another replica to the path"
                )


def _shard_of(found: Sequence[_Found]) -> _Shard:
    """Find the committed rows of a shard."""
    ordered = sorted(found, key=lambda each: each.recovered.log.position, reverse=True)
    replicas = [
        _Replica(f.folder, _offset_behind(f.recovered, f.recovered.committed)) for f in ordered
    ]
    first = ordered[0].recovered
    committed = _held_by_majority(ordered)
    if committed > first.committed:
        replicas[0] = _Replica(ordered[0].folder, _offset_behind(first, committed))
    replicas.sort(key=lambda each: each.end, reverse=True)
    floor = max(each.recovered.state.floor for each in found)
    oldest = min(
        (parsed[0] for each in found for name, _ in each.sizes if (parsed := parse_name(name))),
        default=0,
    )
    return _Shard(ShardEnds(max(floor, oldest), replicas[0].end), tuple(replicas))


def _held_by_majority(ordered: Sequence[_Found]) -> int:
    """The number of the last chunk of the furthest log that a majority has; 0: there are not the
    folders of all replicas."""
    furthest = ordered[0].recovered
    count = len(furthest.state.replicas)
    if not 0 < count <= len(ordered):
        return 0
    held = []
    for each in ordered:
        log = each.recovered.log
        same: list[Line] = [line for line in furthest.log.lines if log.has(line.id)]
        held.append(same[-1].number if same else 0)
    return sorted(held, reverse=True)[count // 2]


def _offset_behind(recovered: Recovered, number: int) -> int:
    """Return the offset after chunk `number`, or after the last known chunk before that one."""
    lines = [line for line in recovered.log.lines if line.number <= number]
    if lines:
        return lines[-1].first + lines[-1].offsets
    segments = recovered.log.segments
    return segments[0].offset if segments else 0


def _walk(folder: Path, begin: int, end: int) -> Iterator[Chunk]:
    """The chunks of all kinds with offsets, from that with the offset `begin` on, while nothing is
    missing and each is whole."""
    try:
        found = [(parsed, each) for each in folder.iterdir() if (parsed := parse_name(each.name))]
    except FileNotFoundError:
        return
    segments = sorted(found)
    starts = [offset for (offset, _), _ in segments]
    at = begin
    for place, (_, path) in enumerate(segments):
        behind = starts[place + 1] if place + 1 < len(starts) else end
        if at >= end or behind <= at:
            continue
        try:
            file = path.open("rb", buffering=HEADS)
        except FileNotFoundError:
            return
        with file:
            for chunk in _chunks_of(file, at, end):
                if chunk.first > at:
                    return
                yield chunk
                at = chunk.next_offset


def _chunks_of(file: BinaryIO, begin: int, end: int) -> Iterator[Chunk]:
    """The chunks of one segment with offsets, up to one that is not whole."""
    at = begin
    while at < end and len(head := file.read(HEAD.size)) == HEAD.size and head.startswith(MARK):
        length, first, count = itemgetter(1, 8, 9)(HEAD.unpack(head))
        rest = max(length - HEAD.size, 0)
        if not count or first + count <= at:
            file.seek(rest, os.SEEK_CUR)
            continue
        chunk = read(head + file.read(rest), hashed=False)
        if chunk is None:
            return
        yield chunk
        at = chunk.next_offset


def _matching(chunk: Chunk, shard: int, predicate: Predicate | None) -> PackedEvents | None:
    """Return the rows of a chunk that match; the chunk unchanged if all rows are wanted."""
    try:
        if predicate is None:
            piece = whole_piece(chunk)
        else:
            rows = rows_of(chunk)
            found = [n for n, row in enumerate(rows) if predicate.matches(row.attributes)]
            if not found:
                return None
            piece = RowPieces(chunk, rows).piece(found)
    except MalformedChunkError as error:
        raise SparkSourceError(f"shard {shard}: {error}") from None
    return PackedEvents(shard, *astuple(piece))
