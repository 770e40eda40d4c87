"""The checks of a node's logs: all of them regularly and slowly, and those that a program asks for
at once, at the rate of its request.

Each piece is read and checked in a turn of its own. Other replicas repair damage as always: a check
waits for that, and then goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from overlay.client import Failed
from overlay.machine import Machine, Port, Timer
from overlay.stream_client import BeginLogCheck, GetLogCheck, LogCheck, ShardCheck
from streams.directory.entry import StreamEntry
from streams.log.chunk import CHUNK_MOST, Chunk, read
from streams.log.names import split_shard
from streams.log.recovery import FoundHole, Hole, Placed, scan
from streams.log.shard_log import Segment
from streams.shard.kept_chunks import DamageSeen
from streams.shard.replica import Replica

# --- scrubbing: a log is read from its oldest segment on, to find damage before a reader does ---
#
# At its start a replica reads its newest segment only. Damage of an older segment would be found
# when a reader needs it, perhaps after the other copies are damaged as well (latent sector errors:
# L. Bairavasundaram et al., SIGMETRICS 2007). So each node reads its logs, a piece at a time.

ANSWER_WITHIN: Final = 60.0
"""Seconds after which a piece is read again, since the folder was reopened meanwhile."""


class LogWalk:
    """A walk over a replica's segments, and its findings."""

    def __init__(self, replica: Replica, name: str = "", segment: str = "") -> None:
        """`name`: of the stream, if it is known here. `segment`: the only one to read; "": all."""
        self.replica = replica
        self.name = name
        self.before = replica.damage.counts()
        self.size = sum(each.size for each in replica.log.segments)
        self.bytes = 0
        """Bytes read so far."""
        self.waits_since: float | None = None
        self.is_over = False
        """Whether it is done, and does not wait for a repair."""
        self._alone = bool(segment)
        self._segment = segment  # in hand; "": the oldest
        self.restart()

    def restart(self) -> None:
        """Read the segment in hand from its beginning at the next step. A read under way does not
        count."""
        self._at = 0
        self._number = 0  # of the chunk expected at `_at`; 0: the segment's first
        self._last: Placed | None = None  # the chunk before it in the segment
        self._asked = float("-inf")
        self._generation = self.replica.chunks.generation
        self.is_done = False
        self.again = False
        """It has found damage that is being repaired: there may be more behind it."""

    @property
    def is_reading(self) -> bool:
        """Whether the disk still has to answer."""
        return self._asked > float("-inf")

    def status(self) -> ShardCheck:
        """The progress and findings of this walk, as `canopy stream check` prints them."""
        counts = [a - b for a, b in zip(self.replica.damage.counts(), self.before, strict=True)]
        stream, _, number = self.replica.shard.rpartition("/")
        shard = int(number) if number.isdigit() else 0
        about = (self.name or stream, shard, self._state(counts[0] > 0), self.bytes, self.size)
        return ShardCheck(*about, *counts)

    def _state(self, is_damaged: bool) -> str:
        replica = self.replica
        if replica.barred:
            return "barred"
        if replica.repair is not None:
            return "mending"
        if not replica.ready:
            return "opening"
        if not self.is_over:
            return "reads" if self.bytes or self.is_reading else "waits"
        if replica.damage.left > self.before[3]:
            return "damaged"
        return "mended" if is_damaged else "whole"

    def step(self) -> None:
        """Read a piece, unless one is being read."""
        now = self.replica.port.now
        if self.is_done or now < self._asked + ANSWER_WITHIN or not self.replica.ready:
            return
        segment = self._there()
        if segment is None:
            self.is_done = True
            return
        if self._generation != self.replica.chunks.generation:  # it may have been cut since
            self._generation = self.replica.chunks.generation
            self._at, self._number, self._last = 0, 0, None
        size = segment.size
        self._number = self._number or segment.number
        if self._at < size:
            most = min(CHUNK_MOST, size - self._at)
            self._read(segment, self._at, most, lambda data: self._found(segment, size, data))
        else:
            self._segment_ends(segment, size)

    def _there(self) -> Segment | None:
        """The segment in hand; the next one, if it was removed."""
        segments = self.replica.log.segments
        name = self._segment
        found = next((s for s in segments if s.name >= name), None)
        if found is not None and found.name != name:
            if name and self._alone:
                return None
            self._segment, self._at, self._number, self._last = found.name, 0, 0, None
        return found

    def _read(self, segment: Segment, at: int, size: int, then: Callable[[bytes], None]) -> None:
        asked = self._asked = self.replica.port.now
        generation = self.replica.chunks.generation

        def found(data: bytes) -> None:
            if self._asked != asked:
                return
            self._asked = float("-inf")
            self.bytes += len(data)
            if generation == self.replica.chunks.generation:
                then(data)

        self.replica.chunks.read_bytes(segment.name, at, size, found)

    def _found(self, segment: Segment, size: int, data: bytes) -> None:
        """Check the CRCs and hashes of the bytes that were read."""
        at = 0
        while (chunk := read(data, at)) is not None and self._follows(chunk):
            self._last = Placed(self._at + at, chunk._replace(data=b""))
            self._number = chunk.number + 1
            at += len(chunk.data)
        self._at += at
        if not at:
            self._look_behind(segment, size)

    def _follows(self, chunk: Chunk) -> bool:
        if chunk.number != self._number:
            return False
        return self._last is None or chunk.previous == self._last.chunk.hash

    def _segment_ends(self, segment: Segment, size: int) -> None:
        """Check that the next segment continues the one that was read to its end."""
        following = self._following(segment)
        if following is not None and following.number != self._number:
            self._look_behind(segment, size)
            return
        self._go_on(following)

    def _go_on(self, following: Segment | None) -> None:
        self.is_done = following is None or self._alone
        if following is not None:
            self._segment, self._at, self._number, self._last = following.name, 0, 0, None

    def _following(self, segment: Segment) -> Segment | None:
        segments = self.replica.log.segments
        return next((s for s in segments if s.number > segment.number), None)

    def _look_behind(self, segment: Segment, size: int) -> None:
        """Find the holes of a damaged segment: read its rest, and the first chunk of the next."""
        last, number = self._last, self._number
        start = self._at if last is None else last.at  # the last chunk may be the altered one
        number = number if last is None else last.chunk.number
        following = self._following(segment)
        end = self.replica.log.end

        def holes_of(rest: bytes, follower: bytes) -> None:
            found = scan(rest, number)
            holes = [
                hole._replace(at=hole.at + start, end=hole.end + start) for hole in found.holes
            ]
            follows = found.last.number + 1 if found.last is not None else number
            behind = read(follower)
            to, digest = end if following is None else (following.number - 1, b"")
            if following is not None and behind is not None:
                digest = behind.previous
            if follows <= to and digest:
                span = (found.end + start, size, follows, to)
                holes.append(Hole(*span, digest, is_last=True))
            if holes:
                self.is_done = True
                found_holes = [FoundHole(segment.name, hole) for hole in holes]
                self.again = self.replica.damaged(found_holes)
            else:  # the next segment is damaged as well, and proves nothing about this one's end
                self._go_on(following)

        def read_follower(rest: bytes) -> None:
            if following is None:
                holes_of(rest, b"")
            else:
                self._read(following, 0, CHUNK_MOST, lambda data: holes_of(rest, data))

        self._read(segment, start, max(size - start, 0), read_follower)


