"""All readings at the shards that this node leads.

A reading begins in the log's history, and joins the tail where it has looked at everything before
the tail's next chunk: there is no row between the two, and none is in both. One that has no credit
left leaves the tail, and goes on in the history from there when it is given some; so nothing is
kept for slow readings. Only committed chunks are read. The shards work by turns, in slices of one
turn of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from matching import Predicate, SelectorError, compile_selector
from overlay.lower_random.policies import PolicyChanged
from overlay.machine import Message, NodeId, Peer, Timer
from streams.access.reasons import (
    FENCED,
    FULL,
    LOST,
    NO_KEY,
    NOT_YET,
    OUT_OF_RANGE,
    SELECTOR,
    UNREADABLE,
)
from streams.log.chunk import Chunk
from streams.log.lost_rows import losses_of, lost_reason, lost_to
from streams.log.state import ConsumerPosition
from streams.programs.reader.messages import (
    KEYS,
    LISTED_MOST,
    OFFSET,
    CommitPosition,
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
    Share,
    SharedRows,
    StreamRows,
    cost,
)
from streams.services.read.chunk_rows import ChunkRows
from streams.services.read.durable import DurableConsumers, ReadingRefusal, WritePositions
from streams.services.read.history import MESSAGE_BYTES, HistoryScan
from streams.services.read.positions import find_start
from streams.services.read.table_scan import TableScan
from streams.services.read.tail import Matched, ReadingKey, ShardReading, Tail
from streams.services.service import KEPT, Leaderships, LedShard, ReplicaOf, ShardService, by_peer
from streams.services.table import ShardTable
from streams.shard.kept_chunks import FETCHED
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica

# Rows for several readings of one node in one message, each row once. The node takes them apart
# (`streams.programs.reader.cursor.Shared`).
#
# With many readings of which each wants few rows, a message for each selector would be most of the
# work: for the leader, for the link, and for the node.

MARK_BYTES: Final = 20
"""Bytes of a reading's number and position in a message, at most; a row's place takes less."""

Mark = tuple[int, int]
"""A reading's number, and the position at which it was."""

Wanted = tuple[list[Mark], list[int]]
"""Readings, and the places of the rows that they get, ascending."""


def shared(
    shard: str, position: int, rows: ChunkRows, wanted: Sequence[Wanted]
) -> Iterator[SharedRows]:
    """Messages to one node with what its readings want of `rows`."""
    sizes = rows.sizes
    some: list[Wanted] = []
    there: set[int] = set()
    size = count = 0
    for marks, places in _parts(wanted):
        new = [place for place in places if place not in there]
        more = sum([sizes[place] for place in new]) + MARK_BYTES * (len(marks) + len(places))
        if some and (size + more > MESSAGE_BYTES or count + len(marks) > LISTED_MOST):
            yield _message(shard, position, rows, some, there)
            some, there, size, count, new = [], set(), 0, 0, places
            more = rows.cost(places) + MARK_BYTES * (len(marks) + len(places))
        some.append((marks, places))
        there.update(new)
        size, count = size + more, count + len(marks)
    if some:
        yield _message(shard, position, rows, some, there)


def _parts(wanted: Sequence[Wanted]) -> Iterator[Wanted]:
    """Split the items so that the readings of each fit into one message."""
    for marks, places in wanted:
        if len(marks) <= LISTED_MOST:
            yield marks, places
        else:
            for start in range(0, len(marks), LISTED_MOST):
                yield marks[start : start + LISTED_MOST], places


def _message(
    shard: str, position: int, rows: ChunkRows, wanted: Sequence[Wanted], there: set[int]
) -> SharedRows:
    places = sorted(there)
    number = {place: at for at, place in enumerate(places)}
    numbered = number.__getitem__
    shares = tuple([Share(tuple(marks), tuple(map(numbered, mine))) for marks, mine in wanted])
    return SharedRows(shard, position, rows.loose(places), shares)


BUDGET: Final = 2_000
"""Rows' worth of work in a turn: 2 to 10 ms, so that a node goes on answering meanwhile. Guess."""

