"""The readings of a node's programs.

A reading survives a change, a silence or a loss of a shard's leader: its session
(`streams.access.session`) is opened at the next leader from the scanned position. Each message
names the position before its rows, and is ignored if that is not the reading's. So no row is missed
and none comes twice.

Programs take rows when they have room; the credit of leaders follows from that. The commit of a
durable consumer's position is repeated until it is confirmed.

Programs get rows at once. A position that has moved without rows is answered to a limited number of
programs at a time (`PASSED_MOST`), in the order in which it moved: with many readings that each
want few rows, nearly all answers would be of this kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from matching import compile_selector
from overlay.client import (
    BeginReading,
    CommitReading,
    Done,
    EndReading,
    EventsTaken,
    PackedEvents,
    ReadingReady,
    StreamEvent,
    TakeEvents,
)
from overlay.command_faults import fault_in_reading
from overlay.machine import Message, Peer, Port, Timer
from streams.access.attachments import Attached, Attachments
from streams.access.locator import StreamLocator
from streams.access.reasons import LOST, Cause
from streams.access.session import Move, Phase, Session
from streams.directory.entry import StreamEntry
from streams.log.names import TRACES, sampled
from streams.programs.reader.cursor import WINDOW, WINDOW_LEAST, Cursor, Shared, false_start, misfit
from streams.programs.reader.messages import (
    LISTED_MOST,
    CommitPosition,
    Durable,
    EndReadings,
    KeepReadings,
    Piece,
    PositionCommitted,
    ReadFrom,
    ReadingBegan,
    ReadingRefused,
    ReadingsKept,
    ReadingsMoved,
    ReadingsScanned,
    ReadShard,
    SharedRows,
    StreamRows,
)

PASSED_MOST: Final = 250
"""The limit of answers without events between two looks, to all programs of a node: a thousand a
second. Of 10,000 readings of which few get rows, each learns every ten seconds how far it is
scanned, which takes a tenth of a processor. Guess."""

TAKEN_EVENTS: Final = 1_000
"""The limit of events in one answer to a program: a millisecond's decoding."""

TAKEN_BYTES: Final = 192 * 1024
"""The limit of bytes in one answer, unless its only event is larger."""


class LookAtReadings(Timer, frozen=True):
    """Time to look at the sessions of all readings."""


class _Reading(Attached[BeginReading, Cursor]):
    """The reading of a program, with a cursor for each shard."""

    def __init__(self, client: int, command: BeginReading, identity: str) -> None:
        super().__init__(client, command, goes_on=command.resume)
        self.identity = identity  # in trace records
        self.token = command.token or identity
        self.takes: deque[int] = deque()  # requests that wait
        self.commits: list[tuple[int, dict[int, int]]] = []  # (request, position by shard)
        self.is_traced = True  # until a row has come that has trace records


_Session = Session[_Reading, Cursor]


