"""What a shard asks of its disk: queued and returned from at once, and answered by local events.

`Port.store` makes a turn wait for its fdatasync. A log cannot: many shards write in every turn. So
its writes are answered later, by `Written`, and what depends on them is said then.

All requests of one shard are carried out in their order, and answered in it. So `Written` says that
what was asked for before is durable as well. After a `DiskFailed` it is not known what the disk
has: every later request of that shard is answered by `DiskFailed` too, until it is opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from overlay.machine import LocalEvent
from streams.log.recovery import Recovered


class Opened(LocalEvent, frozen=True):
    """The shard's folder was read, or made if the node never had the shard. `hard_state`: what was
    `put` last; None: nothing ever was, or it is lost (`damaged`)."""

    shard: str
    ticket: int
    found: Recovered
    hard_state: bytes | None
    damaged: bool


class Written(LocalEvent, frozen=True):
    """Everything up to this request is durable."""

    shard: str
    ticket: int


class ReadDone(LocalEvent, frozen=True):
    """The bytes that were asked for; fewer where the file ends."""

    shard: str
    ticket: int
    data: bytes


class DiskFailed(LocalEvent, frozen=True):
    """This request was not carried out, or not wholly. `full`: for want of room."""

    shard: str
    ticket: int
    reason: str
    full: bool


class LogDisk(Protocol):
    """The disk of a node's shards. Each request returns its ticket, which rises."""

    def shards(self) -> Sequence[str]:
        """The shards that this node had when its process began. One whose folder is gone opens as
        damaged."""

    def open(self, shard: str) -> int:
        """Read the shard's folder: `Opened`, or `DiskFailed`."""

    def write(self, shard: str, segment: str, at: int, data: bytes) -> int:
        """Write bytes into a segment, which is made if it is not there: `Written`."""

    def put(self, shard: str, data: bytes) -> int:
        """Replace the shard's hard state, its vote, atomically: `Written`."""

    def cut(self, shard: str, segment: str, size: int) -> int:
        """Cut a segment to `size` bytes, durably before anything that is asked for later:
        `Written`."""

    def drop(self, shard: str, segment: str) -> int:
        """Delete a segment: `Written`."""

    def save(self, shard: str, segment: str) -> int:
        """Keep a copy of a segment as it is, for people, which is no part of the log: `Written`."""

    def read(self, shard: str, segment: str, at: int, size: int) -> int:
        """Read at most `size` bytes: `ReadDone`."""

    def destroy(self, shard: str) -> int:
        """Delete the shard's folder, and forget that there was one: `Written`."""


class NoLogDisk:
    """The disk of a node that has no folder: nothing that is asked of it is ever answered, so that
    its replicas never become ready."""

    def __init__(self) -> None:
        self._ticket = 0

    def shards(self) -> Sequence[str]:
        """No shard is kept on such a disk."""
        return ()

    def _ask(self, *_: object) -> int:
        self._ticket += 1
        return self._ticket

    open = write = put = cut = drop = save = read = destroy = _ask
