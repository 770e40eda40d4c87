"""A shard's leader: append, replicate, commit, change the replicas (Raft dissertation, 3 and 4).

The leader sends chunks to the followers when it appends them, before they are on its own disk; it
counts itself when they are (`Written`), like any other replica. The voters are the newest replica
set. `overlay.consensus` decides what is committed and when the set may change; an epoch begins with
a chunk of the leader's own, as those rules require. The next chunk tells followers that the one
before is committed; without one, the next question to followers who have not heard of it does. A
new replica is sent the log before it is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from overlay.consensus import Progress, ProgressState, Tracker
from overlay.incidents import Alarmed
from overlay.machine import NodeId, Peer, by_id
from streams.log.batches import BatchHead, Row, join_batches, lacks_key
from streams.log.chunk import (
    CHUNK_MOST,
    CUT,
    EVENTS,
    HEAD,
    POSITIONS,
    REPLICAS,
    STATE,
    Chunk,
    ChunkId,
    number_of,
    pack,
)
from streams.log.group_state import DeadRow, GroupEntry, GroupKnown
from streams.log.lost_rows import with_loss
from streams.log.state import (
    Entry,
    Floor,
    ReplicaSet,
    ShardState,
    StreamIs,
    encode_entries,
    split_entries,
)
from streams.log.zones import encode_zones, zone_map
from streams.shard.messages import ShardAck, ShardAppend, ShardBehind
from streams.shard.retention import Keep, floor_of, next_due, over, quota_floor
from streams.shard.stored_replica import StoredReplica

RETRY: Final = 0.3
"""Seconds after which a candidate or a leader repeats a question that was not answered."""

ROUNDS: Final = 10
"""Looks at the followers, while some lack something, after which the leader asks those too that
lack nothing: so they hear every 3 s that it leads."""

QUIET: Final = 30.0
"""Seconds between questions to followers of which none lacks anything. Nothing waits for them: a
replica that restarts reports the end of its log, a new leader fences the old one, and the
directory detects that a leader is lost (streams/directory/)."""


PIECES: Final = 2
"""The limit of unacknowledged messages with older chunks below which the leader reads and sends
more, so that a follower receives while it writes. One read of the disk makes some four messages."""


UNDER_WAY: Final = 4
"""Chunks that are appended and not committed, from which on captures, copies and tables wait.
Producers have a bound of their own (`streams.services.append.appender.UNDER_WAY`)."""

REPLICATE = ProgressState.REPLICATE


class ReplicaProgress(Progress):
    """The progress of one follower."""

    __slots__ = ("committed", "looked")

    def __init__(self, peer: Peer, now: float) -> None:
        super().__init__(peer, now)
        self.looked = 0  # its `match` at the leader's last look
        self.committed = 0  # the last committed chunk that a message to it has named

    def diverges(self, now: float) -> None:
        """Note that the follower said at `now` that the sent chunks do not follow on its log."""
        self.heard_at = now
        self.change(ProgressState.PROBE)

    @property
    def wants_more(self) -> bool:
        """Whether the leader should read older chunks for it now."""
        is_behind = self.state is not REPLICATE and not self.reading
        return is_behind and len(self.inflight) <= PIECES


class Retention:
    """The rows that a shard keeps and takes under one leader."""

    def __init__(self, replica: StoredReplica, may_change: Callable[[], bool]) -> None:
        """`may_change`: whether the leader's last change of the replicas is committed."""
        self._replica = replica
        self._may_change = may_change
        self._obstacle = ""
        self._seen = 0  # what was committed at the last look
        self._due = 0.0  # when there is more to be removed
        self.change(replica.terms.keep)

    def change(self, keep: Keep) -> None:
        """Keep and take what `keep` says from now on."""
        self.keep = keep
        self.limits = (keep.segment_bytes, keep.segment_age)
        """Bytes and age (nanoseconds) of a segment at most."""
        self._has_quota = bool(keep.most_bytes or keep.most_rows)
        self._removes = bool(keep.time or keep.bytes or keep.ttl or keep.drops_oldest)

    def refuse(self, reason: str) -> None:
        """Refuse further rows for this reason, whatever `keep` permits; "": take them again."""
        self._obstacle = reason

    def full(self, size: int, rows: int) -> str:
        """Return why the shard cannot take `size` bytes and `rows` rows more; "" if it can."""
        if self._obstacle or not self._has_quota:
            return self._obstacle
        return over(self.keep, self._replica.log, self._replica.state.floor, size, rows)

    def unfit(self, rows: Iterable[Row]) -> str:
        """Return why some of these rows do not fit the stream; "" if all do."""
        return lacks_key(self.keep.key, [row.attributes for row in rows]) if self.keep.key else ""

    def floor_above(self, keep: Keep, now: int) -> int:
        """The new floor at `now` (nanoseconds since 1970); 0: there is nothing to remove, or the
        newest row of each key has to be written first."""
        replica = self._replica
        is_as_before = keep == self.keep and self._seen == replica.committed
        if keep != self.keep:
            self.change(keep)
        self._seen = replica.committed
        if keep.key or not self._removes or (is_as_before and now < self._due):
            return 0
        self._due = next_due(replica.log, keep, now)
        floor = self.floor_due(now)
        return floor if floor > replica.state.floor else 0

    def floor_due(self, now: int) -> int:
        """The lowest offset to keep at `now` (nanoseconds since 1970); 0: it cannot be computed
        yet."""
        mine, keep = self._replica, self.keep
        if not mine.ready or not self._may_change():
            return 0
        if keep.time and mine.log.time <= now - keep.time:
            floor = mine.log.next_offset
        else:
            floor = floor_of(mine.log.segments, keep, now)
        if keep.time:
            mine.chunks.learn_times()
        if not keep.drops_unread:
            floor = min([floor, *(c.position for c in mine.state.consumers.values())])
        floor = max(floor, quota_floor(keep, mine.log))
        held = mine.state.groups.floor()
        if held is not None and not keep.drops_unread:
            floor = min(floor, held)
        return max(floor, self._expired(now))

    def cut_entries(self, floor: int, now: int) -> list[Entry]:
        """The entries of a Cut that raises the floor to `floor` at `now`: the floor, and the rows
        below it that groups had not processed, unless these had expired."""
        state, expired = self._replica.state, min(floor, self._expired(now))
        since = max(state.floor, expired)
        return [Floor(floor, expired), *state.groups.let_go(since, floor)]

    def _expired(self, now: int) -> int:
        """The offset below which all rows have expired; rows behind it may have. 0 where rows have
        lifetimes of their own."""
        keep, log = self.keep, self._replica.log
        if not keep.ttl or keep.ttl_by:
            return 0
        if log.time <= now - keep.ttl:
            return log.next_offset
        self._replica.chunks.learn_times()
        return floor_of(log.segments, Keep(time=keep.ttl), now)


