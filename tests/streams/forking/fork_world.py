"""Nodes with all that they have of a shard that prefers availability, and programs that append, in
virtual time: partitions, crashes, elections.

The judge knows nothing of sessions, windows or chunks of forks. It has the programs' own notes of
what was acknowledged, and the rows of the main log at the end. What is there:

* each acknowledged event is in the main log once, and each other at most once;
* the events of a program are in order, within the main log and within each fork, and over all as
  far as the program has been in one fork at most;
* what was committed in the main log has not changed, and its replicas have the same bytes;
* all forks are gone; receipts of forks are proved by the main log.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import SHARD, WrongError, committed_chunks
from overlay.machine import LocalEvent
from streams.access.locator import StreamLocated
from streams.directory.entry import ShardPlace, StreamEntry, StreamOptions
from streams.log import shard_log
from streams.log.batches import heads_of, rows_of
from streams.log.chunk import EVENTS
from streams.log.verify import Receipt, Verifier
from streams.programs.producer import messages as producing
from streams.programs.producer.producers import Producers
from streams.services.append.appender import AppendServer
from streams.services.fork import fork_copies
from streams.services.fork.fork_copies import ForkCopies
from streams.services.fork.forks import Forks
from streams.services.service import Leaderships
from streams.shard import messages as replication
from streams.shard.hosting.shard_hosts import ShardHosts
from streams.shard.replica import Replica, ShardCommitted
from streams.shard.retention import Keep
from streams.shard.stored_replica import ShardTerms
from tests.support.shards.producing_world import STREAM, Program, ProgramWorld, WorldLocator
from tests.support.shards.shard_world import ShardWorld, constants


class NoRing:
    """Nobody owns a name here."""

    def find(self, key: str) -> None:
        """Nothing is found."""


class SideLocator(WorldLocator):
    """Finds a leader at the node's own side of a cut, if there is one."""

    world: ForkWorld

    def _answer(self, boot: int) -> None:
        if self.world.ports[self.node].boot != boot or self.node not in self.world.alive:
            return
        leaders = [n for n in sorted(self.world.alive) if self._reaches(n) and self.world.led(n)]
        found = self.world.ports[self.world.rng.choice(leaders)].me if leaders else None
        self._say(found)

    def _reaches(self, other: str) -> bool:
        return (self.node, other) not in self.world.cut

    def _say(self, found: Any) -> None:
        self.known[STREAM] = StreamLocated(STREAM, self.world.entry, (found,))
        self.world.handle(self.node, self.known[STREAM])

    def mistaken(self, name: str, shard: int, node: str) -> None:
        self.known[STREAM] = StreamLocated(STREAM, self.world.entry, (None,))
        self.world.scheduler.after(0.2, self.locate, name)


