"""The requests of a shard to its disk: each is queued at once, and answered by a local event.

`Port.store` makes a turn wait for its fdatasync. Shards cannot wait, since many write in every
turn: `Written` answers a write in a later turn, and messages that depend on the write are sent
then.

The disk carries out and answers the requests of one shard in their order. So `Written` means that
earlier requests are durable as well. After a `DiskFailed` the content of the disk is not known:
every later request of that shard is answered by `DiskFailed` too, until the shard is opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from overlay.machine import LocalEvent
from streams.log.recovery import Recovered


class Opened(LocalEvent, frozen=True):
    """The shard's folder was read, or made if the node never had the shard. `hard_state`: the bytes
    of the last `put`; None: there was none, or they are lost (`damaged`)."""

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
    """The bytes of a `read`; fewer at the end of the file."""

    shard: str
    ticket: int
    data: bytes


class DiskFailed(LocalEvent, frozen=True):
    """A request that was not carried out, or only in part. `full`: the disk has no room."""

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
        """Cut a segment to `size` bytes, durably before any later request: `Written`."""

    def drop(self, shard: str, segment: str) -> int:
        """Delete a segment. `Written` follows when that is durable."""

    def save(self, shard: str, segment: str) -> int:
        """Keep a copy of a segment as it is, for operators; it is no part of the log: `Written`."""

    def read(self, shard: str, segment: str, at: int, size: int) -> int:
        """Read `size` bytes, or fewer at the end of the file: `ReadDone`."""

    def destroy(self, shard: str) -> int:
        """Delete the shard's folder, and its entry in the list of shards: `Written`."""


class NoLogDisk:
    """The disk of a node that has no folder: it never answers, so that the node's replicas never
    become ready."""

    def __init__(self) -> None:
        self._ticket = 0

    def shards(self) -> Sequence[str]:
        """No shard is kept on such a disk."""
        return ()

    def _ask(self, *_: object) -> int:
        self._ticket += 1
        return self._ticket

    open = write = put = cut = drop = save = read = destroy = _ask