class ShardLeader:
    """The leader of a shard in one epoch."""

    def __init__(
        self,
        replica: StoredReplica,
        epoch: int,
        commit_to: Callable[[int], None],
        ask_soon: Callable[[], None],
    ) -> None:
        """`commit_to` is called with a number up to which more chunks are committed; `ask_soon` has
        `ask_again` called within `RETRY` seconds."""
        self.replica = replica
        self.epoch = epoch
        self.leads = True
        """Whether this node still leads in this epoch."""
        self.since = replica.port.now
        """Since when a majority takes nothing of former leaders."""
        self._commit_to, self._ask_soon = commit_to, ask_soon
        self.first = replica.log.end.number + 1
        self.tracker = Tracker[ReplicaProgress](replica.port.me.id, self.first)
        self.coming: dict[NodeId, Peer] = {}  # to be added when they are caught up
        self._rounds = 0  # of `ask_again`, since all others were asked
        self.is_quiet = False
        """All others have everything, and know what is committed: they are asked seldom."""
        self._asked_at = self._in_touch_at = self._in_touch_since = float("-inf")
        self.retention = Retention(replica, self.may_change)

    def begin(self) -> None:
        """Append a chunk of the own epoch and a note of lost rows, and ask all others for their
        positions."""
        self._configure(self.replica.replicas)
        self._note_loss()
        self.ask()

    def end(self) -> None:
        """Stop leading in this epoch."""
        self.leads = False

    def _note_loss(self) -> None:
        """Say from which offset on rows are lost, if no replica has them, and where durable
        consumers and groups go on that were beyond. (If this node ends before that is on its disk,
        those of them are not known that had come since the damage.)"""
        mine = self.replica
        offset, end = mine.log.next_offset, mine.hard_state.lost_end
        if end <= offset:
            return
        mine.port.count("shard_ends_lost")
        lost = with_loss(mine.state.lost, offset, end)
        text = f"{mine.shard} lost its {lost[-1].which}: no replica has them"
        mine.port.emit(Alarmed("rows lost", text))
        entries: list[Entry] = [Floor(mine.state.floor, 0, lost)]
        if mine.damage.before is not None:
            entries += set_back(mine.state, mine.damage.before, offset)
        for run in split_entries(entries):
            self.append_chunk(POSITIONS, encode_entries(run))

    # -- appending -------------------------------------------------------------------------------

    def append_rows(
        self, heads: Sequence[BatchHead], encoded: Sequence[bytes], rows: Sequence[Row], time: int
    ) -> Chunk:
        """Append one chunk of batches at `time` (nanoseconds since 1970; one that goes back is
        raised): their heads, the rows of each as they are encoded, and all rows. `ShardCommitted`
        follows. ValueError if they are too large for a chunk. Their zone map is left out where it
        does not fit into the chunk."""
        body, zones = join_batches(heads, encoded), encode_zones(zone_map(rows))
        if HEAD.size + len(zones) + len(body) > CHUNK_MOST:
            zones = b""
        return self.append_chunk(EVENTS, body, len(rows), zones=zones, time=time)

    def append_chunk(
        self,
        kind: int,
        rows: bytes,
        offsets: int = 0,
        *,
        zones: bytes = b"",
        time: int = 0,
        flags: int = 0,
    ) -> Chunk:
        """Append one chunk, whose rows are what its kind says, as `append_rows` does; before it the
        state, if it begins a segment."""
        mine, log = self.replica, self.replica.log
        time = max(time, log.time)
        if kind != STATE and log.should_roll(len(rows) + len(zones), time, *self.retention.limits):
            for piece, piece_flags in mine.state.pieces():
                self.append_chunk(STATE, piece, time=time, flags=piece_flags)
        chunk = pack(
            kind,
            self.epoch,
            log.end,
            log.next_offset,
            offsets,
            time,
            rows,
            zones=zones,
            flags=flags,
            committed=mine.committed,
        )
        followers = self.tracker.followers.values()
        self._send([f for f in followers if f.state is REPLICATE], (chunk.data,))
        if self.is_quiet:
            self._wake()
        mine.add(chunk)
        return chunk

    def _wake(self) -> None:
        """Somebody may lack something from now on."""
        if self.is_quiet:
            self.is_quiet = False
            self._ask_soon()

    def _send(self, followers: Sequence[ReplicaProgress], chunks: tuple[bytes, ...]) -> None:
        """Send chunks, or the question how far they are, to some followers."""
        mine = self.replica
        if not followers:
            return
        end, segments = mine.log.end, mine.log.segments
        start = segments[0].number if segments else 0
        message = ShardAppend(  # one for all, encoded once
            mine.shard, self.epoch, end, self.first, mine.committed, chunks, start
        )
        for follower in followers:
            follower.committed = mine.committed
            mine.port.send(follower.peer, message)

    @property
    def has_room(self) -> bool:
        """Whether captures, copies and tables may append another chunk now."""
        return self.replica.log.end.number - self.replica.committed < UNDER_WAY

    def retain(self, keep: Keep, now: int) -> None:
        """Append a Cut if at `now` (nanoseconds since 1970) the log has more than `keep` allows. A
        stream with a key is cut together with its table (streams/services/table.py)."""
        if keep.forks and not self.retention.keep.forks:
            self._wake()
        floor = self.retention.floor_above(keep, now)
        if floor:
            entries = self.retention.cut_entries(floor, now)
            self.append_chunk(CUT, encode_entries(entries), time=now)

    # -- replicas --------------------------------------------------------------------------------

    def add_replica(self, peer: Peer) -> None:
        """Send `peer` the log, and make it a replica when it is caught up."""
        self.coming[peer.id] = peer
        self._wake()
        self.ask()

    def forget_coming(self, wanted: Iterable[NodeId]) -> None:
        """Stop adding the nodes that are not `wanted`."""
        keep = set(wanted)
        self.coming = {node: peer for node, peer in self.coming.items() if node in keep}

    def remove_replica(self, node: NodeId) -> bool:
        """Remove a replica. Returns whether the change was appended: not while another change is
        under way, and not for the leader itself."""
        rest = tuple(peer for peer in self.replica.replicas if peer.id != node)
        if node == self.replica.port.me.id or not self.may_change():
            return False
        if len(rest) == len(self.replica.replicas):
            return False
        self._configure(rest)
        return True

    def may_change(self) -> bool:
        """Whether the last change of the replicas and a chunk of the own epoch are committed."""
        return self.tracker.may_change(self.replica.committed)

    def _configure(self, replicas: Sequence[Peer]) -> None:
        self.tracker.check_change(self.replica.replicas, replicas)
        if not self.replica.log.segments:  # the state with which the log begins
            self.replica.state.replicas = self.replica.founders
        entries: list[Entry] = [ReplicaSet(tuple(replicas))]
        stream = self.replica.terms.stream
        if stream and stream != self.replica.state.stream:
            entries.append(StreamIs(stream))
        chunk = self.append_chunk(REPLICAS, encode_entries(entries))
        self.tracker.change(chunk.number)

    def _add_who_is_ready(self) -> None:
        for node, peer in list(self.coming.items()):
            if by_id(self.replica.replicas).get(node):
                del self.coming[node]
            elif self.tracker.is_caught_up(node, self.replica.committed) and self.may_change():
                del self.coming[node]
                self._configure((*self.replica.replicas, peer))

    # -- followers -------------------------------------------------------------------------------

    def ask_again(self) -> None:
        """Ask the followers that may lack chunks or do not know the committed end, and every
        `ROUNDS` times all followers. The caller repeats this after `pause`."""
        self._rounds += 1
        if self.is_quiet or self._rounds >= ROUNDS or self.coming:
            self.is_quiet = False
            self.ask()
            return
        mine, self.is_quiet = self.replica, True
        for follower in self.tracker.followers.values():
            is_live = follower.state is REPLICATE
            if not is_live and follower.match > follower.looked:
                follower.looked = follower.match  # it is being sent older ones, and goes on
                self.is_quiet = False
            elif (
                not is_live
                or follower.match != mine.log.end.number
                or follower.committed < mine.committed
            ):
                self.is_quiet = False
                follower.change(follower.state)
                self._send((follower,), ())

    @property
    def pause(self) -> float:
        """Seconds until `ask_again`. Followers that open forks without a leader hear from it more
        often than others while nobody lacks anything."""
        if not self.is_quiet:
            return RETRY
        return RETRY * ROUNDS if self.retention.keep.forks else QUIET

    def stay_in_touch(self) -> float:
        """Ask all followers, none of which lacks chunks, if they were last asked `ROUNDS` looks
        ago. Return since when this has been called without a longer gap than that."""
        now, most = self.replica.port.now, RETRY * ROUNDS
        if now - self._in_touch_at > most:
            self._in_touch_since = now
        self._in_touch_at = now
        if self.is_quiet and now - self._asked_at >= most:
            self._wake()
            self.ask()
        return self._in_touch_since

    def ask(self) -> None:
        """Ask all others for their positions. Live followers also learn the committed end."""
        self._rounds = 0
        self._asked_at = self.replica.port.now
        mine, now = self.replica, self.replica.port.now
        others = by_id((*mine.replicas, *self.coming.values()), besides=mine.port.me.id)
        self.tracker.follow(others, lambda peer: ReplicaProgress(peer, now))
        for follower in self.tracker.followers.values():
            follower.change(follower.state)
            self._send((follower,), ())

    def acknowledged(self, sender: Peer, message: ShardAck) -> None:
        """A follower has the log up to a number on disk."""
        follower = self.tracker.followers.get(sender.id)
        if follower is None or message.epoch != self.epoch:
            return
        if message.number > self.replica.log.end.number:
            return
        follower.acknowledge(message.number, self.replica.port.now)
        if message.number == self.replica.log.end.number:
            if follower.state is not REPLICATE:
                follower.change(REPLICATE)
        elif follower.wants_more:
            self._copy(follower, follower.following(message.number))
        self.commit()
        if self.coming:
            self._add_who_is_ready()

    def behind(self, sender: Peer, message: ShardBehind) -> None:
        """Handle the reply of a follower whose log ends elsewhere: send the chunks after its end,
        if this log has it, else those after its committed end."""
        follower = self.tracker.followers.get(sender.id)
        if follower is None or message.epoch != self.epoch:
            return
        follower.diverges(self.replica.port.now)
        self._wake()
        end = ChunkId(*message.end)
        start = end.number if self.replica.log.has(end) else message.committed
        self._copy(follower, start + 1)

    def is_followed(self, since: float) -> bool:
        """Whether a majority of the replicas, with this one, has answered after `since`."""
        return self.tracker.heard_since(self.replica.replicas, self.replica.port.now) >= since

    def _copy(self, follower: ReplicaProgress, number: int) -> None:
        """Send older chunks, from `number` on, as many as one read of the disk returns. A follower
        that has been sent the last chunk gets further ones as they are appended: links keep the
        order."""
        follower.read()

        def found(pieces: Sequence[tuple[bytes, ...]]) -> None:
            if not pieces or not self.leads or not follower.reading:
                return
            for piece in pieces:
                self._send((follower,), piece)
                follower.sent(number_of(piece[-1]), self.replica.log.end.number)

        self.replica.chunks.read_pieces(number, found)

    # -- committing ------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit what a majority of the replicas has on disk."""
        mine = self.replica
        if mine.committed == mine.log.end.number:
            return
        number = self.tracker.committable(mine.replicas, mine.durable)
        if number > mine.committed:
            self._commit_to(number)
            if self.coming:
                self._add_who_is_ready()

    def holders(self, number: int) -> tuple[NodeId, ...]:
        """The replicas that have chunk `number` on disk, as far as is known here."""
        return self.tracker.holders(self.replica.replicas, self.replica.durable, number)


def set_back(kept: ShardState, before: ShardState, offset: int) -> Iterator[Entry]:
    """The entries that restore the durable consumers and groups of the state `before` the log lost
    its rows from `offset` on, where the `kept` state lacks them or has other positions. Positions
    beyond `offset` become `offset`."""
    for name, known in sorted(before.consumers.items()):
        there = kept.consumers.get(name)
        if there is None or there.position != known.position:
            position = min(known.position, offset)
            was_at = known.position if known.position > offset else 0
            token = "" if was_at else known.token
            yield replace(known, position=position, attachment=0, token=token, was_at=was_at)
    for entry in before.groups.entries():
        if found := _group(entry, offset):
            yield found


def _group(entry: GroupEntry, offset: int) -> GroupEntry | None:
    """The entry of a group or of a dead letter, without the offsets beyond `offset`."""
    if isinstance(entry, GroupKnown):
        end = max((entry.floor, *(end for _, end in entry.runs)))
        runs = tuple((a, min(b, offset)) for a, b in entry.runs if a < offset)
        was_at = end if end > offset else entry.was_at
        return replace(entry, floor=min(entry.floor, offset), runs=runs, was_at=was_at, told="")
    return entry if isinstance(entry, DeadRow) and entry.offset < offset else None
