"""A shard's replicas with their half messages, and programs with transactions, in virtual time.

5. A transaction is there as a whole or not at all, as the first decision said, and as its program's
   record says; one of which nobody knows is not there, waits, and is parked.
"""

from __future__ import annotations

from random import Random
from typing import Any

from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import SHARD
from harness.shard_world import WrongError, constants
from overlay.client import Done, Draft, Failed
from overlay.machine import Peer
from overlay.stream_client import (
    DecideTransaction,
    LeaveUnknown,
    PrepareEvents,
    ReviewsAsked,
    TakeReviews,
    Transactions,
    TransactionState,
)
from streams.log import shard_log
from streams.log.batches import heads_of, rows_of
from streams.log.chunk import EVENTS, read
from streams.programs.producer import messages as producing
from streams.programs.transaction import messages as vocabulary
from streams.programs.transaction.messages import DecideHalf, PrepareHalf, ReviewHalf
from streams.programs.transaction.transactors import Transactors
from streams.services import half as halves
from streams.services.half import TransactionServer
from streams.shard import messages as replication
from streams.shard.replica import Replica
from tests.support.shards.producing_world import STREAM, ProducingWorld, WorldLocator, row_batch


class HalfWorld(ProducingWorld):
    """Every node serves transactions where it leads."""

    codec = WireCodec(list(collect([replication, producing, vocabulary]).values()))

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
        data, at = self.bytes_of(node), 0
        while (chunk := read(data, at)) is not None:
            at += len(chunk.data)
            if chunk.kind == EVENTS:
                rows = [row.attributes["n"] for row in rows_of(chunk)]
                for head in heads_of(chunk):
                    assert head.transaction not in found, "committed twice"
                    found[head.transaction], rows = rows[: head.count], rows[head.count :]
        return found


class TransactionProgram:
    """Does one transaction after the other through one node, with a durable record as the outbox
    has one. It is killed at times: then only the record is left. Of some transactions it `forgets`
    the record, as a program does that has none."""

    def __init__(self, world: TransactionWorld, client: int, node: str, forgets: bool) -> None:
        self.world, self.client, self.node, self.forgets = world, client, node, forgets
        self.producer = f"p{client}"
        self.record: dict[str, str] = {}  # preparing, committed or rolled-back
        self.prepared: dict[str, None] = {}  # that are in the log for certain
        self.outcomes: dict[str, str] = {}
        self.forgotten: dict[str, None] = {}
        self.current = ""  # in preparation in this life
        self.requests: dict[int, str] = {}
        self.request = 0
        self.takes = 0

    def ask(self, command: type[Any], *arguments: Any) -> int:
        self.request += 1
        machine = self.world.transactors[self.node]
        if self.node in self.world.alive:
            machine.commands()[command](self.client, command(self.request, *arguments))
        return self.request

    def begin_anew(self) -> None:
        """Only the record has outlived the program, or its node."""
        self.current, self.takes = "", 0
        self.requests.clear()

    def work(self) -> None:
        rng = self.world.rng
        if rng.random() < 0.05:
            machine = self.world.transactors[self.node]
            machine.client_gone(self.client)
            self.begin_anew()
        if not self.takes:
            self.takes = self.ask(TakeReviews, STREAM, self.producer)
        if not self.current and len(self.record) < 60 and not self.world.is_ending:
            self.current = name = f"{self.producer}.{len(self.record) + len(self.forgotten)}"
            self.record[name] = "preparing"
            drafts = tuple(Draft({"tx": name, "n": n}) for n in range(rng.randint(1, 4)))
            self.requests[self.request + 1] = name
            self.ask(PrepareEvents, STREAM, name, self.producer, drafts)

    def decide(self, name: str, commit: bool) -> None:
        self.requests[self.request + 1] = name
        self.ask(DecideTransaction, STREAM, name, commit)

    def relay(self) -> None:
        """Decide anew what the record has, as the outbox does when a program starts."""
        for name, state in list(self.record.items()):
            if name != self.current and self.outcomes.get(name) is None:
                if state == "preparing":
                    self.record[name] = "rolled-back"
                self.decide(name, state == "committed")

    def answered(self, reply: Any) -> None:
        if isinstance(reply, ReviewsAsked):
            if reply.request == self.takes:
                self.takes = 0
            for name in reply.transactions:
                self._review(name)
            return
        name = self.requests.pop(reply.request, None)
        if reply.request == self.takes:
            self.takes = 0
        if name is None or isinstance(reply, Done | Transactions):
            return
        if isinstance(reply, TransactionState) and reply.outcome == "prepared":
            self._prepared(name)
        elif isinstance(reply, TransactionState):
            self.prepared[name] = None
            known = self.outcomes.setdefault(name, reply.outcome)
            if known != reply.outcome:
                raise WrongError(f"{name} was decided twice")
            if name in self.record and self.record[name] != reply.outcome:
                raise WrongError(f"{name} is {reply.outcome}, and {self.record[name]} here")
        else:
            assert isinstance(reply, Failed), reply
            if name == self.current:
                self.current = ""
                self.record[name] = "rolled-back"
                self.decide(name, False)

    def _prepared(self, name: str) -> None:
        self.prepared[name] = None
        if name != self.current:
            return
        self.current = ""
        chance = self.world.rng.random()
        if self.forgets and chance < 0.3:
            del self.record[name]
            self.forgotten[name] = None
        elif chance < 0.2:
            self.current = name
            self.begin_anew()  # killed between prepare and decision
        else:
            self.record[name] = "committed" if chance < 0.7 else "rolled-back"
            if chance < 0.6 or chance > 0.8:  # else killed before it says so
                self.decide(name, self.record[name] == "committed")

    def _review(self, name: str) -> None:
        state = self.record.get(name)
        if state is None or name == self.current:
            self.ask(LeaveUnknown, STREAM, name)
            return
        if state == "preparing":
            state = self.record[name] = "rolled-back"
        self.decide(name, state == "committed")


