"""A session with one peer: the states of M5 and what falls due when.

::

    NOT_CONNECTED --send, pin--> CONNECTING --handshake--> CONNECTED
          ^                       |      ^                   |   |
          |                       |      +--connection lost--+   |
          +-----------nobody used it for idle_close--------------+
                                  |                              |
                                  +--> CLOSED (LinkDown) <-------+
    nobody answers for dead_after, or listens  left, broke the protocol, or silent for dead_after
                                               while it is watched or owes an acknowledgement

A session that rests (NOT_CONNECTED) keeps its numbers, so that closing an idle connection can
lose nothing even when the peer sends at the same moment: it resumes. CLOSED is for ever; a later
send makes another session.

This file holds state and times only; `Links` acts.
"""

from __future__ import annotations

from enum import Enum, auto
from random import Random

import msgspec

from overlay.links.deadlines import NEVER, Alarmed
from overlay.links.events import Codec, ConnectionId
from overlay.links.receive_buffer import ReceiveBuffer
from overlay.links.send_buffer import SendBuffer
from overlay.machine import Message, NodeId, Peer
from overlay.settings import LinkSettings

MAX_DOUBLINGS = 16
"""Back-off stops doubling here: by then every sensible limit is reached, and a float is not."""


MIN_RTO = 0.5
"""Seconds that an acknowledgement is waited for at least: under load a node may take some tenths to
look at what arrived, and TCP loses nothing. Wild guess (TCP itself takes 0.2: Linux, or 1: RFC
6298)."""


REPORT_INTERVAL = 0.2
"""Seconds between two reports of what a silent link has not carried: so much later than it could
comes each delivery while a link is cut. Wild guess."""

DIAL_SUSPECT_AFTER = 1.0
"""Seconds without an answer to a dial after which its link is silent: two round trips of half a
second. Wild guess."""


FIRST_REPORT = 16
"""Messages that the first report names at most; each may have dozens of events. Four times as many
each time after. Wild guess."""


MAX_REFUSALS = 2
"""Refused dials in a row after which a session ends: a process listens as long as it lives. Two, so
that a peer whom nobody can dial has the time to dial us, which takes `retry_first`. Wild guess."""


class State(Enum):
    """M5."""

    NOT_CONNECTED = auto()
    CONNECTING = auto()
    CONNECTED = auto()
    CLOSED = auto()


class Stage(Enum):
    """How far a connection is."""

    OPENING = auto()  # dialled, the transport has not answered
    GREETED = auto()  # our Hello is out, the Welcome is awaited
    AWAITING = auto()  # accepted, the Hello is awaited
    LIVE = auto()  # it carries its session


class Wire(Alarmed):
    """One transport connection. Its alarm is the end of the handshake's time, or another Hello."""

    def __init__(self, connection: ConnectionId, stage: Stage, give_up: float) -> None:
        self.connection = connection
        self.stage = stage
        self.give_up = give_up
        self.session: Session | None = None
        self.seed: Seed | None = None
        self.again = NEVER  # when to repeat the Hello, on transports that lose frames
        self.pause = 0.0
        self.greetings = 0  # Hellos heard: bounded


