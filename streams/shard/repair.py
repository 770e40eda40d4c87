"""The repair of holes in a replica's log, in place, with the chunks of other replicas.

A hole's last chunk is known by the hash that the chunk behind it names. So whatever another replica
sends is proved before it is written: the last chunk by that hash, each one before it by the
`previous` of the next. The sender, its epoch, and whether the chunks are committed do not matter.
(Alagappan et al., Protocol-Aware Recovery for Consensus-Based Storage, FAST 2018.)

Where the oldest segments are gone, what comes before the first chunk is asked for in the same way,
back to a segment that has the floor, and each segment is written when all of it is here.

During the repair a replica takes no chunks, does not vote and does not lead. It sends chunks to
others under repair, so that two replicas with holes at different places help each other.

The log ends before the hole, and is suspect (`StoredReplica.end_before`), only if all others have
said that they lack the chunks, or the shard's leader has. A replica that does not answer may have
them: the repair waits for it, without a limit. (A limit gained nothing, since a suspect log elects
no leader without those others; and it cost copies of all that stood behind the hole, and in the end
the last ones.)
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from overlay.machine import NodeId, Peer, by_id
from streams.log.chunk import CHUNK_MOST, Chunk, number_of, read
from streams.log.recovery import FoundHole
from streams.log.shard_log import SEGMENT_BYTES, segment_name
from streams.shard.kept_chunks import PIECE
from streams.shard.messages import ShardMissing, ShardMissingSent
from streams.shard.stored_replica import StoredReplica

HOLE_MOST: Final = SEGMENT_BYTES + CHUNK_MOST
"""Bytes of what is missing in one segment; they are in memory until all have come."""

ATTEMPTS: Final = 3
"""Repairs in a row after which the disk counts as one that loses what is written: further ones
begin after `SELDOM` only."""

ASK_AGAIN: Final = 10.0
"""Seconds after which a replica that lacked the chunks is asked again: it may have them by now, and
the others that have them may be lost."""

SELDOM: Final = 10.0
"""Seconds between attempts at such a disk."""


class Repair:
    """The repair of one replica's holes, until all are filled or nobody has their chunks."""

    def __init__(
        self,
        replica: StoredReplica,
        holes: Sequence[FoundHole],
        mended: Callable[[], None],
        hopeless: Callable[[FoundHole], None],
        begins: float = 0.0,
    ) -> None:
        """`mended` is called after the last write was requested, `hopeless` when no replica has the
        chunks of a hole. Nobody is asked before the Port's time `begins`."""
        self.replica = replica
        self.holes = deque(holes)
        self._mended = mended
        self._hopeless = hopeless
        self._others: dict[NodeId, Peer] = {}
        self._turn = 0  # whom to ask next
        self._got: deque[Chunk] = deque()  # of the first hole, up to its last chunk
        self._size = 0
        self._lacking: dict[NodeId, float] = {}  # when who said that they do not have them
        self._begins = begins

    def ask(self) -> None:
        """Ask the next replica for the chunks before those that have come."""
        mine = self.replica
        self._others.update(by_id(mine.replicas, besides=mine.port.me.id))
        if not self._others and not mine.replicas:
            return  # the log does not say who the others are: its leader will speak
        if mine.port.now < self._begins:
            return
        since, never = mine.port.now - ASK_AGAIN, float("-inf")
        rest = [p for p in self._others.values() if self._lacking.get(p.id, never) < since]
        if not rest or self._size > HOLE_MOST:
            self._hopeless(self.holes[0])
            return
        self._turn += 1
        number, digest = self._wanted()
        first = self.holes[0].hole.first
        mine.port.send(
            rest[self._turn % len(rest)], ShardMissing(mine.shard, first, number, digest)
        )

    def heard(self, peer: Peer) -> None:
        """Ask this node too: it has the shard."""
        self._others.setdefault(peer.id, peer)

    def sent(self, sender: Peer, message: ShardMissingSent) -> None:
        """Take those of the chunks that the hashes prove, and write a hole when all are there."""
        number, _ = self._wanted()
        if message.last != number or not self.holes:
            return  # of a question before
        taken = 0
        for data in reversed(message.chunks):
            chunk = read(data)
            if chunk is None or not self._is_wanted(chunk):
                self.replica.port.count("shard_repairs_refused")
                self.replica.damage.refused += 1
                break
            self._got.appendleft(chunk)
            self._size += len(data)
            taken += 1
            segment, hole = self.holes[0]
            if chunk.begins_segment and segment_name(chunk) != segment:
                self._write_segment(chunk)
            if chunk.number == hole.first or (
                not hole.first and chunk.begins_segment and chunk.first <= self.replica.state.floor
            ):
                self._fill()
                return
        if not taken:
            self._lacking[sender.id] = self.replica.port.now
            if message.leads >= max(self.replica.hard_state.epoch, 1):
                self._hopeless(self.holes[0])
                return
        self.ask()

    def _wanted(self) -> tuple[int, bytes]:
        """Return the number and hash of the chunk before those already received."""
        if self._got:
            return self._got[0].number - 1, self._got[0].previous
        hole = self.holes[0].hole
        return hole.last, hole.hash

    def _is_wanted(self, chunk: Chunk) -> bool:
        return (chunk.number, chunk.hash) == self._wanted()

    def _write_segment(self, first: Chunk) -> None:
        """Write a segment of which all chunks have been received."""
        of, hole = self.holes[0]
        self._write(segment_name(first), 0)
        self.holes[0] = FoundHole(of, hole._replace(last=first.number - 1, hash=first.previous))

    def _write(self, segment: str, at: int) -> int:
        """Write the chunks that have come into a segment, from byte `at` on. Returns where they
        end."""
        for chunk in self._got:
            self.replica.disk.write(self.replica.shard, segment, at, chunk.data)
            at += len(chunk.data)
            self.replica.port.count("shard_chunks_mended")
            self.replica.damage.mended += 1
        self._got.clear()
        self._size = 0
        self._lacking.clear()
        return at

    def _fill(self) -> None:
        """Write the chunks of the first hole where they were, but for those of other segments."""
        segment, hole = self.holes[0]
        size = sum(len(chunk.data) for chunk in self._got)
        if not hole.is_last and size != hole.end - hole.at:
            self._hopeless(self.holes[0])  # these bytes were not where the hole is
            return
        self.holes.popleft()
        at = self._write(segment, hole.at)
        if hole.is_last and segment:  # of its segment: there may be more bytes than there were
            self.replica.disk.cut(self.replica.shard, segment, at)
        if self.holes:
            self.ask()
        else:
            self._mended()


