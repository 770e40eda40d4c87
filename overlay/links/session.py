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
from typing import Final, NamedTuple, Protocol

import msgspec

from overlay.links.constants import (
    ACK_DELAY,
    DIAL_SUSPECT_AFTER,
    FIRST_REPORT,
    FULL_REPORT_INTERVAL,
    LARGEST_REPORT,
    LOOK_AGAIN,
    LOOK_MOST,
    MAX_DOUBLINGS,
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
from overlay.links.retransmission import Retransmission
from overlay.links.send_buffer import InFlightBatch, QueueLimit, SendBuffer
from overlay.machine import Message, NodeId, Peer
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


class RemoteEnd(NamedTuple):
    """The peer's end of a session, by its last greeting."""

    process: ProcessName = UNKNOWN
    number: int = 0  # its name for the session
    dials: int = 0
    version: int = 0  # of the protocol, as agreed; 0: not yet
    capabilities: tuple[str, ...] = ()


UNMET: Final = RemoteEnd()
"""The end of a peer that was never connected."""


class Dials:
    """The dials for one session: how many there were, and when the next one is due."""

    __slots__ = ("_attempts", "_refusals", "count", "next_at")

    def __init__(self, next_at: float) -> None:
        self.count = 0
        self.next_at = next_at
        self._attempts = 0  # that failed since the last lasting connection
        self._refusals = 0  # of those, refused ones in a row

    def greeted(self) -> None:
        """Count a dial: a first Hello goes out on a new connection."""
        self.count += 1

    def allow(self, at: float) -> None:
        """Dial at `at`, because there is something to send, without back-off from former
        failures."""
        self._attempts = 0
        self.next_at = at

    def failed(self, is_refused: bool, has_lasted: bool) -> int:
        """A dial failed, or a connection was lost that had lasted for a while. Returns how many
        dials in a row were refused."""
        if has_lasted:
            self._attempts = 0  # no reason for a longer back-off
        self._refusals = self._refusals + 1 if is_refused else 0
        return self._refusals

    def back_off(self, settings: LinkSettings, now: float, rng: Random, not_before: float) -> None:
        """Set the time of the next dial: exponential back-off with jitter."""
        pause = backoff(self._attempts, settings.retry_first, settings.retry_most, rng)
        self._attempts += 1
        self.next_at = max(now + pause, not_before)


class LinkSuspicion:
    """Whether a peer is suspected, and how many of the messages that wait were named for that: few
    at first, then four times as many each time."""

    __slots__ = ("_limit", "_reported", "is_suspected", "report_at")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """The peer was heard: nothing was named."""
        self.is_suspected = False  # LinkSuspected was emitted
        self.report_at = NEVER  # when it is due
        self._reported = 0
        self._limit = FIRST_REPORT

    def is_due_at(self, when: float) -> None:
        """Suspect the peer then."""
        self.report_at = when

    def report(self, undelivered: tuple[Message, ...], now: float) -> tuple[Message, ...]:
        """Which of these messages LinkSuspected names now."""
        self.is_suspected = True
        is_full = self._limit == LARGEST_REPORT
        self.report_at = now + (FULL_REPORT_INTERVAL if is_full else REPORT_INTERVAL)
        fresh = undelivered[self._reported : self._reported + self._limit]
        self._reported += len(fresh)
        self._limit = min(4 * self._limit, LARGEST_REPORT)
        return fresh


class WaySearch:
    """When another way to a silent peer is looked for, and on a detour the direct one again."""

    __slots__ = ("_looked_at", "_looks", "_looks_back", "look_at", "look_back_at")

    def __init__(self) -> None:
        self.look_at = self._looked_at = 0.0  # when it may be next, and when it was
        self._looks = 0  # how often since the peer was heard
        self.begin(NEVER)

    def begin(self, look_back_at: float) -> None:
        """The session has another connection, of which the direct way is tried again at this time
        (NEVER: it is direct)."""
        self.look_back_at = look_back_at
        self._looks_back = 0

    def looks(self, now: float) -> None:
        """Note that another way is looked for now. The time until the next search doubles while
        searches follow one another, so that a peer that is often late is not looked for each
        time."""
        if now - self._looked_at >= 2.0 * LOOK_MOST:
            self._looks = 0
        self._looked_at = now
        self.look_at = now + min(LOOK_AGAIN * 2.0**self._looks, LOOK_MOST)
        self._looks = min(self._looks + 1, MAX_DOUBLINGS)

    def looks_back(self, settings: LinkSettings, now: float, rng: Random) -> None:
        """Note that the direct way is tried now, and again after a back-off."""
        pause = backoff(self._looks_back, settings.retry_first, settings.retry_most, rng)
        self._looks_back += 1
        self.look_back_at = now + pause


class LinkSession(HasDeadline):
    """This node's state of its session with one peer. Times are monotonic seconds."""

    __slots__ = (
        *("peer", "number", "state", "reason", "connection", "candidate", "is_watched", "since"),
        *("remote", "dials", "retransmission", "suspicion", "search", "queue_limit"),
        *("last_heard", "last_written", "last_used", "ack_due", "_ack_timed", "_ack_bytes"),
        *("_settings", "_codec", "outgoing", "incoming"),
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
        self.is_watched = is_watched
        self.dials = Dials(dial_at)
        self.since = now  # when the present state began
        self.last_heard = now  # last frame, or when silence began to count (`begin_silence`)
        self.last_written = now
        self.last_used = now  # last batch or probe, in either direction
        self.search = WaySearch()
        self.suspicion = LinkSuspicion()
        buffer = SendBuffer(settings, codec)
        self.queue_limit = QueueLimit(settings, buffer, now)
        self.retransmission = Retransmission(settings, buffer, now)
        self._begin(number, buffer)
        self.suspicion.is_due_at(now + DIAL_SUSPECT_AFTER)

    # --- identity ---

    def reset(self, number: int) -> None:
        """Forget both directions, because the peer has; from now on this node calls it `number`."""
        buffer = SendBuffer(self._settings, self._codec)
        self.queue_limit.reset(buffer)
        self.retransmission.reset(buffer)
        self.suspicion.clear()
        self._begin(number, buffer)

    def _begin(self, number: int, buffer: SendBuffer) -> None:
        self.number = number
        self.outgoing = buffer
        self.incoming = ReceiveBuffer(self._settings.window)
        self.remote = UNMET
        self.ack_due = False  # something arrived that is not acknowledged
        self._ack_timed = False  # … and a delayed acknowledgement is scheduled
        self._ack_bytes = 0  # … of so many bytes

    def is_known_as(self, process: ProcessName, number: int) -> bool:
        """Whether the peer's name for the session is the one remembered here."""
        return (process, number) == (self.remote.process, self.remote.number)

    def supersedes(self, process: ProcessName, number: int) -> bool:
        """Whether that name is of an earlier session, which the peer itself has ended."""
        return (process, number) < (self.remote.process, self.remote.number)

    def update_address(self, peer: Peer) -> None:
        """Take `peer`'s address unless the peer itself has named one: both are second-hand, and the
        newer one may be better."""
        if self.remote.process == UNKNOWN and self.peer.address != peer.address:
            self.peer = peer

    # --- states and connections ---

    def enter(self, state: SessionState, now: float) -> None:
        """Change the state. Called by `SessionTable` only, which keeps count of the dormant."""
        if self.state is SessionState.CONNECTED and state is SessionState.CONNECTING:
            self.queue_limit.out_of_reach(now)
        self.state = state
        self.since = now
        connecting = state is SessionState.CONNECTING
        self.suspicion.is_due_at(now + DIAL_SUSPECT_AFTER if connecting else NEVER)

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

    def established(self, greeting: Hello | Welcome, newest: int, now: float) -> None:
        """Take the peer's statements about itself after the handshake. `newest`: the newest version
        of the protocol that this node offers."""
        self.peer = greeting.peer
        self.remote = RemoteEnd(
            greeting.process,
            greeting.session,
            greeting.dials,
            agreed_version(greeting, newest),
            greeting.capabilities,
        )
        self.incoming.resume()
        self.retransmission.withdraw()
        self.last_heard = self.last_used = now
        self.search.begin(now + self._settings.retry_first if self.is_detoured else NEVER)

    def connection_failed(self, reason: str, now: float) -> int:
        """A connection was lost or a dial failed. Returns how many dials in a row were refused."""
        self.reason = reason
        is_up = self.state is SessionState.CONNECTED
        has_lasted = is_up and now - self.since >= self._settings.heartbeat
        return self.dials.failed(reason == REFUSED, has_lasted)

    def suspended(self) -> None:
        """Note that the session was suspended: it keeps its state and has no connection."""
        self.reason = "at rest"

    # --- what was heard and written ---

    def begin_silence(self, now: float) -> None:
        """Count the peer's silence from now on: a frame of it has arrived, or it had no reason to
        write before."""
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
        direction and the hybrid logical `clock` on it."""
        self.ack_due = False
        self._ack_bytes = 0
        self.last_used = self.last_written = now
        if now >= self.queue_limit.resize_at:
            self.queue_limit.resize(now)
        self.retransmission.sent(batch.number, now)
        return Batch(
            batch.number,
            self.incoming.expected,
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
        return Ack(self.incoming.expected, self._settings.window, gap, 0, answers)

    def make_question(self, now: float) -> Ack:
        """Make a question to the peer about the batches that it has. Sending it counts as use of
        the link, and the peer answers if it lives."""
        self.last_used = now
        return msgspec.structs.replace(self.make_ack(now), asks=self.retransmission.ask(now))

    def make_answer(self, now: float, question: int) -> Ack:
        """Make the answer to the peer's question: the batches received, and the batch that follows
        a gap."""
        self.last_used = now
        answer = self.make_ack(now, self.incoming.gap_end(), question)
        self.last_written = now + ACK_DELAY  # of two that watch each other only one asks
        return answer

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

    def understands(self, message: Message) -> bool:
        """Whether the peer has said that it knows this kind of message. What only some nodes know
        is not queued for one that has never been connected."""
        return not message.capability or message.capability in self.remote.capabilities

    # --- retransmission ---

    def acknowledge(self, number: int, credit: int) -> bool:
        """The peer has every batch before `number`. Returns whether that is news; if so, the
        suspicion is over. Raises ProtocolError if the batch was never sent."""
        if not self.outgoing.acknowledge(number, credit):
            return False
        self.restart_retransmission(self.last_heard)
        return True

    def fill_gap(self, first: int, end: int) -> list[InFlightBatch]:
        """The peer lacks the batches from `first` up to `end`: what to send again."""
        found = self.outgoing.fill_gap(first, end)
        if found:
            self.retransmission.sent_again()
        return found

    def answered(self, question: int, acknowledged: int, gap: int) -> list[InFlightBatch]:
        """Handle the peer's answer to a question of this node. A connection keeps the order, so
        batches sent before the question on this connection and missing there are lost. Return the
        batches to send again. Raises ProtocolError if the peer lacks batches that it has
        acknowledged, or was never asked."""
        if not self.retransmission.answered(question, acknowledged, self.last_heard):
            return []
        self.restart_retransmission(self.last_heard)
        return self.retransmission.lost(gap)

    def restart_retransmission(self, now: float) -> None:
        """End the suspicion, and restart the retransmission time-out. Called when the peer has
        acknowledged something new or answered, or when a new connection begins."""
        suspicion = self.suspicion
        if suspicion.is_suspected or suspicion.report_at != NEVER:
            suspicion.clear()
        if self.queue_limit.out_since != NEVER and self.state is SessionState.CONNECTED:
            self.queue_limit.in_reach(now)
        self.retransmission.restart(now)

    def is_overdue(self, now: float) -> bool:
        """Return whether the batches in flight are overdue, so that the peer must be asked. It is
        suspected if it was silent in the meantime, or was asked before and did not answer: a peer
        that acknowledges or answers late is not silent."""
        retransmission = self.retransmission
        if not retransmission.is_overdue(now):
            return False
        if retransmission.timeouts > 1 or self.last_heard <= retransmission.waits_since:
            self.suspicion.is_due_at(min(self.suspicion.report_at, now))
        retransmission.back_off(now)
        return True

    # --- suspicion and death ---

    def suspect(self, now: float) -> tuple[Message, ...]:
        """The peer is suspected: the messages that LinkSuspected names now, few at first."""
        self.queue_limit.out_of_reach(now)
        return self.suspicion.report(self.outgoing.undelivered(), now)

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
        if self.suspicion.is_suspected:
            return 0.0
        return self.last_heard + SILENT_HEARTBEATS * self._settings.heartbeat

    def look_due(self) -> float:
        """Return when to look for another way to the peer if nothing changes."""
        return NEVER if self.candidate is not None else max(self._silent_at(), self.search.look_at)

    def look_back_due(self) -> float:
        """The time at which to try whether the peer can be reached directly; NEVER unless on a
        detour."""
        is_due = self.is_detoured and self.candidate is None
        return self.search.look_back_at if is_due else NEVER

    def wants(self, connection: Carrier, now: float) -> bool:
        """Whether the peer, which answers on `connection`, is to be greeted there."""
        if self.candidate is not None:
            return False
        return self.is_detoured if connection.is_direct else self.is_silent(now)

    def expects_answer(self) -> bool:
        """Whether the peer's silence counts: it is watched, or something is not acknowledged."""
        outgoing = self.outgoing
        return self.is_watched or bool(outgoing.queued or outgoing.in_flight)

    def watch(self, is_watched: bool) -> None:
        """Set whether the link is pinned. Called by `SessionTable` only."""
        self.is_watched = is_watched

    def postpone_deadlines(self, seconds: float, now: float, patience: float) -> None:
        """Do not count a stall of this node of `seconds` seconds against the peer, but count the
        peer as dead if it is not heard within `patience` seconds."""
        latest = now - self._settings.dead_after + patience
        self.last_heard = min(self.last_heard + seconds, latest)
        self.since = min(self.since + seconds, now)
        self.retransmission.postpone(seconds)
        self.suspicion.is_due_at(self.suspicion.report_at + seconds)

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
            dial = self.dials.next_at if self.connection is None else NEVER
            return min(dial, self.give_up_at(), self.suspicion.report_at, self.look_due())
        if self.state is not SessionState.CONNECTED:
            return NEVER
        if not self.expects_answer():
            return min(self.last_used + settings.idle_close, self.look_back_due())
        return min(
            self.last_heard + settings.dead_after,
            self.last_written + settings.heartbeat,
            self.retransmission.ask_at,
            self.suspicion.report_at,
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
            queued_bytes=self.outgoing.queued_bytes,
            in_flight_bytes=self.outgoing.in_flight_bytes,
            sent=self.outgoing.number,
            received=self.incoming.expected,
            reason=reason if self.state is SessionState.CONNECTED else self.reason,
            round_trip=self.retransmission.round_trips.smoothed,
            version=self.remote.version,
        )

    def queue(self) -> tuple[NodeId, int, int]:
        """(peer, bytes queued, bytes in flight)."""
        return self.peer.id, self.outgoing.queued_bytes, self.outgoing.in_flight_bytes


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
