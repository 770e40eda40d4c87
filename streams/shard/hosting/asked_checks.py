"""Checks on request: the logs of this node's shards are read from end to end.

As `log_checks`, but at once and at the rate of the request: each piece is read and checked in a
turn of its own, and the next one waits as long as the rate demands. Other replicas repair damage as
always; this machine only reports the progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from overlay.client import Failed
from overlay.machine import Machine, Port, Timer
from overlay.stream_client import BeginLogCheck, GetLogCheck, LogCheck, ShardCheck
from streams.directory.entry import StreamEntry
from streams.log.names import split_shard
from streams.shard.log_walk import LogWalk
from streams.shard.replica import Replica

STEPS_MOST: Final = 50
"""Steps in one turn that read nothing: ends of small segments and of empty logs."""

LOOK: Final = 0.01
"""Seconds between looks at a read that is under way, and at a replica under repair."""

PATIENCE: Final = 30.0
"""Seconds for which the check waits for a replica that is opening or under repair; then it reports
that state and ends. Longer than a restart of another node."""


class CheckNow(Timer, frozen=True):
    """Time to read another piece."""


class _Walk:
    """One replica's log."""

    def __init__(self, replica: Replica, name: str) -> None:
        self.replica = replica
        self.name = name  # of the stream; "": not known here
        self.before = replica.damage.counts()
        self.size = sum(segment.size for segment in replica.log.segments)
        self.read = 0  # bytes, by walks before this one
        self.checking: LogWalk | None = None
        self.segment = ""  # at which the next walk begins; "": at the oldest
        self.waits_since: float | None = None
        self.is_over = False

    @property
    def bytes(self) -> int:
        """Bytes that were read."""
        return self.read + (0 if self.checking is None else self.checking.bytes)

    def status(self) -> ShardCheck:
        """For people."""
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
            return "waits" if self.checking is None else "reads"
        counts = self.replica.damage
        if counts.left > self.before[3]:
            return "damaged"
        return "mended" if is_damaged else "whole"


class _Run:
    """The check that a program has begun."""

    def __init__(self, client: int, rate: int, walks: list[_Walk]) -> None:
        self.client = client
        self.rate = rate
        self.walks = walks
        self.paid = 0  # bytes for which the rate's time has been waited
        self.next_at = float("-inf")  # when the next piece may be read

    @property
    def next(self) -> _Walk | None:
        """The log that is read now."""
        return next((walk for walk in self.walks if not walk.is_over), None)


class AskedChecks(Machine):
    """One check at a time, of all logs of this node or of those of one stream."""

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
        self._run: _Run | None = None

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
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
                walks.append(_Walk(replica, name))
        if command.stream and not walks:
            reason = f"this node has no shard of a stream {command.stream}"
            self.port.reply(client, Failed(command.request, "unknown", reason))
            return
        walks.sort(key=lambda walk: (walk.name, walk.replica.shard))
        self._run = _Run(client, command.rate, walks)
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
        if all(replica is not walk.replica for replica in self._replicas()):
            walk.is_over = True  # its stream was removed, or the shard is elsewhere by now
        for _ in range(STEPS_MOST):
            if walk.is_over or not self._step(walk):
                break
        self.port.set_timer(LOOK if not walk.is_over else 0.0, timer)

    def _step(self, walk: _Walk) -> bool:
        """Go on with one log. Returns whether there is something to do at once."""
        replica = walk.replica
        if not replica.ready or replica.barred or replica.repair is not None:
            self._wait(walk)
            return False
        walk.waits_since = None
        if walk.checking is None:
            walk.checking = LogWalk(replica, walk.segment)
        walk.checking.step()
        if walk.checking.is_done:
            walk.is_over = not walk.checking.again
            self._pause(walk)
            return False
        return not walk.checking.is_reading

    def _wait(self, walk: _Walk) -> None:
        if walk.checking is not None:  # what it has asked for may not come any more
            self._pause(walk)
        if walk.waits_since is None:
            walk.waits_since = self.port.now
        walk.is_over = walk.replica.barred or self.port.now > walk.waits_since + PATIENCE

    def _pause(self, walk: _Walk) -> None:
        """Go on in the same segment later."""
        assert walk.checking is not None
        walk.read, walk.segment, walk.checking = walk.bytes, walk.checking.segment, None


def _stream_of(shard: str) -> str:
    """The founding id of a shard's stream; of a fork of one as well."""
    return split_shard(shard)[0].rpartition("/")[0]