def send_missing(replica: StoredReplica, sender: Peer, message: ShardMissing, leads: int) -> None:
    """Answer `ShardMissing`: the chunks up to the one that it names, as many as fit into a message,
    or none if this log does not have that very chunk. `leads`: as in `ShardMissingSent`."""
    found: deque[bytes] = deque()
    first = max(message.first, message.last - _SPAN + 1, 1)
    line = replica.log.line(message.last)

    def answer(chunks: Sequence[bytes]) -> None:
        sent = ShardMissingSent(replica.shard, message.last, tuple(chunks), leads)
        replica.port.send(sender, sent)

    def take(chunks: tuple[bytes, ...]) -> None:
        for data in chunks:
            found.append(data)
            while len(found) > 1 and sum(map(len, found)) > PIECE:
                found.popleft()
            if number_of(data) == message.last:
                is_it = hashlib.sha256(data).digest() == message.hash
                answer(found if is_it else ())
                return
        if chunks:
            replica.chunks.read(number_of(chunks[-1]) + 1, take)
        else:
            answer(())

    if message.last < replica.log.start or (line is not None and line.hash != message.hash):
        answer(())
    else:
        replica.chunks.read(first, take)


_SPAN: Final = 64
"""Chunks that are read to find the last ones that fit into a message."""
