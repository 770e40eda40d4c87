"""The state file of a node: what it restores of its cluster at a restart (P1).

Six kinds of records: votes (`follower_log`), the election timeout that was promised to a primary
(`heartbeat`), the description of the own cluster (`role`), an arc that was offered (`taking_over`),
a whole log as a *snapshot* (its position, its configuration, and the trees' state as entries), and
the entries that came after it. They are on disk in the order in which they were stored, so that
description, log and votes always fit together. All but entries are durable before the messages of
their turn leave. Entries become durable behind the turn (`Port.store_later`), so that nothing else
waits for the disk because of them; what says that they are stored waits until they are
(`unstored`). Whatever is stored at once takes those before it along.

When the entries have grown well beyond the snapshot, the registry is asked for a new one
(`DiskSnapshotWanted`), and the file begins again with that, which bounds its size to a few times
that of the state. The same happens when another log replaces the present one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from overlay.bounded import BoundedDict
from overlay.chord.cluster.messages import Configuration, LogEntry, VoteRecord
from overlay.chord.constants import (
    ENTRY_OVERHEAD,
    JOURNAL_GROWTH,
    JOURNAL_GROWTH_LEAST,
    STORED_TIMEOUT_SHARE,
    VOTED_CLUSTERS_MOST,
)
from overlay.chord.events import DiskSnapshotWanted
from overlay.chord.messages import Cluster
from overlay.consensus import DurableQueue
from overlay.machine import Key, Port, Version

# --- a voter's log: its position, its newest configuration and its last entries (P1) ---
#
# The entries themselves are applied by the registry as they come (`EntryReceived`); what is kept
# here is a bounded tail, from which a follower that is a little behind is brought up to date. One
# that is further behind, or holds entries that this log does not have, gets a copy of the whole
# state.


def size_of(item: LogEntry) -> int:
    """Bytes that an entry takes in memory."""
    return len(item.body) + ENTRY_OVERHEAD


class VoterLog:
    """One cluster's log at one voter: its position, its configuration and a bounded tail of
    entries."""

    def __init__(self, key: Key, position: Version, config: Configuration, kept: int) -> None:
        """`kept`: the limit of the bytes of the tail's entries."""
        self.key = key
        self.position = position
        self.config = config
        self._before = position  # of the first entry in the tail
        self._tail: deque[LogEntry] = deque()
        self.tail_bytes = 0
        """Bytes of the entries that are kept."""
        self._kept = kept

    @property
    def next(self) -> int:
        """The number that the next entry gets; equally, how many entries the log has had."""
        return self.position[1]

    def add(self, item: LogEntry) -> int:
        """Append one entry; returns its number."""
        index = self.next
        self.position = (item.epoch, index + 1)
        if item.config is not None:
            self.config = item.config
        self._tail.append(item)
        self.tail_bytes += size_of(item)
        self._shorten()
        return index

    def keep(self, size: int) -> None:
        """Change the limit of the tail's bytes."""
        self._kept = size
        self._shorten()

    def _shorten(self) -> None:
        while self.tail_bytes > self._kept and self._tail:
            old = self._tail.popleft()
            self.tail_bytes -= size_of(old)
            self._before = (old.epoch, self._before[1] + 1)

    def override(self, config: Configuration) -> None:
        """Use this configuration before it is in the log: the caller leads next and appends an
        entry."""
        self.config = config

    def tail(self) -> tuple[int, tuple[LogEntry, ...]]:
        """The number of the first entry that is kept, and the entries from there on."""
        return self._before[1], tuple(self._tail)

    def after(self, position: Version) -> tuple[LogEntry, ...] | None:
        """The entries after `position`; None if it is not of this log, or lies before its tail."""
        skip = position[1] - self._before[1]
        if not 0 <= skip <= len(self._tail):
            return None
        epoch = self._before[0] if skip == 0 else self._tail[skip - 1].epoch
        if epoch != position[0]:
            return None
        tail = self._tail
        return tuple(tail[at] for at in range(skip, len(tail)))  # mostly few, near the end


