"""The logs of this node's shards, read slowly from end to end (streams/shard/log_walk.py).

One piece of up to 960 KiB every half second, 2 MB/s, of one shard after another: 100 GB take 14
hours. A segment in which a read finds damage is read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from overlay.machine import Machine, Port, Timer
from streams.shard.kept_chunks import DamageSeen
from streams.shard.log_walk import LogWalk
from streams.shard.replica import Replica

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
    """Time to read another piece."""


class LogChecks(Machine):
    """Walks over the logs of the replicas that `replicas` lists."""

    def __init__(self, port: Port, replicas: Callable[[], Iterable[Replica]]) -> None:
        super().__init__(port)
        self._replicas = replicas
        self._round: list[Replica] = []  # whose logs are still to be read in this round
        self._walking: Replica | None = None
        self._walk: LogWalk | None = None
        self._seen: list[LogWalk] = []  # of segments that are damaged
        self._began: float | None = None  # when this round did; None: it has not

    def start(self) -> None:
        """Set the timer."""
        self.port.set_timer(FIRST_ROUND, CheckLogs())

    def on_damage_seen(self, event: DamageSeen) -> None:
        """Read that segment now."""
        for replica in self._replicas():
            if replica.shard == event.shard:
                self._seen.append(LogWalk(replica, event.segment, alone=True))
                self.port.set_timer(0.0, CheckLogs())

    def on_check_logs(self, timer: CheckLogs) -> None:
        """Read a piece."""
        if self._seen:
            self._seen[0].step()
            if self._seen[0].is_done:
                self._seen.pop(0)
            self.port.set_timer(0.01, timer)
            return
        if self._began is None:
            self._began = self.port.now
        if self._walk is None:
            if not self._round:
                self._round = list(self._replicas())
            self._walking = self._round.pop(0) if self._round else None
            self._walk = LogWalk(self._walking) if self._walking is not None else None
        if self._walk is not None:
            self._walk.step()
            if self._walk.is_done:
                if self._walk.again and self._walking is not None:
                    self._round.append(self._walking)
                self._walk = None
        if self._walk is not None or self._round:
            self.port.set_timer(PIECE_EVERY, timer)
            return
        rest = REST * (self.port.now - self._began)
        self._began = None
        self.port.set_timer(min(max(LEAST_REST, rest), ROUND), timer)
