"""The readings of a node's programs: each at the leaders of its stream's shards.

A reading goes on where it is when a shard's leader changes, is silent, or is out of reach: it is
opened at the new one from the position that was scanned. Every message names the position before
it, and one that does not fit is not taken. So nothing is missed and nothing comes twice.

Programs take what has come when they have room for it; leaders send what is within the credit that
follows from that. A position that a durable consumer commits is repeated until it is confirmed.

Rows are handed over when they come. That a position has moved on without any is told to so many
programs at a time only, in the order in which it became so: with many readings of which each wants
few rows, nearly every answer would be of this kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from matching import compile_selector
from overlay.bounded import BoundedDict
from overlay.client import (
    NO_MAJORITY,
    BeginReading,
    Command,
    CommitReading,
    Done,
    EndReading,
    EventsTaken,
    Failed,
    PackedEvents,
    ReadingReady,
    StreamEvent,
    TakeEvents,
)
from overlay.links.events import LinkDown
from overlay.machine import Machine, Peer, Port, Timer
from streams.consuming.asked import cursors_of, fault_of, strange_of
from streams.consuming.asking import Asking
from streams.consuming.cursor import Cursor
from streams.consuming.messages import (
    LISTED_MOST,
    LOST,
    MALFORMED,
    MOVED,
    UNKNOWN,
    CommitPosition,
    Durable,
    EndReadings,
    KeepReadings,
    Piece,
    PositionCommitted,
    ReadingBegan,
    ReadingRefused,
    ReadingsKept,
    ReadingsMoved,
    ReadingsScanned,
    ReadShard,
    SharedRows,
    StreamRows,
)
from streams.consuming.pieces import misfit
from streams.consuming.sharing import Shared
from streams.directory.entry import StreamEntry
from streams.directory.locator import Locator, StreamLocated, StreamMissing
from streams.log.row_names import TRACES, RowNames

LOOK: Final = 0.25
"""Seconds between two looks at what was not answered, and after which a reading is opened at
another leader."""

KEEP: Final = 4
"""Looks between two words to each leader: a second."""

COMMIT_AGAIN: Final = 1.0
"""Seconds after which a position that was not confirmed is sent again."""

PASSED_MOST: Final = 250
"""Answers without events in the time between two looks, to all programs of a node together: a
thousand a second. With 10,000 readings of which few get rows, each is told every ten seconds how
far was scanned, which takes a tenth of a processor. Guess."""

TAKEN_EVENTS: Final = 1_000
"""Events in one answer to a program at most: a millisecond's decoding."""

TAKEN_BYTES: Final = 192 * 1024
"""Bytes of events in one answer, unless one event has more."""


MISLED_MOST: Final = 40
"""Answers of a shard's leaders that cannot be, without one that can, after which a reading fails:
it is opened anew after each, so ten seconds, in which another node may lead."""

ENDED_KEPT: Final = 1_000
"""Readings that have failed of which is kept why, for commands that their programs still send."""


def first_number(incarnation: int) -> int:
    """Below the numbers that a node uses after this start of it: none is of an earlier one, which
    leaders may know still. At most 2**52."""
    return (incarnation & 0xFFFFF) << 32


class LookAtReadings(Timer, frozen=True):
    """Time to look at what was not answered."""


class _Reading:
    """A program's reading. It has no cursors until its stream is located."""

    def __init__(self, client: int, command: BeginReading, token: str, identity: str) -> None:
        self.client = client
        self.identity = identity  # in trace records
        self.command = command
        self.token = token
        self.entry: StreamEntry | None = None
        self.cursors: list[Cursor] = []
        self.is_ready = False
        self.takes: deque[int] = deque()  # requests that wait
        self.commits: list[tuple[int, dict[int, int]]] = []  # (request, position by shard)
        self.failed: tuple[str, str] | None = None
        self.turn = 0  # the shard that is served first
        self.is_traced = True  # until a row has come that has trace records


