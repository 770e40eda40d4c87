"""The disk of a simulated process: what survives when, and how it fails.

It keeps the contract of overlay/records.py with the same code that reads a real state file. What is
stored waits in the system's memory until `sync`. A crash before that leaves of it what a machine
leaves that loses its power: nothing, a part, a part with the bytes of its last block damaged, or
zeros where bytes should be. All chance comes from a generator of the disk's own.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from overlay.records import pack, recover

Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0)]

BLOCK = 512
"""Bytes that a disk writes at once, or not: a sector."""


class DiskConditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a disk is like now."""

    sync_low: Seconds = 0.0  # a sync takes so long, evenly spread between the two …
    sync_high: Seconds = 0.0  # … while the process stands still
    fail: Share = 0.0  # share of syncs that fail (EIO)
    room: Annotated[int, Meta(ge=0)] | None = None  # bytes that fit; absent: endless


class DiskError(Exception):
    """The disk refuses: an error, or no room."""


class Disk:
    """What survives a crash: the node's id, how often it started, and its stored records."""

    def __init__(self, node: str, address: str, rng: Random) -> None:
        self.node = node
        self.address = address
        self.incarnation = 0
        self.conditions = DiskConditions()
        self.data = bytearray()
        """The state file, as far as it is durable or was torn."""
        self.waiting = bytearray()
        """Written, but not durable."""
        self.syncs = 0
        """How many succeeded."""
        self._rng = rng

    def begin(self) -> tuple[bytes, ...]:
        """A process starts: its incarnation is raised durably. Returns what is restored.

        DiskError if there is no room: then the process does not start."""
        self._check_room()
        self.incarnation += 1
        records, end = recover(bytes(self.data))
        del self.data[end:]
        return tuple(records)

    def store(self, record: bytes) -> None:
        """Append; durable after `sync`."""
        self.waiting += pack(record)

    def sync_time(self) -> float:
        """Virtual seconds that the next sync takes."""
        now = self.conditions
        spread = now.sync_high - now.sync_low
        return now.sync_low + (spread * self._rng.random() if spread > 0 else 0.0)

    def sync(self) -> None:
        """What waits is durable. DiskError: some of it may be, and nobody knows how much."""
        now = self.conditions
        if now.fail and self._rng.random() < now.fail:
            self.tear()
            raise DiskError("input/output error")
        self._check_room()
        self.data += self.waiting
        self.waiting.clear()
        self.syncs += 1

    def tear(self) -> None:
        """The process or its machine dies: of what waits, something is left, or nothing."""
        whole, rng = bytes(self.waiting), self._rng
        self.waiting.clear()
        if not whole:
            return
        left = bytearray(whole[: rng.randrange(len(whole) + 1)])
        how = rng.randrange(4)
        if how == 1 and left:  # a block that was being written
            left[rng.randrange(max(0, len(left) - BLOCK), len(left))] ^= 1 << rng.randrange(8)
        elif how == 2:  # the file had grown already
            left += bytes(len(whole) - len(left))
        elif how == 3:
            left.clear()
        self.data += left

    def _check_room(self) -> None:
        room = self.conditions.room
        if room is not None and len(self.data) + len(self.waiting) > room:
            self.tear()
            raise DiskError("no space left on device")
