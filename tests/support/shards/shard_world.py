"""Replicas of one shard in virtual time, with crashes, cut links and bad disks, and the checkers.

1. A committed chunk's hash is fixed for ever, at whichever replica it is known to be committed.
2. Each acknowledged (producer, sequence) is at exactly one offset, each other at most at one.
9. Replicas are byte-identical up to what is committed.
10. Nothing is removed that retention is to keep, and the log stays as small as it is to be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

from canopy.sim.world.log_disk import HARD_STATE, SimulatedLogDisk
from canopy.sim.world.scheduler import Scheduler
from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import SHARD, EventBatch, WrongError, append_batches, batch, committed_chunks
from overlay.machine import LocalEvent, Machine, Message, Peer, Timer
from streams.log import shard_log
from streams.log.batches import heads_of
from streams.log.chunk import EVENTS
from streams.shard import messages
from streams.shard.hosting.log_checks import LogWalk
from streams.shard.replica import Replica, ShardCommitted
from streams.shard.retention import EVERYTHING, Keep

CODEC = WireCodec(list(collect([messages]).values()))
"""The product's codec, with the messages of replicas only."""


@contextmanager
def constants(*values: tuple[ModuleType, str, Any]) -> Iterator[None]:
    """Modules with other values of their constants, within the block."""
    former = [getattr(module, name) for module, name, _ in values]
    for module, name, value in values:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(values, former, strict=True):
            setattr(module, name, value)


SECTOR = 512  # bytes that fail together


class FaultyLogDisk(SimulatedLogDisk):
    """A disk that loses sectors, and ends of segments."""

    def make_unreadable(self, shard: str, newest: bool = True) -> tuple[str, int] | None:
        """Make a sector fail: it reads as zeros until it is written again
        (`canopy.wire.shards.shard_files` returns zeros for EIO)."""
        place = self._somewhere(shard, newest)
        if place is not None:
            name, at = place
            for there in (self.durable.get(shard, {}), self._cached.get(shard, {})):
                if name in there:
                    end = min(len(there[name]), at - at % SECTOR + SECTOR)
                    there[name][at - at % SECTOR : end] = bytes(max(0, end - (at - at % SECTOR)))
        return place

    def shorten(self, shard: str) -> tuple[str, int] | None:
        """Cut the end of an older segment, or delete the newest one."""
        place = self._somewhere(shard, newest=False)
        if place is None:
            return None
        name, at = place
        names = self.durable.get(shard, {}).keys() | self._cached.get(shard, {}).keys()
        for there in (self.durable.get(shard, {}), self._cached.get(shard, {})):
            if name == max(n for n in names if n != HARD_STATE):
                there.pop(name, None)
            elif name in there:
                del there[name][at:]
        return place


class NodePort:
    """`overlay.machine.Port`, as far as a replica uses it."""

    schemas = None

    def __init__(self, world: ShardWorld, me: Peer, rng: Random) -> None:
        self.world, self.me, self.rng, self.processors = world, me, rng, 1
        self.boot = 0
        self.timers: dict[Timer, int] = {}
        self.counters: dict[str, int] = {}
        self.events: deque[LocalEvent] = deque()
        """Emitted, and of no interest to a world of replicas."""

    @property
    def now(self) -> float:
        return self.world.scheduler.now

    def send(self, peer: Peer, message: Message) -> None:
        self.world.send(self.me, peer, message)

    def set_timer(self, delay: float, timer: Timer) -> None:
        number = self.timers[timer] = self.timers.get(timer, 0) + 1
        self.world.scheduler.after(delay, self._fire, timer, number, self.boot)

    def _fire(self, timer: Timer, number: int, boot: int) -> None:
        if (self.timers.get(timer), self.boot) == (number, boot):
            self.world.handle(self.me.id, timer)

    def emit(self, event: LocalEvent) -> None:
        if isinstance(event, ShardCommitted):
            self.world.committed(self.me.id, event.number)
        else:
            self.events.append(event)

    def trace(self, kind: str, **fields: Any) -> None:
        pass

    def row_share(self, kind: str, count: int) -> float:
        return 0.0

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount
        if name == "shard_forks":
            raise WrongError("a replica was to truncate what is committed")