# --- the regular check ---
#
# One piece of up to 960 KiB every half second, 2 MB/s, of one shard after another: 100 GB take 14
# hours. A segment in which a read finds damage is read at once.

PIECE_EVERY: Final = 0.5
"""Seconds between pieces."""

ROUND: Final = 24 * 3_600.0
"""Seconds from the end of a round to the next one, at most. (ZFS's users scrub monthly; a shard is
smaller, and reading it once a day costs nothing.)"""

FIRST_ROUND: Final = 60.0
"""Seconds from the start to the first round: a node that begins has other things to do, but one
that is restarted again and again has to find damage as well."""

LEAST_REST: Final = 600.0
"""Seconds from the end of a round to the next one, at least."""

REST: Final = 50.0
"""Times as long as a round has taken it rests: so small logs are read often, and reading takes a
fiftieth of the time."""


class CheckLogs(Timer, frozen=True):
    """Time to read another piece for the regular check."""


STEPS_MOST: Final = 50
"""Steps in one turn that read nothing: ends of small segments and of empty logs."""

LOOK: Final = 0.01
"""Seconds between looks at a read that is under way, and at a replica under repair."""

PATIENCE: Final = 30.0
"""Seconds for which the check waits for a replica that is opening or under repair; then it reports
that state and ends. Longer than a restart of another node."""


class CheckNow(Timer, frozen=True):
    """Time to read another piece for the check that a program has asked for."""


class _Run:
    """A check of some logs, one after the other."""

    def __init__(self, walks: list[LogWalk], client: int = 0, rate: int = 0) -> None:
        """`client`: the program that has asked for it, and the bytes a second that it wants."""
        self.walks = walks
        self.client = client
        self.rate = rate
        self.paid = 0  # bytes for which the rate's time has been waited
        self.next_at = float("-inf")  # when the next piece may be read

    @property
    def next(self) -> LogWalk | None:
        """The log that is read now."""
        return next((walk for walk in self.walks if not walk.is_over), None)


