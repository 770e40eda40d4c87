"""All shards of this node that copy others, while it leads them.

An origin's shard is read as a program reads (`streams.programs.reader.readers`), from the offset on
that the own log says; that goes on where it was when the origin's leader changes or is out of
reach. A new leader of the own shard begins anew, from its log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from overlay.client import BeginReading, Command, EventsTaken, Failed, ReadingReady, TakeEvents
from overlay.incidents import Alarmed
from overlay.info import IntakeInfo, OriginInfo
from overlay.inner import InnerReply
from overlay.machine import Peer, Port, Timer
from streams.access import pacing
from streams.access.locator import StreamLocated, StreamLocator
from streams.access.reasons import OUT_OF_RANGE
from streams.directory.circles import CircleSearch, said
from streams.directory.entry import StreamEntry, StreamSource
from streams.directory.questions import OwnerQuestions
from streams.services.copy.origin import OriginReading
from streams.services.copy.shard_copy import ShardCopy
from streams.services.service import Agenda, Leaderships, ShardService
from streams.shard.hosting.shard_hosts import ShardHosts, StreamDescribed
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

FIRST_CLIENT: Final = -1_000_000_000
"""Clients of this machine have numbers below it, those of captures above it."""


class LookAtCopies(Timer, frozen=True):
    """Time to look at what is to be copied."""


class Copies(ShardService[ShardCopy]):
    """What this node copies, into the shards that it leads whose streams have origins."""

    def __init__(
        self,
        port: Port,
        leaderships: Leaderships,
        hosts: ShardHosts,
        locator: StreamLocator,
        ask: Callable[[int, Command], None],
        close: Callable[[int], None],
        clock: Callable[[], int],
        questions: OwnerQuestions,
    ) -> None:
        """`ask` carries out a client's command, `close` ends a client's readings; `clock`: as of
        `ShardService`."""
        super().__init__(port, leaderships, self._copying, clock)
        self._hosts = hosts
        self._locator = locator
        self._ask, self._close = ask, close
        self._questions = questions
        self._looks = Agenda(port, LookAtCopies(), pacing.LOOK)
        self._by_client: dict[int, tuple[ShardCopy, OriginReading]] = {}
        self._client = FIRST_CLIENT

    def status(self, shard: str) -> IntakeInfo | None:
        """How far copying into a shard is; None: this node copies nothing into it."""
        copy = self._kept.get(shard)
        if copy is None:
            return None
        readings = copy.origins.values()
        is_fine = bool(readings) and all(origin.has_begun for origin in readings)
        origins = tuple(
            OriginInfo(origin.stream, origin.number, copy.floor(origin), origin.fault)
            for origin in readings
        )
        state = "full" if copy.is_full else "copies" if is_fine else "waits"
        return IntakeInfo(state, "", 0, copy.gaps, origins)

    # -- which shards ----------------------------------------------------------------------------

    def _copying(self, shard: str) -> Replica | None:
        """The replica of a shard that this node leads and that has origins."""
        entry = self._hosts.entries.get(shard.rpartition("/")[0])
        if shard not in self._kept and (entry is None or entry.removed or not has_origins(entry)):
            return None
        return self._hosts.leading(shard)

    def make(self, replica: Replica, leader: ShardLeader) -> ShardCopy:
        """Begin to copy."""
        id_, _, number = replica.shard.rpartition("/")
        entry, go_on = self._hosts.entries[id_], partial(self._go_on, replica.shard)
        copy = ShardCopy(self.port, replica, leader, entry, int(number), self._clock, go_on)
        self._looks.add(replica.shard)
        self._look_for_circle(copy)
        return copy

    def ended(self, shard: str, kept: ShardCopy, leader: Peer | None) -> None:
        """Another node copies from now on."""
        for origin in kept.origins.values():
            self._stop(origin)

    def led(self, shard: str, epoch: int) -> None:
        """This node leads a shard."""
        self.shard(shard)

    def on_described(self, event: StreamDescribed) -> None:
        """A stream of which this node leads a shard may have origins."""
        entry = self._hosts.entries[event.id]
        if has_origins(entry):
            for shard in entry.shards():
                self.shard(shard)

    def on_look(self, timer: LookAtCopies) -> None:
        """Tell logs how far was scanned; try again what failed."""
        for shard, copy in self.due(self._looks):
            for origin in copy.origins.values():
                copy.note(origin)
            wanted = {source.stream for source in sources(copy)}
            for name in sorted(wanted):
                known = [o for (stream, _), o in copy.origins.items() if stream == name]
                if not known or any(not o.client and self.port.now >= o.retry_at for o in known):
                    self._locator.locate(name)
            self._go_on(shard)
            self._looks.add(shard)

    def _look_for_circle(self, copy: ShardCopy) -> None:
        """Stop copying if the stream copies itself."""

        def looked(circle: tuple[str, ...]) -> None:
            copy.circle = circle
            if circle:
                self.port.count("copies_refused")
                for origin in copy.origins.values():
                    self._stop(origin, said(circle))

        CircleSearch(self._questions, copy.entry.name, copy.entry.options, looked).start()

    # -- origins ---------------------------------------------------------------------------------

    def on_located(self, event: StreamLocated) -> None:
        """A stream is found: read it where it is an origin."""
        for copy in list(self._kept.values()):
            for source in sources(copy):
                if source.stream == event.name:
                    for number in range(len(event.entry.places)):
                        if not copy.entry.options.mirror or number == copy.number:
                            self._read(copy, source, event.entry.id, number)

    def _read(self, copy: ShardCopy, source: StreamSource, id_: str, number: int) -> None:
        """Read one shard of an origin, unless that is done."""
        origin = copy.origins.get((source.stream, number))
        if origin is None or origin.id != id_:
            if origin is not None:
                self._stop(origin)
                copy.gaps += 1
                self.port.count("copies_of_other_origins")
                into, other = copy.entry.name, f"{source.stream} ({id_})"
                text = f"{into} copies another stream {other}: the one before was removed"
                self.port.emit(Alarmed("origin replaced", text))
            origin = OriginReading(source.stream, id_, number, source.where)
            copy.origins[source.stream, number] = origin
        if origin.client or self.port.now < origin.retry_at:
            return
        if copy.circle:
            self._stop(origin, said(copy.circle))
            return
        self._client -= 1
        origin.client, origin.has_begun = self._client, False
        self._by_client[self._client] = (copy, origin)
        floor = copy.floor(origin)
        positions = ((number, floor),) if floor and not origin.from_first else ()
        self._ask(
            origin.client,
            BeginReading(
                *(1, source.stream, source.where, "first"),
                positions=positions,
                shard=number,
                stream_id=id_,
                losses=((number, copy.losses(origin)),) if positions else (),
            ),
        )

    def _stop(self, origin: OriginReading, fault: str = "") -> None:
        """Read an origin no more; what was taken and not appended is read again."""
        client, origin.client, origin.has_begun = origin.client, 0, False
        origin.taken, origin.fault = None, fault
        origin.retry_at = self.port.now + (pacing.SILENT if fault else 0.0)
        if self._by_client.pop(client, None) is not None:
            self._close(client)

    def on_inner_reply(self, event: InnerReply) -> None:
        """What a program would be sent."""
        found = self._by_client.get(event.client)
        if found is None:
            return
        copy, origin = found
        reply = event.reply
        if isinstance(reply, ReadingReady):
            ((position, _),) = reply.shards
            fault = copy.begin(origin, position) if reply.stream == origin.id else "another stream"
            if fault:
                self.port.count("copies_refused")
                self._stop(origin, fault)
                return
            origin.has_begun, origin.from_first, origin.fault = True, False, ""
            origin.losses = reply.losses[0]
            self._ask(origin.client, TakeEvents(2, 1))
        elif isinstance(reply, EventsTaken):
            origin.taken = reply
            origin.losses = dict(reply.losses).get(origin.number, origin.losses)
            self._append(copy, origin)
        elif isinstance(reply, Failed):
            origin.from_first = reply.code == OUT_OF_RANGE and not origin.from_first
            self._stop(origin, f"{reply.code}: {reply.reason}")
            if origin.from_first:
                origin.retry_at = self.port.now

    def _append(self, copy: ShardCopy, origin: OriginReading) -> None:
        """Append what waits, and take more."""
        if origin.taken is not None and copy.has_room:
            if fault := copy.take(origin):
                self.port.count("stream_answers_refused")
                self._stop(origin, fault)
                return
            self._ask(origin.client, TakeEvents(2, 1))

    def _go_on(self, shard: str) -> None:
        copy = self._kept.get(shard)
        if copy is not None and copy.has_room:
            for origin in list(copy.origins.values()):
                self._append(copy, origin)


def has_origins(entry: StreamEntry) -> bool:
    """Whether a stream copies others."""
    return bool(entry.options.sources or entry.options.mirror)


def sources(copy: ShardCopy) -> tuple[StreamSource, ...]:
    """What is copied into a shard."""
    options = copy.entry.options
    return (StreamSource(options.mirror),) if options.mirror else options.sources
