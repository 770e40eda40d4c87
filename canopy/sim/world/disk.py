"""The disk of a simulated process: which writes survive a crash, and how it fails.

It keeps the contract of overlay/records.py with the same code that reads a real state file. Stored
records wait in the system's memory until `sync`. A crash before that leaves of them what a power
loss leaves: nothing, a part, a part with the bytes of its last block damaged, or zeros in place of
bytes. All random numbers come from a generator of the disk's own.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from overlay.records import HEAD, pack_block, recover

Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]

SECTOR = 512
"""The bytes that a disk writes atomically."""


class DiskConditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults and the speed of a disk."""

    sync_low: Seconds = 0.0  # a sync takes so long, evenly spread between the two …
    sync_high: Seconds = 0.0  # … while the process stands still
    fail: Share = 0.0  # share of syncs that fail (EIO)
    room: Annotated[int, Meta(ge=0)] | None = None  # bytes that fit; absent: endless


class SimulatedDiskError(Exception):
    """A write failed: an error, or no room."""


class DiskDamagedError(Exception):
    """Durable records are missing: a node cannot start from this disk under its old id."""


class Disk:
    """The durable state of a node: its id, the number of its starts, and its stored records."""

    def __init__(self, node: str, address: str, rng: Random) -> None:
        self.node = node
        self.address = address
        self.incarnation = 0
        self.conditions = DiskConditions()
        self.data = bytearray(pack_block(0, ()))
        """The durable part of the state file, perhaps with a torn end."""
        self.waiting: list[bytes] = []
        """Stored records that are not durable yet."""
        self._number = 1  # of the next block
        self._replaces = False  # what waits takes the place of the whole file
        self._rng = rng

    def copied(self, address: str, rng: Random) -> Disk:
        """Return a copy of the present data folder, for a process at another address."""
        made = Disk(self.node, address, rng)
        made.incarnation, made.conditions = self.incarnation, self.conditions
        made.data = bytearray(self.data)
        return made

    def begin(self) -> tuple[bytes, ...]:
        """Begin as a new process: raise the incarnation durably, and return the records of earlier
        processes. Raises SimulatedDiskError if there is no room, and DiskDamagedError if the
        process has to start as another node."""
        self._check_room()
        found = recover(bytes(self.data))
        if found.damaged:
            raise DiskDamagedError
        self.incarnation += 1
        self._number = found.number
        del self.data[found.end :]
        return tuple(found.records)

    def store(self, *records: bytes, replace: bool = False) -> None:
        """Append records, or replace the file by them (`replace`); durable after `sync`."""
        if replace:
            self._replaces = True
            self.waiting.clear()
        self.waiting += records

    def damage(self) -> None:
        """Flip a bit of the first block, long after it was written. (In the last block that would
        look like a crash.)"""
        length = HEAD.size + HEAD.unpack_from(self.data)[1]
        self.data[self._rng.randrange(length)] ^= 1 << self._rng.randrange(8)

    def sync_time(self) -> float:
        """Virtual seconds that the next sync takes."""
        now = self.conditions
        spread = now.sync_high - now.sync_low
        return now.sync_low + (spread * self._rng.random() if spread > 0 else 0.0)

    def sync(self) -> None:
        """Make all stored records durable. SimulatedDiskError: an unknown part of them may be."""
        if not self.waiting and not self._replaces:
            return
        now = self.conditions
        if now.fail and self._rng.random() < now.fail:
            self.tear()
            raise SimulatedDiskError("input/output error")
        self._check_room()
        self._write(self._block())

    def tear(self) -> None:
        """Keep a random part of the waiting records, perhaps none: the process or its machine
        dies."""
        if not self.waiting and not self._replaces:
            return
        whole, rng = self._block(), self._rng
        if self._replaces:  # another file that takes this one's place, or does not
            if rng.random() < 0.5:
                self._write(whole)
            self.waiting.clear()
            self._replaces = False
            return
        self.waiting.clear()
        left = bytearray(whole[: rng.randrange(len(whole) + 1)])
        how = rng.randrange(5)
        if how == 1 and left:  # a sector that was being written
            left[rng.randrange(max(0, len(left) - SECTOR), len(left))] ^= 1 << rng.randrange(8)
        elif how == 2:  # the file had grown already
            left += bytes(len(whole) - len(left))
        elif how == 3:
            left.clear()
        elif how == 4:  # all of it, and the process died before it heard so
            left[:] = whole
        self.data += left

    def _block(self) -> bytes:
        return pack_block(0 if self._replaces else self._number, self.waiting)

    def _write(self, block: bytes) -> None:
        if self._replaces:
            self.data.clear()
            self._number = 0
        self.data += block
        self._number += 1
        self._replaces = False
        self.waiting.clear()

    def _check_room(self) -> None:
        room = self.conditions.room
        if room is not None and len(self.data) + sum(map(len, self.waiting)) > room:
            self.tear()
            raise SimulatedDiskError("no space left on device")
