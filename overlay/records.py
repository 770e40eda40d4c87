"""Records on disk: how a node's state file is written and read back. Pure: bytes in, bytes out.

Theory of operation. A node appends records and never changes one; now and then it replaces all of
them by fewer that say the same. What a turn stores is one *block*: its length, a CRC-32 and its
number in the file before it, so that a reader finds the end of what is whole without being told.
The contract of `Port.store`, which canopy/wire/folder.py keeps on a real disk and
canopy/sim/world/disk.py on a simulated one:

* What a turn stores becomes durable, together and in order, at the end of the turn (fdatasync).
  Only after that do the turn's frames and replies leave. So whatever a node has told anybody, it
  still knows after a crash.
* Of a turn that was not yet durable when the process or its machine died, the next start finds all
  or nothing. So a node may know what it has never told anybody.
* What is stored *anew* takes the place of the whole file, or does not: a crash leaves one of both.
* A *torn tail* (a block of which only a part was written, or whose bytes are not those that were
  written, or the zeros of a file that grew before its bytes came) is cut off at the next start.
* A file is *damaged* if a whole block follows one that is not (the next is only written when the
  one before it is durable, so this was no crash), or if not even the first is there. What is lost
  may be a promise; nobody may count on this node any more: it begins anew under another name, and
  is given everything by its peers.
* If the disk refuses (an error, no room), the process ends at once, and nothing of that turn
  leaves: after a failed fdatasync nobody can know what is on the disk, so it is not tried again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

MARK: Final = b"\x93cnp"
"""Begins a block, so that whole blocks can be looked for behind damage. Any four bytes would do; no
text begins with the first."""

HEAD: Final = struct.Struct(">4sIIQ")  # MARK, length of the body, CRC-32 of number and body, number
LENGTH: Final = struct.Struct(">I")  # before each record of a block


class Recovered(NamedTuple):
    """What a file holds: the records of its whole blocks, where the next block begins, its number,
    and whether something is missing that had been durable."""

    records: list[bytes]
    end: int
    number: int
    damaged: bool


def pack(number: int, records: Sequence[bytes]) -> bytes:
    """The block `number` (from 0) as it stands in the file. May be of no records."""
    body = b"".join(LENGTH.pack(len(record)) + record for record in records)
    return HEAD.pack(MARK, len(body), _digest(number, body), number) + body


def recover(data: bytes) -> Recovered:
    """What is whole, in order. A file without any whole block counts as damaged."""
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
    return Recovered(records, at, number, not number or _goes_on(data, at, number))


def _block(data: bytes, at: int, number: int) -> bytes | None:
    """The body of the block `number` at `at`, if it is whole."""
    if at + HEAD.size > len(data):
        return None
    mark, length, digest, found = HEAD.unpack_from(data, at)
    body = data[at + HEAD.size : at + HEAD.size + length]
    whole = (mark, found) == (MARK, number) and len(body) == length
    return body if whole and _digest(number, body) == digest else None


def _goes_on(data: bytes, at: int, number: int) -> bool:
    """Whether a whole block with a later number stands somewhere behind `at`."""
    while (at := data.find(MARK, at)) >= 0:
        if at + HEAD.size <= len(data):
            found = HEAD.unpack_from(data, at)[3]
            if found > number and _block(data, at, found) is not None:
                return True
        at += 1
    return False


def _digest(number: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(number.to_bytes(8, "big")))
