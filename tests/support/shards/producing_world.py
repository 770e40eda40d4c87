"""A shard's replicas with their append servers, and programs that append, in virtual time.

2. Each acknowledged event is in the log once, each other at most once.
3. The events of each program are in the order in which it sent them.
11. Receipts name the place of their events, and are proved by the log.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import SHARD, WrongError, chunks_of
from overlay.client import (
    AppendEvents,
    Draft,
    EventsAppended,
    Failed,
)
from overlay.info import AppendReceipt
from overlay.links.events import LinkDown
from overlay.machine import LocalEvent, Message, NodeId, Peer, Timer
from overlay.stream_client import BeginProducer, ProducerReady
from streams.access.locator import StreamLocated, StreamLocator
from streams.directory.entry import ShardPlace, StreamEntry, StreamOptions
from streams.log import shard_log
from streams.log.batches import Row, encode_rows, heads_of, rows_of
from streams.log.chunk import EVENTS
from streams.log.verify import Receipt, Verifier
from streams.programs.producer import messages as producing
from streams.programs.producer.messages import (
    AppendRefused,
    AppendRows,
    OpenProducer,
    ProducerIsOpen,
    RowBatch,
    RowsAppended,
)
from streams.programs.producer.producers import Producers
from streams.programs.transaction import messages as transactions
from streams.programs.transaction.messages import DecideHalf, PrepareHalf, ReviewHalf
from streams.services.append.appender import AppendServer
from streams.services.half import TransactionServer
from streams.services.service import Leaderships
from streams.shard import messages as replication
from streams.shard.replica import Replica, ShardCommitted
from tests.support.shards.shard_world import ShardWorld, constants


def row_batch(number: int, rows: int = 1, size: int = 3) -> RowBatch:
    return RowBatch(rows, encode_rows([Row({"n": number + i}, b"x" * size) for i in range(rows)]))


class ProducingWorld(ShardWorld):
    """Every node serves producers where it leads; `answers` are those to requests of a node that
    no machine has asked."""

    codec = WireCodec(list(collect([replication, producing]).values()))
    programs: dict[int, Any]
    """What asks nodes, by the number of its client, where a world has such."""

    def __init__(self, seed: int, nodes: int = 3, replicas: int = 3) -> None:
        self.servers: dict[str, AppendServer] = {}
        self.answers: dict[str, list[Any]] = {}
        self._leaderships: dict[str, tuple[int, Leaderships]] = {}
        self.locators: dict[str, WorldLocator] = {}
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        self.servers[node] = AppendServer(self.leaderships(node), lambda shard: self.led(node))
        super().boot(node)

    def leaderships(self, node: str) -> Leaderships:
        """What a node's services hear by; another one after each start."""
        port = self.ports[node]
        boot, found = self._leaderships.get(node, (-1, None))
        if found is None or boot != port.boot:
            found = Leaderships(port, lambda shard: self.alive.get(node), lambda: self.clock(node))
            self._leaderships[node] = (port.boot, found)
        return found

    def clock(self, node: str) -> int:
        """The time of day at a node, nanoseconds since 1970."""
        return int(self.scheduler.now * 1e9)

    def led(self, node: str) -> Replica | None:
        replica = self.alive.get(node)
        if replica is None or replica.leader is None or not replica.ready:
            return None
        return replica if replica.committed >= replica.leader.first else None

    def machines(self, node: str) -> list[Any]:
        return [self.alive[node], self.leaderships(node), self.servers[node]]

    def handle(self, node: str, event: LocalEvent | Timer) -> None:
        self._handle(node, event)
        self.settle(node)

    def _handle(self, node: str, event: LocalEvent | Timer) -> None:
        if node in self.alive:
            for machine in self.machines(node):
                handler = machine.handlers().get(type(event))
                if handler is not None:
                    handler(event)
            if isinstance(event, LinkDown) and node in self.locators:
                self.locators[node].on_link_down(event)

    def break_links(self, node: str) -> None:
        """The others learn that their links to a node that has crashed are down."""
        down = LinkDown(self.ports[node].me, "gone", False)
        for other in sorted(self.alive):
            self.scheduler.after(self.rng.uniform(0.01, 0.5), self.handle, other, down)

    def _replied(self, client: int, reply: Any) -> None:
        self.programs[client].answered(reply)

    def settle(self, node: str) -> None:
        """Hand out what handlers have emitted."""
        port = self.ports[node]
        while port.events:
            self._handle(node, port.events.popleft())

    def _arrived(self, way: tuple[str, str], sender: Peer, message: Message) -> None:
        if way in self.cut or way[1] not in self.alive:
            return
        for machine in self.machines(way[1]):
            handler = machine.handlers().get(type(message))
            if handler is not None:
                handler(sender, message)
                self.settle(way[1])
                return
        self.answers.setdefault(way[1], []).append(message)

    def committed(self, node: str, number: int) -> None:
        super().committed(node, number)
        boot = self.ports[node].boot
        self.scheduler.after(0.0, self._tell, node, boot, ShardCommitted(SHARD, number))

    def _tell(self, node: str, boot: int, event: ShardCommitted) -> None:
        if node in self.alive and self.ports[node].boot == boot:
            self.leaderships(node).on_committed(event)

    # -- requests by hand ------------------------------------------------------------------------

    def ask(self, sender: Peer, leader: Peer, *messages: Message) -> list[Any]:
        """Send messages, and return the answers of the next second."""
        for message in messages:
            self.send(sender, leader, message)
        self.run(1.0)
        return self.answers.pop(sender.id, [])

    def opened(self, leader: Peer, producer: str = "p", token: str = "t") -> ProducerIsOpen:
        asked = OpenProducer(SHARD, 0, producer, token)
        (answer,) = self.ask(self.peers[-1], leader, asked)
        assert isinstance(answer, ProducerIsOpen)
        return answer

    def appended(
        self, leader: Peer, session: int, sequence: int, *batches: RowBatch, producer: str = "p"
    ) -> RowsAppended | AppendRefused:
        asked = AppendRows(SHARD, 1, producer, session, sequence, batches)
        (answer,) = self.ask(self.peers[-1], leader, asked)
        assert isinstance(answer, RowsAppended | AppendRefused)
        return answer


