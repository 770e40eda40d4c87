"""The session of one producer with the leader of one shard, at the producer's node.

A batch gets its numbers when it is first sent, and keeps them. A request without an answer (the
leader has changed, a link was lost) is sent again with the same numbers, together with all requests
behind it, since a leader refuses rows that do not follow the last one (go-back-N). `row_queue`
decides which batches share a request, and when it is sent.

The conversation with the leader has the states of `streams.access.session`. Whenever it opens, the
requests under way are sent again. A new leader needs no new session of the producer, because the
session is in the log.

A batch that is refused for good leaves a gap. Later batches must not take its numbers while a copy
of it may be under way. So a new session is opened first: after that no leader accepts a request of
the old one, and the answer tells how many rows were appended. Many programs share the node's own
session; there only the faulty batch fails, and the batches that shared its request are sent again
one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from overlay.client import NO_MAJORITY
from overlay.machine import Peer, Port
from streams.access import pacing
from streams.access.locator import StreamLocator
from streams.access.reasons import (
    EXPIRED,
    FENCED,
    IN_DOUBT,
    MALFORMED,
    MOVED,
    POLICY,
    QUOTA,
    SEQUENCE,
    TOO_LARGE,
    Cause,
)
from streams.access.session import Move, Phase, Session
from streams.directory.entry import AVAILABILITY
from streams.log.names import fork_shard, parse_fork
from streams.programs.producer.messages import (
    FORKED,
    AppendRefused,
    AppendRows,
    AskFork,
    ForkIsOpen,
    JoinFork,
    OpenProducer,
    ProducerIsOpen,
    RowBatch,
    RowsAppended,
)
from streams.programs.producer.row_queue import Outcome, RowQueue, RowsRequest

NUMBER_MOST: Final = 2**52
"""The numbers of rows are below it: half of the range in messages between nodes."""

REQUESTS_MOST: Final = 2**20
"""The requests of a session until their numbers repeat: more than can be under way, and few enough
for 2**33 sessions of a node."""


def session_of(request: int) -> int:
    """Return the identity of the session that has sent a request."""
    return request // REQUESTS_MOST


class _Failing(NamedTuple):
    """The refusal after which a new session is being opened."""

    code: str
    reason: str
    unfit: RowsRequest | None  # the request at fault, if others are not


class LogSession:
    """The producer's session in the shard's log, and the numbers of its rows."""

    def __init__(self, token: str, first: int = -1, step: int = 0, renews: bool = False) -> None:
        """`first`: the number of the first row that is added, -1: the one after the last in the
        log; rows that the log has are skipped. `step`: the step of the producer's work; without
        `first` its first row is the first one of the step. `renews`: a lost session is replaced by
        a new one (the node's own)."""
        self.first = first
        self.step = step
        self.renews = renews
        self.number = 0
        """The session's number in the log; 0: none is open."""
        self._token = token
        self._after = 0  # the session that the next one replaces
        self._attempts = 0

    def opening(self, shard: str, request: int, producer: str) -> OpenProducer:
        """Return the message that asks the leader to open the session."""
        token, is_known = f"{self._token}.{self._attempts}", self.first > 0
        return OpenProducer(shard, request, producer, token, is_known, self._after, self.step)

    def opened(self, message: ProducerIsOpen) -> None:
        """Take the number that the leader has given."""
        self.number = message.session
        if self.step and self.first < 0:
            self.first = message.begun

    def renew(self) -> None:
        """Forget the session, and let the next one replace it."""
        self._after, self.number = self.number or self._after, 0
        self._attempts += 1

    def lose(self) -> None:
        """Forget a session that the log no longer has. The next session replaces none."""
        self._after = self.number = 0
        self._attempts += 1


class ForkDetour:
    """The fork to which a producer appends while its shard has no leader, and the search for
    one."""

    def __init__(self, main: str, producer: str, now: float) -> None:
        self._main = self.shard = main
        self._producer = producer
        self.fork = ""
        """The fork to which the producer appends; "": none, it appends to the main log."""
        self.is_joining = False
        """Whether the fork does not know the producer's session yet."""
        self.began_there = False
        """Whether the session was opened in the fork."""
        self.awaits_copy = False
        """Whether the producer has left a fork, and no request was committed since."""
        self._progressed = now  # when something was answered last, or there was nothing to do
        self._asked_at = float("-inf")
        self._request = self._requests = 0
        self._peer: Peer | None = None  # who was asked last

    def name(self, has_session: bool) -> str:
        """Return the producer's name in the log to which it appends. A session that begins in a
        fork has its own name, since its numbers are not those of the main log."""
        is_own = self.fork and (self.began_there or not has_session)
        return f"{self._producer}{FORKED}{self.fork}" if is_own else self._producer

    def progress(self, now: float) -> None:
        """Note progress, or that nothing is under way."""
        self._progressed = now

    def answered(self, now: float) -> None:
        """Note the answer of a leader, or of the fork's holder."""
        self._progressed, self.awaits_copy = now, False

    def is_due(self, now: float) -> bool:
        """Whether there was no answer for `pacing.FORK_AFTER`."""
        return now - self._progressed >= pacing.FORK_AFTER

    def next_peer(self, replicas: tuple[Peer, ...], now: float) -> Peer | None:
        """Return the next replica to ask for a fork; None: ask none now."""
        if not replicas or now - self._asked_at < pacing.DOUBT:
            return None
        self._asked_at = now
        self._peer = replicas[self._requests % len(replicas)]
        self._requests += 1
        return self._peer

    def asked(self, request: int) -> None:
        """Note the number of the request to that replica."""
        self._request = request

    def is_answer(self, sender: Peer, request: int) -> bool:
        """Whether a message answers the last request for a fork."""
        is_asked = self._peer is not None and self._peer.id == sender.id
        return is_asked and request == self._request and not self.fork

    def enter(self, fork: str, has_session: bool, now: float) -> bool:
        """Append to a fork. Return False if its name is none of a fork."""
        if parse_fork(fork) is None:
            return False
        self.fork, self.shard, self.is_joining = fork, fork_shard(self._main, fork), has_session
        self._progressed = now
        return True

    def joined(self) -> None:
        """Note that the fork knows the session."""
        self.is_joining = False

    def opened(self) -> None:
        """Note that a session was opened in the log to which the producer appends."""
        self.began_there = bool(self.fork)

    def leave(self, now: float) -> bool:
        """Append to the main log again, whose leader refuses rows until the fork's rows are copied.
        Return whether the session ends."""
        ends, self.began_there = self.began_there, False
        self.fork, self.shard, self.is_joining = "", self._main, False
        self._progressed, self.awaits_copy = now, True
        return ends


class AppendSession:
    """The session of one producer with the leader of one shard."""

    def __init__(
        self,
        port: Port,
        locator: StreamLocator,
        stream: str,
        place: int,
        shard: str,
        producer: str,
        log: LogSession,
        identity: int,
        opened: Callable[[int], None],
        failed: Callable[[str, str], None] | None = None,
    ) -> None:
        """`place`: the shard's number in its stream. `identity`: a number by which answers find the
        session (`session_of`). Either `opened` is called with the number of the producer's next
        row, or `failed` with code and reason."""
        self.port = port
        self.rows = RowQueue()
        self.ended: Cause | None = None
        """The reason why no batch can be added; None: batches can be added."""
        self._locator = locator
        self.identity = identity
        self._requests = 0  # that were sent
        self._opened: Callable[[int], None] | None = opened
        self._failed = failed
        self._log = log
        self._line = Session(self, None, None, stream, place, shard)
        self._pause = pacing.PAUSE  # the next one
        self._resume_at = float("-inf")  # the end of the last one
        self._hints = 0  # leaders that were named by others since the last progress
        self._asked_at = float("-inf")  # when it was asked last who leads
        self._failing: _Failing | None = None
        self._fork = ForkDetour(shard, producer, port.now)

    @property
    def following(self) -> int:
        """The number of the next batch's first row; -1: the session is not open yet."""
        return self.rows.following if self._opened is None else -1

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or under way."""
        return self.rows.is_empty and not (self._opened and not self.ended)

    # -- batches ---------------------------------------------------------------------------------

    def add(self, rows: bytes, count: int, then: Outcome) -> None:
        """Queue a batch. `then` gets its outcome."""
        if self.ended:
            then(None, *self.ended)
        else:
            if self.is_idle:
                self._fork.progress(self.port.now)
            self.rows.add(rows, count, then)

    def pass_over(self, count: int) -> None:
        """Skip `count` rows that are appended already."""
        self.add(b"", count, lambda run, code, reason: None)

    def pump(self) -> None:
        """Open the session, and send the requests that may be under way."""
        if self.ended or self.is_idle:
            return
        line = self._line
        if line.state is not Phase.OPEN:
            self._find()
        while line.state is Phase.OPEN and (request := self.rows.next_request()):
            if len(self.rows.flight) == 1:
                line.heard(self.port.now)
            self._send_request(request)

    def _find(self) -> None:
        """Open the conversation, unless it waits for an answer or a pause."""
        line, is_over = self._line, self.port.now >= self._resume_at
        if line.state is Phase.FINDING or (line.state is Phase.LOST and is_over):
            line.happens(Move.DUE)

    def _next_request(self) -> int:
        """The number of the next request, which names this session."""
        self._requests = (self._requests + 1) % REQUESTS_MOST
        return self.identity * REQUESTS_MOST + self._requests

    def _send_request(self, request: RowsRequest) -> None:
        leader = self._line.leader
        assert leader is not None, "it is open"
        rows = (RowBatch(request.count, b"".join([batch.rows for batch in request.batches])),)
        producer, session = self._fork.name(has_session=True), self._log.number
        request.number = self._next_request()
        self.port.send(
            leader,
            AppendRows(self._fork.shard, request.number, producer, session, request.sequence, rows),
        )

    # -- what the table of states does (streams/access/session.py) --------------------------------

    def find(self, session: Session[None, None]) -> None:
        """Lead the session if the leader is known; else ask for it."""
        session.heard(self.port.now)
        leader = session.hint or self._locator.leader(session.stream, session.place)
        if leader is None:
            self._locate()
        else:
            session.led(leader)

    def open(self, session: Session[None, None]) -> None:
        """As `SessionDriver`: send the requests under way, or open the producer's session first."""
        assert session.leader is not None, "it is led"
        session.heard(self.port.now)
        log, fork, producer = self._log, self._fork, self._fork.name(bool(self._log.number))
        if fork.is_joining:
            session.asked(self._next_request(), self.port.now)
            join = JoinFork(fork.shard, session.number, producer, log.number, self.rows.first)
            self.port.send(session.leader, join)
        elif log.number:
            session.happens(Move.OPENED)
            for request in self.rows.flight:
                self._send_request(request)
        else:
            session.asked(self._next_request(), self.port.now)
            self.port.send(session.leader, log.opening(fork.shard, session.number, producer))

    def doubt(self, session: Session[None, None]) -> None:
        """Report the leader as mistaken to the locator."""
        if session.leader is not None:
            self._locator.mistaken(session.stream, session.place, session.leader.id)

    def lose(self, session: Session[None, None]) -> None:
        """Leave the leader, and pause before the next one: twice as long each time without progress
        in between, up to KEEP_ALIVE seconds."""
        session.left()
        self._resume_at = self.port.now + self._pause
        self._pause = min(pacing.KEEP_ALIVE, 2 * self._pause)

    def leave(self, session: Session[None, None]) -> None:
        """As `SessionDriver`: the log keeps the producer's session."""
        session.left()

    def give_up(self, session: Session[None, None]) -> None:
        """As `SessionDriver`: never called, since a refusal ends the producer's session only."""
        raise AssertionError("it is not refused")

    # -- answers ---------------------------------------------------------------------------------

    def _is_leader(self, sender: Peer) -> bool:
        return self._line.leader is not None and self._line.leader.id == sender.id

    def on_open(self, sender: Peer, message: ProducerIsOpen) -> None:
        """Take the answer that the session is in the log."""
        line = self._line
        is_mine = line.state is Phase.OPENING and message.request == line.number
        if not is_mine or not self._is_leader(sender):
            return
        if self._fork.is_joining:
            self._fork.joined()
            line.happens(Move.OPENED)
            self._progress()
        elif not (message.session and message.next < NUMBER_MOST):
            self._lied()
            return
        else:
            line.happens(Move.OPENED)
            self._begun(message)
            if line.state is not Phase.OPEN:
                return
        for request in self.rows.flight:
            self._send_request(request)
        self.pump()

    def _begun(self, message: ProducerIsOpen) -> None:
        """Begin behind the rows that the log has of the producer."""
        self._fork.opened()
        self._log.opened(message)
        following, first = message.next, self._log.first
        self._progress()
        if self._failing is not None:
            failing, self._failing = self._failing, None
            self.rows.begins(following, following)
            self.rows.sort_out(following, failing.unfit, failing.code, failing.reason)
            if first >= 0:  # the numbers are the program's: what follows would take others
                self._ending(failing.code, failing.reason)
        elif 0 <= following < first:
            self.end(SEQUENCE, f"the shard has {following} rows of this producer")
            return
        else:
            self.rows.begins(following if first < 0 else first, following)
        opened, self._opened = self._opened, None
        if opened is not None:
            opened(following)

    def _lied(self) -> None:
        """Count an answer that no honest leader gives, and open the conversation again."""
        self.port.count("stream_answers_refused")
        if self._fork.fork:
            self._leave_fork()
        else:
            self._line.happens(Move.LIED)

    def on_appended(self, sender: Peer, message: RowsAppended) -> None:
        """Take the answer that a request is committed."""
        request = self.rows.find(message.request)
        if request is None or not self._is_leader(sender):
            return
        if not request.fits(message.runs):
            self._lied()
            return
        self._progress()
        self.rows.answered(request, message.runs)
        self.pump()

    def _progress(self) -> None:
        self._line.heard(self.port.now)
        self._fork.answered(self.port.now)
        self._hints = 0
        self._pause = pacing.PAUSE

    def on_refused(self, sender: Peer, message: AppendRefused) -> None:
        """Take the refusal of a request, after which the leader refuses those behind it as well."""
        line = self._line
        mine = line.state is Phase.OPENING and message.request == line.number
        request = self.rows.find(message.request)
        if not self._is_leader(sender) or (not mine and request is None):
            return
        code = message.code
        if self._fork.fork:
            self._refused_in_fork(code, message.reason)
            return
        is_behind = message.expected < self.rows.appended
        if code == SEQUENCE and self._fork.awaits_copy and is_behind:
            self._wait()  # what a fork has acknowledged is not copied yet
            return
        if (
            code == SEQUENCE
            and not mine
            and (message.expected <= self.rows.appended or self.rows.has(message.expected))
        ):  # the leader lacks a request that was lost; else the log has other batches
            code = MOVED if is_behind else ""
        if code == MOVED:
            self._moved(sender, message.leader)
        elif code in (FENCED, EXPIRED):
            self._lose_session(code, message.reason)
        elif code in (QUOTA, TOO_LARGE, MALFORMED, POLICY) and not mine:
            is_one = self._log.renews and code != QUOTA
            self._failing = _Failing(code, message.reason, request if is_one else None)
            self._renew()
        elif code in (SEQUENCE, QUOTA, TOO_LARGE, MALFORMED, POLICY):
            self.end(code, message.reason)
        else:  # it may be otherwise in a moment
            self._wait()

    def _moved(self, sender: Peer, leader: Peer | None) -> None:
        self._hints += 1
        self._line.happens(Move.MOVED)
        if leader is not None and leader.id != sender.id and self._hints <= pacing.HINTS_MOST:
            self._line.named(leader)
            self._line.happens(Move.DUE)
            self.pump()

    def _wait(self) -> None:
        """Send the requests again to the same leader, after a pause."""
        leader = self._line.leader
        self._line.happens(Move.MISSED)
        self._line.named(leader)

    def _lose_session(self, code: str, reason: str) -> None:
        """End a session whose requests may be appended or not, or replace it by a new one."""
        if not self._log.renews:
            self.end(code, reason)
            return
        self._log.lose()
        self._failing = None
        if self._line.leader is not None:
            self._wait()
        self.rows.refuse_flight(code, reason)

    def _renew(self) -> None:
        """Open another session in place of this one."""
        self._log.renew()
        self._line.happens(Move.AGAIN)

    def end(self, code: str, reason: str) -> None:
        """End the session, and refuse all batches without an answer."""
        self.rows.refuse_flight(code, reason)
        self._ending(code, reason)
        if self._line.state is not Phase.CLOSED:
            self._line.happens(Move.ENDED)

    def _ending(self, code: str, reason: str) -> None:
        self.ended = Cause(code, reason)
        self.rows.refuse_queue(code, reason)
        if self._opened is not None:
            self._opened = None
            if self._failed is not None:
                self._failed(code, reason)

    # -- leaders ---------------------------------------------------------------------------------

    def located(self) -> None:
        """Go on at the shard's leader, or refuse batches if there is no majority."""
        if self.is_idle or self.ended or self._fork.fork:
            return
        line = self._line
        known = self._locator.known.get(line.stream)
        is_consistent = known is not None and known.entry.options.prefer != AVAILABILITY
        cause = known.no_majority(line.place) if known is not None and is_consistent else None
        if cause is not None:
            self._refuse_all(cause.text)
        leader = self._locator.leader(line.stream, line.place)
        if leader is None or self.is_idle or self.ended:
            return
        target = line.leader or line.hint
        if target is None or target.id != leader.id:
            if line.leader is not None:
                line.led(leader)
            elif line.state in (Phase.FINDING, Phase.LOST):
                line.named(None)
                line.happens(Move.DUE)
            self.pump()

    def _refuse_all(self, reason: str) -> None:
        """Refuse all batches for want of a majority. Requests that were sent keep their numbers and
        are repeated until they are committed, but no program waits for them."""
        is_opening = self._opened is not None and not self._log.renews
        said = f"{reason}; the rows were sent, and are appended if one does"
        is_counted = self._log.first >= 0 and not self.is_idle
        self.rows.doubt_flight(IN_DOUBT, said)
        if is_opening or is_counted:
            # The numbers are the program's: what follows would take those of what is refused.
            self.end(NO_MAJORITY, reason)
            return
        self.rows.refuse_queue(NO_MAJORITY, reason)
        if not self.rows.flight and not self._log.number:
            self.end(NO_MAJORITY, reason)  # it is begun again with the next rows

    def link_down(self, peer: Peer) -> None:
        """Leave a leader, or the holder of a fork, that is unreachable."""
        line = self._line
        is_hinted = line.hint is not None and line.hint.id == peer.id
        if not self._is_leader(peer) and not is_hinted:
            return
        if self._fork.fork:
            self._leave_fork()
        elif is_hinted:
            line.named(None)
            self._locator.mistaken(line.stream, line.place, peer.id)
        else:
            line.happens(Move.MISSED if self.is_idle else Move.DOWN)

    def look(self) -> None:
        """Go on after a pause, and locate the leader if it is silent. Called every `pacing.PAUSE`
        seconds while the session is not idle."""
        now, line = self.port.now, self._line
        self._look_for_fork()
        if line.state is Phase.LOST:
            if now >= self._resume_at:
                line.happens(Move.DUE)
                self.pump()
            return
        waits = self.rows.flight or line.state is not Phase.OPEN
        if not waits or now - line.heard_at < pacing.DOUBT or self.is_idle:
            return
        self._locate()
        if now - line.heard_at > pacing.GIVE_UP and line.leader is not None:
            line.happens(Move.AGAIN)
            self.pump()

    def _locate(self) -> None:
        if self.port.now - self._asked_at >= pacing.DOUBT:
            self._asked_at = self.port.now
            self._locator.locate(self._line.stream)

    # -- forks -----------------------------------------------------------------------------------

    def _look_for_fork(self) -> None:
        """Ask one replica after the other for a fork, after `pacing.FORK_AFTER` without an answer,
        or leave a fork that does not answer. A program's producer does not begin in a fork."""
        now = self.port.now
        if self.is_idle or self.ended or not self._fork.is_due(now):
            return
        if self._fork.fork:
            self._leave_fork()
            return
        may_go = self._failing is None and (self._log.number or self._log.renews)
        peer = self._fork.next_peer(self._replicas(), now) if may_go else None
        if peer is not None:
            request = self._next_request()
            self._fork.asked(request)
            self.port.send(peer, AskFork(self._fork.shard, request))

    def _replicas(self) -> tuple[Peer, ...]:
        """The replicas that may have a fork; none if the stream prefers consistency."""
        known = self._locator.known.get(self._line.stream)
        if known is None or known.entry.options.prefer != AVAILABILITY:
            return ()
        return known.entry.places[self._line.place].replicas

    def on_fork(self, sender: Peer, message: ForkIsOpen) -> None:
        """Go on in the fork of a replica."""
        if not self._fork.is_answer(sender, message.request) or self.is_idle or self.ended:
            return
        if self._failing is not None:
            return
        if not self._fork.enter(message.fork, bool(self._log.number), self.port.now):
            self.port.count("stream_answers_refused")
            return
        line = self._line
        if line.leader is not None:
            line.led(sender)
        else:
            line.named(sender)
            line.happens(Move.DUE)
        self.pump()

    def _refused_in_fork(self, code: str, reason: str) -> None:
        """Take a refusal of the fork's holder."""
        if code in (MOVED, SEQUENCE) or self._fork.is_joining:
            self._leave_fork()
        elif code in (FENCED, EXPIRED, QUOTA, TOO_LARGE, MALFORMED, POLICY):
            self._lose_session(code, reason)
        else:
            self._wait()

    def _leave_fork(self) -> None:
        """Go on in the main log, since the fork is closed or unreachable."""
        if self._line.leader is not None:
            self._line.happens(Move.MISSED)
        self._line.named(None)
        if self._fork.leave(self.port.now):
            reason = "the fork of the shard was closed before it answered"
            self._lose_session(IN_DOUBT, reason)
