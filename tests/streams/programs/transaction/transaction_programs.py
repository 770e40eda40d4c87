"""Programs with transactions in overlays under faults, bad disks included.

5. A transaction is there as a whole or not at all, as the first decision said, and as its program's
   record says; one of which nobody knows is not there, waits, and is parked.
"""

from __future__ import annotations

from typing import Any

from canopy.sim.world.driver import SimDriver
from harness.logs import WrongError, chunks_of
from harness.overlays import wait
from harness.stream_world import StreamWorld, trial
from overlay.client import Done, Draft, Failed, Streams
from overlay.stream_client import (
    AddStream,
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
from streams.log.chunk import EVENTS
from streams.services import half as halves
from tests.support.shards.shard_world import constants

STREAM = "orders"
PROGRAMS = 5
MOST = 60
"""Transactions of one program."""


class TransactionProgram:
    """Does one transaction after the other through one node, with a durable record as the outbox
    has one. It is killed at times: then only the record is left. Of some transactions it `forgets`
    the record, as a program does that has none."""

    def __init__(self, world: TransactionPrograms, client: int, node: str, forgets: bool) -> None:
        self.world, self.client, self.node, self.forgets = world, client, node, forgets
        self.producer = f"p{client}"
        self.record: dict[str, str] = {}  # preparing, committed or rolled-back
        self.prepared: dict[str, None] = {}  # that are in the log for certain
        self.outcomes: dict[str, str] = {}
        self.forgotten: dict[str, None] = {}
        self.current = ""  # in preparation in this life
        self.requests: dict[int, str] = {}
        self.takes = 0
        self._process: SimDriver | None = None  # of the node, to which it is connected

    def ask(self, command: type[Any], *arguments: Any) -> int:
        request = self.world.world.clients.request()
        assert self._process is not None
        self._process.command(self.client, command(request, STREAM, *arguments))
        return request

    def begin_again(self) -> None:
        """Only the record has outlived the program, or its node."""
        self.current, self.takes = "", 0
        self.requests.clear()

    def is_connected(self) -> bool:
        """Connect to the node if it runs; its former process may have died meanwhile."""
        process = self.world.world.drivers[self.node]
        if process is not self._process:
            self._process = process
            self.begin_again()
        return process.alive

    def work(self) -> None:
        rng = self.world.rng
        if not self.is_connected():
            return
        if rng.random() < 0.05:
            self.world.world.drivers[self.node].client_gone(self.client)
            self.begin_again()
        if not self.takes:
            self.takes = self.ask(TakeReviews, self.producer)
        if not self.current and len(self.record) < MOST and not self.world.is_ending:
            self.current = name = f"{self.producer}.{len(self.record) + len(self.forgotten)}"
            self.record[name] = "preparing"
            drafts = tuple(Draft({"tx": name, "n": n}) for n in range(rng.randint(1, 4)))
            self.requests[self.ask(PrepareEvents, name, self.producer, drafts)] = name

    def decide(self, name: str, commit: bool) -> None:
        self.requests[self.ask(DecideTransaction, name, commit)] = name

    def relay(self) -> None:
        """Decide again what the record has, as the outbox does when a program starts."""
        for name, state in list(self.record.items()):
            if name != self.current and self.outcomes.get(name) is None:
                if state == "preparing":
                    self.record[name] = "rolled-back"
                self.decide(name, state == "committed")

    def note(self) -> None:
        """Take the answers that have come."""
        answers = self.world.world.clients.answers
        for request in (self.takes, *self.requests):
            reply = answers.pop(request, None)
            if reply is not None and self.is_connected():
                self._answered(reply)

    def _answered(self, reply: Any) -> None:
        if reply.request == self.takes:
            self.takes = 0
        if isinstance(reply, ReviewsAsked):
            for name in reply.transactions:
                self._review(name)
            return
        name = self.requests.pop(reply.request, None)
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
            self.begin_again()  # killed between prepare and decision
        else:
            self.record[name] = "committed" if chance < 0.7 else "rolled-back"
            if chance < 0.6 or chance > 0.8:  # else killed before it says so
                self.decide(name, self.record[name] == "committed")

    def _review(self, name: str) -> None:
        state = self.record.get(name)
        if state is None or name == self.current:
            self.ask(LeaveUnknown, name)
            return
        if state == "preparing":
            state = self.record[name] = "rolled-back"
        self.decide(name, state == "committed")


class TransactionPrograms(StreamWorld):
    """A second stream of the same overlay, for programs with transactions. `found`: how many there
    are of each outcome."""

    def __init__(self, seed: int, nodes: int = 6, replicas: int = 3) -> None:
        super().__init__(seed, nodes, replicas)
        reply = self.world.ask("n0", AddStream(self.world.clients.request(), STREAM))
        assert isinstance(reply, Streams), reply
        self.log = f"{reply.streams[0].id}/0"
        self.is_ending = False
        self.found: dict[str, int] = {}
        names = list(self.world.drivers)
        self.spoilt = self.rng.choice(names)  # its disk loses bits, perhaps unnoticed
        self.programs = [
            TransactionProgram(self, 10 + n, self.rng.choice(names), forgets=n == PROGRAMS - 1)
            for n in range(PROGRAMS)
        ]

    def append(self) -> None:
        super().append()
        for program in self.programs:
            program.work()

    def run(self, seconds: float) -> None:
        until = self.world.now + seconds
        while self.world.now < until:
            super().run(min(0.1, until - self.world.now))
            for program in self.programs:
                program.note()

    def cause_trouble(self, rounds: int) -> None:
        """As for any stream; disks are slow, full or fail, and one node's loses bits."""
        rng, drivers = self.rng, self.world.drivers
        for _ in range(rounds):
            disk = drivers[rng.choice(list(drivers))].logs
            what = rng.randrange(6)
            if what == 0:
                disk.fail, disk.slow = rng.choice((0.0, 0.02)), rng.choice((0.0, 0.05))
            elif what == 1:
                disk.room = rng.choice((None, 20_000))
            elif what == 2:
                drivers[self.spoilt].logs.damage(self.log, newest=rng.random() < 0.5)
            super().cause_trouble(1)

    def heal(self) -> str:
        for driver in self.world.drivers.values():
            driver.logs.fail = driver.logs.slow = 0.0
            driver.logs.room = None
        return super().heal()

    def judge(self, leader: str) -> None:
        """As without programs; then checker 5, when everything is quiet."""
        super().judge(leader)
        self.is_ending = True
        for place in range(30):
            for program in self.programs:
                program.work()
                if place == 3:
                    program.relay()
            self.run(2.0)
        hosts = {name: self.world.node(name).streams.hosts for name in self.world.names()}
        wait(self.world, lambda: any(h.leading(self.log) for h in hosts.values()), 30.0, "a leader")
        led = next(r for h in hosts.values() if (r := h.leading(self.log)))
        node, replica = next(
            (name, r)
            for name, h in hosts.items()
            if name != self.spoilt
            and (r := h.replica(self.log))
            and r.durable == led.log.end.number
        )
        state, seen = replica.state.transactions, self.visible_transactions(node)
        found = {"committed": 0, "rolled-back": 0, "parked": 0}
        for program in self.programs:
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
        if set(state.halves) - {n for p in self.programs for n in p.forgotten}:
            raise WrongError(f"not decided: {sorted(state.halves)}")
        self.found = found

    def visible_transactions(self, node: str) -> dict[str, int]:
        """How many rows of each transaction are in the log: behind one another, and all of them."""
        found: dict[str, int] = {}
        for chunk in chunks_of(self.bytes_of(node, self.log)):
            rows = rows_of(chunk) if chunk.kind == EVENTS else ()
            for head in heads_of(chunk) if rows else ():
                mine, rows = rows[: head.count], rows[head.count :]
                names = {str(row.attributes["tx"]) for row in mine}
                if names != {head.transaction} or head.transaction in found:
                    raise WrongError(f"rows of {names} in the commit of {head.transaction}")
                if [row.attributes["n"] for row in mine] != list(range(head.count)):
                    raise WrongError(f"{head.transaction} is not whole")
                found[head.transaction] = head.count
        return found


def trial_of_transactions(seed: int, rounds: int = 16) -> dict[str, int]:
    """An overlay with five programs through faults, and judged. WrongError if a checker fails."""
    with constants(
        (shard_log, "SEGMENT_BYTES", 4_000),
        (halves, "REVIEW_AFTER", 4_000_000_000),
        (halves, "PARK_AFTER", 30_000_000_000),
        (halves, "REVIEWS_MOST", 4),
    ):
        return trial(seed, TransactionPrograms, rounds).found
