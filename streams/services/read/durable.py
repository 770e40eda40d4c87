"""Durable consumers of a shard that this node leads: their entries in its log.

A consumer's selector, position and newest attachment are entries of the log (streams.log.state), so
that every later leader knows the same. Attaching writes an entry, which fences the attachment
before; positions are written together, some times a second, and one that is written counts for all
below it.

Whatever is answered from the log's state is answered when the log up to here is committed: a leader
that has been replaced without knowing it commits nothing, and so says nothing of what it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from matching import same_selector
from overlay.machine import Timer
from streams.access.reasons import EXPIRED, FENCED, FULL, LOST, OUT_OF_RANGE, SELECTOR
from streams.log.chunk import NANOSECONDS, POSITIONS
from streams.log.lost_rows import set_back_reason
from streams.log.state import (
    ConsumerAttached,
    ConsumerExpired,
    ConsumerPosition,
    Entry,
    PositionMoved,
)
from streams.programs.reader.messages import Durable
from streams.services.service import LedShard

CONSUMERS_MOST: Final = 10_000
"""Durable consumers of a shard at most. Guess: some 3 MB of state, with selectors of 200 bytes."""


COMMIT: Final = 0.1
"""Seconds in which positions are gathered before they are written."""


class WritePositions(Timer, frozen=True):
    """Fires when the queued entries of durable consumers are to be written."""


class ReadingRefusal(NamedTuple):
    """A code and reason for a refusal. `first`, `next`: with OUT_OF_RANGE, the available
    offsets."""

    code: str
    reason: str
    first: int = 0
    next: int = 0


class DurableConsumers:
    """The durable consumers of one shard, under one epoch of this node."""

    def __init__(self, led: LedShard) -> None:
        self._led = led
        self.port, self.replica = led.port, led.replica
        self._began = led.port.now
        self._attaching: dict[str, ConsumerAttached] = {}
        self._moves: dict[tuple[str, int], int] = {}
        self._entries: list[ConsumerPosition | ConsumerExpired] = []
        # Of those that expire, and whose program hears that rows are lost, or that they did.
        self._then: list[Callable[[], None]] = []  # when what is queued is committed

    def known(self, name: str) -> ConsumerPosition | None:
        """Return the position of a consumer in the log, committed or not, after the queued
        entries."""
        if name in self._attaching or self._entries:
            self.flush()
        return self.replica.state.consumers.get(name)

    def obstacle(self, wanted: Durable, selector: str) -> ReadingRefusal | None:
        """Return why a program cannot attach; None: it can."""
        known = self.known(wanted.name)
        if known is None:
            if wanted.resume:
                return ReadingRefusal(
                    EXPIRED, f"the durable consumer {wanted.name} is no longer known"
                )
            gone = self.replica.state.forgotten.get(wanted.name)
            if gone is not None and gone.told in ("", wanted.token) and not wanted.own:
                return ReadingRefusal(
                    EXPIRED,
                    f"the durable consumer {wanted.name} was at offset {gone.position}, and was "
                    "forgotten since no program came as it for so long. Come again to begin again, "
                    "at that offset for all that came since",
                )
            if len(self.replica.state.consumers) + len(self._attaching) >= CONSUMERS_MOST:
                return ReadingRefusal(FULL, f"the shard has {CONSUMERS_MOST} durable consumers")
            return None
        if known.was_at and not wanted.own and known.token in ("", wanted.token):
            who, lost = f"the durable consumer {known.name}", self.replica.state.lost
            return ReadingRefusal(LOST, set_back_reason(who, known.was_at, known.position, lost))
        if wanted.resume and known.token != wanted.token:
            return ReadingRefusal(FENCED, f"another program reads as {wanted.name} now")
        if not same_selector(known.selector, selector):
            return ReadingRefusal(
                SELECTOR, f"{wanted.name} has another selector: {known.selector or 'all rows'}"
            )
        return None

    def attach(
        self,
        wanted: Durable,
        selector: str,
        position: int,
        then: Callable[[ConsumerPosition | ReadingRefusal], None],
    ) -> None:
        """Attach a program; `position` is that of a new consumer. `then` gets what the log says
        when that is committed."""

        def attached() -> None:
            found = self.replica.state.consumers.get(wanted.name)
            if found is None or found.token != wanted.token:
                then(ReadingRefusal(FENCED, f"another program reads as {wanted.name} now"))
            else:
                then(found)

        refusal = self.obstacle(wanted, selector)
        known = self.known(wanted.name)
        if refusal is not None:
            gone = self.replica.state.forgotten.get(wanted.name)
            if refusal.code == LOST and known is not None and not known.token:
                self._entries.append(replace(known, token=wanted.token))
            elif refusal.code == EXPIRED and known is None and gone is not None and not gone.told:
                self._entries.append(replace(gone, told=wanted.token))
            if self._entries:
                self._then.append(lambda: then(refusal))
                self._led.later(WritePositions)
            else:
                self._led.when_committed(lambda: then(refusal))
            return
        if known is not None and known.token == wanted.token and known.attachment:
            self._led.when_committed(attached)
            return
        self._attaching[wanted.name] = ConsumerAttached(
            wanted.name, wanted.token, selector, position, wanted.expire_after
        )
        self._then.append(attached)
        self._led.later(WritePositions)

    def move(
        self,
        name: str,
        attachment: int,
        position: int,
        end: int,
        then: Callable[[int | ReadingRefusal], None],
    ) -> None:
        """Note that a consumer is done with all rows below `position`, where the shard's rows end
        at `end`. `then` is called with its position when that is committed, or with a refusal."""
        known = self.known(name)
        if known is None:
            refusal = ReadingRefusal(EXPIRED, f"the durable consumer {name} is no longer known")
        elif known.attachment != attachment:
            refusal = ReadingRefusal(FENCED, f"another program reads as {name} now")
        elif position > end:
            refusal = ReadingRefusal(OUT_OF_RANGE, f"the shard has no row {position - 1}", 0, end)
        elif position <= known.position:
            done = known.position
            self._led.when_committed(lambda: then(done))
            return
        else:
            pending = self._moves.get((name, attachment), 0)
            self._moves[name, attachment] = max(pending, position)
            self._then.append(lambda: then(position))
            self._led.later(WritePositions, COMMIT)
            return
        self._led.when_committed(lambda: then(refusal))

    def flush(self) -> None:
        """Append the queued entries. Who waits for them is called when they are committed."""
        moves = [PositionMoved(*key, position) for key, position in self._moves.items()]
        entries: list[Entry] = [*moves, *self._entries, *self._attaching.values()]
        thens, self._then = self._then, []
        self._moves.clear()
        self._entries.clear()
        self._attaching.clear()
        if not entries or not self._led.leader.leads:
            return
        chunk = self._led.append_entries(POSITIONS, entries)
        self.port.count("stream_position_chunks")
        for then in thens:
            self._led.when_committed(then, chunk.number)

    def look(self, attached: Iterable[str]) -> bool:
        """Forget consumers that have been silent for too long. Those that are `attached` are not
        silent; the log hears of them, so that the next leader knows. Returns whether there are any
        that may be forgotten later."""
        there, may_be_forgotten = set(attached), False
        now, clock = self.port.now, self._led.clock()
        for name, known in self.replica.state.consumers.items():
            limit = known.expire_after or self._led.leader.retention.keep.expire
            if not limit:
                continue
            may_be_forgotten = True
            silent = clock - known.time
            if name in there:
                if silent > limit * NANOSECONDS // 2:
                    self._moves.setdefault((name, known.attachment), known.position)
            elif silent > limit * NANOSECONDS and now - self._began > limit:
                self._entries.append(ConsumerExpired(name, known.position))
        if self._moves or self._entries:
            self.flush()
        return may_be_forgotten