class Seed(Alarmed):
    """An address of the peer list. Its alarm is the next attempt to reach it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wire: Wire | None = None
        self.peer: NodeId | None = None  # who answered there last
        self.is_reached = False
        self.attempts = 0


class Session(Alarmed):
    """What this node knows of its session with one peer."""

    def __init__(
        self, peer: Peer, number: int, settings: LinkSettings, codec: Codec, now: float
    ) -> None:
        self.peer = peer
        self.number = number
        self._settings = settings
        self._codec = codec
        self.state = State.CONNECTING
        self.reason = "nobody answers"  # of the last failure
        self.wire: Wire | None = None
        self.their_incarnation = 0  # 0: never connected
        self.their_number = 0
        self.their_dials = 0
        self.dials = 0
        self.attempts = 0  # failed since the last lasting connection
        self.refusals = 0  # dials in a row that nobody listened to
        self.dial_at = now
        self.since = now  # when the present state began
        self.heard = now  # last frame, or since when a frame is missed (`miss`)
        self.spoken = now  # last frame written
        self.used = now  # last batch, either way
        self.retransmit_at = NEVER
        self.retransmit_after = settings.retransmit_after
        self._smoothed = self._varying = 0.0  # round trip, by RFC 6298; 0: not measured
        self._timed: tuple[int, float] | None = None  # a batch's number, and when it went out
        self._written = 0  # batches before this one went out once
        self.timeouts = 0  # of the oldest batch
        self.is_silent = False  # … and this was told
        self.told = 0  # messages that were named by it
        self.tell_most = FIRST_REPORT
        self.tell_at = NEVER
        self.ack_due = False  # something arrived that is not acknowledged
        self.ack_timed = False  # … and a delayed acknowledgement is on its way
        self.ack_bytes = 0
        self.begin_anew(number)
        self.tell_at = now + DIAL_SUSPECT_AFTER

    def begin_anew(self, number: int) -> None:
        """Forget both directions: the other side has."""
        self.number = number
        self.send_buffer = SendBuffer(self._settings, self._codec)
        self.receive_buffer = ReceiveBuffer(self._settings.window)
        self.their_incarnation = self.their_number = self.their_dials = 0
        self.retransmit_at = NEVER
        self._timed = None
        self._written = 0
        self._begin_to_listen()
        self.ack_due = self.ack_timed = False
        self.ack_bytes = 0

    def _begin_to_listen(self) -> None:
        self.timeouts = self.told = 0
        self.tell_most = FIRST_REPORT
        self.is_silent = False
        self.tell_at = NEVER

    def is_known_as(self, incarnation: int, number: int) -> bool:
        """Whether the peer's words belong to the very session that is remembered here."""
        return (incarnation, number) == (self.their_incarnation, self.their_number)

    def is_older(self, incarnation: int, number: int) -> bool:
        """Whether they belong to one that the peer itself has left behind."""
        return (incarnation, number) < (self.their_incarnation, self.their_number)

    def enter(self, state: State, now: float) -> None:
        """Change the state."""
        self.state = state
        self.since = now
        self.tell_at = now + DIAL_SUSPECT_AFTER if state is State.CONNECTING else NEVER

    def back_off(self, now: float, rng: Random, not_before: float) -> None:
        """A connection failed or was lost: when to dial next."""
        pause = backoff(self.attempts, self._settings.retry_first, self._settings.retry_most, rng)
        self.attempts += 1
        self.dial_at = max(now + pause, not_before)

    def delivered(self, now: float) -> None:
        """The peer acknowledged something new: the retransmission clock begins again."""
        self._begin_to_listen()
        if self._timed is not None and self._timed[0] < self.send_buffer.acknowledged:
            self._measured(now - self._timed[1])
            self._timed = None
        most = self._settings.retransmit_after
        wait = self._smoothed + 4.0 * self._varying if self._smoothed else most
        self.retransmit_after = min(max(wait, MIN_RTO), most)
        self.retransmit_at = now + self.retransmit_after if self.send_buffer.in_flight else NEVER

    def _measured(self, round_trip: float) -> None:
        """RFC 6298, section 2."""
        if not self._smoothed:
            self._smoothed, self._varying = round_trip, round_trip / 2.0
        else:
            self._varying += (abs(self._smoothed - round_trip) - self._varying) / 4.0
            self._smoothed += (round_trip - self._smoothed) / 8.0

    def sent_batch(self, number: int, now: float) -> None:
        """A batch went out: the retransmission clock runs for the oldest."""
        self.used = now
        if number < self._written:
            self._timed = None  # which of the two is answered, nobody can say (Karn)
        else:
            self._written = number + 1
            self._timed = self._timed or (number, now)
        if self.retransmit_at == NEVER:
            self.retransmit_at = now + self.retransmit_after

    def timed_out(self, now: float) -> None:
        """Nothing was acknowledged in time: wait twice as long for the next. If the peer said other
        things meanwhile, it may be slow; the second time it is silent all the same."""
        self.timeouts += 1
        if self.timeouts > 1 or self.heard <= self.retransmit_at - self.retransmit_after:
            self.tell_at = min(self.tell_at, now)
        self.retransmit_after = min(self.retransmit_after * 2.0, self._settings.retry_most * 2.0)
        self.retransmit_at = now + self.retransmit_after

    def tell(self, now: float) -> tuple[Message, ...]:
        """It is silent: what was not named before, few at first (as TCP's slow start), since to a
        peer that is merely slow they come twice."""
        self.is_silent = True
        self.tell_at = now + REPORT_INTERVAL
        fresh = self.send_buffer.undelivered()[self.told : self.told + self.tell_most]
        self.told += len(fresh)
        self.tell_most *= 4
        return fresh

    def given_up_at(self) -> float:
        """CONNECTING: when it ends. Where somebody has opened, its handshake gets its time."""
        until = self.since + self._settings.dead_after
        if self.wire is not None and self.wire.stage is Stage.GREETED:
            until = max(until, self.wire.give_up)
        return until

    def miss(self, now: float) -> None:
        """From now on silence counts. (Before, nobody was asked and nobody had to answer.)"""
        self.heard = now

    def excuse(self, seconds: float, now: float) -> None:
        """So much of the silence was ours."""
        self.heard = min(self.heard + seconds, now)
        self.since = min(self.since + seconds, now)
        self.retransmit_at += seconds
        self.tell_at += seconds

    def is_missed(self, is_pinned: bool) -> bool:
        """Whether silence counts: the link is watched, or something has not arrived yet."""
        return is_pinned or not self.send_buffer.is_empty

    def next_alarm(self, is_pinned: bool) -> float:
        """When something of this session falls due next."""
        settings = self._settings
        if self.state is State.CONNECTING:
            dial = self.dial_at if self.wire is None else NEVER
            return min(dial, self.given_up_at(), self.tell_at)
        if self.state is not State.CONNECTED:
            return NEVER
        if not self.is_missed(is_pinned):
            return self.used + settings.idle_close
        return min(
            self.heard + settings.dead_after,
            self.spoken + settings.heartbeat,
            self.retransmit_at,
            self.tell_at,
        )


class SessionStatus(msgspec.Struct, frozen=True):
    """A session for `canopy status` and `peers`. Bytes and seconds."""

    peer: Peer
    state: str
    since: float
    queued_bytes: int
    in_flight_bytes: int
    sent: int  # batches
    received: int
    reason: str


def backoff(attempts: int, first: float, most: float, rng: Random) -> float:
    """Seconds until the next attempt: doubles, with half of it at random so that two nodes that
    lost each other do not dial in step."""
    return float(min(first * 2.0 ** min(attempts, MAX_DOUBLINGS), most) * (0.5 + rng.random() / 2))