class LogChecks(Machine):
    """Checks all logs regularly, and those that a program asks for, one such check at a time."""

    def __init__(
        self,
        port: Port,
        replicas: Callable[[], Iterable[Replica]],
        entries: Mapping[str, StreamEntry],
    ) -> None:
        """`replicas` lists what the node has; `entries`: its streams, by founding id."""
        super().__init__(port)
        self._replicas = replicas
        self._entries = entries
        self._seen: list[LogWalk] = []  # of segments that are damaged
        self._round: _Run | None = None  # of the regular check
        self._began = 0.0  # when this round did
        self._run: _Run | None = None  # that a program has begun

    # -- regularly -------------------------------------------------------------------------------

    def start(self) -> None:
        """Set the timer of the regular check, which first begins after FIRST_ROUND seconds."""
        self.port.set_timer(FIRST_ROUND, CheckLogs())

    def on_damage_seen(self, event: DamageSeen) -> None:
        """Read the segment in which a reader has met damage at once, before the regular check."""
        for replica in self._replicas():
            if replica.shard == event.shard:
                self._seen.append(LogWalk(replica, segment=event.segment))
                self.port.set_timer(0.0, CheckLogs())

    def on_check_logs(self, timer: CheckLogs) -> None:
        """Read the next piece of a damaged segment, or of the regular check, and set the timer for
        the piece after it."""
        if self._seen:
            self._seen[0].step()
            if self._seen[0].is_done:
                self._seen.pop(0)
            self.port.set_timer(0.01, timer)
            return
        if self._round is None:
            self._round = _Run([LogWalk(replica) for replica in self._replicas()])
            self._began = self.port.now
        if (walk := self._round.next) is not None:
            self._step(walk)
        if self._round.next is not None:
            self.port.set_timer(PIECE_EVERY, timer)
            return
        self._round = None
        rest = REST * (self.port.now - self._began)
        self.port.set_timer(min(max(LEAST_REST, rest), ROUND), timer)

    # -- for programs ----------------------------------------------------------------------------

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return the method that carries out each type of command."""
        return {BeginLogCheck: self.begin, GetLogCheck: self.get}

    def begin(self, client: int, command: BeginLogCheck) -> None:
        """Begin a check, and answer how it stands."""
        if self._run is not None and self._run.next is not None:
            reason = "another check of this node's logs is under way: wait for its end"
            self.port.reply(client, Failed(command.request, "refused", reason))
            return
        walks = []
        for replica in self._replicas():
            entry = self._entries.get(_stream_of(replica.shard))
            name = "" if entry is None else entry.name
            if not command.stream or command.stream == name:
                walks.append(LogWalk(replica, name))
        if command.stream and not walks:
            reason = f"this node has no shard of a stream {command.stream}"
            self.port.reply(client, Failed(command.request, "unknown", reason))
            return
        walks.sort(key=lambda walk: (walk.name, walk.replica.shard))
        self._run = _Run(walks, client, command.rate)
        self._answer(client, command.request)
        self.port.set_timer(0.0, CheckNow())

    def get(self, client: int, command: GetLogCheck) -> None:
        """Answer how the check stands that this program has begun."""
        if self._run is None or self._run.client != client:
            self.port.reply(client, Failed(command.request, "unknown", "there is no such check"))
        else:
            self._answer(client, command.request)

    def client_gone(self, client: int) -> None:
        """A program has gone: nobody waits for its check."""
        if self._run is not None and self._run.client == client:
            self._run = None

    def _answer(self, client: int, request: int) -> None:
        run = self._run
        assert run is not None
        me, is_over = self.port.me, run.next is None
        shards = tuple(walk.status() for walk in run.walks)
        self.port.reply(client, LogCheck(request, me.id, me.address, is_over, shards))

    def on_check_now(self, timer: CheckNow) -> None:
        """Read a piece of the first log that is not read to its end."""
        run = self._run
        walk = None if run is None else run.next
        if run is None or walk is None:
            return
        now, read = self.port.now, sum(walk.bytes for walk in run.walks)
        run.next_at = max(run.next_at, now) + (read - run.paid) / run.rate
        run.paid = read
        if now < run.next_at:
            self.port.set_timer(run.next_at - now, timer)
            return
        for _ in range(STEPS_MOST):
            if walk.is_over or not self._step(walk):
                break
        self.port.set_timer(LOOK if not walk.is_over else 0.0, timer)

    def _step(self, walk: LogWalk) -> bool:
        """Go on with one log. Returns whether there is something to do at once."""
        replica = walk.replica
        if all(each is not replica for each in self._replicas()):
            walk.is_over = True  # its stream was removed, or the shard is elsewhere by now
            return False
        if not replica.ready or replica.barred or replica.repair is not None:
            self._wait(walk)
            return False
        walk.waits_since = None
        walk.step()
        if walk.is_done:
            walk.is_over = not walk.again
            walk.restart()
            return False
        return not walk.is_reading

    def _wait(self, walk: LogWalk) -> None:
        walk.restart()  # what it has asked for may no longer come
        if walk.waits_since is None:
            walk.waits_since = self.port.now
        walk.is_over = walk.replica.barred or self.port.now > walk.waits_since + PATIENCE


def _stream_of(shard: str) -> str:
    """The founding id of a shard's stream; of a fork of one as well."""
    return split_shard(shard)[0].rpartition("/")[0]