MARK: Final = 0.25
"""Seconds between two words on how far was scanned."""

LOOK: Final = 1.0
"""Seconds between two looks at who is there."""

READINGS_MOST: Final = 10_000
"""Readings of a shard at most. Guess."""

MARKED_MOST: Final = 2_500
"""The limit of readings whose position is sent at a time. Up to this number each reading gets its
position every `MARK` seconds, and 10,000 get it within a second."""


class ScanOn(Timer, frozen=True):
    """Go on scanning, in a turn of its own."""


class MarkPositions(Timer, frozen=True):
    """Time to say how far was scanned."""


class LookAtShardReadings(Timer, frozen=True):
    """Fires when the leader checks which readings are still there."""


class ShardReadings(LedShard):
    """The readings of one shard, under one epoch of this node's."""

    def __init__(self, service: ReadServer, replica: Replica, leader: ShardLeader) -> None:
        super().__init__(service, replica, leader)
        self._table = service.table
        self.readings: dict[ReadingKey, ShardReading] = {}
        self.durable = DurableConsumers(self)
        self.tail = Tail(self)
        self._ready: dict[ShardReading, None] = {}  # behind the tail, and able to go on
        self._marked = 0  # the place among the readings of the one that is marked next
        self._unmarked = 0  # readings that were not looked at since some went on
        self.later(LookAtShardReadings, LOOK)

    @classmethod
    def moved(cls, message: Any, leader: Peer | None) -> Message | None:
        """The readings of a message go on elsewhere."""
        if isinstance(message, EndReadings):
            return None
        kept = isinstance(message, KeepReadings)
        numbers = [n for n, _ in message.readings] if kept else [message.reading]
        return ReadingsMoved(message.shard, tuple(numbers), leader)

    # -- beginning and ending --------------------------------------------------------------------

    def on_read_shard(self, sender: Peer, message: ReadShard) -> None:
        """Begin a reading for a program's node, or refuse it with a reason. A reading of that node
        with this number is replaced."""
        self.drop((sender.id, message.reading))
        try:
            predicate = _predicate(message)
        except SelectorError as error:
            self._refuse(sender, message.reading, ReadingRefusal(SELECTOR, str(error)))
            return
        if len(self.readings) >= READINGS_MOST:
            refusal = ReadingRefusal(FULL, f"the shard has {READINGS_MOST} readings")
            self._refuse(sender, message.reading, refusal)
            return

        start = message.start
        beyond = max(start.at if start.kind in (OFFSET, KEYS) else 0, start.until)
        lost = lost_to(self.replica.state.lost, beyond, start.losses) if start.losses >= 0 else None
        known = self.durable.known(message.durable.name) if message.durable is not None else None
        if lost is not None and (known is None or not known.was_at):  # else it hears it as that
            refusal = ReadingRefusal(
                LOST, lost_reason("a position", beyond, lost), self.first, self.end
            )
            self._refuse(sender, message.reading, refusal)
            return
        if message.start.kind == KEYS:
            self._open_table(sender, message, predicate)
            return

        def found(position: int) -> None:
            if self.leader.leads:
                self._open_at(sender, message, predicate, position)

        find_start(self, message.start, found)

    def _open_table(self, sender: Peer, message: ReadShard, predicate: Predicate | None) -> None:
        """Begin with the newest row of each key."""
        table = self._table(self.replica.shard)
        refusal = None
        if table is None:
            refusal = ReadingRefusal(
                NO_KEY, "the stream has no key: found one with --key ATTRIBUTE"
            )
        elif message.durable is not None:
            refusal = ReadingRefusal(
                NO_KEY, "a durable consumer begins in the history, not with the keys"
            )
        elif 0 < message.start.until < self.first:
            reason = f"rows from {message.start.until} on are no longer kept: begin again"
            refusal = ReadingRefusal(OUT_OF_RANGE, reason, self.first, self.end)
        elif not table.is_complete:
            refusal = ReadingRefusal(NOT_YET, "the leader is reading the newest rows")
        if table is None or refusal is not None:
            self._refuse(sender, message.reading, refusal or ReadingRefusal(NOT_YET, ""))
            return
        view = table.view()
        end = view.end
        if message.start.until:
            view.end = min(view.end, message.start.until)
        position = message.start.at
        reading = self._take(sender, message, predicate, position, end)
        wake = self._waker(reading)
        reading.scan = TableScan(self, view, position, predicate, wake)
        self._get_ready(reading)

    def _open_at(
        self, sender: Peer, message: ReadShard, predicate: Predicate | None, position: int
    ) -> None:
        wanted = message.durable
        if wanted is None:
            self._begin(sender, message, predicate, position)
            return

        def attached(found: ConsumerPosition | ReadingRefusal) -> None:
            if isinstance(found, ReadingRefusal):
                self._refuse(sender, message.reading, found)
                return
            start = position if wanted.resume or wanted.own else found.position
            if start < self.first <= position and message.start.kind == OFFSET:
                start = position  # its own is lost; the program has chosen one that is there
            self._fence(wanted.name, found.attachment)
            self._begin(sender, message, predicate, start, found.attachment)

        if not self.first <= position <= self.end and self.durable.known(wanted.name) is None:
            self._refuse(sender, message.reading, self._out_of_range(position))
        else:
            self.durable.attach(wanted, message.selector, position, attached)

    def _out_of_range(self, position: int, durable: str = "") -> ReadingRefusal:
        first, end = self.first, self.end
        who = f"the durable consumer {durable} goes on at" if durable else "there is no"
        if position < first:
            why = f"rows below {first} are no longer kept; begin at offset {first} without them"
        else:
            why = f"the next row of the shard gets offset {end}"
        reason = f"{who} offset {position}: {why}"
        return ReadingRefusal(OUT_OF_RANGE, reason, first, end)

    def _begin(
        self,
        sender: Peer,
        message: ReadShard,
        predicate: Predicate | None,
        position: int,
        attachment: int = 0,
    ) -> None:
        if not self.first <= position <= self.end:
            durable = "" if message.durable is None else message.durable.name
            self._refuse(sender, message.reading, self._out_of_range(position, durable))
            return
        reading = self._take(sender, message, predicate, position, self.end, attachment)
        if position == self.tail.position:
            number = self.tail.number
        else:
            number = self.replica.log.before_offset(position)[0]
        self._go_behind(reading, number, position)

    def _take(
        self,
        sender: Peer,
        message: ReadShard,
        predicate: Predicate | None,
        position: int,
        end: int,
        attachment: int = 0,
    ) -> ShardReading:
        """Add a reading, and send its node `ReadingBegan`."""
        self.drop((sender.id, message.reading))
        now = self.port.now
        reading = ShardReading(sender, message, predicate, position, attachment, now)
        if not self.readings:
            self.later(LookAtShardReadings, LOOK)
        self.readings[reading.key] = reading
        losses = losses_of(self.replica.state.lost)
        began = ReadingBegan(self.replica.shard, message.reading, position, end, attachment, losses)
        self.port.send(sender, began)
        self.port.count("stream_readings")
        return reading

    def _fence(self, name: str, attachment: int) -> None:
        """End the other readings of a durable consumer: those of former attachments, and those that
        the same program has given up."""
        refusal = ReadingRefusal(FENCED, f"another program reads as {name} now")
        for reading in [each for each in self.readings.values() if each.durable == name]:
            if reading.attachment == attachment:
                self.drop(reading.key)
            else:
                self._end(reading, refusal)

    def _end(self, reading: ShardReading, refusal: ReadingRefusal) -> None:
        self.drop(reading.key)
        self._refuse(reading.peer, reading.number, refusal)

    def drop(self, key: ReadingKey) -> None:
        """End a reading without an answer."""
        reading = self.readings.pop(key, None)
        if reading is not None:
            self.tail.leave(reading)
            self._ready.pop(reading, None)
            reading.scan = None

    def _refuse(self, sender: Peer, number: int, refusal: ReadingRefusal) -> None:
        self.port.count("stream_readings_refused")
        code, reason, first, end = refusal
        self.port.send(
            sender,
            ReadingRefused(self.replica.shard, number, code, reason[:500], first, end),
        )

    def stop(self, leader: Peer | None) -> None:
        """End all readings, because this node no longer leads the shard."""
        for reading in self.readings.values():
            reading.scan = None
        self._tell_moved(list(self.readings.values()), leader)
        self.readings.clear()
        self._ready.clear()

    def _tell_moved(self, readings: list[ShardReading], leader: Peer | None) -> None:
        for peer, some in by_peer([(one.peer, one.number) for one in readings], LISTED_MOST):
            self.port.send(peer, ReadingsMoved(self.replica.shard, some, leader))

    def begin_again(self) -> None:
        """Tenants' readings begin again where they are, with what the tenants may see now."""
        confined = [one for one in self.readings.values() if one.permitted]
        for reading in confined:
            self.drop(reading.key)
        self._tell_moved(confined, self.port.me)

    # -- what readers say ------------------------------------------------------------------------

    def on_keep_readings(self, sender: Peer, message: KeepReadings) -> None:
        """A reader's node has these readings, and gives them credit."""
        positions, missing = [], []
        for number, granted in message.readings:
            reading = self.readings.get((sender.id, number))
            if reading is None:
                missing.append(number)
                continue
            positions.append((number, reading.sent))
            reading.kept_at = self.port.now
            reading.granted = max(reading.granted, granted)
            self._get_ready(reading)
        cut_off = self.replica.lacks_majority()
        kept = ReadingsKept(self.replica.shard, tuple(positions), tuple(missing), cut_off)
        self.port.send(sender, kept)

    def on_end_readings(self, sender: Peer, message: EndReadings) -> None:
        """End readings whose programs have gone."""
        for number in message.readings:
            self.drop((sender.id, number))

    def on_commit_position(self, sender: Peer, message: CommitPosition) -> None:
        """A durable consumer is done with rows."""

        def moved(found: int | ReadingRefusal) -> None:
            if isinstance(found, ReadingRefusal):
                self._refuse(sender, message.reading, found)
            else:
                shard = self.replica.shard
                self.port.send(sender, PositionCommitted(shard, message.reading, found))

        self.durable.move(message.durable, message.attachment, message.position, self.end, moved)

    def on_look(self, timer: LookAtShardReadings) -> None:
        """End readings that nobody has kept, and forget consumers."""
        before = self.port.now - KEPT
        for key in [key for key, each in self.readings.items() if each.kept_at < before]:
            self.drop(key)
        attached = (each.durable for each in self.readings.values() if each.durable)
        if self.durable.look(attached) or self.readings:
            self.later(LookAtShardReadings, LOOK)

    def on_write_positions(self, timer: WritePositions) -> None:
        """Write the queued entries of durable consumers."""
        self.durable.flush()

    def on_mark_positions(self, timer: MarkPositions) -> None:
        """Send positions to the next `MARKED_MOST` readings, where nothing has matched since the
        last one."""
        marks: list[tuple[Peer, tuple[int, int, int]]] = []
        all_of_them = self.readings.values()
        start = self._marked if self._marked < len(all_of_them) else 0
        end = start + min(MARKED_MOST, len(all_of_them))
        self._marked = end % (len(all_of_them) or 1)
        for reading in islice(chain(all_of_them, all_of_them), start, end):
            position = self.tail.position if reading.scan is None else reading.scan.position
            if position > reading.sent:
                marks.append((reading.peer, (reading.number, reading.sent, position)))
                reading.sent = position
        for peer, some in by_peer(marks, LISTED_MOST):
            self.port.send(peer, ReadingsScanned(self.replica.shard, some))
        self._unmarked -= end - start
        if self._unmarked > 0 and end > start:
            self.later(MarkPositions, MARK)

    # -- scanning --------------------------------------------------------------------------------

    def committed(self) -> None:
        """More of the log is committed."""
        super().committed()
        if not self.tail:
            self._skip_to_end()
        elif self.tail.number <= self.replica.committed:
            self.later(ScanOn)

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._ready) or (bool(self.tail) and self.tail.number <= self.replica.committed)

    def step(self, budget: int) -> int:
        """Go on, for `budget` rows' worth of work; returns the work done."""
        work = self._step_tail(budget)
        most = max(budget, work + budget // 4)  # so that a busy tail does not stop the others
        while self._ready and work < most:
            reading = next(iter(self._ready))
            del self._ready[reading]
            work += self._step_scan(reading, most - work)
        self._unmarked = len(self.readings)
        self.later(MarkPositions, MARK)
        return work

    def _skip_to_end(self) -> None:
        """Move the tail to the end of the committed log. No reading is at the tail."""
        self.tail.number, self.tail.position = self.replica.committed + 1, self.end

    def _step_tail(self, budget: int) -> int:
        work = 0
        while self.tail and work < budget and self.tail.number <= self.replica.committed:
            ahead = self.replica.committed - self.tail.number + 1
            chunks = self.replica.chunks.recent_from(self.tail.number, min(ahead, FETCHED))
            if not chunks:  # they are on disk only: each reading looks at them for itself
                for reading in list(self.tail.readings()):
                    self._leave_tail(reading)
                break
            chunks = _some(chunks, budget - work)
            work += sum(chunk.offsets for chunk in chunks) + 1
            self._send_matched(self.tail.take(chunks))
        if not self.tail:
            self._skip_to_end()
        return work

    def _send_matched(self, matched: Matched) -> None:
        """Send rows to all readings at the tail that want them, each row once to each node."""
        whole: dict[Peer, list[Mark]] = {}
        taken = sum(map(cost, matched.pieces))
        for reading in matched.everything:
            whole.setdefault(reading.peer, []).append(self._advance(reading, taken))
        for peer, marks in whole.items():
            self._send_all(peer, marks, matched.pieces)
        rows = matched.rows
        sharing: dict[NodeId, tuple[Peer, list[Wanted]]] = {}
        others: dict[NodeId, tuple[Peer, list[Wanted]]] = {}
        for readings, places in matched.shares:
            taken = rows.cost(places)
            for reading in readings:
                peer = reading.peer
                nodes = sharing if reading.shares else others
                known = nodes.get(peer.id)
                if known is None:
                    known = nodes[peer.id] = (peer, [])
                wanted = known[1]
                if not wanted or wanted[-1][1] is not places:
                    wanted.append(([], places))
                wanted[-1][0].append(self._advance(reading, taken))
        for peer, wanted in others.values():
            for marks, places in wanted:
                self._send_all(peer, marks, rows.pieces(places))
        for peer, wanted in sharing.values():
            for message in shared(self.replica.shard, self.tail.position, rows, wanted):
                self.port.count("stream_rows_sent", sum([len(c.rows) for c in message.chunks]))
                self.port.send(peer, message)

    def _advance(self, reading: ShardReading, taken: int) -> Mark:
        """Move a reading to the position of the tail and charge `taken` to its credit. Return its
        number and its former position."""
        mark = (reading.number, reading.sent)
        reading.sent = self.tail.position
        reading.used += taken
        if reading.used >= reading.granted:
            self._leave_tail(reading)
        return mark

    def _send_all(self, peer: Peer, marks: list[Mark], pieces: tuple[Piece, ...]) -> None:
        for start in range(0, len(marks), LISTED_MOST):
            some = tuple(marks[start : start + LISTED_MOST])
            self._send_rows(peer, some, self.tail.position, pieces)

    def _send_rows(
        self,
        peer: Peer,
        readings: tuple[tuple[int, int], ...],
        position: int,
        pieces: tuple[Piece, ...],
    ) -> None:
        self.port.count("stream_rows_sent", sum(piece.count for piece in pieces))
        self.port.send(peer, StreamRows(self.replica.shard, readings, position, pieces))

    def _leave_tail(self, reading: ShardReading) -> None:
        self.tail.leave(reading)
        self._go_behind(reading, self.tail.number, self.tail.position)

    def _go_behind(self, reading: ShardReading, number: int, position: int) -> None:
        wake = self._waker(reading)
        reading.scan = HistoryScan(self, number, position, reading.predicate, wake)
        self._get_ready(reading)

    def _waker(self, reading: ShardReading) -> Callable[[], None]:
        """Return the function to call when chunks have arrived for which a reading waited."""

        def go_on() -> None:
            if self.readings.get(reading.key) is reading:
                self._get_ready(reading)

        return go_on

    def _get_ready(self, reading: ShardReading) -> None:
        """Have a reading behind the tail go on, if it can."""
        scan = reading.scan
        if scan is not None and not scan.reader.waits and reading.credit > 0:
            self._ready[reading] = None
            self.later(ScanOn)

    def _step_scan(self, reading: ShardReading, budget: int) -> int:
        scan = reading.scan
        assert scan is not None, "only what is behind the tail is ready"
        if scan.reader.is_lost:
            self._lost(reading, scan)
            return 1
        pieces, work = scan.step(self.tail.number, budget, reading.credit)
        if pieces:
            reading.used += sum(map(cost, pieces))
            marks = ((reading.number, reading.sent),)
            reading.sent = scan.position
            self._send_rows(reading.peer, marks, scan.position, tuple(pieces))
        if scan.is_at(self.tail.number):
            reading.scan = None
            self.tail.join(reading)
        else:
            self._get_ready(reading)
        return work + 1

    def _lost(self, reading: ShardReading, scan: HistoryScan | TableScan) -> None:
        """The next chunk of a reading was removed, or cannot be read."""
        if isinstance(scan, TableScan):  # there is a newer table: begin again behind what was sent
            self.drop(reading.key)
            moved = ReadingsMoved(self.replica.shard, (reading.number,), self.port.me)
            self.port.send(reading.peer, moved)
            return
        number = self.replica.log.before_offset(scan.position)[0]
        if self.first <= scan.position and number > scan.reader.number:
            # What was removed had no rows for it.
            self._go_behind(reading, number, scan.position)
        elif self.first <= scan.position < self.end:
            self._end(reading, self._unreadable(scan.position))
        else:
            self._end(reading, self._out_of_range(scan.position))

    def _unreadable(self, position: int) -> ReadingRefusal:
        """The log is damaged on this disk: others mend it, and one of them leads meanwhile."""
        if len(self.replica.replicas) > 1:
            return ReadingRefusal(NOT_YET, f"the leader has to be sent offset {position} first")
        reason = f"offset {position} cannot be read: the log of the only replica is damaged there"
        return ReadingRefusal(UNREADABLE, reason)


def _some(chunks: list[Chunk], rows: int) -> list[Chunk]:
    """Return the first of these chunks: at least one, with at least `rows` rows if there are as
    many, and no more chunks than fit into one message."""
    size = 0
    for count, chunk in enumerate(chunks):
        size += len(chunk.data)
        if count and (rows <= 0 or size > MESSAGE_BYTES):
            return chunks[:count]
        rows -= chunk.offsets
    return chunks


def _predicate(message: ReadShard) -> Predicate | None:
    """Return the predicate for the rows that a reading wants and may see; None: all rows. Raises
    SelectorError."""
    asked = compile_selector(message.selector) if message.selector else None
    if not message.permitted:
        return asked
    may = compile_selector(message.permitted)
    return may if asked is None else asked & may


class ReadServer(ShardService[ShardReadings]):
    """Serves readers at the shards that this node leads."""

    kind = ShardReadings

    def __init__(
        self,
        leaderships: Leaderships,
        leading: ReplicaOf,
        table: Callable[[str], ShardTable | None] = lambda shard: None,
    ) -> None:
        """`table`: the newest rows of a shard that this node leads, where its stream has a key; the
        others: as of `ShardService`."""
        super().__init__(leaderships, leading)
        self.table = table

    def on_scan_on(self, timer: ScanOn) -> None:
        """Do a turn's work, and go on in another one."""
        self.work(timer, BUDGET)

    def on_policy_changed(self, event: PolicyChanged) -> None:
        """Begin the readings of tenants again, with what the new policy lets them see."""
        for shard in list(self.shards):
            if (readings := self.present(shard)) is not None:
                readings.begin_again()