class ForkProgram(Program):
    """Keeps each event's receipt, and the receipts of forks that it has got."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.forked: list[Any] = []

    def answered(self, reply: Any) -> None:
        super().answered(reply)
        self.forked += [each for each in getattr(reply, "receipts", ()) if each.fork]


class ForkWorld(ProgramWorld):
    """Every node has a `ShardHosts`, and what forks need."""

    codec = WireCodec(list(collect([replication, producing, fork_copies]).values()))

    def __init__(self, seed: int, nodes: int = 4, replicas: int = 3, prefer: Any = "") -> None:
        self.hosts: dict[str, ShardHosts] = {}
        self.forks: dict[str, Forks] = {}
        self.copies: dict[str, ForkCopies] = {}
        self.prefer = prefer or "availability"
        super().__init__(seed, nodes, replicas)

    @property
    def entry(self) -> StreamEntry:
        options = StreamOptions(prefer=self.prefer)
        place = ShardPlace(self.founders, is_founded=True)
        return StreamEntry(STREAM, SHARD.rpartition("/")[0], options, (place,))

    def boot(self, node: str) -> None:
        port = self.ports[node]
        port.reply, port.emit = self._replied, lambda event: self._emitted(node, event)
        locator = SideLocator(self, node)

        def clock() -> int:
            return int(self.scheduler.now * 1e9)

        hosts: Any = ShardHosts(port, self.disks[node], NoRing(), clock)  # type: ignore[arg-type]
        led = Leaderships(port, hosts.replica, clock)
        forks = Forks(led, hosts, locator)
        server = AppendServer(led, forks.appendable)
        copies = ForkCopies(led, forks.main, server.flush)
        self._leaderships[node] = (port.boot, led)
        self.hosts[node], self.forks[node], self.servers[node] = hosts, forks, server
        self.copies[node] = copies
        self.producers[node] = Producers(port, port.boot, locator)
        hosts.entries[self.entry.id] = self.entry
        hosts.start()
        if SHARD not in hosts.hosted:
            hosts._hold(SHARD, self.founders if port.me in self.founders else ())
        elif port.me in self.founders:
            hosts.hosted[SHARD].replica.found(self.founders)
        self.alive[node] = hosts.hosted[SHARD].replica
        self.alive[node].describe(ShardTerms(keep=Keep(forks=True)))
        server.start()
        port.events.clear()
        for program in self.programs.values():
            if program.node == node:
                program.requests.clear()
                program.is_ready = not program.producer

    def _emitted(self, node: str, event: LocalEvent) -> None:
        if isinstance(event, ShardCommitted) and event.shard == SHARD:
            ShardWorld.committed(self, node, event.number)
        self.ports[node].events.append(event)

    def machines(self, node: str) -> list[Any]:
        mine = (self.hosts, self.servers, self.producers, self.forks, self.copies)
        return [*(machines[node] for machines in mine), self.leaderships(node)]

    def add(self, client: int, node: str, producer: str, goes_on: bool = False) -> Program:
        program = self.programs[client] = ForkProgram(self, client, node, producer, goes_on)
        return program

    # -- faults ----------------------------------------------------------------------------------

    def partition(self) -> None:
        """Two or three sides that do not hear each other."""
        sides = self.rng.choice((2, 2, 3))
        side = {peer.id: self.rng.randrange(sides) for peer in self.peers}
        names = sorted(side)
        self.cut = {(a, b): None for a in names for b in names if side[a] != side[b]}

    def elect_reachable(self) -> None:
        """As the owner of the stream does: nominate a replica that a majority can hear, where none
        leads that a majority follows."""
        inside = [peer.id for peer in self.founders]
        for node in self.rng.sample(inside, len(inside)):
            near = [n for n in inside if n in self.alive and (node, n) not in self.cut]
            leads = [n for n in near if self.led(n) and not self.alive[n].is_cut_off(4.0)]
            if node in near and 2 * len(near) > len(inside) and not leads:
                self.epoch = max(self.epoch, *(self.alive[n].hard_state.epoch for n in near)) + 1
                self.alive[node].lead(self.epoch)
                return

    def cause_partitions(self, rounds: int) -> None:
        """Random partitions that last for some seconds, with crashes and restarts."""
        rng, names = self.rng, [peer.id for peer in self.peers]
        for _ in range(rounds):
            what, node = rng.randrange(10), rng.choice(names)
            if what < 4:
                self.partition()
            elif what < 6:
                self.cut.clear()
            elif what == 6:
                self.crash(node)
            elif what == 7:
                other = rng.choice(names)
                self.cut.update({(node, other): None, (other, node): None})
            elif what == 8 and node in self.alive:
                self.crash(node)
                self.boot(node)
            for down in [n for n in names if n not in self.alive]:
                if rng.random() < 0.4:
                    self.boot(down)
            for _ in range(rng.randrange(4, 14)):
                self.work()
                self.run(rng.choice((0.02, 0.3, 1.0)))
                if rng.random() < 0.5:
                    self.elect_reachable()

    def heal_partitions(self) -> Replica:
        """Everything comes back; returns the leader when nothing waits any more."""
        self.cut.clear()
        for peer in self.peers:
            if peer.id not in self.alive:
                self.boot(peer.id)
        for _ in range(60):
            self.elect_reachable()
            self.work()
            self.run(2.0)
            leaders = [self.alive[n] for n in sorted(self.alive) if self.led(n)]
            forks = [fork for node in self.forks.values() for fork in node._forks]
            open_ = [p for p in self.programs.values() if not p.is_ready and not p.goes_on]
            if len(leaders) == 1 and not forks and not open_:
                self.run(20.0)
                return leaders[0]
        raise WrongError(f"not healed: leaders {len(leaders)}, forks {forks}, {len(open_)} wait")

    # -- the judge -------------------------------------------------------------------------------

    def judge_forks(self, leader: Replica) -> int:
        """Returns how many rows came from forks."""
        self.run(3.0)
        places: dict[str, list[tuple[int, str]]] = {}  # of each program: its events, in the log
        seen: dict[tuple[str, int], int] = {}
        copied = 0
        data = self.bytes_of(leader.port.me.id)
        for chunk in committed_chunks(data, self.truth):
            if chunk.kind != EVENTS:
                continue
            homes = [head.fork for head in heads_of(chunk) for _ in range(head.count)]
            copied += sum(home != "" for home in homes)
            for place, (row, home) in enumerate(zip(rows_of(chunk), homes, strict=True)):
                who, event = str(row.attributes["who"]), row.attributes["n"]
                assert isinstance(event, int)
                if (who, event) in seen:
                    raise WrongError(f"event {event} of program {who} is there twice")
                seen[who, event] = chunk.first + place
                places.setdefault(who, []).append((event, home))
        for peer in leader.replicas:
            if self.bytes_of(peer.id) != data:
                raise WrongError(f"{peer.id} has other bytes than the leader")
        for program in self.programs.values():
            self._judge_program(program, places.get(str(program.client), []), seen)
        self._judge_receipts(leader)
        return copied

    def _judge_program(
        self, program: Program, mine: list[tuple[int, str]], seen: dict[tuple[str, int], int]
    ) -> None:
        for number in program.acknowledged:
            if (str(program.client), number) not in seen:
                receipt = program.acknowledged[number]
                raise WrongError(f"event {number} of program {program.client} is lost: {receipt}")
        homes = dict.fromkeys(home for _, home in mine)
        runs = [[event for event, each in mine if each == home] for home in homes]
        used = {receipt.fork for receipt in getattr(program, "forked", ())}
        if program.producer and not program.goes_on and len({*homes, *used} - {""}) <= 1:
            runs.append([event for event, _ in mine])
        for run in runs:
            if any(a > b for a, b in pairwise(run)):
                raise WrongError(f"the events of program {program.client} are out of order: {run}")

    def _judge_receipts(self, leader: Replica) -> None:
        files = self.disks[leader.port.me.id].durable[SHARD]
        for program in self.programs.values():
            for each in getattr(program, "forked", [])[:2]:
                proof = Receipt(
                    *(self.entry.id, each.shard, each.epoch, each.first, each.count, each.chunk),
                    *(each.hash, each.replicas, each.fork),
                )
                found = Verifier(SHARD, proof).run(list(files), lambda name: bytes(files[name]))
                if (found.receipt, found.fault) != ("proved", None):
                    raise WrongError(f"a fork's receipt is {found.receipt}: {found.reason}")


def trial_of_forks(seed: int, rounds: int = 25) -> tuple[ForkWorld, int]:
    """A world with six programs through partitions, and judged: (it, rows that came from forks).
    WrongError if a checker fails."""
    with constants((shard_log, "SEGMENT_BYTES", 4_000)):
        nodes, replicas = ((4, 3), (5, 3), (5, 5), (3, 3))[seed % 4]
        world = ForkWorld(seed, nodes, replicas)
        names = [peer.id for peer in world.peers]
        for client, producer in enumerate(("", "", "a", "b", "both", "both"), 1):
            world.add(client, world.rng.choice(names), producer, goes_on=producer == "both")
        world.run(0.1)
        world.elect_reachable()
        world.run(0.5)
        world.cause_partitions(rounds)
        copied = world.judge_forks(world.heal_partitions())
    return world, copied