def led(nodes: int = 4, replicas: int = 3, seed: int = 1) -> tuple[ProducingWorld, Peer, Replica]:
    """A world whose first node leads; the last node has no replica."""
    world = ProducingWorld(seed, nodes, replicas)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    return world, world.peers[0], world.alive[world.peers[0].id]


class HalfWorld(ProducingWorld):
    """Every node serves transactions where it leads."""

    codec = WireCodec(list(collect([replication, producing, transactions]).values()))

    def __init__(self, seed: int, nodes: int = 4, replicas: int = 3) -> None:
        self.transactions: dict[str, TransactionServer] = {}
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        self.transactions[node] = TransactionServer(
            self.leaderships(node), lambda shard: self.led(node)
        )
        super().boot(node)
        self.transactions[node].start()

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.transactions[node]]

    def prepare(self, leader: Peer, transaction: str, number: int, producer: str = "p") -> Any:
        half = PrepareHalf(SHARD, number, transaction, producer, row_batch(number, 2))
        return self.only(self.ask(self.peers[-1], leader, half))

    def decide(self, leader: Peer, transaction: str, commit: bool = True) -> Any:
        return self.only(
            self.ask(self.peers[-1], leader, DecideHalf(SHARD, 9, transaction, commit))
        )

    @staticmethod
    def only(answers: list[Any]) -> Any:
        (answer,) = [one for one in answers if not isinstance(one, ReviewHalf)]
        return answer

    def visible(self, node: str) -> dict[str, list[object]]:
        """The rows of each transaction in the log of a node; none may be there twice."""
        found: dict[str, list[object]] = {}
        for chunk in chunks_of(self.bytes_of(node)):
            if chunk.kind == EVENTS:
                rows = [row.attributes["n"] for row in rows_of(chunk)]
                for head in heads_of(chunk):
                    assert head.transaction not in found, "committed twice"
                    found[head.transaction], rows = rows[: head.count], rows[head.count :]
        return found


STREAM = "orders"
ENTRY = StreamEntry(STREAM, SHARD.rpartition("/")[0], StreamOptions(), (ShardPlace(()),))


class WorldLocator(StreamLocator):
    """Finds the leader of the world's only shard, after a moment, and sometimes the former one."""

    def __init__(self, world: ProducingWorld, node: str) -> None:
        port: Any = world.ports[node]
        super().__init__(port, None)  # type: ignore[arg-type]
        self.world, self.node = world, node
        world.locators[node] = self

    def locate(self, name: str) -> None:
        self.world.scheduler.after(0.01, self._answer, self.world.ports[self.node].boot)

    def _answer(self, boot: int) -> None:
        if self.world.ports[self.node].boot != boot or self.node not in self.world.alive:
            return
        leaders = [n for n in sorted(self.world.alive) if self.world.led(n)]
        found = self.world.ports[self.world.rng.choice(leaders)].me if leaders else None
        self.known[STREAM] = StreamLocated(STREAM, ENTRY, (found,))
        self.world.handle(self.node, self.known[STREAM])

    def mistaken(self, name: str, shard: int, node: NodeId) -> None:
        self.known.pop(name, None)
        self.known[STREAM] = StreamLocated(STREAM, ENTRY, (None,))
        self.world.scheduler.after(0.2, self.locate, name)


