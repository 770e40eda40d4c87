"""The disk of a simulated node's shards, with its faults (streams/disk.py has the contract).

Written data is in the system's memory until a sync ends; requests that arrive meanwhile share the
next one. A power loss keeps a prefix of the writes that were not synced: some whole, one torn, the
rest lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from canopy.sim.world.scheduler import Scheduler
from overlay.machine import LocalEvent
from streams.disk import DiskFailed, Opened, ReadDone, Written
from streams.log.recovery import recover

HARD_STATE = "promise"


class _Request(NamedTuple):
    ticket: int
    shard: str
    change: Callable[[dict[str, bytearray], float], None] | None  # with the share that is done
    answer: Callable[[], LocalEvent] | None


class SimulatedLogDisk:
    """`streams.disk.LogDisk` in virtual time; `deliver` passes an answer to the node."""

    def __init__(
        self, scheduler: Scheduler, rng: Random, deliver: Callable[[LocalEvent], None]
    ) -> None:
        self.deliver = deliver
        self.durable: dict[str, dict[str, bytearray]] = {}
        """By shard, the bytes of its files that survive a power loss."""
        self.slow = 0.0
        """The most seconds that a sync takes in addition to its 0.2 to 2 ms."""
        self.fail = 0.0
        """The share of syncs that fail (EIO)."""
        self.room: int | None = None
        """The capacity in bytes; None: unlimited."""
        self._scheduler = scheduler
        self._rng = rng
        self._cached: dict[str, dict[str, bytearray]] = {}
        self._waiting: list[_Request] = []
        self._under_way: list[_Request] = []
        self._failed: dict[str, str] = {}
        self._ticket = 0
        self._boot = 0

    def shards(self) -> list[str]:
        """Return the shards that have a folder."""
        return sorted(self.durable)

    def destroy(self, shard: str) -> int:
        """Delete the shard's folder with all its files. Returns the ticket of the request."""

        def forgotten() -> LocalEvent:
            self.durable.pop(shard, None)
            self._cached.pop(shard, None)
            return Written(shard, ticket)

        self._failed.pop(shard, None)
        ticket = self._ticket + 1
        return self._ask_whole(shard, dict.clear, forgotten)

    def open(self, shard: str) -> int:
        """Read the shard's folder. Returns the ticket of the request."""
        self._failed.pop(shard, None)
        ticket = self._ticket + 1
        return self._ask(shard, None, lambda: self._opened(shard, ticket))

    def write(self, shard: str, segment: str, at: int, data: bytes) -> int:
        """Write into a segment's file. Returns the ticket of the request."""

        def change(files: dict[str, bytearray], share: float) -> None:
            part = data[: int(len(data) * share)]
            file = files.setdefault(segment, bytearray())
            file.extend(bytes(max(0, at - len(file))))
            file[at : at + len(part)] = part
            if share < 1 and part and self._rng.random() < 0.3:
                file[at + len(part) - 1] ^= 1 << self._rng.randrange(8)
            elif share < 1 and self._rng.random() < 0.3:  # the file had grown already
                file.extend(bytes(max(0, at + len(data) - len(file))))

        return self._ask(shard, change, None)

    def put(self, shard: str, data: bytes) -> int:
        """Replace the hard state. Returns the ticket of the request."""

        return self._ask_whole(shard, lambda files: files.update({HARD_STATE: bytearray(data)}))

    def cut(self, shard: str, segment: str, size: int) -> int:
        """Cut a segment's file to `size` bytes. Returns the ticket of the request."""

        def change(files: dict[str, bytearray]) -> None:
            if segment in files:
                del files[segment][size:]

        return self._ask_whole(shard, change)

    def drop(self, shard: str, segment: str) -> int:
        """Delete a segment's file. Returns the ticket of the request."""

        return self._ask_whole(shard, lambda files: files.pop(segment, None))

    def save(self, shard: str, segment: str) -> int:
        """Keep a copy of a segment's file under another name. Returns the ticket of the request."""

        def change(files: dict[str, bytearray]) -> None:
            if segment in files:
                files[f"{segment}.damaged"] = bytearray(files[segment])

        return self._ask_whole(shard, change)

    def read(self, shard: str, segment: str, at: int, size: int) -> int:
        """Read from a segment's file. Returns the ticket of the request."""
        ticket = self._ticket + 1
        data = self._files(shard).get(segment, b"")
        found = bytes(data[at : at + size])
        return self._ask(shard, None, lambda: ReadDone(shard, ticket, found))

    def lose_power(self) -> None:
        """Keep a prefix of the requests that are not synced: the machine dies."""
        self._boot += 1
        requests = [*self._under_way, *self._waiting]
        left = self._rng.randint(0, len(requests))
        for place, request in enumerate(requests):
            if request.change is not None and place <= left:
                share = 1.0 if place < left else self._rng.random()
                request.change(self.durable.setdefault(request.shard, {}), share)
        self._under_way, self._waiting = [], []
        self._failed.clear()
        self._cached.clear()

    def damage(self, shard: str, newest: bool = True) -> tuple[str, int] | None:
        """Flip a bit somewhere in the newest segment, or in any. Returns the segment's name and the
        byte; None if there is nothing to damage."""
        place = self._somewhere(shard, newest)
        if place is not None:
            name, at = place
            bit = 1 << self._rng.randrange(8)
            for there in (self.durable.get(shard, {}), self._cached.get(shard, {})):
                if name in there and at < len(there[name]):
                    there[name][at] ^= bit
        return place

    def _somewhere(self, shard: str, newest: bool) -> tuple[str, int] | None:
        for files in (self.durable.get(shard, {}), self._cached.get(shard, {})):
            names = sorted(name for name in files if name != HARD_STATE and files[name])
            if names:
                name = names[-1] if newest else self._rng.choice(names)
                return name, self._rng.randrange(len(files[name]))
        return None

    def _files(self, shard: str) -> dict[str, bytearray]:
        if shard not in self._cached:
            self._cached[shard] = _copied(self.durable.get(shard, {}))
        return self._cached[shard]

    def _ask_whole(
        self,
        shard: str,
        change: Callable[[dict[str, bytearray]], object],
        answer: Callable[[], LocalEvent] | None = None,
    ) -> int:
        """`_ask` for a change that is done as a whole, or not at all."""

        def changed(files: dict[str, bytearray], share: float) -> None:
            if share == 1:
                change(files)

        return self._ask(shard, changed, answer)

    def _ask(
        self,
        shard: str,
        change: Callable[[dict[str, bytearray], float], None] | None,
        answer: Callable[[], LocalEvent] | None,
    ) -> int:
        self._ticket += 1
        if change is not None and shard not in self._failed:
            change(self._files(shard), 1.0)
        self._waiting.append(_Request(self._ticket, shard, change, answer))
        self._sync()
        return self._ticket

    def _sync(self) -> None:
        if not self._under_way and self._waiting:
            self._under_way, self._waiting = self._waiting, []
            delay = self._rng.uniform(0.0002, 0.002) + self._rng.random() * self.slow
            self._scheduler.after(delay, self._synced, self._boot)

    def _synced(self, boot: int) -> None:
        if boot != self._boot:
            return
        requests, self._under_way = self._under_way, []
        writes = any(request.change is not None for request in requests)
        if writes and self._rng.random() < self.fail:
            self._fail(requests, "input/output error")
        for request in requests:
            shard = request.shard
            if shard in self._failed and not (request.answer and request.change is None):
                reason = self._failed[shard]
                self.deliver(DiskFailed(shard, request.ticket, reason, "room" in reason))
                continue
            if request.change is not None:
                files = self.durable.setdefault(shard, {})
                request.change(files, 1.0)
                size = sum(map(len, files.values()))
                if self.room is not None and size > self.room:
                    self._fail([request], "no room left")
                    self.deliver(DiskFailed(shard, request.ticket, "no room left", True))
                    continue
            answer = request.answer
            self.deliver(answer() if answer else Written(shard, request.ticket))
            if boot != self._boot:
                return
        self._sync()

    def _fail(self, requests: list[_Request], reason: str) -> None:
        """Fail these requests, and all later ones of their shards. The disk keeps a part of them,
        as after a power loss."""
        for request in requests:
            if request.change is not None and request.shard not in self._failed:
                self._failed[request.shard] = reason
                request.change(self.durable.setdefault(request.shard, {}), self._rng.random())
                self._cached.pop(request.shard, None)

    def _opened(self, shard: str, ticket: int) -> LocalEvent:
        files: Mapping[str, bytearray] = self._files(shard)
        vote = files.get(HARD_STATE)
        found = recover(
            shard, list(files), lambda name: bytes(files[name]), lambda n: len(files[n])
        )
        return Opened(shard, ticket, found, None if vote is None else bytes(vote), False)


def _copied(files: Mapping[str, bytearray]) -> dict[str, bytearray]:
    return {name: bytearray(data) for name, data in files.items()}