class StoredCluster(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The newest description of the own cluster; None: this node serves nowhere."""

    cluster: Cluster | None


class StoredTimeout(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The election timeout that a primary was promised, or more."""

    seconds: float


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A whole log up to `position`; the trees' state as entries of the log."""

    key: Key
    position: Version
    config: Configuration
    entries: tuple[bytes, ...]


class OfferedArc(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The state of a split-off arc that this node may have to serve (`taking_over`); `old` is the
    cluster that decides. Without an arc: there is no such offer any more."""

    arc: Cluster | None
    old: Cluster | None = None
    snapshot: Snapshot | None = None


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The next entry of the log."""

    item: LogEntry


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    VoteRecord | StoredCluster | StoredTimeout | Snapshot | OfferedArc | StoredEntry
)


class Journal:
    """The only writer of the node's state file. It knows which records the file must contain."""

    def __init__(self, port: Port, restored: Sequence[bytes] = ()) -> None:
        """`restored`: the records of earlier starts. msgspec.MsgspecError if they are none."""
        self.port = port
        self.votes = BoundedDict[Key, VoteRecord](VOTED_CLUSTERS_MOST)  # the newest last
        self.cluster: Cluster | None = None
        self.election_timeout = 0.0
        self.offered = OfferedArc(None)
        self._snapshot: Snapshot | None = None  # of earlier starts, until it is taken up
        self._items: list[LogEntry] = []  # which came after it
        self._has_log = False
        self._size = 0  # bytes of the present file's first records
        self._grown = 0  # bytes that came after them
        self._asked = False  # a snapshot is on its way
        self.unstored = 0
        """Entries of the log, its newest, that are not durable when this turn's messages leave."""
        self._behind = DurableQueue[int]()  # how many of them wait for a ticket
        for record in restored:
            self._restore(_decoder.decode(record))
            self._grown += len(record)

    def _restore(
        self,
        record: VoteRecord | StoredCluster | StoredTimeout | Snapshot | OfferedArc | StoredEntry,
    ) -> None:
        match record:
            case VoteRecord():
                self._keep(record)
            case StoredCluster(cluster):
                self.cluster = cluster
            case StoredTimeout(seconds):
                self.election_timeout = seconds
            case Snapshot():
                self._snapshot, self._has_log = record, True
                self._items.clear()
            case OfferedArc():
                self.offered = record
            case StoredEntry(item):
                self._items.append(item)

    @property
    def last_vote(self) -> VoteRecord | None:
        """The newest vote, in whatever cluster; None if there was none."""
        return next(reversed(self.votes.values()), None)

    def take_up(self) -> tuple[Snapshot, Sequence[LogEntry]] | None:
        """The snapshot and entries that the former process left, once; None if it had no log."""
        found, self._snapshot = self._snapshot, None
        items, self._items = self._items, []
        return None if found is None else (found, items)

    # -- what changes ----------------------------------------------------------------------------

    def store_vote(self, vote: VoteRecord) -> None:
        """Store this vote as the one that counts for its cluster."""
        self._keep(vote)
        self._append(vote)

    def store_cluster(self, cluster: Cluster | None) -> None:
        """Store the description of the own cluster; None: this node serves nowhere."""
        if cluster != self.cluster:
            self.cluster = cluster
            self._append(StoredCluster(cluster))

    def store_election_timeout(self, seconds: float) -> None:
        """Store how long this node must wait: a primary relies on it for `seconds`, and none for
        longer. The stored value is twice that. It is reduced only when it is `STORED_TIMEOUT_SHARE`
        times as long, so that it is written rarely."""
        stored = self.election_timeout
        if seconds > stored or seconds * STORED_TIMEOUT_SHARE < stored:
            self.election_timeout = 2.0 * seconds
            self._append(StoredTimeout(self.election_timeout))

    def append(self, items: Sequence[LogEntry], at_once: bool = False) -> None:
        """Store these entries behind those of the log: behind the turn, or durable before its
        messages leave (`at_once`)."""
        if not items:
            return
        encoded = [_encoder.encode(StoredEntry(item)) for item in items]
        if at_once:
            self._store(*encoded)
        else:
            self.unstored += len(items)
            self._behind.add(self.port.store_later(*encoded), len(items))
        self._has_grown(encoded)

    def stored(self, ticket: int) -> None:
        """Note that records stored behind the turns are durable up to this ticket."""
        for count in self._behind.stored(ticket):
            self.unstored -= count

    def begin(self, voter_log: VoterLog, entries: Sequence[bytes]) -> None:
        """Replace any other log by this one."""
        self._has_log = True
        self._store(*self._whole(_snapshot(voter_log, entries)), replace=True)

    def compact(self, voter_log: VoterLog, entries: Sequence[bytes]) -> None:
        """Replace the stored log by its present state, behind the turn."""
        encoded = self._whole(_snapshot(voter_log, entries))
        self._behind.add(self.port.store_later(*encoded, replace=True), 0)

    def store_offer(self, offered: OfferedArc) -> None:
        """Store the arc that this node may have to serve, or that there is none."""
        if self.offered != offered:
            self.offered = offered
            self._append(offered)

    def end(self) -> None:
        """Store that this node has no log; its votes and its offer stay."""
        if self._has_log:
            self._has_log = False
            self._store(*self._whole(), replace=True)

    # -- parts -----------------------------------------------------------------------------------

    def _keep(self, vote: VoteRecord) -> None:
        self.votes.renew(vote.key, vote)

    def _append(self, record: msgspec.Struct) -> None:
        encoded = _encoder.encode(record)
        self._store(encoded)
        self._has_grown((encoded,))

    def _store(self, *encoded: bytes, replace: bool = False) -> None:
        """Durable before the turn's messages leave, with all that was stored before."""
        self.port.store(*encoded, replace=replace)
        self.unstored = 0
        self._behind.clear()

    def _has_grown(self, encoded: Sequence[bytes]) -> None:
        self._grown += sum(map(len, encoded))
        if self._asked or self._grown <= max(JOURNAL_GROWTH_LEAST, JOURNAL_GROWTH * self._size):
            return
        if self._has_log:
            self._asked = True
            self.port.emit(DiskSnapshotWanted())
        else:
            self._store(*self._whole(), replace=True)

    def _whole(self, *log: Snapshot) -> list[bytes]:
        """Return all records that the file must contain, encoded, to replace its present
        contents."""
        rest = (StoredTimeout(self.election_timeout), StoredCluster(self.cluster), self.offered)
        records = (*self.votes.values(), *rest, *log)
        encoded = [_encoder.encode(record) for record in records]
        self._size, self._grown = sum(map(len, encoded)), 0
        self._asked = False
        return encoded


def _snapshot(voter_log: VoterLog, entries: Sequence[bytes]) -> Snapshot:
    return Snapshot(voter_log.key, voter_log.position, voter_log.config, tuple(entries))