class Program:
    """Appends numbered events through one node and notes what it is answered. A named one keeps its
    own record: after a crash of its node it begins again behind what it was answered. One that
    `goes_on` sends nothing twice, and shares its producer's name with another. One that `resumes`
    shares it as well, and does what the library does: it goes on over another connection behind
    what it was answered, as the start that it is; a new start is another program."""

    def __init__(
        self,
        world: ProgramWorld,
        client: int,
        node: str,
        producer: str,
        goes_on: bool = False,
        resumes: bool = False,
    ) -> None:
        self.world, self.client, self.node, self.producer = world, client, node, producer
        self.resumes = resumes
        self.starts = self.begun = self.next = 0
        self.unanswered: deque[range] = deque()  # of one that resumes
        self.sent = 0  # events
        self.acknowledged: dict[int, AppendReceipt | None] = {}  # by event
        self.refused: dict[int, str] = {}
        self.requests: dict[int, range] = {}
        self.is_ready = not producer
        self.request = 0
        self.goes_on = goes_on

    def ask(self, command: type[Any], *arguments: Any) -> None:
        self.request += 1
        machine = self.world.producers.get(self.node)
        if machine is not None and self.node in self.world.alive:
            one = command(self.request, *arguments)
            machine.commands()[command](self.client, one)
            self.world.settle(self.node)

    def begin(self) -> None:
        """Begin behind what is known to be appended; what was not answered is sent again."""
        if self.resumes:
            self.resume()
            return
        if self.goes_on:
            self.is_ready, self.requests = False, {}
            self.ask(BeginProducer, STREAM, self.producer)
            return
        contiguous = 0
        while contiguous in self.acknowledged:
            contiguous += 1
        self.is_ready, self.requests = False, {}
        self.sent = contiguous
        self.ask(BeginProducer, STREAM, self.producer, contiguous)

    def resume(self) -> None:
        """Begin as the start that it is, if it has begun and is not ended."""
        if self.starts and not self.begun and self.world.rng.random() < 0.9:
            return  # the other one has some time
        self.is_ready, self.requests = False, {}
        token = f"{self.client}-{self.starts}"
        begun, first = self.begun, self.next if self.begun else -1
        self.begun += bool(begun)
        self.ask(BeginProducer, STREAM, self.producer, first, (), 0, token, begun)

    def resumed(self, reply: Any, numbers: range | None) -> None:
        """An answer to a program that resumes."""
        if isinstance(reply, ProducerReady):
            self.next = self.next if self.begun else reply.next[0]
            self.begun, self.is_ready = self.begun or 1, True
            for batch in list(self.unanswered):
                self.send(batch)
        elif isinstance(reply, EventsAppended):
            assert numbers == self.unanswered.popleft()
            self.next = dict(reply.next)[0]
            self.note(reply, numbers)
        else:  # ended: what begins next is another program
            self.world.fenced += reply.code == "fenced"
            self.refused.update((n, reply.code) for each in self.unanswered for n in each)
            self.unanswered.clear()
            self.is_ready, self.requests = False, {}
            self.starts, self.begun = self.starts + 1, 0

    def append(self) -> None:
        if not self.is_ready:
            return
        count = self.world.rng.randint(1, 4)
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        if self.resumes:
            self.unanswered.append(numbers)
        self.send(numbers)

    def send(self, numbers: range) -> None:
        drafts = tuple(Draft({"who": f"{self.client}", "n": n}) for n in numbers)
        self.requests[self.request + 1] = numbers
        self.ask(AppendEvents, STREAM, drafts, self.producer)

    def answered(self, reply: Any) -> None:
        numbers = self.requests.pop(reply.request, None)
        if self.resumes:
            self.resumed(reply, numbers)
        elif isinstance(reply, ProducerReady):
            self.is_ready = True
        elif numbers is None:
            self.is_ready = self.is_ready and not isinstance(reply, Failed)
        elif isinstance(reply, EventsAppended):
            self.note(reply, numbers)
        else:
            assert isinstance(reply, Failed), reply
            self.refused.update(dict.fromkeys(numbers, reply.code))
            self.is_ready = self.is_ready and not self.producer

    def note(self, reply: EventsAppended, numbers: range) -> None:
        self.acknowledged.update(dict.fromkeys(numbers))
        for receipt in reply.receipts:
            for place in receipt.places or range(len(numbers)):
                self.acknowledged[numbers[place]] = receipt