class TransactionWorld(HalfWorld):
    """Every node has programs' transactions as well."""

    def __init__(self, seed: int, nodes: int = 4, replicas: int = 3) -> None:
        self.transactors: dict[str, Transactors] = {}
        self.programs: dict[int, TransactionProgram] = {}
        self.is_ending = False
        super().__init__(seed, nodes, replicas)

    def boot(self, node: str) -> None:
        port = self.ports[node]
        port.reply = self._replied
        self.transactors[node] = Transactors(port, WorldLocator(self, node))
        super().boot(node)
        for program in self.programs.values():
            if program.node == node:
                program.begin_anew()

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.transactors[node]]

    def crash(self, node: str) -> None:
        was_alive = node in self.alive
        super().crash(node)
        if was_alive:
            self.break_links(node)

    def add(self, client: int, node: str, forgets: bool = False) -> TransactionProgram:
        program = self.programs[client] = TransactionProgram(self, client, node, forgets)
        return program

    def append(self) -> None:
        for program in self.programs.values():
            if program.node in self.alive:
                program.work()

    def judge_transactions(self, leader: Replica) -> dict[str, int]:
        """Checker 5, when everything is quiet. Returns how many there are of each outcome."""
        state, node = leader.state.transactions, leader.port.me.id
        seen = self.visible_transactions(node)
        found = {"committed": 0, "rolled-back": 0, "parked": 0}
        for program in self.programs.values():
            for name, said in program.record.items():
                if said == "preparing":
                    raise WrongError(f"{name} is still in preparation")
                if (name in seen) != (said == "committed"):
                    raise WrongError(f"{name} is {said}, and its rows are {seen.get(name)}")
                found[said] += 1
            for name in program.forgotten:
                half = state.halves.get(name)
                if name in seen or half is None or not half.parked:
                    raise WrongError(f"nobody knows of {name}, and it is {half}")
                found["parked"] += 1
        if found["parked"] != sum(half.parked for half in state.halves.values()):
            raise WrongError("the parked halves are others than those of which nobody knows")
        if set(state.halves) - {n for p in self.programs.values() for n in p.forgotten}:
            raise WrongError(f"not decided: {sorted(state.halves)}")
        return found

    def visible_transactions(self, node: str) -> dict[str, int]:
        """How many rows of each transaction are in the log: behind one another, and all of them."""
        found: dict[str, int] = {}
        data, at = self.bytes_of(node), 0
        while (chunk := read(data, at)) is not None:
            at += len(chunk.data)
            rows = rows_of(chunk) if chunk.kind == EVENTS else []
            for head in heads_of(chunk) if rows else ():
                mine, rows = rows[: head.count], rows[head.count :]
                names = {str(row.attributes["tx"]) for row in mine}
                if names != {head.transaction} or head.transaction in found:
                    raise WrongError(f"rows of {names} in the commit of {head.transaction}")
                if [row.attributes["n"] for row in mine] != list(range(head.count)):
                    raise WrongError(f"{head.transaction} is not whole")
                found[head.transaction] = head.count
        return found


def trial_of_transactions(seed: int, rounds: int = 20) -> dict[str, int]:
    """A world with five programs through faults, and judged. WrongError if a checker fails."""
    with constants(
        (shard_log, "SEGMENT_BYTES", 4_000),
        (halves, "REVIEW_AFTER", 6_000_000_000),
        (halves, "PARK_AFTER", 90_000_000_000),
        (halves, "REVIEWS_MOST", 4),
    ):
        rng, world = Random(seed), TransactionWorld(seed)
        names = [peer.id for peer in world.peers]
        for client in range(1, 6):
            world.add(client, rng.choice(names), forgets=client == 5)
        world.run(0.1)
        world.elect()
        world.run(0.5)
        world.cause_trouble(rounds, damaged=1)
        world.is_ending = True
        leader = world.heal()
        for place in range(30):
            world.append()
            if place == 3:
                for program in world.programs.values():
                    program.relay()
            world.run(4.0)
        world.judge(leader)
        return world.judge_transactions(leader)
