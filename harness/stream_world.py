"""Streams in an overlay of simulated nodes, with crashes, partitions, cut links and bad disks.

Faults and checkers for whole nodes: who leads is decided by the owners
of streams, which are lost and restarted as well. The checkers are the same: 1 a committed chunk's
hash is fixed for ever; 2 what is acknowledged is there, once; 9 replicas have the same bytes.
"""

from __future__ import annotations

from random import Random
from typing import TypeVar

from canopy.sim.world.log_disk import HARD_STATE
from harness.logs import EventBatch, WrongError, append_batches, committed_chunks
from harness.overlays import grown, wait
from overlay.client import GetStreams, Streams
from overlay.stream_client import AddStream
from streams.log.batches import BatchHead, Row, heads_of
from streams.log.chunk import EVENTS
from streams.shard.replica import Replica


class StreamWorld:
    """An overlay with one stream."""

    def __init__(self, seed: int, nodes: int = 6, replicas: int = 3) -> None:
        self.rng = Random(seed)
        self.world = world = grown(nodes, seed)
        reply = world.ask("n0", AddStream(world.clients.request(), "s", replicas=replicas))
        assert isinstance(reply, Streams), reply
        self.shard = f"{reply.streams[0].id}/0"
        wait(world, lambda: len(self.leaders()) == 1, 5.0, "the shard has a leader")
        self.truth: dict[int, bytes] = {}  # number of a committed chunk: its hash
        self.pending: dict[tuple[int, int], int] = {}  # (epoch, chunk): row
        self.acknowledged: dict[int, None] = {}
        self._rows = 0

    def replicas(self) -> dict[str, Replica]:
        """The replicas that run, by the name of their node."""
        nodes = {name: self.world.node(name) for name in self.world.names()}
        found = {name: node.streams.hosts.replica(self.shard) for name, node in nodes.items()}
        return {name: replica for name, replica in found.items() if replica is not None}

    def leaders(self) -> list[str]:
        """The nodes that say that they lead."""
        return [name for name, replica in self.replicas().items() if replica.serves]

    def append(self) -> None:
        """Append a row wherever a node takes itself for the leader."""
        for replica in self.replicas().values():
            if replica.leader is not None and replica.serves:
                self._rows += 1
                batch = EventBatch(BatchHead("p", self._rows, 0, 1), (Row({"n": self._rows}),))
                chunk = append_batches(replica.leader, [batch], 0)
                self.pending[replica.leader.epoch, chunk.number] = self._rows

    def run(self, seconds: float) -> None:
        """Let time pass, and look at what is committed, many times a second."""
        until = self.world.now + seconds
        while self.world.now < until:
            self.world.run(min(0.02, until - self.world.now))
            self._look()

    def _look(self) -> None:
        epochs: dict[int, str] = {}
        for name, replica in self.replicas().items():
            if replica.leader is not None and epochs.setdefault(replica.leader.epoch, name) != name:
                raise WrongError(f"two nodes lead under epoch {replica.leader.epoch}")
            for line in reversed(replica.log.lines):
                if line.number > replica.committed:
                    continue
                if self.truth.setdefault(line.number, line.hash) != line.hash:
                    raise WrongError(f"chunk {line.number} was committed twice, differently")
                if line.number < replica.committed - 50:
                    break
            if replica.leader is not None:
                for key in [k for k in self.pending if k[0] == replica.leader.epoch]:
                    if key[1] <= replica.committed:
                        self.acknowledged[self.pending.pop(key)] = None

    # -- faults ----------------------------------------------------------------------------------

    def cause_trouble(self, rounds: int) -> None:
        """Random faults, of which the overlay recovers by itself."""
        world, rng = self.world, self.rng
        every = list(world.drivers)
        for _ in range(rounds):
            what = rng.randrange(10)
            alive = [name for name in world.names() if world.drivers[name].alive]
            down = [name for name in every if not world.drivers[name].alive]
            if what < 3 and len(alive) > 3:
                world.crash(rng.choice(alive), silent=rng.random() < 0.3)
            elif what < 6 and down:
                world.restart(rng.choice(down))
            elif what == 6:
                for name in every:
                    if world.drivers[name].alive:
                        world.crash(name)
                for name in every:
                    world.restart(name)
            elif what == 7:
                half = rng.sample(every, len(every) // 2)
                world.network.partition([half, [n for n in every if n not in half]])
            elif what == 8:
                world.network.heal()
            for _ in range(rng.randrange(4)):
                self.append()
                self.run(rng.choice((0.02, 0.1, 0.5)))
            self.run(rng.choice((0.1, 1.0, 5.0)))

    def heal(self) -> str:
        """All faults end; returns the leader's node after everything has been copied."""
        world = self.world
        world.network.heal()
        for name in list(world.drivers):
            if not world.drivers[name].alive:
                world.restart(name)
        for _ in range(200):
            self.run(1.0)
            self.append()
            self.run(0.3)
            led = self.leaders()
            if len(led) == 1:
                there = self.replicas()
                leader = there[led[0]]
                names = {world.drivers[n].disk.node: n for n in world.names()}
                inside = [there.get(names.get(peer.id, "")) for peer in leader.replicas]
                end = leader.log.end.number
                if len(inside) >= 3 and all(r is not None and r.committed == end for r in inside):
                    return led[0]
        told = {
            name: (r.ready, r.barred, r.hard_state, r.log.position, r.committed, r.serves)
            for name, r in self.replicas().items()
        }
        raise WrongError(f"nothing is committed any more: {told}")

    def judge(self, leader: str) -> None:
        """The checkers on what is on disk at the end."""
        there = self.replicas()
        mine = self.bytes_of(leader)
        seen: dict[int, int] = {}
        for chunk in committed_chunks(mine, self.truth):
            if chunk.kind == EVENTS:
                for head in heads_of(chunk):
                    if head.session in seen:
                        raise WrongError(f"row {head.session} is there twice")
                    seen[head.session] = chunk.number
        lost = [row for row in self.acknowledged if row not in seen]
        if lost:
            raise WrongError(f"{len(lost)} acknowledged rows are lost: {lost[:3]}")
        names = {self.world.drivers[n].disk.node: n for n in self.world.names()}
        for peer in there[leader].replicas:
            if self.bytes_of(names[peer.id]) != mine:
                raise WrongError(f"{peer.id} has other bytes than the leader")
        found = self.world.ask(leader, GetStreams(self.world.clients.request(), "s"))
        if not isinstance(found, Streams):
            raise WrongError(f"the stream is no longer found: {found}")

    def bytes_of(self, node: str, shard: str = "") -> bytes:
        """The segments of a shard on a node's disk; "": of the world's own."""
        files = self.world.drivers[node].logs.durable.get(shard or self.shard, {})
        return b"".join(bytes(files[name]) for name in sorted(files) if name != HARD_STATE)


World = TypeVar("World", bound=StreamWorld)


def trial(seed: int, kind: type[World], rounds: int = 12) -> World:
    """An overlay through faults, and judged. WrongError if a checker fails."""
    world = kind(seed, nodes=5 + seed % 3)
    world.cause_trouble(rounds)
    world.judge(world.heal())
    return world
