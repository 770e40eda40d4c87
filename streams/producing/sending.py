"""One producer's session at one shard, at the producer's node: batches in, outcomes out.

Batches get their numbers when they are sent first, and keep them: a request whose answer does not
come (the leader has changed, a link was lost) is sent again with the same numbers, together with
all that follow it, since a leader refuses what does not follow on the row before (go-back-N). Two
requests are under way at once; what comes meanwhile goes together into the next.

A request costs its turns and syncs at four processes whether it has one batch or fifty. So a second
one waits until it has as many as the first, or the first is answered, and takes half of all that
are not answered: batches of a row each share two requests of one size. Otherwise the first rows
that follow on an answer would go by themselves, and the rest would wait for them.

A batch that is refused for good leaves a gap, which must not be closed while a copy of it may still
be somewhere on its way: a new session is opened first, after which no leader takes anything of the
old one, and which says what was appended. In the node's own session, which many programs share,
only the batch that is at fault fails: those that were sent with it are sent again, one by one.

The batches of a request are one batch to the leader, and so in the log: what a row costs there,
and at every replica, does not depend on how many programs' batches it came in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from overlay.client import NO_MAJORITY
from overlay.machine import Message, NodeId, Peer, Port
from streams.log.chunk import CHUNK_TARGET
from streams.log.fork_name import fork_shard, parse_fork
from streams.producing.messages import (
    BATCHES_MOST,
    EXPIRED,
    FENCED,
    FORK_AFTER,
    FORKED,
    IN_DOUBT,
    MALFORMED,
    MOVED,
    POLICY,
    QUOTA,
    SEQUENCE,
    TOO_LARGE,
    AppendRefused,
    AppendRows,
    AskFork,
    ForkIsOpen,
    JoinFork,
    OpenProducer,
    ProducerIsOpen,
    RowBatch,
    RowsAppended,
    Run,
)

IN_FLIGHT: Final = 2
"""Requests under way: one is replicated while the next one comes together. With four, which were as
fast for large batches, single rows went in smaller requests (`bench.streams.peers`). At most half
of `streams.log.state.WINDOW`: each may come to lie in two chunks, and a repeat of all of them gets
its receipts."""

PAUSE: Final = 0.05
"""Seconds before a request is repeated that was refused for a while; twice as long each time, up to
`PAUSE_MOST`."""

PAUSE_MOST: Final = 1.0
"""Seconds, likewise."""

SILENCE: Final = 0.5
"""Seconds without an answer after which it is asked who leads the shard: above the time that a
chunk takes on a slow disk."""

LOST: Final = 15.0
"""Seconds without an answer after which requests are repeated where they were sent: a leader
answers within `appender.ANSWER_WITHIN`, if only that it does not know."""

NUMBER_MOST: Final = 2**52
"""Numbers of rows are below it: what messages between nodes have room for, twice."""

FORK_AGAIN: Final = 0.5
"""Seconds between two replicas that are asked for a fork."""


class Outcome(Protocol):
    """What is called once for each batch."""

    def __call__(self, run: Run | None, code: str, reason: str) -> None:
        """With `code` "": the batch is committed, at `run`; None: where is not known any more. Else
        why it was refused (streams/producing/messages.py)."""


class Leaders(Protocol):
    """How a session finds the leader of its shard."""

    def leader(self) -> Peer | None:
        """Who leads it, as far as is known."""

    def locate(self) -> None:
        """Ask who leads it; `Sending.located` is called when that is known."""

    def mistaken(self, node: NodeId) -> None:
        """That node does not lead it, or does not answer; ask, in a moment."""

    def replicas(self) -> tuple[Peer, ...]:
        """Who may have a fork of it; none if its stream prefers consistency."""

    def no_majority(self) -> str:
        """That no majority of its replicas answers, as programs are told; "": as far as is known
        one does, or rows are taken without it."""


class _Batch:
    __slots__ = ("count", "is_alone", "rows", "sequence", "then")

    def __init__(self, rows: bytes, count: int, then: Outcome) -> None:
        self.rows = rows
        self.count = count
        self.then = then
        self.sequence = -1
        self.is_alone = False  # in a request of its own, since one that it shared was refused


class _Request:
    __slots__ = ("batches", "count", "number", "sequence")

    def __init__(self, batches: list[_Batch]) -> None:
        self.batches = batches
        self.sequence = batches[0].sequence
        self.count = sum([batch.count for batch in batches])
        self.number = 0


class Sending:
    """A session, from its opening on."""

    def __init__(
        self,
        port: Port,
        shard: str,
        producer: str,
        token: str,
        leaders: Leaders,
        send: Callable[[Sending, Peer, Callable[[int], Message]], int],
        opened: Callable[[int], None],
        failed: Callable[[str, str], None] | None = None,
        first: int = -1,
        renews: bool = False,
        step: int = 0,
    ) -> None:
        """`send` gives a message its number and sends it, and returns the number; answers with it
        come back. Either `opened` is called, with the number of the producer's next row, or
        `failed`, with code and reason. `first`: the number of the first row that is added, -1: the
        next one; rows below the next one are appended already, and are passed over. `renews`: a
        session that is lost is opened anew (the node's own). `step`: of the producer's work; then
        without `first` the first row that is added is the first of the step."""
        self.port = port
        self.shard = shard
        self.producer = producer
        self.ended = ""
        """Why nothing more can be added: a code; "": it can."""
        self._reason = ""
        self._token = token
        self._leaders = leaders
        self._send = send
        self._opened: Callable[[int], None] | None = opened
        self._failed = failed
        self._first = first
        self._renews = renews
        self._step = step
        self._queue: deque[_Batch] = deque()
        self._queued = 0  # rows in it
        self._flight: deque[_Request] = deque()
        self._session = 0  # 0: not open
        self._after = 0  # the session that the next one replaces
        self._attempts = 0
        self._opening = 0  # number of the request that opens it
        self._next = 0  # number of the next row that is sent first
        self._appended = 0  # rows below it are committed
        self._target: Peer | None = None
        self._hints = 0  # leaders that were named by others since the last progress
        self._pause = PAUSE
        self._resume_at: float | None = None
        self._heard = 0.0  # when the leader was heard last, or something was sent that waits
        self._asked = 0.0  # when it was asked last who leads
        self._failing: tuple[str, str] | None = None  # why what is not appended has failed
        self._unfit: _Request | None = None  # the request that has, if others have not
        self._main = shard
        self._fork = ""  # in which it appends; "": in the main log
        self._is_joining = False
        self._awaits_copy = False  # it has left a fork, and no leader has appended anything since
        self._began_there = False  # the session was opened in the fork
        self._progressed = port.now  # when something was answered last, or there was nothing to do
        self._fork_asked = float("-inf")
        self._fork_request = self._fork_requests = 0
        self._fork_peer: Peer | None = None  # who was asked for a fork last

    @property
    def following(self) -> int:
        """The number that the next batch gets that is added; -1: it is not open yet."""
        return self._next + self._queued if self._opened is None else -1

    @property
    def appended(self) -> int:
        """Rows below it are known to be committed."""
        return self._appended

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or under way."""
        return not self._queue and not self._flight and not (self._opened and not self.ended)

    # -- batches ---------------------------------------------------------------------------------

    def add(self, rows: bytes, count: int, then: Outcome) -> None:
        """Append a batch, after those before."""
        if self.ended:
            then(None, self.ended, self._reason)
        else:
            if self.is_idle:
                self._progressed = self.port.now
            self._queue.append(_Batch(rows, count, then))
            self._queued += count

    def pass_over(self, count: int) -> None:
        """The next `count` rows are appended already."""
        self.add(b"", count, lambda run, code, reason: None)

    def pump(self) -> None:
        """Send what may be sent."""
        if self.ended or self._resume_at is not None or self.is_idle:
            return
        if self._target is None:
            self._target = self._leaders.leader()
            self._heard = self.port.now
            if self._target is None:
                self._locate()
                return
        if not self._session:
            self._open()
            return
        if self._is_joining:
            return
        while self._queue and (most := self._most()):
            request = self._next_request(most)
            if request is not None:
                if not self._flight:
                    self._heard = self.port.now
                self._flight.append(request)
                self._send_request(request)

    def _most(self) -> int:
        """How many batches the next request has at most; 0: it waits."""
        if not self._flight:
            return BATCHES_MOST
        under_way, waiting = sum([len(r.batches) for r in self._flight]), len(self._queue)
        if waiting < under_way or len(self._flight) >= IN_FLIGHT:
            return 0
        return min((under_way + waiting + 1) // 2, BATCHES_MOST)

    def _next_request(self, most: int) -> _Request | None:
        batches: list[_Batch] = []
        size = 0
        while self._queue and len(batches) < most:
            batch = self._queue[0]
            is_alone = batch.is_alone or bool(batches and batches[0].is_alone)
            if batches and (is_alone or size + len(batch.rows) > CHUNK_TARGET):
                break
            self._queue.popleft()
            self._queued -= batch.count
            batch.sequence = self._next
            self._next += batch.count
            if self._next <= self._appended:  # repeated by a program that begins again
                batch.then(None, "", "")
                continue
            size += len(batch.rows)
            batches.append(batch)
        return _Request(batches) if batches else None

    def _send_request(self, request: _Request) -> None:
        assert self._target is not None
        rows = (RowBatch(request.count, b"".join([batch.rows for batch in request.batches])),)
        shard, producer, session = self.shard, self._name, self._session
        request.number = self._send(
            self,
            self._target,
            lambda number: AppendRows(shard, number, producer, session, request.sequence, rows),
        )

    def _open(self) -> None:
        assert self._target is not None
        if self._opening:
            return
        token, producer = f"{self._token}.{self._attempts}", self._name
        known = self._first > 0
        self._opening = self._send(
            self,
            self._target,
            lambda number: OpenProducer(
                self.shard, number, producer, token, known, self._after, self._step
            ),
        )

    # -- answers ---------------------------------------------------------------------------------

    def on_open(self, sender: Peer, message: ProducerIsOpen) -> None:
        """The session is in the log."""
        if message.request != self._opening or not self._is_target(sender):
            return
        if not self._is_joining and not (message.session and message.next < NUMBER_MOST):
            self._misled(sender)
            return
        if self._is_joining:
            self._joined()
            return
        self._began_there = bool(self._fork)
        self._opening, self._session = 0, message.session
        self._appended = message.next
        if self._step and self._first < 0:
            self._first = message.begun
        self._progress()
        if self._failing is not None:
            self._sort_out(message.next)
        elif 0 <= message.next < self._first:
            self.end(SEQUENCE, f"the shard has {message.next} rows of this producer")
            return
        else:
            self._next = message.next if self._first < 0 else self._first
        opened, self._opened = self._opened, None
        if opened is not None:
            opened(message.next)
        for request in self._flight:
            self._send_request(request)
        self.pump()

    def _sort_out(self, following: int) -> None:
        """A new session has begun after a batch was refused for good: what is below `following` is
        appended, and is repeated for its receipt; the rest of what was sent is not."""
        assert self._failing is not None
        code, reason = self._failing
        unfit, self._failing, self._unfit = self._unfit, None, None
        kept: deque[_Request] = deque()
        failed: list[_Batch] = []
        again: list[_Batch] = []
        for request in self._flight:
            there = [b for b in request.batches if b.sequence + b.count <= following]
            rest = request.batches[len(there) :]
            if unfit is None or (request is unfit and len(request.batches) == 1):
                failed += rest
            else:  # it may be others' batches that are at fault: sent one by one, that is seen
                for batch in rest:
                    batch.is_alone = batch.is_alone or request is unfit
                again += rest
            if there:
                kept.append(_Request(there))
        self._flight = kept
        self._next = following
        self._queue.extendleft(reversed(again))
        self._queued += sum(batch.count for batch in again)
        for batch in failed:
            batch.then(None, code, reason)
        if self._first >= 0:  # the numbers are the program's: what follows would take others
            self._ending(code, reason)

    def _is_target(self, sender: Peer) -> bool:
        return self._target is not None and self._target.id == sender.id

    def _misled(self, sender: Peer) -> None:
        """The leader has said what cannot be: that is not taken, and it is asked again who leads;
        what is under way is repeated with the same numbers."""
        self.port.count("stream_answers_refused")
        if self._fork:
            self._leave_fork()
            return
        self._opening, self._target = 0, None
        self._leaders.mistaken(sender.id)
        self._wait()

    def on_appended(self, sender: Peer, message: RowsAppended) -> None:
        """A request is committed."""
        request = next((r for r in self._flight if r.number == message.request), None)
        if request is None or not self._is_target(sender):
            return
        if not _fits(request, message.runs):
            self._misled(sender)
            return
        self._flight.remove(request)
        self._progress()
        runs = iter(message.runs)
        run = next(runs, None)
        for batch in request.batches:
            while run is not None and run.sequence + run.count <= batch.sequence:
                run = next(runs, None)
            found = None
            first, count = batch.sequence, batch.count
            if (
                run is not None
                and run.sequence <= first
                and first + count <= run.sequence + run.count
            ):
                offset = run.offset + first - run.sequence
                chunk, epoch, holders = run.chunk, run.epoch, run.replicas
                found = Run(first, count, offset, chunk, epoch, run.hash, holders, run.fork)
            self._appended = max(self._appended, batch.sequence + batch.count)
            batch.then(found, "", "")
        self.pump()

    def _progress(self) -> None:
        self._heard = self._progressed = self.port.now
        self._hints, self._pause, self._awaits_copy = 0, PAUSE, False

    def on_refused(self, sender: Peer, message: AppendRefused) -> None:
        """A request was refused. Those behind it are or will be as well."""
        mine = self._opening == message.request and self._opening > 0
        if not mine and all(r.number != message.request for r in self._flight):
            return
        if self._target is None or sender.id != self._target.id or self._resume_at is not None:
            return
        if self._fork:
            self._refused_in_fork(message.code, message.reason)
            return
        self._opening = 0 if mine else self._opening
        code = message.code
        if code == SEQUENCE and self._awaits_copy and message.expected < self._appended:
            self._wait()  # what a fork has acknowledged is not copied yet
            return
        if code == SEQUENCE and not mine and self._may_follow(message.expected):
            code = MOVED if message.expected < self._appended else ""
        if code == MOVED:
            self._moved(sender, message.leader)
        elif code in (FENCED, EXPIRED):
            self._lose_session(code, message.reason)
        elif code in (QUOTA, TOO_LARGE, MALFORMED, POLICY) and not mine:
            self._failing = (code, message.reason)
            if self._renews and code != QUOTA:
                self._unfit = next(r for r in self._flight if r.number == message.request)
            self._renew()
        elif code in (SEQUENCE, QUOTA, TOO_LARGE, MALFORMED, POLICY):
            self.end(code, message.reason)
        else:  # it may be otherwise in a moment
            self._wait()

    def _may_follow(self, expected: int) -> bool:
        """Whether a leader that wants this number is one that is behind, or lacks a request that
        was lost, and not one whose producer has other batches."""
        return expected <= self._appended or any(
            batch.sequence == expected for request in self._flight for batch in request.batches
        )

    def _moved(self, sender: Peer, leader: Peer | None) -> None:
        self._hints += 1
        self._target = None
        self._leaders.mistaken(sender.id)
        if leader is not None and leader.id != sender.id and self._hints <= 2:
            self._target = leader
            self._repeat()
        else:
            self._wait()

    def _lose_session(self, code: str, reason: str) -> None:
        """What was sent may be appended or not: nobody can say any more."""
        if not self._renews:
            self.end(code, reason)
            return
        flight, self._flight = self._flight, deque()
        self._session = self._opening = self._after = 0
        self._failing = self._unfit = None
        self._attempts += 1
        for request in flight:
            for batch in request.batches:
                batch.then(None, code, reason)
        self._wait()

    def _renew(self) -> None:
        """Open another session in the place of this one."""
        self._after, self._session = self._session or self._after, 0
        self._attempts += 1
        self._opening = 0
        self.pump()

    def end(self, code: str, reason: str) -> None:
        """Add nothing more; what was not answered is answered with this."""
        flight, self._flight = self._flight, deque()
        for request in flight:
            for batch in request.batches:
                batch.then(None, code, reason)
        self._ending(code, reason)

    def _ending(self, code: str, reason: str) -> None:
        self.ended, self._reason = code, reason
        queue, self._queue, self._queued = self._queue, deque(), 0
        for batch in queue:
            batch.then(None, code, reason)
        if self._opened is not None:
            self._opened = None
            if self._failed is not None:
                self._failed(code, reason)

    # -- leaders ---------------------------------------------------------------------------------

    def located(self) -> None:
        """It is known anew who leads the shard."""
        if self.is_idle or self.ended or self._fork:
            return
        if reason := self._leaders.no_majority():
            self._refuse_all(reason)
        leader = self._leaders.leader()
        if leader is None or self.is_idle or self.ended:
            return
        if self._target is None or self._target.id != leader.id:
            self._target = leader
            self._repeat()

    def _refuse_all(self, reason: str) -> None:
        """No majority answers: let programs know. What was not sent is refused; what was sent keeps
        its numbers and is repeated until a majority has it, but nobody waits for that."""
        is_opening = self._opened is not None and not self._renews
        if is_opening or (self._first >= 0 and not self.is_idle):
            # The numbers are the program's: what follows would take those of what is refused.
            self._refuse_flight(reason)
            self.end(NO_MAJORITY, reason)
            return
        self._refuse_flight(reason)
        queue, self._queue, self._queued = self._queue, deque(), 0
        for batch in queue:
            batch.then(None, NO_MAJORITY, reason)
        if not self._flight and not self._session:
            self.end(NO_MAJORITY, reason)  # it is begun again with the next rows

    def _refuse_flight(self, reason: str) -> None:
        said = f"{reason}; the rows were sent, and are appended if one does"
        for request in self._flight:
            for batch in request.batches:
                then, batch.then = batch.then, _ignored
                then(None, IN_DOUBT, said)

    def on_link_down(self, peer: Peer) -> None:
        """The link to a node was lost, and perhaps what was sent over it."""
        if self._fork and self._target is not None and self._target.id == peer.id:
            self._leave_fork()
        elif self._target is not None and self._target.id == peer.id and self.is_idle:
            self._target = None
        elif self._target is not None and self._target.id == peer.id:
            self._target = None
            self._opening = 0
            self._leaders.mistaken(peer.id)
            self._wait()

    def look(self) -> None:
        """To be called every `PAUSE` seconds while it is not idle: go on after a pause, and ask who
        leads if the leader is silent."""
        now = self.port.now
        self._look_for_fork()
        if self._resume_at is not None:
            if now >= self._resume_at:
                self._repeat()
            return
        waits = self._flight or self._opening or self._target is None
        if not waits or now - self._heard < SILENCE or self.is_idle:
            return
        self._locate()
        if now - self._heard > LOST and self._target is not None:
            self._heard = now
            self._repeat()

    def _locate(self) -> None:
        if self.port.now - self._asked >= SILENCE or not self._asked:
            self._asked = self.port.now
            self._leaders.locate()

    def _wait(self) -> None:
        """Repeat after a pause."""
        self._resume_at = self.port.now + self._pause
        self._pause = min(PAUSE_MOST, 2 * self._pause)

    def _repeat(self) -> None:
        """Send everything that is under way again, with the same numbers."""
        self._resume_at = None
        self._opening = 0
        if self._target is None:
            self._target = self._leaders.leader()
        if self._target is not None:
            self._heard = self.port.now
            if self._session:
                for request in self._flight:
                    self._send_request(request)
        self.pump()

    # -- forks -----------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        """The producer's name where it appends. A session of the node that begins in a fork has a
        name of its own there, since its numbers are not those of the main log."""
        is_own = self._fork and (self._began_there or not self._session)
        return f"{self.producer}{FORKED}{self._fork}" if is_own else self.producer

    def _look_for_fork(self) -> None:
        """Ask one replica after the other for a fork, after a time without an answer; leave a fork
        that does not answer. A program's producer goes on in one, and does not begin there."""
        now = self.port.now
        if self.is_idle or self.ended or now - self._progressed < FORK_AFTER:
            return
        if self._fork:
            self._leave_fork()
            return
        if now - self._fork_asked < FORK_AGAIN or self._failing is not None:
            return
        replicas = self._leaders.replicas() if self._session or self._renews else ()
        if replicas:
            self._fork_asked = now
            peer = replicas[self._fork_requests % len(replicas)]
            self._fork_requests += 1
            self._fork_peer = peer
            shard = self._main
            self._fork_request = self._send(self, peer, lambda number: AskFork(shard, number))

    def on_fork(self, sender: Peer, message: ForkIsOpen) -> None:
        """A replica has a fork: go on there."""
        if message.request != self._fork_request or self._fork or self.is_idle or self.ended:
            return
        asked = self._fork_peer
        if self._failing is not None or asked is None or asked.id != sender.id:
            return
        if parse_fork(message.fork) is None:
            self.port.count("stream_answers_refused")
            return
        self._fork, self.shard = message.fork, fork_shard(self._main, message.fork)
        self._target, self._resume_at, self._opening = sender, None, 0
        self._heard = self._progressed = self.port.now
        if not self._session:
            self.pump()
            return
        self._is_joining = True
        shard, producer, session = self.shard, self.producer, self._session
        following = self._flight[0].sequence if self._flight else self._next
        self._opening = self._send(
            self, sender, lambda number: JoinFork(shard, number, producer, session, following)
        )

    def _joined(self) -> None:
        """The fork knows the producer: repeat there what is under way."""
        self._opening, self._is_joining = 0, False
        self._progress()
        for request in self._flight:
            self._send_request(request)
        self.pump()

    def _refused_in_fork(self, code: str, reason: str) -> None:
        """What a fork's holder does not append."""
        if code in (MOVED, SEQUENCE) or self._is_joining:
            self._leave_fork()
        elif code in (FENCED, EXPIRED, QUOTA, TOO_LARGE, MALFORMED, POLICY):
            self._opening = 0
            self._lose_session(code, reason)
        else:
            self._opening = 0
            self._wait()

    def _leave_fork(self) -> None:
        """Go on in the main log: the fork is closed, or out of reach. Until it is copied, the main
        log's leader refuses what does not follow on the rows that the fork has."""
        began_there, self._began_there = self._began_there, False
        self._fork, self.shard, self._target = "", self._main, None
        self._opening, self._is_joining = 0, False
        self._progressed, self._awaits_copy = self.port.now, True
        if began_there:
            self._lose_session(IN_DOUBT, "the fork of the shard was closed before it answered")
        else:
            self._wait()


def _ignored(run: Run | None, code: str, reason: str) -> None:
    """The `Outcome` of a batch whose program was answered already."""


def _fits(request: _Request, runs: tuple[Run, ...]) -> bool:
    """Whether these can be the places of a request's rows."""
    at, end = request.sequence, request.sequence + request.count
    for run in runs:
        following = run.sequence + run.count
        if not at <= run.sequence < following <= end or len(run.hash) not in (0, 32):
            return False
        at = following
    return True
