"""Verification of a shard's folder, without any node.

Each segment is read whole, from the oldest to the newest. Checked are the CRC and format of each
chunk, the chain of hashes within and between segments, that offsets, epochs and times never go
back, the number of rows, and that the state at a segment's beginning is the fold of the log before
it. The first fault ends the verification: it says nothing about the chunks behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from streams.log.batches import MalformedChunkError, rows_of
from streams.log.chunk import (
    CUT,
    EVENTS,
    KINDS,
    PRODUCERS,
    STATE,
    TABLE,
    Chunk,
    ChunkId,
    genesis,
    read,
)
from streams.log.names import fork_shard, shard_name
from streams.log.shard_log import parse_name, segment_name
from streams.log.state import ForkCopied, ShardState, entries_of
from streams.log.table import table_rows


class MalformedReceiptError(Exception):
    """A text that is no receipt."""


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A committed batch: the offsets `first` to `first + count - 1` of a shard, in the chunk with
    this number, epoch and hash (SHA-256, hexadecimal)."""

    stream: str
    shard: int
    epoch: int
    first: int
    count: int
    chunk: int
    hash: str
    replicas: tuple[str, ...] = ()
    """The nodes that had the chunk on disk when the receipt was issued. No log proves that."""
    fork: str = ""
    """The fork of the shard that took the batch: its own segments prove the receipt, and those of
    the shard after the fork was copied; "": the shard's main log."""

    @property
    def name(self) -> str:
        """The name of the shard (`shard_name`), for a receipt of a fork as well."""
        return shard_name(self.stream, self.shard)

    def refuted_by(self, chunk: Chunk) -> str:
        """Return why `chunk`, which has the receipt's number, is not the receipt's chunk; "" if it
        is."""
        if chunk.hash.hex() != self.hash:
            return f"chunk {chunk.number} has the hash {chunk.hash.hex()}, not {self.hash}"
        if chunk.epoch != self.epoch:
            return f"chunk {chunk.number} is of epoch {chunk.epoch}, not {self.epoch}"
        last = self.first + self.count
        if self.count < 1 or self.first < chunk.first or last > chunk.next_offset:
            return (
                f"chunk {chunk.number} has the offsets {chunk.first} to {chunk.next_offset - 1}, "
                f"not {self.first} to {last - 1}"
            )
        return ""


def parse_receipt(text: bytes) -> Receipt:
    """A receipt from its JSON. MalformedReceiptError if it is none."""
    try:
        return msgspec.json.decode(text, type=Receipt)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedReceiptError(str(error)) from None


class FirstFault(msgspec.Struct, frozen=True):
    """The first fault: `at` is a byte of the file `segment`, `chunk` the number of the chunk that
    is there, or should be."""

    segment: str
    at: int
    chunk: int
    what: str


class Verified(msgspec.Struct, frozen=True):
    """The content of a folder, up to its end or to its first fault."""

    segments: int
    chunks: int
    rows: int
    bytes: int
    first_offset: int
    next_offset: int
    first_chunk: int
    last_chunk: int
    last_hash: str
    epochs: tuple[int, ...]
    committed: int  # number of the last chunk that a later one says was committed
    fault: FirstFault | None
    receipt: str  # "": none was asked for; else proved, refuted, not kept, not reached
    reason: str  # why the receipt is not proved


class _FaultFound(Exception):  # noqa: N818 - ends the walk, and is no error of the program
    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at
        self.what = what