class ShardWorld:
    """Some nodes, of which the first `replicas` found the shard."""

    codec = CODEC

    def __init__(
        self, seed: int, nodes: int = 3, replicas: int = 3, keep: Keep = EVERYTHING
    ) -> None:
        self.rng = Random(seed)
        self.scheduler = Scheduler()
        self.peers = [Peer(f"{n:016x}", f"n{n}") for n in range(nodes)]
        self.founders = tuple(self.peers[:replicas])
        self.ports: dict[str, Any] = {}
        self.disks: dict[str, FaultyLogDisk] = {}
        self.alive: dict[str, Replica] = {}
        self.cut: dict[tuple[str, str], None] = {}
        self.epoch = 0
        self.truth: dict[int, bytes] = {}  # number of a committed chunk: its hash
        self.pending: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        self.acknowledged: dict[tuple[int, int], None] = {}  # (session, sequence)
        self.keep = keep
        self.rows: dict[tuple[int, int], tuple[int, int]] = {}  # (chunk, time) of each row
        self._appends = 0
        self._arrival: dict[tuple[str, str], float] = {}
        for peer in self.peers:
            self.ports[peer.id] = NodePort(self, peer, self.rng)
            self.disks[peer.id] = FaultyLogDisk(
                self.scheduler, self.rng, partial(self.handle, peer.id)
            )
            self.boot(peer.id)

    # -- nodes and links -------------------------------------------------------------------------

    def boot(self, node: str) -> None:
        port = self.ports[node]
        founders = self.founders if port.me in self.founders else ()
        replica = self.alive[node] = Replica(port, self.disks[node], SHARD, founders)
        replica.start()

    def crash(self, node: str) -> None:
        if self.alive.pop(node, None) is not None:
            self.ports[node].boot += 1
            self.disks[node].lose_power()

    def send(self, sender: Peer, peer: Peer, message: Message) -> None:
        way = (sender.id, peer.id)
        if way in self.cut:
            return
        (message,) = self.codec.decode(self.codec.encode([message]))
        arrival = self.scheduler.now + self.rng.uniform(0.0005, 0.003)
        arrival = self._arrival[way] = max(arrival, self._arrival.get(way, 0.0))
        self.scheduler.at(arrival, self._arrived, way, sender, message)

    def _arrived(self, way: tuple[str, str], sender: Peer, message: Message) -> None:
        if way not in self.cut and way[1] in self.alive:
            handlers = self.alive[way[1]].handlers()
            handlers[type(message)](sender, message)

    def handle(self, node: str, event: LocalEvent | Timer) -> None:
        if node in self.alive:
            replica: Machine = self.alive[node]
            replica.handlers()[type(event)](event)

    # -- what is done ----------------------------------------------------------------------------

    def elect(self, node: str | None = None) -> None:
        """Nominate a node, mostly under a new epoch."""
        names = sorted(self.alive)
        if names:
            self.epoch += self.rng.random() < 0.9 or node is not None
            self.alive[node or self.rng.choice(names)].lead(self.epoch)

    def append(self) -> None:
        """Append a batch wherever a node takes itself for the leader."""
        for node, replica in sorted(self.alive.items()):
            if replica.leader is not None and replica.ready:
                self._appends += 1
                rows = self.rng.randint(1, 3)
                one = self.batch(node, rows)
                chunk = append_batches(replica.leader, [one], int(self.scheduler.now * 1e9))
                key = (node, replica.leader.epoch, chunk.number)
                self.pending[key] = [(self._appends, sequence) for sequence in range(rows)]
                self.rows.update((row, (chunk.number, chunk.time)) for row in self.pending[key])
                if self._appends % 5 == 0:
                    self.retain()

    def retain(self) -> None:
        """Let every leader compare its log with what is to be kept."""
        for replica in self.alive.values():
            if replica.leader is not None:
                replica.leader.retain(self.keep, int(self.scheduler.now * 1e9))

    def batch(self, node: str, rows: int) -> EventBatch:
        return batch(node, self._appends, 0, rows, self.rng.randrange(60))

    def committed(self, node: str, number: int) -> None:
        """A replica says that chunks are committed."""
        replica = self.alive[node]
        for line in reversed(replica.log.lines):
            if line.number <= number:
                known = self.truth.setdefault(line.number, line.hash)
                if known != line.hash:
                    raise WrongError(f"chunk {line.number} was committed twice, differently")
        leading = replica.leader
        if leading is not None:
            for key in [k for k in self.pending if k[:2] == (node, leading.epoch)]:
                if key[2] <= number:
                    self.acknowledged.update(dict.fromkeys(self.pending.pop(key)))

    def change_replicas(self) -> None:
        """Add or remove a replica, if some leader can."""
        for replica in self.alive.values():
            if replica.leader is not None and replica.ready:
                inside = [p.id for p in replica.replicas]
                outside = [p for p in self.peers if p.id not in inside]
                if len(inside) > 3 and self.rng.random() < 0.5:
                    replica.leader.remove_replica(self.rng.choice(inside))
                elif outside:
                    replica.leader.add_replica(self.rng.choice(outside))
                return

    def run(self, seconds: float) -> None:
        self.scheduler.run(seconds)

    # -- faults ----------------------------------------------------------------------------------

    def cause_trouble(self, rounds: int, damaged: int) -> None:
        """Random faults; at most `damaged` nodes get flipped bits."""
        rng, names = self.rng, [peer.id for peer in self.peers]
        victims = rng.sample(names[: len(self.founders)], damaged)
        for _ in range(rounds):
            node, what = rng.choice(names), rng.randrange(13)
            if what < 2:
                self.crash(node)
            elif what < 4 and node not in self.alive:
                self.boot(node)
            elif what == 4:  # the whole room
                for each in names:
                    self.crash(each)
                for each in names:
                    self.boot(each)
            elif what == 5:
                other = rng.choice(names)
                self.cut.update({(node, other): None, (other, node): None})
            elif what == 6:
                self.cut.clear()
            elif what == 7 and victims:
                self.spoil(victims[0])
            elif what == 8:
                self.disks[node].fail = rng.choice((0.0, 0.02))
                self.disks[node].slow = rng.choice((0.0, 0.05))
            elif what == 9:
                self.disks[node].room = rng.choice((None, 20_000))
            elif what == 10:
                self.change_replicas()
            else:
                self.elect()
            for _ in range(rng.randrange(6)):
                self.append()
                self.run(rng.choice((0.0005, 0.002, 0.02)))
            self.run(rng.choice((0.002, 0.05, 0.5)))

    def spoil(self, node: str) -> None:
        """What a node has on disk is damaged, noticed or not."""
        disk = self.disks[node]
        how = self.rng.randrange(6)
        if how < 3:
            self.crash(node)
        if how in (0, 3):
            disk.damage(SHARD)
        elif how in (1, 4):
            disk.make_unreadable(SHARD, newest=how == 1)
        elif how == 2:
            disk.shorten(SHARD)
        else:
            disk.damage(SHARD, newest=False)
        if how < 3:
            self.boot(node)

    def heal(self) -> Replica:
        """All faults end; returns the leader after everything has been copied."""
        self.cut.clear()
        for peer in self.peers:
            disk = self.disks[peer.id]
            disk.fail = disk.slow = 0.0
            disk.room = None
            if peer.id not in self.alive:
                self.boot(peer.id)
        self.run(3.0)
        self.check_logs()
        for place in range(40):
            self.elect(self.peers[place % len(self.peers)].id)
            self.run(2.0)
            leaders = [r for r in self.alive.values() if r.leader is not None]
            if leaders:
                leader = max(leaders, key=lambda r: r.leader.epoch if r.leader else 0)
                self.append()
                self.run(3.0)
                self.retain()
                self.run(1.0)
                inside = [self.alive[p.id] for p in leader.replicas]
                if all(r.committed == leader.log.end.number for r in inside):
                    return leader
        said = [
            (r.ready, r.barred, r.hard_state, r.log.position, r.committed)
            for r in self.alive.values()
        ]
        raise WrongError(f"nothing is committed any more: {said}")

    def check_logs(self) -> None:
        """Every node reads its log from end to end, and mends what is damaged."""
        walks = [LogWalk(replica) for replica in self.alive.values()]
        for _ in range(2_000):
            for walk in walks:
                walk.step()
            # One that was mended several times waits longer before it asks for chunks again.
            self.run(0.003 if all(walk.replica.ready for walk in walks) else 0.05)
            again = [LogWalk(walk.replica) for walk in walks if walk.is_done and walk.again]
            walks = [walk for walk in walks if not walk.is_done] + again
            if not walks:
                break

    def judge(self, leader: Replica) -> None:
        """Checkers 1, 2 and 9 on what is on disk at the end."""
        seen: dict[tuple[int, int], int] = {}
        mine = self.bytes_of(leader.port.me.id)
        for chunk in committed_chunks(mine, self.truth):
            if chunk.kind == EVENTS:
                for head in heads_of(chunk):
                    for sequence in range(head.sequence, head.sequence + head.count):
                        if (head.session, sequence) in seen:
                            raise WrongError(f"{head.session}/{sequence} is there twice")
                        seen[head.session, sequence] = chunk.number
        lost = [key for key in self.acknowledged if key not in seen]
        if self.keep != EVERYTHING:
            lost = [key for key in lost if not self.may_be_gone(key, leader)]
            size = sum(segment.size for segment in leader.log.segments[2:])
            if size > self.keep.bytes > 0:
                raise WrongError(f"{size} bytes are kept, and not {self.keep.bytes}")
        if lost:
            raise WrongError(f"{len(lost)} acknowledged rows are lost: {lost[:3]}")
        if leader.state.lost:
            raise WrongError(f"the log says that rows are lost, and none is: {leader.state.lost}")
        for peer in leader.replicas:
            if self.bytes_of(peer.id) != mine:
                raise WrongError(f"{peer.id} has other bytes than the leader")

    def may_be_gone(self, row: tuple[int, int], leader: Replica) -> bool:
        """Whether an acknowledged row that the leader has not was to be removed."""
        number, time = self.rows[row]
        if number >= leader.log.start or leader.log.segments[0].offset > leader.state.floor:
            return False
        size = sum(segment.size for segment in leader.log.segments)
        is_old = time <= self.scheduler.now * 1e9 - self.keep.time
        return (self.keep.time > 0 and is_old) or 0 < self.keep.bytes <= size

    def bytes_of(self, node: str) -> bytes:
        files = self.disks[node].durable.get(SHARD, {})
        return b"".join(bytes(files[name]) for name in sorted(files) if name != HARD_STATE)


def trial(seed: int, rounds: int = 30) -> ShardWorld:
    """One world of 3 to 5 nodes through faults, and judged. WrongError if a checker fails."""
    sizes = Random(seed).choice(((3, 3), (4, 3), (5, 5), (5, 3)))
    with constants((shard_log, "SEGMENT_BYTES", 2_000)):
        keep = Random(seed + 1).choice((EVERYTHING, Keep(bytes=5_000), Keep(time=4_000_000_000)))
        world = ShardWorld(seed, *sizes, keep)
        world.run(0.1)
        world.elect()
        world.run(0.2)
        world.cause_trouble(rounds, damaged=(sizes[1] - 1) // 2)
        world.judge(world.heal())
    return world