class ProgramWorld(ProducingWorld):
    """Every node has producers as well, and some of them programs that append."""

    def __init__(self, seed: int, nodes: int = 3, replicas: int = 3) -> None:
        self.producers: dict[str, Producers] = {}
        self.programs: dict[int, Program] = {}
        self.fenced = 0  # programs that were told that another goes on
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        port = self.ports[node]
        port.reply = self._replied
        locator = WorldLocator(self, node)
        self.producers[node] = Producers(port, port.boot, locator)
        super().boot(node)
        port.events.clear()
        for program in self.programs.values():
            if program.node == node:
                program.requests.clear()
                program.is_ready = not program.producer

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.producers[node]]

    def crash(self, node: str) -> None:
        was_alive = node in self.alive
        super().crash(node)
        if was_alive:
            self.break_links(node)

    def append(self) -> None:
        self.work()

    def add(
        self,
        client: int,
        node: str,
        producer: str,
        goes_on: bool = False,
        resumes: bool = False,
    ) -> Program:
        program = Program(self, client, node, producer, goes_on, resumes)
        self.programs[client] = program
        return program

    def work(self) -> None:
        """Some programs append, some begin again."""
        for program in self.programs.values():
            if program.producer and (not program.is_ready or self.rng.random() < 0.02):
                if self.rng.random() < 0.3:
                    program.begin()
            elif len(program.requests) < 8:
                program.append()

    def judge_programs(self, leader: Replica) -> int:
        """Checkers 2, 3 and 11 on the log at the end. Returns how many events it has."""
        seen: dict[tuple[str, int], int] = {}
        order: dict[str, list[int]] = {}
        for chunk in chunks_of(self.bytes_of(leader.port.me.id)):
            for place, row in enumerate(rows_of(chunk) if chunk.kind == EVENTS else ()):
                who, number = str(row.attributes["who"]), row.attributes["n"]
                assert isinstance(number, int)
                if (who, number) in seen:
                    raise WrongError(f"event {number} of program {who} is there twice")
                seen[who, number] = chunk.first + place
                order.setdefault(who, []).append(number)
        files = self.disks[leader.port.me.id].durable[SHARD]
        for client, program in self.programs.items():
            mine = order.get(str(client), [])
            if mine != sorted(mine):
                raise WrongError(f"the events of program {client} are out of order")
            for number, receipt in program.acknowledged.items():
                if (str(client), number) not in seen:
                    raise WrongError(f"event {number} of program {client} is lost")
                if receipt is not None:
                    offset = seen[str(client), number]
                    if not receipt.first <= offset < receipt.first + receipt.count:
                        raise WrongError(f"the receipt of event {number} names another place")
            receipts = [receipt for receipt in program.acknowledged.values() if receipt is not None]
            for each in receipts[:1] + receipts[-1:]:
                proof = Receipt(ENTRY.id, *[getattr(each, f) for f in _PROVEN], each.replicas)
                found = Verifier(SHARD, proof).run(list(files), lambda name: bytes(files[name]))
                if (found.receipt, found.fault) != ("proved", None):
                    raise WrongError(f"a receipt is {found.receipt}: {found.reason}")
        return len(seen)


_PROVEN = ("shard", "epoch", "first", "count", "chunk", "hash")


def trial_of_programs(seed: int, rounds: int = 25) -> ProgramWorld:
    """A world with eight programs through faults, and judged. WrongError if a checker fails."""
    with constants((shard_log, "SEGMENT_BYTES", 4_000)):
        world = ProgramWorld(seed, 4, 3)
        names = [peer.id for peer in world.peers]
        for client, producer in enumerate(("", "", "a", "b", "both", "both", "till", "till"), 1):
            place = (client, world.rng.choice(names), producer)
            world.add(*place, goes_on=producer == "both", resumes=producer == "till")
        world.run(0.1)
        world.elect()
        world.run(0.5)
        world.cause_trouble(rounds, damaged=1)
        leader = world.heal()
        for _ in range(3):
            world.work()
            world.run(3.0)
        world.run(20.0)
        world.judge(leader)
        world.judge_programs(leader)
        for program in world.programs.values():
            if program.requests:
                raise WrongError(f"program {program.client} is not answered: {program.requests}")
    return world