class Readers(Machine):
    """What this node's programs read."""

    def __init__(self, port: Port, incarnation: int, locator: Locator) -> None:
        """`incarnation` grows with each start of the node."""
        super().__init__(port)
        self._locator = locator
        self._incarnation = incarnation
        self._readings: dict[tuple[int, int], _Reading] = {}  # by client and request
        self._ended: BoundedDict[tuple[int, int], tuple[str, str]] = BoundedDict(ENDED_KEPT)
        self._by_number: dict[int, tuple[_Reading, Cursor]] = {}
        self._number = first_number(incarnation)
        self._looks = 0
        self._asking = Asking()
        self._to_open: deque[tuple[_Reading, Cursor]] = deque()  # when a leader has answered others
        self._is_looking = False
        self._passed: dict[_Reading, None] = {}  # whose programs are to be told of positions only
        self._passed_left = PASSED_MOST  # answers without events, until the next look

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {
            BeginReading: self.begin,
            TakeEvents: self.take,
            CommitReading: self.commit,
            EndReading: self.end,
        }

    # -- programs --------------------------------------------------------------------------------

    def begin(self, client: int, command: BeginReading) -> None:
        """Begin a reading."""
        if fault := fault_of(command):
            self._fail(client, command.request, *fault)
            return
        self._number += 1
        identity = f"{self.port.me.id}.{self._incarnation}.{self._number}"
        token = command.token or identity
        reading = self._readings[client, command.request] = _Reading(
            client, command, token, identity
        )
        self._locator.locate(reading.command.stream)
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(LOOK, LookAtReadings())

    def take(self, client: int, command: TakeEvents) -> None:
        """Hand over what has come, at once or when it comes."""
        reading = self._reading(client, command, command.reading)
        if reading is not None:
            reading.takes.append(command.request)
            self._serve(reading)

    def commit(self, client: int, command: CommitReading) -> None:
        """Commit a durable consumer's positions."""
        reading = self._reading(client, command, command.reading)
        if reading is None:
            return
        cursors = reading.cursors
        wanted = dict(command.positions)
        fault = ""
        if not reading.command.durable:
            fault = "only a durable consumer has a position that can be committed"
        elif not reading.is_ready or any(
            not 0 <= shard < len(cursors) or position > cursors[shard].delivered
            for shard, position in wanted.items()
        ):
            fault = "a position is beyond what was taken"
        if fault:
            self._fail(client, command.request, "usage", fault)
            return
        reading.commits.append((command.request, wanted))
        for shard, position in wanted.items():
            cursor = cursors[shard]
            if position > cursor.wanted:
                cursor.wanted = position
                self._send_commit(reading, cursor)
        self._answer_commits(reading)

    def end(self, client: int, command: EndReading) -> None:
        """End a reading."""
        reading = self._readings.pop((client, command.reading), None)
        if reading is None:
            if self._ended.pop((client, command.reading), None) is None:
                self._fail(client, command.request, "unknown", "there is no such reading")
            else:
                self.port.reply(client, Done(command.request))
            return
        self._drop(reading, "ended", "the reading was ended")
        self.port.reply(client, Done(command.request))

    def client_gone(self, client: int) -> None:
        """A program has gone."""
        for key in [key for key in self._ended if key[0] == client]:
            del self._ended[key]
        for key in [key for key in self._readings if key[0] == client]:
            reading = self._readings.pop(key)
            reading.takes.clear()
            reading.commits.clear()
            self._drop(reading, "ended", "")

    def _reading(self, client: int, command: Command, number: int) -> _Reading | None:
        reading = self._readings.get((client, number))
        if reading is None:
            why = self._ended.get((client, number), ("unknown", "there is no such reading"))
            self._fail(client, command.request, *why)
        elif reading.failed is not None and not isinstance(command, TakeEvents):
            self._fail(client, command.request, *reading.failed)
            return None
        return reading

    def _fail(self, client: int, request: int, code: str, reason: str) -> None:
        self.port.reply(client, Failed(request, code, reason))

    def _end(self, reading: _Reading, code: str, reason: str) -> None:
        """A reading has failed: who takes from it learns that after what has come."""
        if reading.failed is not None:
            return
        self.port.count("readings_failed")
        if not reading.is_ready:
            del self._readings[reading.client, reading.command.request]
            self._fail(reading.client, reading.command.request, code, reason)
        self._drop(reading, code, reason)

    def _drop(self, reading: _Reading, code: str, reason: str) -> None:
        """Open at no leader any more."""
        reading.failed = (code, reason)
        self._passed.pop(reading, None)
        for cursor in reading.cursors:
            self._close(cursor)
        commits, reading.commits = reading.commits, []
        for request, _ in commits:
            self._fail(reading.client, request, code, reason)
        self._serve(reading)

    def _serve(self, reading: _Reading) -> None:
        """Answer who waits for events, if there are some."""
        while reading.takes:
            if reading.is_ready and any(cursor.has_news for cursor in reading.cursors):
                if not self._may_answer(reading):
                    return
                self._hand_over(reading, reading.takes.popleft())
            elif reading.failed is not None:
                self._fail(reading.client, reading.takes.popleft(), *reading.failed)
            else:
                return
        if reading.failed is not None and not any(c.has_news for c in reading.cursors):
            key = reading.client, reading.command.request
            if self._readings.get(key) is reading:  # nothing of it is wanted any more but why
                del self._readings[key]
                self._ended[key] = reading.failed

    def _may_answer(self, reading: _Reading) -> bool:
        """Whether a program is told now of what is new. If not, it is at a later look."""
        if not any(cursor.has_urgent_news for cursor in reading.cursors) and not reading.failed:
            if self._passed_left == 0:
                self._passed[reading] = None
                return False
            self._passed_left -= 1
        self._passed.pop(reading, None)
        return True

    def _tell_passed(self) -> None:
        """Answer some of those that wait to be told of positions: who waits longest comes first."""
        self._passed_left = PASSED_MOST
        while self._passed and self._passed_left:
            reading = next(iter(self._passed))
            del self._passed[reading]
            self._serve(reading)

    def _hand_over(self, reading: _Reading, request: int) -> None:
        events: list[StreamEvent] = []
        packed: list[PackedEvents] = []
        positions: list[tuple[int, int]] = []
        size = 0
        is_news = False
        cursors = reading.cursors
        reading.turn = (reading.turn + 1) % len(cursors)
        for cursor in (*cursors[reading.turn :], *cursors[: reading.turn]):
            if cursor.has_news and len(events) < TAKEN_EVENTS and size < TAKEN_BYTES:
                before = cursor.delivered
                if reading.command.packed:
                    pieces, taken = cursor.take_packed(TAKEN_BYTES - size)
                    packed += pieces
                else:
                    found, taken = cursor.take(TAKEN_EVENTS - len(events), TAKEN_BYTES - size)
                    events += found
                    if reading.command.durable and found:
                        self._record_taken(reading, cursor, found)
                size += taken
                positions.append((cursor.place, cursor.delivered))
                is_news = is_news or cursor.delivered > before
                if cursor.fault:
                    self._misled(reading, cursor)
                elif cursor.should_grant and cursor.leader is not None and cursor.has_begun:
                    self._keep(cursor.leader, cursor.shard, [cursor])
        if not is_news:
            reading.takes.appendleft(request)
            return
        count = len(events) + sum(piece.count for piece in packed)
        self.port.count("stream_events_taken", count)
        tables = tuple((c.place, c.table_end) for c in cursors if c.is_in_table)
        losses = tuple((c.place, c.losses) for c in cursors if c.losses > 0)
        about = (tuple(events), tuple(positions), tables, tuple(packed), losses)
        taken_now = EventsTaken(request, *about)
        self.port.reply(reading.client, taken_now)

    def _record_taken(
        self, reading: _Reading, cursor: Cursor, events: Sequence[StreamEvent]
    ) -> None:
        traced = [event.offset for event in events if event.payload_type != TRACES]
        reading.is_traced = reading.is_traced and len(traced) == len(events)
        names = RowNames(cursor.shard, traced)
        for name in self.port.sampled(names):
            self.port.trace(
                "take",
                event=name.identity,
                shard=name.shard,
                offset=name.offset,
                name=reading.command.durable,
                subscription=reading.identity,
            )

    def _record_consumed(self, reading: _Reading, cursor: Cursor, position: int) -> None:
        if position <= cursor.recorded or not reading.is_traced:
            return
        selector = reading.command.selector
        more = {"tree": compile_selector(selector).tree()} if selector else {}
        self.port.trace(
            "consume",
            shard=cursor.shard,
            offset=cursor.recorded,
            until=position,
            name=reading.command.durable,
            subscription=reading.identity,
            selector=selector,
            **more,
        )
        cursor.recorded = position

    # -- at leaders ------------------------------------------------------------------------------

    def _open(self, reading: _Reading, cursor: Cursor) -> bool:
        """Open a shard of a reading at its leader, as soon as that has answered others. Returns
        False if the leader is not known."""
        leader = cursor.hint or self._locator.leader(reading.command.stream, cursor.place)
        if leader is None:
            return False
        if not self._asking.may_ask(leader.id):
            self._to_open.append((reading, cursor))
            return True
        self._number += 1
        self._by_number[self._number] = (reading, cursor)
        credit = cursor.open(leader, self._number, self.port.now)
        self._asking.asks(leader.id, self._number)
        asked = reading.command
        durable = None
        if asked.durable:
            known = {place for place, _ in asked.positions}
            resume = cursor.position is not None or (asked.resume and cursor.place in known)
            own = not resume and cursor.place in known
            durable = Durable(asked.durable, reading.token, resume, asked.expire_after, own)
        self.port.send(
            leader,
            ReadShard(
                *(cursor.shard, self._number, cursor.next_start(), asked.selector, credit),
                durable,
                shares=True,
            ),
        )
        return True

    def _close(self, cursor: Cursor) -> None:
        """Nothing more is wanted of the reading that is open."""
        if cursor.number:
            del self._by_number[cursor.number]
            if cursor.leader is not None:
                self._asking.done(cursor.leader.id, cursor.number)
                self.port.send(cursor.leader, EndReadings(cursor.shard, (cursor.number,)))
        cursor.close()

    def _lost(self, reading: _Reading, cursor: Cursor, is_mistaken: bool = True) -> None:
        """The leader does not serve it any more: it is opened anew at the next look."""
        leader = cursor.leader
        self._close(cursor)
        self.port.count("readings_moved")
        if leader is not None and is_mistaken and reading.entry is not None:
            self._locator.mistaken(reading.entry.name, cursor.place, leader.id)

    def _misled(self, reading: _Reading, cursor: Cursor, why: str = "") -> None:
        """A leader has said what cannot be: that is not taken, and the reading is opened anew. It
        fails if no leader does better."""
        why, cursor.fault = why or cursor.fault, ""
        self.port.count("stream_answers_refused")
        cursor.misled += 1
        if cursor.misled < MISLED_MOST:
            self._lost(reading, cursor)
            return
        node = "" if cursor.leader is None else f", {cursor.leader.id},"
        reason = f"the leader of shard {cursor.place}{node} answers what cannot be: {why}"
        self._end(reading, MALFORMED, reason)

    def _keep(self, leader: Peer, shard: str, cursors: list[Cursor]) -> None:
        """Say that these readings are wanted, and what may be sent."""
        for start in range(0, len(cursors), LISTED_MOST):
            some = cursors[start : start + LISTED_MOST]
            readings = tuple((cursor.number, cursor.granted) for cursor in some)
            self.port.send(leader, KeepReadings(shard, readings))

    def _send_commit(self, reading: _Reading, cursor: Cursor) -> None:
        if cursor.has_begun and cursor.leader is not None and cursor.wanted > cursor.committed:
            cursor.commit_sent_at = self.port.now
            durable = reading.command.durable
            self.port.send(
                cursor.leader,
                CommitPosition(
                    *(cursor.shard, cursor.number, durable, cursor.attachment, cursor.wanted)
                ),
            )

    def _answer_commits(self, reading: _Reading) -> None:
        """Answer whose positions are committed."""
        cursors = reading.cursors
        left = []
        for request, wanted in reading.commits:
            if all(cursors[shard].committed >= position for shard, position in wanted.items()):
                self.port.reply(reading.client, Done(request))
            else:
                left.append((request, wanted))
        reading.commits = left

    def _all(self) -> Iterator[tuple[_Reading, Cursor]]:
        for reading in list(self._readings.values()):
            if reading.failed is None:
                for cursor in reading.cursors:
                    yield reading, cursor

    def on_look(self, timer: LookAtReadings) -> None:
        """Open what is not open, leave leaders that are silent, and speak to the others."""
        self._looks += 1
        self._tell_passed()
        now = self.port.now
        is_keeping = self._looks % KEEP == 0
        sought = dict.fromkeys(
            r.command.stream for r in self._readings.values() if r.entry is None and not r.failed
        )
        kept: dict[tuple[Peer, str], list[Cursor]] = {}
        self._to_open.clear()
        for reading, cursor in self._all():
            if cursor.number:
                assert cursor.leader is not None, "it has a number there"
                heard = (cursor.leader.id, cursor.has_begun, cursor.heard_at)
                if self._asking.is_silent(*heard, now):
                    self._lost(reading, cursor)
            if not cursor.number:
                if not self._open(reading, cursor):
                    sought[reading.command.stream] = None
            elif cursor.has_begun and cursor.leader is not None:
                if is_keeping:
                    kept.setdefault((cursor.leader, cursor.shard), []).append(cursor)
                if now - cursor.commit_sent_at > COMMIT_AGAIN:
                    self._send_commit(reading, cursor)
        for (leader, shard), cursors in kept.items():
            self._keep(leader, shard, cursors)
        for stream in sought:
            self._locator.locate(stream)
        self._is_looking = bool(self._readings)
        if self._readings:
            self.port.set_timer(LOOK, timer)

    # -- answers ---------------------------------------------------------------------------------

    def _find(self, sender: Peer, number: int) -> tuple[_Reading, Cursor] | None:
        found = self._by_number.get(number)
        if found is None or found[1].leader is None or found[1].leader.id != sender.id:
            return None
        found[1].heard_at = self.port.now
        self._asking.heard(sender.id, self.port.now)
        return found

    def on_began(self, sender: Peer, message: ReadingBegan) -> None:
        """A leader serves a shard of a reading."""
        found = self._find(sender, message.reading)
        if found is None:
            return
        reading, cursor = found
        self._asking.done(sender.id, message.reading)
        if self._to_open:
            self._open_next()
        is_own = not reading.command.durable or cursor.position is not None
        if wrong := cursor.began_wrong(message.position, message.next, is_own):
            self._misled(reading, cursor, wrong)
            return
        if not cursor.began(message.position, message.next, message.attachment, message.losses):
            self._lost(reading, cursor, is_mistaken=False)
            return
        self._send_commit(reading, cursor)
        if not reading.is_ready and all(c.position is not None for c in reading.cursors):
            reading.is_ready = True
            shards = tuple((c.delivered, c.end) for c in reading.cursors)
            stream = "" if reading.entry is None else reading.entry.id
            losses = tuple(c.losses for c in reading.cursors)
            ready = ReadingReady(reading.command.request, shards, reading.token, stream, losses)
            self.port.reply(reading.client, ready)
            self._serve(reading)

    def _open_next(self) -> None:
        """Open a reading that has waited for a leader's answers to others."""
        reading, cursor = self._to_open.popleft()
        if reading.failed is None and not cursor.number:
            self._open(reading, cursor)

    def on_rows(self, sender: Peer, message: StreamRows) -> None:
        """Rows for some readings."""
        for number, since in message.readings:
            self._take_rows(sender, number, since, message.position, message.pieces)

    def on_shared_rows(self, sender: Peer, message: SharedRows) -> None:
        """Rows of which each is for some readings."""
        try:
            rows = Shared(message)
            shares = [(share.readings, rows.pieces(share.rows)) for share in message.shares]
        except ValueError as error:
            for share in message.shares:
                for number, _ in share.readings:
                    if found := self._find(sender, number):
                        self._misled(*found, str(error))
            return
        for readings, pieces in shares:
            for number, since in readings:
                self._take_rows(sender, number, since, message.position, pieces)

    def on_scanned(self, sender: Peer, message: ReadingsScanned) -> None:
        """Nothing matched."""
        for number, since, position in message.marks:
            self._take_rows(sender, number, since, position, ())

    def _take_rows(
        self, sender: Peer, number: int, since: int, position: int, pieces: tuple[Piece, ...]
    ) -> None:
        """A reading has come from `since` to `position`, where these rows have matched."""
        if found := self._find(sender, number):
            reading, cursor = found
            if not cursor.follows(since):
                self._lost(reading, cursor, is_mistaken=False)
            elif wrong := misfit(since, position, pieces):
                self._misled(reading, cursor, wrong)
            else:
                cursor.add(position, pieces)
                self._serve(reading)

    def on_kept(self, sender: Peer, message: ReadingsKept) -> None:
        """The leader is there; what it has not, or has sent in vain, is opened anew."""
        for number, position in message.positions:
            found = self._find(sender, number)
            if found is not None and found[1].position != position:
                self._lost(*found, is_mistaken=False)
        for number in message.missing:
            if found := self._find(sender, number):
                self._lost(*found, is_mistaken=False)

    def on_position_committed(self, sender: Peer, message: PositionCommitted) -> None:
        """A durable consumer's position is in the log."""
        if found := self._find(sender, message.reading):
            reading, cursor = found
            # A higher one than was asked for says nothing of what is asked for later.
            cursor.committed = max(cursor.committed, min(message.position, cursor.wanted))
            self._record_consumed(reading, cursor, min(message.position, cursor.wanted))
            self._answer_commits(reading)

    def on_refused(self, sender: Peer, message: ReadingRefused) -> None:
        """A leader does not serve a reading."""
        if found := self._find(sender, message.reading):
            if message.code in (UNKNOWN, MOVED):
                self._lost(*found)
            else:
                self._end(found[0], message.code, message.reason)

    def on_moved(self, sender: Peer, message: ReadingsMoved) -> None:
        """Another node leads."""
        for number in message.readings:
            if found := self._find(sender, number):
                reading, cursor = found
                self._lost(reading, cursor)
                cursor.hint = message.leader

    def on_link_down(self, event: LinkDown) -> None:
        """A leader is out of reach, and what it sent may be lost."""
        self._asking.lost(event.peer.id)
        for reading, cursor in self._all():
            if cursor.leader is not None and cursor.leader.id == event.peer.id:
                self._lost(reading, cursor)

    def on_located(self, event: StreamLocated) -> None:
        """A stream is found, or its leaders are others."""
        entry = event.entry
        for reading in list(self._readings.values()):
            if reading.command.stream != event.name or reading.failed is not None:
                continue
            if reading.entry is not None and reading.entry.id != entry.id:
                self._end(reading, UNKNOWN, "the stream was removed, and there is another one")
                continue
            if reading.entry is None:
                if wrong := strange_of(reading.command, entry):
                    self._end(reading, LOST, wrong)
                    continue
                reading.entry = entry
                reading.cursors = cursors_of(reading.command, entry)
                named = {reading.command.shard, *(s for s, _ in reading.command.positions)}
                if strange := named - {-1, *range(len(entry.places))}:
                    reason = f"{event.name} has no shard {min(strange)}"
                    self._end(reading, "usage", reason)
                    continue
            if not reading.is_ready and not reading.command.resume:
                stuck = (event.is_stuck(c.place) for c in reading.cursors if not c.number)
                if reason := next(filter(None, stuck), ""):
                    self._end(reading, NO_MAJORITY, reason)
                    continue
            for cursor in reading.cursors:
                if not cursor.number:
                    self._open(reading, cursor)

    def on_missing(self, event: StreamMissing) -> None:
        """There is no such stream, or nobody knows."""
        for reading in list(self._readings.values()):
            if reading.command.stream == event.name and (
                event.code == UNKNOWN or reading.entry is None
            ):
                self._end(reading, event.code, event.reason)