class Verifier:
    """Walks over a shard's segments. `shard` is its name; "": not known, so that a first chunk is
    not held against it."""

    def __init__(self, shard: str = "", receipt: Receipt | None = None) -> None:
        self._shard = shard
        self._receipt = receipt
        self._state = ShardState()
        self._known = False  # whether the state has been folded from a complete one on
        self._claimed: ShardState | None = None  # what a segment says that the state is
        self._last: Chunk | None = None
        self._first: Chunk | None = None
        self._rows = self._chunks = self._bytes = self._segments = self._committed = 0
        self._epochs: dict[int, None] = {}
        self._named: Chunk | None = None  # the chunk that the receipt names
        self._copied: ForkCopied | None = None  # what a main log says of that chunk of a fork
        self._fork = "" if receipt is None else receipt.fork  # that is looked for in a main log

    def run(self, names: Sequence[str], load: Callable[[str], bytes]) -> Verified:
        """Check the files with these names; `load` returns the bytes of one."""
        found = [(parsed[1], name) for name in names if (parsed := parse_name(name))]
        fault = None
        for _, name in sorted(found):
            data = load(name)
            self._segments += 1
            try:
                self._segment(name, data)
            except _FaultFound as error:
                number = 1 if self._last is None else self._last.number + 1
                fault = FirstFault(name, error.at, number, error.what)
                break
        verdict, reason = self._judge(fault)
        first, last = self._first, self._last
        return Verified(
            self._segments,
            self._chunks,
            self._rows,
            self._bytes,
            first.first if first else 0,
            last.next_offset if last else 0,
            first.number if first else 0,
            last.number if last else 0,
            last.hash.hex() if last else "",
            tuple(self._epochs),
            self._committed,
            fault,
            verdict,
            reason,
        )

    def _segment(self, name: str, data: bytes) -> None:
        at = 0
        while at < len(data) or at == 0:
            chunk = read(data, at)
            if chunk is None:
                raise _FaultFound(at, _why_not(data, at))
            if at == 0 and (not chunk.begins_segment or segment_name(chunk) != name):
                raise _FaultFound(
                    at, f"chunk {chunk.number} does not belong at the begin of {name}"
                )
            if at > 0 and chunk.begins_segment:
                raise _FaultFound(at, f"chunk {chunk.number} belongs at the begin of a file")
            self._follows(at, chunk)
            try:
                self._fold(at, chunk)
            except MalformedChunkError as error:
                raise _FaultFound(at, str(error)) from None
            self._take(chunk)
            at += len(chunk.data)

    def _follows(self, at: int, chunk: Chunk) -> None:
        last = self._last
        if last is None:
            start = genesis(self._shard) if self._shard else ChunkId(0, chunk.previous)
            if self._fork and chunk.previous == self._fork_genesis():
                self._fork = ""  # it is the log of the fork itself
            elif chunk.number == 1 and chunk.previous != start.hash:
                raise _FaultFound(at, f"the log is not that of shard {self._shard}")
            return
        if chunk.number != last.number + 1:
            raise _FaultFound(at, f"chunk {chunk.number} follows on chunk {last.number}")
        if chunk.previous != last.hash:
            raise _FaultFound(
                at,
                f"chunk {chunk.number} does not follow on chunk {last.number}: their hashes differ",
            )
        if chunk.first != last.next_offset:
            raise _FaultFound(
                at, f"chunk {chunk.number} begins at offset {chunk.first}, not {last.next_offset}"
            )
        if chunk.epoch < last.epoch or chunk.time < last.time:
            raise _FaultFound(at, f"chunk {chunk.number} goes back in epoch or time")

    def _fork_genesis(self) -> bytes:
        assert self._receipt is not None
        return genesis(fork_shard(self._receipt.name, self._fork)).hash

    def _fold(self, at: int, chunk: Chunk) -> None:
        if chunk.kind == EVENTS:
            rows_of(chunk)
        elif chunk.offsets and chunk.kind != CUT:  # which leaves offsets out
            raise _FaultFound(at, f"a chunk of kind {KINDS[chunk.kind]} has no offsets")
        if chunk.kind == TABLE:
            table_rows(chunk)
        if chunk.committed >= chunk.number:
            raise _FaultFound(
                at, f"chunk {chunk.number} says that chunk {chunk.committed} is committed"
            )
        if self._fork and chunk.kind == PRODUCERS:
            self._look_for_copy(chunk)
        if chunk.kind != STATE:
            self._claimed = None
            self._state.apply(chunk)
            return
        if chunk.begins_segment:
            self._claimed = ShardState()
        if self._claimed is None:
            raise _FaultFound(at, f"chunk {chunk.number} is a state without its beginning")
        self._claimed.apply(chunk)
        if chunk.completes_state:
            if self._known and not self._claimed.same(self._state):
                raise _FaultFound(at, "the state here is not what the log before it comes to")
            self._state, self._claimed, self._known = self._claimed, None, True

    def _look_for_copy(self, chunk: Chunk) -> None:
        for entry in entries_of(chunk):
            if isinstance(entry, ForkCopied) and self._receipt is not None:
                same = (entry.fork, entry.chunk) == (self._fork, self._receipt.chunk)
                self._copied = entry if same else self._copied

    def _take(self, chunk: Chunk) -> None:
        self._first = self._first or chunk
        self._last = chunk
        self._chunks += 1
        self._rows += chunk.offsets if chunk.kind == EVENTS else 0
        self._bytes += len(chunk.data)
        self._epochs[chunk.epoch] = None
        self._committed = max(self._committed, chunk.committed)
        if self._receipt is not None and chunk.number == self._receipt.chunk and not self._fork:
            self._named = chunk

    def _judge(self, fault: FirstFault | None) -> tuple[str, str]:
        """(verdict, reason) of the receipt."""
        receipt = self._receipt
        if receipt is None:
            return "", ""
        if self._fork:
            return self._judge_copy(receipt, fault)
        if self._named is not None:
            reason = receipt.refuted_by(self._named)
            return ("refuted", reason) if reason else ("proved", "")
        if self._first is not None and receipt.chunk < self._first.number:
            return "not kept", f"the log begins with chunk {self._first.number}"
        if fault is not None:
            return "not reached", f"the log is not whole before chunk {receipt.chunk}"
        end = self._last.number if self._last else 0
        return "not reached", f"the log ends with chunk {end}, before chunk {receipt.chunk}"

    def _judge_copy(self, receipt: Receipt, fault: FirstFault | None) -> tuple[str, str]:
        """The same of a receipt of a fork, by the main log."""
        copied, fork = self._copied, f"chunk {receipt.chunk} of the fork {receipt.fork}"
        if copied is None and self._first is not None and self._first.number > 1:
            return "not kept", f"what is left of the log does not name {fork}"
        if copied is None:
            broken = ", and is not whole" if fault is not None else ""
            return "not reached", f"the log does not say that {fork} was copied{broken}"
        if copied.hash.hex() != receipt.hash:
            return "refuted", f"{fork} had the hash {copied.hash.hex()}, not {receipt.hash}"
        if receipt.count < 1 or receipt.first + receipt.count > copied.next:
            return "refuted", f"{fork} ended before the offset {copied.next}"
        return "proved", ""


def _why_not(data: bytes, at: int) -> str:
    rest = data[at:]
    if not rest:
        return "the file is empty"
    if not rest.strip(b"\0"):
        return f"{len(rest)} zero bytes at the end"
    return "no valid chunk: torn, or damaged"
