"""The format of a node's state file, an append-only log of records. Pure: bytes in, bytes out.

A node appends records and never changes one; now and then it replaces all of them by fewer that say
the same (compaction). What a turn stores is one *block*, behind its length, a CRC-32 and its number
in the file, so that a reader finds the end of the valid prefix without an index. The contract of
`Port.store`, which canopy/wire/folder.py keeps on a real disk and canopy/sim/world/disk.py on a
simulated one:

* What a turn stores becomes durable, together and in order, at the end of the turn (fdatasync).
  Only after that do the turn's frames and replies leave: persist before reply. What a node has said
  it still knows after a crash.
* What is stored *behind* a turn (`Port.store_later`) becomes durable while the node goes on, in the
  same order as all else. The node hears when it is, and says until then nothing that rests on it.
* Of a turn that was not yet durable when the process or its machine died, the next start finds all
  or nothing. So a node may know what it has never said.
* What is stored *again* replaces the whole file atomically: a crash leaves the old or the new one.
* A *torn tail* (a block that was written in part, whose bytes are not those that were written, or
  the zeros of a file that grew before its bytes came) is cut off at the next start.
* A file is *damaged* if a valid block follows an invalid one (a block is only written when the one
  before it is durable, so that a crash cannot do this), or if there is no valid block. What is lost
  may be a vote, so that the node may not go on under its name: it starts with a new id, and its
  peers give it everything.
* If the disk refuses (an error, no space), the process ends at once, and nothing of that turn
  leaves: what is on the disk after a failed fdatasync is not known, so it is not tried again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

MARK: Final = b"\x93cnp"
"""Begins a block, so that valid blocks can be found behind damage. Any four bytes would do; no
UTF-8 text begins with the first."""

HEAD: Final = struct.Struct(">4sIIQ")  # MARK, length of the body, CRC-32 of number and body, number
LENGTH: Final = struct.Struct(">I")  # before each record of a block


class StateRecords(NamedTuple):
    """The content of a state file: the records of its valid blocks; the offset and the number of
    the next block; whether a durable block is missing."""

    records: list[bytes]
    end: int
    number: int
    damaged: bool


def pack_block(number: int, records: Sequence[bytes]) -> bytes:
    """The bytes of the block `number` (from 0) with these records; there may be none."""
    body = b"".join(LENGTH.pack(len(record)) + record for record in records)
    return HEAD.pack(MARK, len(body), _digest(number, body), number) + body


def recover(data: bytes) -> StateRecords:
    """Read a state file up to its torn tail. A file without any valid block counts as damaged."""
    records: list[bytes] = []
    at = number = 0
    while (body := _block(data, at, number)) is not None:
        start = 0
        while start < len(body):
            (length,) = LENGTH.unpack_from(body, start)
            start += LENGTH.size
            records.append(bytes(body[start : start + length]))
            start += length
        at += HEAD.size + len(body)
        number += 1
    return StateRecords(records, at, number, not number or _goes_on(data, at, number))


def _block(data: bytes, at: int, number: int) -> bytes | None:
    """The body of the block `number` at `at`, None if it is not valid."""
    if at + HEAD.size > len(data):
        return None
    mark, length, digest, found = HEAD.unpack_from(data, at)
    body = data[at + HEAD.size : at + HEAD.size + length]
    whole = (mark, found) == (MARK, number) and len(body) == length
    return body if whole and _digest(number, body) == digest else None


def _goes_on(data: bytes, at: int, number: int) -> bool:
    """Whether a valid block with a later number stands somewhere behind `at`."""
    while (at := data.find(MARK, at)) >= 0:
        if at + HEAD.size <= len(data):
            found = HEAD.unpack_from(data, at)[3]
            if found > number and _block(data, at, found) is not None:
                return True
        at += 1
    return False


def _digest(number: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(number.to_bytes(8, "big")))
