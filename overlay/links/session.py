"""A session with one peer: its states, its deadlines and its two directions (M5).

::

    NOT_CONNECTED --send, pin--> CONNECTING --handshake--> CONNECTED
          ^                       |      ^                   |   |
          |                       |      +--connection lost--+   |
          +--------------not used for idle_close-----------------+
                                  |                              |
                                  +--> CLOSED (LinkDown) <-------+
        no answer for dead_after,    the peer leaves, breaks the protocol, or is silent for
        or the dial is refused       dead_after while it is watched or owes an acknowledgement

A dormant session (NOT_CONNECTED) keeps its numbers, so that closing an idle connection loses
nothing even if the peer sends at the same moment: the session resumes. CLOSED is final; a later
send begins another session.

A `LinkSession` holds state and computes deadlines; it does no IO and emits nothing. Its fields are
written by its own methods only.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from random import Random
from typing import Final, Protocol

import msgspec

from overlay.backlog import PERIOD as BACKLOG_PERIOD
from overlay.backlog import Backlog
from overlay.links.constants import (
    ACK_DELAY,
    CONGESTED_SHARE,
    DIAL_SUSPECT_AFTER,
    FIRST_REPORT,
    FULL_REPORT_INTERVAL,
    LARGEST_REPORT,
    LATE_LEAST,
    LATE_REMEMBERED,
    LOOK_AGAIN,
    LOOK_MOST,
    MAX_DOUBLINGS,
    MIN_RTO,
    RELIEVED_SHARE,
    REPORT_INTERVAL,
    SILENT_HEARTBEATS,
)
from overlay.links.deadlines import NEVER, HasDeadline
from overlay.links.events import REFUSED, Codec, ConnectionId
from overlay.links.messages import (
    Ack,
    Batch,
    Frame,
    Hello,
    ProcessName,
    Welcome,
    agreed_version,
)
from overlay.links.receive_buffer import ReceiveBuffer
from overlay.links.send_buffer import InFlightBatch, SendBuffer
from overlay.machine import Message, NodeId, Peer, ProtocolError
from overlay.settings import LinkSettings

UNKNOWN: Final = ProcessName(0, 0)
"""Before every process: incarnations count from 1."""


class SessionState(Enum):
    """The states of M5; the diagram is in the module's docstring."""

    NOT_CONNECTED = auto()
    CONNECTING = auto()
    CONNECTED = auto()
    CLOSED = auto()