class Readers(Attachments[_Reading, Cursor]):
    """The readings of this node's programs."""

    noun = "reading"
    needs_majority = False
    look_timer = LookAtReadings()

    def __init__(self, port: Port, incarnation: int, locator: StreamLocator) -> None:
        """`incarnation` grows with each start of the node."""
        super().__init__(port, incarnation, locator)
        self._passed: dict[_Reading, None] = {}  # whose programs are to be told of positions only
        self._passed_left = PASSED_MOST  # answers without events, until the next look

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return the method that carries out each command."""
        return {
            BeginReading: self.begin,
            TakeEvents: self.take,
            CommitReading: self.commit,
            EndReading: self.end_reading,
        }

    # -- programs --------------------------------------------------------------------------------

    def begin(self, client: int, command: BeginReading) -> None:
        """Begin a reading for a program, and answer the program when the leaders have opened it.
        Refuses a command with an invalid selector or position."""
        if fault := fault_in_reading(command):
            self.fail(client, command.request, fault)
            return
        number = self.next_number()
        identity = f"{self.port.me.id}.{self.incarnation}.{number}"
        self.begin_attachment(_Reading(client, command, identity))

    def take(self, client: int, command: TakeEvents) -> None:
        """Answer with rows or a position as soon as there are some."""
        reading = self.get(client, command, command.reading)
        if reading is not None:
            reading.takes.append(command.request)
            self.serve(reading)

    def commit(self, client: int, command: CommitReading) -> None:
        """Commit a durable consumer's positions."""
        reading = self.get(client, command, command.reading)
        if reading is None:
            return
        if reading.failed is not None:
            self.fail(client, command.request, reading.failed)
            return
        cursors = reading.parts
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
            self.fail(client, command.request, ("usage", fault))
            return
        reading.commits.append((command.request, wanted))
        for shard, position in wanted.items():
            if cursors[shard].durable.wants(position):
                self._send_commit(reading.sessions[shard])
        self._answer_commits(reading)

    def end_reading(self, client: int, command: EndReading) -> None:
        """End a program's reading at the leaders. A durable consumer's position stays."""
        self.end_attachment(client, command, command.reading)

    def abandoned(self, attachment: _Reading) -> None:
        """Forget the takes and commits that wait for an answer."""
        attachment.takes.clear()
        attachment.commits.clear()

    def dropped(self, attachment: _Reading, reason: Cause) -> None:
        """As `Attachments`: the program gets the rows first that have come."""
        self._passed.pop(attachment, None)
        commits, attachment.commits = attachment.commits, []
        for request, _ in commits:
            self.fail(attachment.client, request, reason)
        self.serve(attachment)

    def forgets_failed(self, attachment: _Reading) -> bool:
        """Whether the program has all rows that came."""
        return not any(cursor.has_news for cursor in attachment.parts)

    def serve(self, attachment: _Reading) -> None:
        """Answer waiting takes with rows, a position, or the reason why none come."""
        reading = attachment
        while reading.takes:
            if reading.is_ready and any(cursor.has_news for cursor in reading.parts):
                if not self._may_answer(reading):
                    return
                self._hand_over(reading, reading.takes.popleft())
            elif reading.failed is not None:
                self.fail(reading.client, reading.takes.popleft(), reading.failed)
            elif reading.waits != reading.told:  # why none come, or that they can come again
                reading.told = reading.waits
                told = EventsTaken(reading.takes.popleft(), (), (), waits=reading.waits)
                self.port.reply(reading.client, told)
            else:
                return
        if reading.failed is not None:
            self.forget_failed(reading)

    def _may_answer(self, reading: _Reading) -> bool:
        """Whether a program is answered now; else it is at a later look."""
        if not any(cursor.has_urgent_news for cursor in reading.parts) and not reading.failed:
            if self._passed_left == 0:
                self._passed[reading] = None
                return False
            self._passed_left -= 1
        self._passed.pop(reading, None)
        return True

    def _tell_passed(self) -> None:
        """Answer programs with positions without rows, those first that wait longest."""
        self._passed_left = PASSED_MOST
        while self._passed and self._passed_left:
            reading = next(iter(self._passed))
            del self._passed[reading]
            self.serve(reading)

    def _hand_over(self, reading: _Reading, request: int) -> None:
        events: list[StreamEvent] = []
        packed: list[PackedEvents] = []
        positions: list[tuple[int, int]] = []
        size = 0
        is_news = False
        for session in reading.in_turn():
            cursor = session.part
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
                if session.errors and taken:
                    session.proven()
                if fault := cursor.arrived.pop_fault():
                    self.protocol_error(session, fault)
                elif cursor.arrived.should_grant and session.is_open and session.leader is not None:
                    self.keep(session.leader, session.shard, [session])
        if not is_news:
            reading.takes.appendleft(request)
            return
        count = len(events) + sum(piece.count for piece in packed)
        self.port.count("stream_events_taken", count)
        tables = tuple((c.place, c.table_end) for c in reading.parts if c.is_in_table)
        losses = tuple((c.place, c.losses) for c in reading.parts if c.losses > 0)
        reading.told = reading.waits
        self.port.reply(
            reading.client,
            EventsTaken(
                request,
                tuple(events),
                tuple(positions),
                tables,
                tuple(packed),
                losses,
                reading.waits,
            ),
        )

    def _record_taken(
        self, reading: _Reading, cursor: Cursor, events: Sequence[StreamEvent]
    ) -> None:
        traced = [event.offset for event in events if event.payload_type != TRACES]
        reading.is_traced = reading.is_traced and len(traced) == len(events)
        share = self.port.row_share("take", len(traced))
        cursor.durable.note_share(events[0].offset, share)
        for offset in sampled(cursor.shard, traced, share):
            self.port.trace(
                "take",
                event=f"{cursor.shard}/{offset}",
                shard=cursor.shard,
                offset=offset,
                name=reading.command.durable,
                subscription=reading.identity,
            )

    def _record_consumed(self, reading: _Reading, cursor: Cursor, position: int) -> None:
        first = cursor.durable.recorded
        if position <= first or not reading.is_traced:
            return
        selector = reading.command.selector
        more: dict[str, Any] = {"tree": compile_selector(selector).tree()} if selector else {}
        share = cursor.durable.record(position)
        if share < 1.0:
            more["share"] = share
        self.port.trace(
            "consume",
            shard=cursor.shard,
            offset=first,
            until=position,
            name=reading.command.durable,
            subscription=reading.identity,
            selector=selector,
            **more,
        )

    # -- at leaders ------------------------------------------------------------------------------

    def opening(self, session: _Session) -> Message:
        """As `Attachments`: from the reading's position on, with credit."""
        asked, cursor = session.owner.command, session.part
        durable = None
        if asked.durable:
            known = {place for place, _ in asked.positions}
            resume = cursor.position is not None or (asked.resume and cursor.place in known)
            own = not resume and cursor.place in known
            about = (asked.durable, session.owner.token, resume, asked.expire_after, own)
            durable = Durable(*about)
        start, credit = cursor.next_start(), cursor.arrived.open()
        about_it = (session.shard, session.number, start, asked.selector, credit)
        return ReadShard(*about_it, durable, shares=True)

    def closing(self, session: _Session, is_over: bool) -> Message | None:
        """Return the message that ends a reading at its leader."""
        return EndReadings(session.shard, (session.number,))

    def keep(self, leader: Peer, shard: str, sessions: Sequence[_Session]) -> None:
        """As `Attachments`: with the credit of each reading."""
        for start in range(0, len(sessions), LISTED_MOST):
            some = sessions[start : start + LISTED_MOST]
            readings = tuple((session.number, session.part.arrived.granted) for session in some)
            self.port.send(leader, KeepReadings(shard, readings))

    def count_end(self, goes_on: bool) -> None:
        """Count a reading that moves to another leader, or fails."""
        self.port.count("readings_moved" if goes_on else "readings_failed")

    def looked_at(self, session: _Session, is_keeping: bool) -> None:
        """As `Attachments`: repeat the commit of a position."""
        if is_keeping and session.part.durable.wanted >= 0:
            self._send_commit(session)

    def place(self, attachment: _Reading, entry: StreamEntry) -> Cause | None:
        """Add a session for each shard that the reading has. Refuse another stream's positions."""
        command = attachment.command
        if strange := strange_of(command, entry):
            return Cause(LOST, strange)
        for cursor in cursors_of(command, entry):
            self.add_session(attachment, cursor, cursor.place, cursor.shard)
        named = {command.shard, *(shard for shard, _ in command.positions)}
        if unknown := named - {-1, *range(len(entry.places))}:
            return Cause("usage", f"{entry.name} has no shard {min(unknown)}")
        return None

    def _send_commit(self, session: _Session) -> None:
        known = session.part.durable
        if session.is_open and session.leader is not None and known.wanted > known.committed:
            about = (session.shard, session.number, session.owner.command.durable)
            told = CommitPosition(*about, known.attachment, known.wanted)
            self.port.send(session.leader, told)

    def _answer_commits(self, reading: _Reading) -> None:
        """Answer the commands whose positions are committed."""
        cursors = reading.parts
        left = []
        for request, wanted in reading.commits:
            if all(cursors[shard].durable.committed >= at for shard, at in wanted.items()):
                self.port.reply(reading.client, Done(request))
            else:
                left.append((request, wanted))
        reading.commits = left

    def on_look(self, timer: LookAtReadings) -> None:
        """Tell programs of positions that have moved, and look at all sessions."""
        self._tell_passed()
        self.look()

    # -- answers ---------------------------------------------------------------------------------

    def on_began(self, sender: Peer, message: ReadingBegan) -> None:
        """Take the answer that a leader serves a reading."""
        session = self.heard(sender, message.reading)
        if session is None:
            return
        reading, cursor = session.owner, session.part
        self.answered(session)
        is_own = not reading.command.durable or cursor.position is not None
        start = cursor.next_start()
        if wrong := false_start(start, message.position, message.next, is_own):
            self.protocol_error(session, wrong)
            return
        if session.state is not Phase.OPENING or not cursor.began(message):
            session.happens(Move.MISSED)
            return
        session.happens(Move.OPENED)
        self._send_commit(session)
        self.flows(reading)
        if not reading.is_ready and all(c.position is not None for c in reading.parts):
            reading.is_ready = True
            shards = tuple((c.delivered, c.end) for c in reading.parts)
            stream = "" if reading.entry is None else reading.entry.id
            losses = tuple(c.losses for c in reading.parts)
            ready = ReadingReady(reading.command.request, shards, reading.token, stream, losses)
            self.port.reply(reading.client, ready)
            self.serve(reading)

    def on_rows(self, sender: Peer, message: StreamRows) -> None:
        """Take rows for some readings."""
        for number, since in message.readings:
            self._take_rows(sender, number, since, message.position, message.pieces)

    def on_shared_rows(self, sender: Peer, message: SharedRows) -> None:
        """Take rows that several readings share."""
        try:
            rows = Shared(message)
            shares = [(share.readings, rows.pieces(share.rows)) for share in message.shares]
        except ValueError as error:
            for share in message.shares:
                for number, _ in share.readings:
                    if session := self.heard(sender, number):
                        self.protocol_error(session, str(error))
            return
        for readings, pieces in shares:
            for number, since in readings:
                self._take_rows(sender, number, since, message.position, pieces)

    def on_scanned(self, sender: Peer, message: ReadingsScanned) -> None:
        """Take positions of readings for which no row matched."""
        for number, since, position in message.marks:
            self._take_rows(sender, number, since, position, ())

    def _take_rows(
        self, sender: Peer, number: int, since: int, position: int, pieces: tuple[Piece, ...]
    ) -> None:
        """Move a reading from `since` to `position`, with the rows that matched."""
        if session := self.heard(sender, number):
            cursor = session.part
            if session.state is not Phase.OPEN or since != cursor.position:
                session.happens(Move.MISSED)
            elif wrong := misfit(since, position, pieces):
                self.protocol_error(session, wrong)
            else:
                if session.errors and not pieces:
                    session.proven()
                cursor.add(position, pieces)
                self.serve(session.owner)

    def on_kept(self, sender: Peer, message: ReadingsKept) -> None:
        """Take the answer to a keep-alive. Readings that the leader does not have, or for which a
        message was lost, are opened again."""
        for number, position in message.positions:
            if session := self.heard(sender, number):
                if session.part.position != position:
                    session.happens(Move.MISSED)
                else:
                    self.kept(session, message.cut_off)
        self.missed(sender, message.missing)

    def on_position_committed(self, sender: Peer, message: PositionCommitted) -> None:
        """Take the confirmation of a durable consumer's position."""
        if session := self.heard(sender, message.reading):
            # A higher one than was asked for says nothing of what is asked for later.
            confirmed = session.part.durable.confirmed(message.position)
            self._record_consumed(session.owner, session.part, confirmed)
            self._answer_commits(session.owner)

    def on_refused(self, sender: Peer, message: ReadingRefused) -> None:
        """Move or fail a reading that the leader refuses."""
        self.refused(sender, message.reading, message.code, message.reason)

    def on_moved(self, sender: Peer, message: ReadingsMoved) -> None:
        """Move readings to another leader."""
        self.moved(sender, message.readings, message.leader)


def strange_of(command: BeginReading, entry: StreamEntry) -> str:
    """Return the reason why positions belong to another stream; "": they do not."""
    if command.stream_id in ("", entry.id):
        return ""
    return (
        f"these positions are of another stream {entry.name}, with the id {command.stream_id}: "
        f"it was removed, and this one ({entry.id}) was founded since. Begin again, as with start "
        "first"
    )


def cursors_of(command: BeginReading, entry: StreamEntry) -> list[Cursor]:
    """Return a cursor for each shard of a reading."""
    positions = dict(command.positions)
    window = max(WINDOW // len(entry.places), WINDOW_LEAST)
    untils = dict(command.tables)
    losses = dict(command.losses)
    start = ReadFrom(command.start, command.at)

    def start_of(place: int) -> ReadFrom:
        if place in untils:
            return ReadFrom("keys", positions.get(place, 0), untils[place], losses.get(place, -1))
        if place in positions:
            return ReadFrom("offset", positions[place], 0, losses.get(place, -1))
        return start

    return [
        Cursor(place, shard, start_of(place), window)
        for place, shard in enumerate(entry.shards())
        if command.shard in (-1, place)
    ]
