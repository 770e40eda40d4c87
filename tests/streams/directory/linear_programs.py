"""Programs that append to a stream and read it as a durable consumer while the overlay is in
trouble, and the history of what they asked and were answered.

Appends, and the consumer's position, are to be linearizable: as if one machine had carried them out
one after the other (tests/support/linearizability.py). What a leader says of its log's end is
not: one that was replaced without knowing it serves older rows.
"""

from __future__ import annotations

from typing import Any

from harness.logs import WrongError, chunks_of
from harness.overlays import wait
from harness.stream_world import StreamWorld
from overlay.client import (
    AppendEvents,
    BeginReading,
    Command,
    CommitReading,
    Done,
    Draft,
    EventsAppended,
    EventsTaken,
    ReadingReady,
    Streams,
    TakeEvents,
)
from overlay.stream_client import AddStream
from streams.log.batches import rows_of
from streams.log.chunk import EVENTS
from tests.support.linearizability import (
    APPENDS,
    POSITIONS,
    UNKNOWN,
    Append,
    Attach,
    PositionCommit,
    ProgramOperation,
    ReadAll,
    check_linearizable,
    pending,
)

DURABLE = "d"


class _Asked:
    """A command that is not answered yet."""

    def __init__(self, node: str, life: object, call: float, what: Any, command: Command) -> None:
        self.node, self.life, self.call = node, life, call
        self.what, self.command = what, command


class LinearPrograms(StreamWorld):
    """A second stream of the same overlay, for programs."""

    def __init__(self, seed: int, nodes: int = 6, replicas: int = 3) -> None:
        super().__init__(seed, nodes, replicas)
        self.asked: dict[int, _Asked] = {}  # by request
        self.appends: list[ProgramOperation] = []
        self.positions: list[ProgramOperation] = []
        self.reading: tuple[str, object, int] | None = None  # node, its process, request
        self.taken = 0  # up to where the durable consumer's program has taken
        self._row = 0
        reply = self.world.ask("n0", AddStream(self.world.clients.request(), "programs"))
        assert isinstance(reply, Streams), reply
        self.log = f"{reply.streams[0].id}/0"

    def _ask(self, node: str, what: Any, command: Command) -> None:
        driver = self.world.drivers[node]
        self.asked[command.request] = _Asked(node, driver, self.world.now, what, command)
        driver.command(1, command)

    def append(self) -> None:
        """Have some programs ask something."""
        super().append()
        world, rng = self.world, self.rng
        alive = [name for name in world.names() if world.drivers[name].alive]
        if not alive:
            return
        for _ in range(rng.randrange(4)):
            self._row += 1
            events = (Draft({"n": self._row}),)
            command = AppendEvents(world.clients.request(), "programs", events)
            self._ask(rng.choice(alive), Append(self._row), command)
        if self.reading is not None and self.taken and rng.random() < 0.5:
            node, life, reading = self.reading
            if world.drivers[node] is life and world.drivers[node].alive:
                commit = CommitReading(world.clients.request(), reading, ((0, self.taken),))
                self._ask(node, PositionCommit(self.taken), commit)
        if self.reading is None or rng.random() < 0.3:
            node, request = rng.choice(alive), world.clients.request()
            token = f"token {request}"
            begin = BeginReading(request, "programs", "", "first", durable=DURABLE, token=token)
            self._ask(node, Attach(), begin)

    def run(self, seconds: float) -> None:
        """Let time pass, and note what is answered, many times a second."""
        until = self.world.now + seconds
        while self.world.now < until:
            super().run(min(0.02, until - self.world.now))
            self._note()

    def _note(self) -> None:
        for request, asked in list(self.asked.items()):
            reply = self.world.clients.answers.pop(request, None)
            driver = self.world.drivers[asked.node]
            if reply is None and driver is asked.life and driver.alive:
                continue
            del self.asked[request]
            self._answered(asked, reply)

    def _answered(self, asked: _Asked, reply: Any) -> None:
        times = (asked.call, self.world.now)
        if isinstance(asked.what, Append):
            if isinstance(reply, EventsAppended):
                (receipt,) = reply.receipts
                self.appends.append(ProgramOperation(*times, asked.what, receipt.first))
            else:
                self.appends.append(pending(asked.call, asked.what))
        elif isinstance(asked.what, PositionCommit):
            known = isinstance(reply, Done)
            self.positions.append(
                ProgramOperation(*times, asked.what, None)
                if known
                else pending(asked.call, asked.what)
            )
        elif isinstance(reply, ReadingReady):
            ((position, _),) = reply.shards
            self.positions.append(ProgramOperation(*times, asked.what, position))
            self.reading, self.taken = (asked.node, asked.life, asked.command.request), 0
            self._take()
        elif isinstance(reply, EventsTaken) and self.reading is not None:
            if asked.command.reading == self.reading[2]:  # type: ignore[attr-defined]
                self.taken = dict(reply.positions).get(0, self.taken)
                self._take()
        elif self.reading is not None and asked.node == self.reading[0]:
            self.reading = None

    def _take(self) -> None:
        assert self.reading is not None
        node, _, reading = self.reading
        self._ask(node, None, TakeEvents(self.world.clients.request(), reading))

    def judge(self, leader: str) -> None:
        """As without programs; then their histories, with what is in the log at the end."""
        super().judge(leader)
        world = self.world
        self.run(20.0)
        for request, asked in list(self.asked.items()):
            del self.asked[request]
            if asked.what is not None:
                self._answered(asked, None)
        nodes = [world.node(name).streams.hosts for name in world.names()]
        wait(world, lambda: any(n.leading(self.log) is not None for n in nodes), 30.0, "a leader")
        led = [name for name in world.names() if world.node(name).streams.hosts.leading(self.log)]
        rows: list[Any] = []
        for chunk in chunks_of(self.bytes_of(led[0], self.log)):
            if chunk.kind == EVENTS:
                rows += [row.attributes["n"] for row in rows_of(chunk)]
        last = ProgramOperation(world.now, world.now, ReadAll(), tuple(rows))
        found = [
            *check_linearizable(APPENDS, [*known(self.appends, rows), last], "appends"),
            *check_linearizable(POSITIONS, self.positions, "positions"),
        ]
        if found:
            raise WrongError(found[0].text)


def known(appends: list[ProgramOperation], rows: list[Any]) -> list[ProgramOperation]:
    """The appends with what the log at its end says of those of which nothing was heard: the offset
    of its row, or that it never happened. Without that the search tries them everywhere."""
    places = {row: place for place, row in enumerate(rows)}
    return [
        each._replace(output=places.get(each.input.row)) if each.output is UNKNOWN else each
        for each in appends
        if each.output is not UNKNOWN or each.input.row in places
    ]