class Carrier(Protocol):
    """The interface to the connection that dials for a session or carries it."""

    @property
    def id(self) -> ConnectionId:
        """The number by which the driver knows the connection."""

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent on it."""

    @property
    def is_direct(self) -> bool:
        """Whether it does not go by way of another node."""

    @property
    def has_sent_hello(self) -> bool:
        """Whether the Welcome is awaited …"""

    @property
    def give_up_at(self) -> float:
        """… and until when (monotonic seconds)."""

    @property
    def write(self) -> Callable[[Frame], None]:
        """Sends one frame on the connection, after those before it."""


class LinkSession(HasDeadline):
    """This node's state of its session with one peer. Times are monotonic seconds."""

    __slots__ = (
        *("peer", "number", "state", "reason", "connection", "is_watched", "since"),
        *("peer_process", "peer_number", "peer_dials", "dials", "dial_at", "_attempts"),
        *("last_heard", "last_written", "last_used", "ask_at", "report_at", "ack_due"),
        *("is_suspected", "is_congested", "_refusals", "_settings", "_codec", "_send_buffer"),
        *("_receive_buffer", "_backlog", "version", "capabilities"),
        *("_rto", "_srtt", "_rttvar", "_timed", "_sent_once", "_timeouts", "_reported"),
        *("_latest", "_latest_at", "_asked", "_asked_at", "_asked_before", "_is_answered"),
        *("_waits_since", "_is_excused"),
        *("_replay", "_resize_at", "_out_since"),
        *("candidate", "_looked_at", "_looks", "_look_at", "_look_back_at", "_looks_back"),
        *("_report_limit", "_ack_timed", "_ack_bytes", "enqueue", "queued", "next_batch"),
        *("receive", "next_buffered", "new_gap"),
    )

    def __init__(
        self,
        peer: Peer,
        number: int,
        settings: LinkSettings,
        codec: Codec,
        now: float,
        dial_at: float,
        is_watched: bool,
    ) -> None:
        super().__init__()
        self.peer = peer
        self._settings = settings
        self._codec = codec
        self.state = SessionState.CONNECTING
        self.reason = "no answer"  # of the last failure
        self.connection: Carrier | None = None
        self.candidate: Carrier | None = None  # says Hello, to take over from `connection`
        self._looked_at = self._look_at = 0.0  # when another way was looked for, and may be next
        self._looks = 0  # how often since the peer was heard
        self._look_back_at = NEVER  # on a detour: when to try the direct way …
        self._looks_back = 0  # … after so many attempts
        self.is_watched = is_watched
        self.dials = 0
        self._attempts = 0  # dials that failed since the last lasting connection
        self._refusals = 0  # of those, refused ones in a row
        self.dial_at = dial_at
        self.since = now  # when the present state began
        self.last_heard = now  # last frame, or when silence began to count (`expect_answer`)
        self.last_written = now
        self.last_used = now  # last batch or probe, in either direction
        self._replay = Backlog(
            settings.queue_floor, settings.queue, settings.queue_decay, settings.dead_after, now
        )
        self._resize_at = now + BACKLOG_PERIOD
        self._out_since = NEVER  # when the peer fell silent or its connection was lost
        self._rto = settings.retransmit_after
        self._srtt = self._rttvar = 0.0  # RFC 6298; 0: not measured
        self._latest = 0.0  # the longest round trip lately, halved every `LATE_REMEMBERED`, …
        self._latest_at = now  # … and when that was measured
        self._asked = 0  # the number of the last question to the peer …
        self._asked_at = now  # … and when it was asked
        self.reset(number)
        self.report_at = now + DIAL_SUSPECT_AFTER

    # --- identity ---

    def reset(self, number: int) -> None:
        """Forget both directions, because the peer has; from now on this node calls it `number`."""
        self.number = number
        self._send_buffer = SendBuffer(self._settings, self._codec)
        self._receive_buffer = ReceiveBuffer(self._settings.window)
        # The methods that the data plane calls for each message or batch, bound once.
        self.enqueue = self._send_buffer.enqueue
        self.queued = self._send_buffer.queued  # read only
        self.next_batch = self._send_buffer.next_batch
        self.receive = self._receive_buffer.receive
        self.next_buffered = self._receive_buffer.next_buffered
        self.new_gap = self._receive_buffer.new_gap
        self.peer_process = UNKNOWN  # never connected
        self.version = 0  # of the protocol, as agreed; 0: not yet
        self.capabilities: tuple[str, ...] = ()  # of the peer
        self.peer_number = self.peer_dials = 0
        self.ask_at = NEVER  # when what is in flight should have been acknowledged, …
        self._waits_since = NEVER  # … as counted from here on, …
        self._is_excused = False  # … or later, since this node was late itself
        self._asked_before = 0  # what was sent before the last question comes before this batch
        self._is_answered = True  # that question
        # A batch's number, when it was sent, and what had arrived until then:
        self._timed: tuple[int, float, int] | None = None
        self._sent_once = 0  # batches before this one were sent at least once
        self.ack_due = False  # something arrived that is not acknowledged
        self._ack_timed = False  # … and a delayed acknowledgement is scheduled
        self._ack_bytes = 0  # … of so many bytes
        self._clear_suspicion()
        self.is_congested = False  # LinkCongested was emitted, when …
        self._backlog = 0  # … so many bytes waited, or since then more

    def is_known_as(self, process: ProcessName, number: int) -> bool:
        """Whether the peer's name for the session is the one remembered here."""
        return (process, number) == (self.peer_process, self.peer_number)

    def supersedes(self, process: ProcessName, number: int) -> bool:
        """Whether that name is of an earlier session, which the peer itself has ended."""
        return (process, number) < (self.peer_process, self.peer_number)

    def update_address(self, peer: Peer) -> None:
        """Take `peer`'s address unless the peer itself has named one: both are second-hand, and the
        newer one may be better."""
        if self.peer_process == UNKNOWN and self.peer.address != peer.address:
            self.peer = peer

    # --- states and connections ---

    def enter(self, state: SessionState, now: float) -> None:
        """Change the state. Called by `SessionTable` only, which keeps count of the dormant."""
        if self.state is SessionState.CONNECTED and state is SessionState.CONNECTING:
            self._out_since = min(self._out_since, now)
        self.state = state
        self.since = now
        connecting = state is SessionState.CONNECTING
        self.report_at = now + DIAL_SUSPECT_AFTER if connecting else NEVER

    def attach(self, connection: Carrier) -> None:
        """Set the connection that dials for this session or carries it."""
        self.connection = connection
        if self.candidate is connection:
            self.candidate = None

    def propose(self, connection: Carrier) -> None:
        """Note the connection that says Hello for this session, which another one may still
        carry."""
        self.candidate = connection

    def detach(self, connection: Carrier) -> None:
        """Forget a connection that has ended. Without effect if another one took over."""
        if self.connection is connection:
            self.connection = None
        if self.candidate is connection:
            self.candidate = None

    def allow_dial(self, at: float) -> None:
        """Dial at `at`, because there is something to send, without back-off from former
        failures."""
        self._attempts = 0
        self.dial_at = at

    def greeted(self) -> None:
        """Count a dial: a first Hello goes out on a new connection."""
        self.dials += 1

    def established(self, greeting: Hello | Welcome, newest: int, now: float) -> None:
        """Take the peer's statements about itself after the handshake. `newest`: the newest version
        of the protocol that this node offers."""
        self.peer = greeting.peer
        self.version = agreed_version(greeting, newest)
        self.capabilities = greeting.capabilities
        self.peer_process = greeting.process
        self.peer_number = greeting.session
        self.peer_dials = greeting.dials
        self._receive_buffer.resume()
        self._is_answered = True  # nothing that comes on a former connection counts
        self.last_heard = self.last_used = now
        self._looks_back = 0
        self._look_back_at = now + self._settings.retry_first if self.is_detoured else NEVER

    def connection_failed(self, reason: str, now: float) -> int:
        """A connection was lost or a dial failed. Returns how many dials in a row were refused."""
        self.reason = reason
        if self.state is SessionState.CONNECTED and now - self.since >= self._settings.heartbeat:
            self._attempts = 0  # it lasted: no reason for a longer back-off
        self._refusals = self._refusals + 1 if reason == REFUSED else 0
        return self._refusals

    def back_off(self, now: float, rng: Random, not_before: float) -> None:
        """Set the time of the next dial: exponential back-off with jitter."""
        pause = backoff(self._attempts, self._settings.retry_first, self._settings.retry_most, rng)
        self._attempts += 1
        self.dial_at = max(now + pause, not_before)

    def suspended(self) -> None:
        """Note that the session was suspended: it keeps its state and has no connection."""
        self.reason = "at rest"

    # --- what was heard and written ---

    def heard(self, now: float) -> None:
        """Note that a frame of the peer has arrived, so that the peer is not silent."""
        self.last_heard = now

    def wrote(self, now: float) -> None:
        """Note that a greeting was written. (`make_batch` and `make_ack` note the time
        themselves.)"""
        self.last_written = now

    def received_batch(self, size: int) -> None:
        """Note a batch of `size` bytes that was taken in order and is to be acknowledged."""
        self.last_used = self.last_heard
        self.ack_due = True
        self._ack_bytes += size

    # --- frames ---

    def make_batch(self, batch: InFlightBatch, now: float, clock: int) -> Batch:
        """The frame for `batch`, first sent or sent again, with the acknowledgement of the other
        direction and the hybrid logical `clock` on it; from the oldest batch in flight on the time
        runs in which it should be acknowledged."""
        self.ack_due = False
        self._ack_bytes = 0
        self.last_used = self.last_written = now
        if now >= self._resize_at:
            self._resize_queue(now)
        if batch.number < self._sent_once:
            self._timed = None  # which of the two is acknowledged cannot be known (Karn)
        else:
            self._sent_once = batch.number + 1
            self._timed = self._timed or (batch.number, now, self._send_buffer.arrived_bytes)
        if self.ask_at == NEVER:
            self._await_acknowledgement(now)
        return Batch(
            batch.number,
            self._receive_buffer.expected,
            self._settings.window,
            batch.digest,
            batch.compressed,
            batch.body,
            clock,
        )

    def make_ack(self, now: float, gap: int = 0, answers: int = 0) -> Ack:
        """An acknowledgement that goes alone; `gap` and `answers` as in `Ack`."""
        self.ack_due = False
        self._ack_bytes = 0
        self.last_written = now
        return Ack(self._receive_buffer.expected, self._settings.window, gap, 0, answers)

    def make_question(self, now: float) -> Ack:
        """Make a question to the peer about the batches that it has. Sending it counts as use of
        the link, and the peer answers if it lives."""
        self.last_used = now
        self._asked += 1
        self._asked_at = now
        self._asked_before = self._send_buffer.number
        self._is_answered = False
        return msgspec.structs.replace(self.make_ack(now), asks=self._asked)

    def make_answer(self, now: float, question: int) -> Ack:
        """Make the answer to the peer's question: the batches received, and the batch that follows
        a gap."""
        self.last_used = now
        answer = self.make_ack(now, self._receive_buffer.gap_end(), question)
        self.last_written = now + ACK_DELAY  # of two that watch each other only one asks
        return answer

    def extend_queue(self, size: int, now: float) -> bool:
        """The queue has no room for `size` bytes: whether more may wait by now, since much is
        written."""
        before = self._send_buffer.queue_limit
        self._replay.wrote(size)
        self._resize_queue(now)
        return self._send_buffer.queue_limit > before

    def _resize_queue(self, now: float) -> None:
        """Set the limit of the queue to the amount that is written while the peer is unreachable
        (T3)."""
        buffer = self._send_buffer
        self._replay.wrote(buffer.written)
        buffer.written = 0
        buffer.queue_limit = self._replay.size(now)
        self._resize_at = now + BACKLOG_PERIOD

    def ack_within(self, share: int) -> float | None:
        """Return the seconds within which arrived batches must be acknowledged, and note that this
        is scheduled; 0 if they make up 1/`share` of the window. None: it is scheduled already."""
        if self._ack_bytes * share >= self._settings.window:
            return 0.0
        if self._ack_timed:
            return None
        self._ack_timed = True
        return ACK_DELAY

    def ack_delay_over(self) -> bool:
        """The delay of the scheduled acknowledgement is over: whether to send it now."""
        self._ack_timed = False
        return self.ack_due and self.state is SessionState.CONNECTED

    def congestion_changed(self) -> bool:
        """Whether the link is congested now and was not, or the other way round, or has drained by
        one step more."""
        queued = self._send_buffer.queued_bytes
        most = self._settings.queue // CONGESTED_SHARE
        step = most // RELIEVED_SHARE
        if not self.is_congested:
            self.is_congested = queued > most
            self._backlog = queued
            return self.is_congested
        if queued > self._backlog - step and queued > most - step:
            self._backlog = max(self._backlog, queued)
            return False
        self.is_congested = queued > most - step
        self._backlog = queued
        return True

    @property
    def expected(self) -> int:
        """The number of the next batch that the peer is to send."""
        return self._receive_buffer.expected

    def has_data(self) -> bool:
        """Whether a data-plane message is queued or unacknowledged."""
        return self._send_buffer.has_data()

    def take_queued(self) -> list[tuple[bytes, Message]]:
        """Remove and return the messages that were never sent, each encoded and as a message.
        Another session may send them."""
        return self._send_buffer.take_queued()

    def understands(self, message: Message) -> bool:
        """Whether the peer has said that it knows this kind of message. What only some nodes know
        is not queued for one that has never been connected."""
        return not message.capability or message.capability in self.capabilities

    def undelivered(self) -> tuple[Message, ...]:
        """Every message that may not have arrived, in the order of sending."""
        return self._send_buffer.undelivered()

    # --- retransmission ---

    def resume(self, expected: int, credit: int) -> list[InFlightBatch]:
        """A new connection: the peer wants the batch `expected` next. What to send again; raises
        ProtocolError if the peer has acknowledged that batch."""
        return self._send_buffer.resume(expected, credit)

    def acknowledge(self, number: int, credit: int) -> bool:
        """The peer has every batch before `number`. Returns whether that is news; if so, the
        suspicion is over. Raises ProtocolError if the batch was never sent."""
        if not self._send_buffer.acknowledge(number, credit):
            return False
        self.restart_retransmission(self.last_heard)
        return True

    def fill_gap(self, first: int, end: int) -> list[InFlightBatch]:
        """The peer lacks the batches from `first` up to `end`: what to send again."""
        found = self._send_buffer.fill_gap(first, end)
        if found:
            self._asked_before = 0  # what is sent again comes after the last question
        return found

    def answered(self, question: int, acknowledged: int, gap: int) -> list[InFlightBatch]:
        """Handle the peer's answer to a question of this node. A connection keeps the order, so
        batches sent before the question on this connection and missing there are lost. Return the
        batches to send again. Raises ProtocolError if the peer lacks batches that it has
        acknowledged, or was never asked."""
        if question > self._asked:
            raise ProtocolError("answers what was never asked")
        if question < self._asked or self._is_answered:
            return []  # on a lossy network an answer may come late, or twice
        if acknowledged < self._send_buffer.acknowledged:
            raise ProtocolError("lacks batches that it has acknowledged")
        self._is_answered = True
        self._measure_round_trip(self.last_heard - self._asked_at, self.last_heard)
        self.restart_retransmission(self.last_heard)
        end = min(gap, self._asked_before) if gap else self._asked_before
        return self._send_buffer.unacknowledged_before(end)

    def restart_retransmission(self, now: float) -> None:
        """Measure the round trip, and restart the retransmission time-out. Called when the peer has
        acknowledged something new or answered, or when a new connection begins."""
        if self._timeouts or self.is_suspected or self.report_at != NEVER:
            self._clear_suspicion()
        if self._out_since != NEVER and self.state is SessionState.CONNECTED:
            self._replay.reconnected(now - self._out_since, now)
            self._out_since = NEVER
        if self._timed is not None and self._timed[0] < self._send_buffer.acknowledged:
            self._measure_round_trip(now - self._timed[1], now)
            self._send_buffer.window.measured(
                now - self._timed[1], self._send_buffer.arrived_bytes - self._timed[2]
            )
            self._timed = None
        most = self._settings.retransmit_after
        wait = max(self._srtt + 4.0 * self._rttvar, self._latest) if self._srtt else most
        self._rto = min(max(wait, MIN_RTO), most)
        self._await_acknowledgement(now)

    def _await_acknowledgement(self, now: float) -> None:
        """Restart the time within which the batches in flight should be acknowledged."""
        self._waits_since = now
        self._is_excused = False
        self.ask_at = now + self._rto if self._send_buffer.in_flight else NEVER

    def _measure_round_trip(self, round_trip: float, now: float) -> None:
        """RFC 6298, section 2; and remember the longest one for a while, since whoever is busy is
        late again and again."""
        if not self._srtt:
            self._srtt, self._rttvar = round_trip, round_trip / 2.0
        else:
            self._rttvar += (abs(self._srtt - round_trip) - self._rttvar) / 4.0
            self._srtt += (round_trip - self._srtt) / 8.0
        faded = self._latest * 0.5 ** ((now - self._latest_at) / LATE_REMEMBERED)
        self._latest, self._latest_at = max(round_trip, faded), now

    def is_overdue(self, now: float) -> bool:
        """Return whether the batches in flight are overdue, so that the peer must be asked.

        The first time that this node itself is late, it waits for the same time again, because it
        may not have read the peer's frames yet. Otherwise the time doubles (RFC 6298, section 5.5),
        and the peer is suspected if it was silent in the meantime, or was asked before and did not
        answer: a peer that acknowledges or answers late is not silent.
        """
        if now < self.ask_at:
            return False
        late = now - self.ask_at
        if late >= LATE_LEAST and not self._is_excused:
            self._is_excused = True
            self.ask_at = now + min(late, self._rto)
            return False
        self._timeouts += 1
        if self._timeouts > 1 or self.last_heard <= self._waits_since:
            self.report_at = min(self.report_at, now)
        self._rto = min(self._rto * 2.0, self._settings.retry_most * 2.0)
        self._await_acknowledgement(now)
        return True

    # --- suspicion and death ---

    def _clear_suspicion(self) -> None:
        self._timeouts = 0  # of the oldest batch in flight
        self.is_suspected = False  # LinkSuspected was emitted
        self._reported = 0  # messages that were named by it
        self._report_limit = FIRST_REPORT
        self.report_at = NEVER

    def suspect(self, now: float) -> tuple[Message, ...]:
        """The peer is suspected: the messages that LinkSuspected names now, few at first."""
        self.is_suspected = True
        self._out_since = min(self._out_since, now)
        is_full = self._report_limit == LARGEST_REPORT
        self.report_at = now + (FULL_REPORT_INTERVAL if is_full else REPORT_INTERVAL)
        undelivered = self._send_buffer.undelivered()
        fresh = undelivered[self._reported : self._reported + self._report_limit]
        self._reported += len(fresh)
        self._report_limit = min(4 * self._report_limit, LARGEST_REPORT)
        return fresh

    # --- another way ---

    @property
    def is_detoured(self) -> bool:
        """Whether another node passes on what this session carries."""
        return self.connection is not None and not self.connection.is_direct

    def is_silent(self, now: float) -> bool:
        """Whether the peer may be out of reach on the way that the session takes now."""
        return now >= self._silent_at()

    def _silent_at(self) -> float:
        if not self.expects_answer():
            return NEVER
        if self.state is SessionState.CONNECTING:
            return self.since + DIAL_SUSPECT_AFTER
        if self.state is not SessionState.CONNECTED:
            return NEVER
        if self.is_suspected:
            return 0.0
        return self.last_heard + SILENT_HEARTBEATS * self._settings.heartbeat

    def look_due(self) -> float:
        """Return when to look for another way to the peer if nothing changes."""
        return NEVER if self.candidate is not None else max(self._silent_at(), self._look_at)

    def look_back_due(self) -> float:
        """The time at which to try whether the peer can be reached directly; NEVER unless on a
        detour."""
        is_due = self.is_detoured and self.candidate is None
        return self._look_back_at if is_due else NEVER

    def looks(self, now: float) -> None:
        """Note that another way is looked for now. The time until the next search doubles while
        searches follow one another, so that a peer that is often late is not looked for each
        time."""
        if now - self._looked_at >= 2.0 * LOOK_MOST:
            self._looks = 0
        self._looked_at = now
        self._look_at = now + min(LOOK_AGAIN * 2.0**self._looks, LOOK_MOST)
        self._looks = min(self._looks + 1, MAX_DOUBLINGS)

    def looks_back(self, now: float, rng: Random) -> None:
        """Note that the direct way is tried now, and again after a back-off."""
        settings = self._settings
        pause = backoff(self._looks_back, settings.retry_first, settings.retry_most, rng)
        self._looks_back += 1
        self._look_back_at = now + pause

    def wants(self, connection: Carrier, now: float) -> bool:
        """Whether the peer, which answers on `connection`, is to be greeted there."""
        if self.candidate is not None:
            return False
        return self.is_detoured if connection.is_direct else self.is_silent(now)

    def expects_answer(self) -> bool:
        """Whether the peer's silence counts: it is watched, or something is not acknowledged."""
        send_buffer = self._send_buffer
        return self.is_watched or bool(send_buffer.queued or send_buffer.in_flight)

    def expect_answer(self, now: float) -> None:
        """Silence counts from now on. (Before, the peer had no reason to write.)"""
        self.last_heard = now

    def watch(self, is_watched: bool) -> None:
        """Set whether the link is pinned. Called by `SessionTable` only."""
        self.is_watched = is_watched

    def postpone_deadlines(self, seconds: float, now: float, patience: float) -> None:
        """Do not count a stall of this node of `seconds` seconds against the peer, but count the
        peer as dead if it is not heard within `patience` seconds."""
        latest = now - self._settings.dead_after + patience
        self.last_heard = min(self.last_heard + seconds, latest)
        self.since = min(self.since + seconds, now)
        self.ask_at += seconds
        self.report_at += seconds

    def give_up_at(self) -> float:
        """CONNECTING: when the session ends. A handshake that has begun may be finished."""
        until = self.since + self._settings.dead_after
        if self.connection is not None and self.connection.has_sent_hello:
            until = max(until, self.connection.give_up_at)
        return until

    def next_deadline(self) -> float:
        """Return when the next action of this session is due."""
        settings = self._settings
        if self.state is SessionState.CONNECTING:
            dial = self.dial_at if self.connection is None else NEVER
            return min(dial, self.give_up_at(), self.report_at, self.look_due())
        if self.state is not SessionState.CONNECTED:
            return NEVER
        if not self.expects_answer():
            return min(self.last_used + settings.idle_close, self.look_back_due())
        return min(
            self.last_heard + settings.dead_after,
            self.last_written + settings.heartbeat,
            self.ask_at,
            self.report_at,
            self.look_due(),
            self.look_back_due(),
        )

    def status(self) -> SessionStatus:
        """The session as `canopy peers` shows it."""
        reason = "by way of another node" if self.is_detoured else ""
        return SessionStatus(
            peer=self.peer,
            state=self.state.name,
            since=self.since,
            queued_bytes=self._send_buffer.queued_bytes,
            in_flight_bytes=self._send_buffer.in_flight_bytes,
            sent=self._send_buffer.number,
            received=self._receive_buffer.expected,
            reason=reason if self.state is SessionState.CONNECTED else self.reason,
            round_trip=self._srtt,
            version=self.version,
        )

    def queue(self) -> tuple[NodeId, int, int]:
        """(peer, bytes queued, bytes in flight)."""
        return self.peer.id, self._send_buffer.queued_bytes, self._send_buffer.in_flight_bytes


class SessionStatus(msgspec.Struct, frozen=True):
    """A session for `canopy status` and `canopy peers`."""

    peer: Peer
    state: str  # the name of a SessionState
    since: float  # monotonic seconds
    queued_bytes: int
    in_flight_bytes: int
    sent: int  # batches
    received: int
    reason: str  # of the last failure; while CONNECTED "", or that it goes by way of another node
    round_trip: float = 0.0  # seconds, smoothed; 0: not measured
    version: int = 0  # of the protocol that the two speak; 0: not connected yet


def backoff(attempts: int, first: float, most: float, rng: Random) -> float:
    """Seconds until the next attempt after `attempts` failed ones: doubles from `first` to `most`,
    half of it at random, so that two nodes that lost each other do not dial in step."""
    doubled = min(first * 2.0 ** min(attempts, MAX_DOUBLINGS), most)
    return float(doubled * (0.5 + rng.random() / 2))
