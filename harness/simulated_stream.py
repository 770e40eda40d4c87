"""A stream of simulated nodes as `canopy.sync` sees one, and a program that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from canopy.sim.world.world import World
from overlay.client import (
    AppendEvents,
    BeginReading,
    CommitReading,
    Done,
    Draft,
    EndReading,
    EventsAppended,
    EventsTaken,
    Failed,
    GetStreams,
    ReadingReady,
    StreamEvent,
    Streams,
    TakeEvents,
)
from overlay.stream_client import BeginProducer, ProducerReady

PATIENCE = 600.0
"""Virtual seconds for an answer, while leaders are lost and found."""

TRIES = 200
"""Requests until one is answered as wanted."""

SOON = 0.02
"""Virtual seconds that a look takes which waits for nothing."""


class PositionLostError(Exception):
    """A reading was ended: the log has lost rows that it has had."""


class SimulatedStream:
    """`canopy.sync.stream.Stream` over the programs' commands of the node `node`, as one producer
    that sends again what was not answered."""

    def __init__(self, world: World, node: str, name: str, producer: str = "") -> None:
        self.world = world
        self.node = node
        self.name = name
        found = self._ask(GetStreams(world.clients.request(), name), Streams)
        self.id = found.streams[0].id
        self.losses = 0
        self.repeated = 0
        """Batches that were sent once more."""
        self._producer = producer
        self._next = 0

    def begin(self) -> None:
        """See `Stream`."""
        self._next = self._begun(-1)

    def append(self, events: Sequence[Draft]) -> int:
        """See `Stream`."""
        for _ in range(TRIES):
            request = self.world.clients.request()
            command = AppendEvents(request, self.name, tuple(events), self._producer)
            reply = self.world.ask(self.node, command, PATIENCE)
            if isinstance(reply, EventsAppended):
                self._next += len(events)
                return 0
            self.repeated += 1
            lacks = isinstance(reply, Failed) and reply.code in ("sequence", "expired")
            self._next = self._begun(-1 if lacks else self._next)
        raise TimeoutError(f"not appended: {reply}")

    def settle(self) -> None:
        """See `Stream`: nothing is under way when `append` has returned."""

    def read(self, offset: int, losses: int = -1) -> SimulatedReading:
        """See `Stream`."""
        return SimulatedReading(self, start="offset", at=offset)

    def schemas(self) -> list[StreamEvent]:
        """See `Stream`."""
        wanted = "_op = 'schema' OR _op = 'snapshot'"
        reading = SimulatedReading(self, selector=wanted, start="first")
        found: list[StreamEvent] = []
        while reading.position < reading.end:
            found += reading.take(1.0)
        reading.close()
        return [event for event in found if event.offset < reading.end]

    def ends(self) -> tuple[int, int]:
        """See `Stream`."""
        reading = SimulatedReading(self, start="first")
        reading.close()
        return reading.begin, reading.end

    def _begun(self, first: int) -> int:
        for _ in range(TRIES):
            request = self.world.clients.request()
            command = BeginProducer(request, self.name, self._producer, first)
            reply = self.world.ask(self.node, command, PATIENCE)
            if isinstance(reply, ProducerReady):
                return reply.next[0] if first < 0 else first
            if isinstance(reply, Failed) and reply.code in ("sequence", "expired"):
                first = -1  # the log has lost what this producer was told that it had
            self.world.run(0.5)
        raise TimeoutError(f"no producer: {reply}")

    def _ask(self, command: Any, kind: type[Any]) -> Any:
        reply = self.world.ask(self.node, command, PATIENCE)
        assert isinstance(reply, kind), reply
        return reply


class SimulatedReading:
    """A program's way through a stream. `durable`: the stream keeps its position, as far as it says
    `commit`."""

    def __init__(self, stream: SimulatedStream, *, durable: str = "", **wanted: Any) -> None:
        self._stream = stream
        self._world = stream.world
        self.number = self._world.clients.request()
        for _ in range(TRIES):
            command = BeginReading(self.number, stream.name, durable=durable, **wanted)
            reply = self._world.ask(stream.node, command, PATIENCE)
            if isinstance(reply, ReadingReady):
                break
            self._world.run(0.5)
            self.number = self._world.clients.request()
        assert isinstance(reply, ReadingReady), reply
        self.begin, self.end = reply.shards[0]
        self.position = self.begin
        self._taking = 0

    def take(self, timeout: float | None = None) -> list[StreamEvent]:
        """The next events; [] if none come within so many virtual seconds. Raises
        PositionLostError."""
        world, clients = self._world, self._world.clients
        if not self._taking:
            self._taking = clients.request()
            command = TakeEvents(self._taking, self.number)
            world.drivers[self._stream.node].command(1, command)
        waits = PATIENCE if timeout is None else max(timeout, SOON)
        if not world.run_until(lambda: self._taking in clients.answers, waits):
            return []
        reply = clients.answers.pop(self._taking)
        self._taking = 0
        if not isinstance(reply, EventsTaken):
            raise PositionLostError(str(reply))
        self.position = dict(reply.positions).get(0, self.position)
        return list(reply.events)

    def commit(self) -> None:
        """Everything that was taken is done with."""
        request = self._world.clients.request()
        places = ((0, self.position),)
        reply = self._world.ask(
            self._stream.node, CommitReading(request, self.number, places), PATIENCE
        )
        assert isinstance(reply, Done), reply

    def close(self) -> None:
        """End the reading at its node."""
        request = self._world.clients.request()
        self._world.ask(self._stream.node, EndReading(request, self.number), PATIENCE)
