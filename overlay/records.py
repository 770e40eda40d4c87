"""Records on disk: how a node's state file is written and read back. Pure: bytes in, bytes out.

Theory of operation. A node appends records and never changes one. Each has its length and its
CRC-32 before it, so that a reader finds the end of what is whole without being told. The contract
of `Port.store`, which wire/folder.py keeps on a real disk and sim/disk.py on a simulated one:

* What a turn stores becomes durable, together and in order, at the end of the turn (fdatasync).
  Only after that do the turn's frames and replies leave. So whatever a node has told anybody, it
  still knows after a crash.
* Of records that were not yet durable when the process or its machine died, the next start finds
  the first few or none: whole ones, in order. So a node may know what it has never told anybody.
* A *torn tail* (a record of which only a part was written, or whose bytes are not those that were
  written, or the zeros of a file that grew before its bytes came) is cut off at the next start.
* If the disk refuses (an error, no room), the process ends at once, and nothing of that turn
  leaves: after a failed fdatasync nobody can know what is on the disk, so it is not tried again.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

HEAD: Final = struct.Struct(">II")  # length, CRC-32


def pack(record: bytes) -> bytes:
    """One record as it stands in the file. ValueError if it is empty: eight zero bytes would be a
    valid one, and a file that grew before its bytes came is full of them."""
    if not record:
        raise ValueError("an empty record can not be told from nothing")
    return HEAD.pack(len(record), zlib.crc32(record)) + record


def recover(data: bytes) -> tuple[list[bytes], int]:
    """The whole records at the beginning of `data`, in order, and where the torn tail begins (the
    end of the data, if there is none)."""
    records: list[bytes] = []
    start = 0
    while start + HEAD.size <= len(data):
        length, digest = HEAD.unpack_from(data, start)
        record = data[start + HEAD.size : start + HEAD.size + length]
        if not length or len(record) < length or zlib.crc32(record) != digest:
            break
        records.append(bytes(record))
        start += HEAD.size + length
    return records, start
