"""When batches should have been acknowledged, and which of them are lost (RFC 6298; M3).

Without an acknowledgement in time nothing is sent again on a guess: the peer is *asked* for its
position. A connection keeps the order, so a batch that was sent before the question, and that the
answer lacks, is lost. The time-out follows the measured round trips.
"""

from __future__ import annotations

from overlay.links.constants import LATE_LEAST, LATE_REMEMBERED, MIN_RTO
from overlay.links.deadlines import NEVER
from overlay.links.send_buffer import InFlightBatch, SendBuffer
from overlay.machine import ProtocolError
from overlay.settings import LinkSettings


class RoundTrips:
    """The round trips that were measured on one session, in seconds (RFC 6298, section 2)."""

    __slots__ = ("_longest", "_longest_at", "_variation", "expected", "smoothed")

    def __init__(self, now: float) -> None:
        self.smoothed = self._variation = 0.0  # SRTT and RTTVAR; 0: not measured
        self._longest = 0.0  # lately, halved every `LATE_REMEMBERED`, …
        self._longest_at = now  # … and when that was measured
        self.expected = 0.0  # which the next one exceeds seldom

    def measured(self, round_trip: float, now: float) -> None:
        """Take one more; remember the longest one for a while, since whoever is busy is late again
        and again."""
        if not self.smoothed:
            self.smoothed, self._variation = round_trip, round_trip / 2.0
        else:
            self._variation += (abs(self.smoothed - round_trip) - self._variation) / 4.0
            self.smoothed += (round_trip - self.smoothed) / 8.0
        faded = self._longest * 0.5 ** ((now - self._longest_at) / LATE_REMEMBERED)
        self._longest, self._longest_at = max(round_trip, faded), now
        self.expected = max(self.smoothed + 4.0 * self._variation, self._longest)


class Retransmission:
    """The time-out of the oldest batch in flight of one session, and its questions to the peer.
    Times are monotonic seconds; what was measured stays when the session begins again."""

    __slots__ = (
        *("ask_at", "timeouts", "waits_since", "round_trips", "_settings", "_buffer", "_rto"),
        *("_timed", "_sent_once", "_is_excused"),
        *("_asked", "_asked_at", "_asked_before", "_is_answered"),
    )

    def __init__(self, settings: LinkSettings, buffer: SendBuffer, now: float) -> None:
        self._settings = settings
        self._rto = settings.retransmit_after
        self.round_trips = RoundTrips(now)
        self._asked = 0  # the number of the last question to the peer …
        self._asked_at = now  # … and when it was asked
        self.reset(buffer)

    def reset(self, buffer: SendBuffer) -> None:
        """Begin again with another direction of the session, of which nothing was sent."""
        self._buffer = buffer
        self.ask_at = NEVER  # when what is in flight should have been acknowledged, …
        self.waits_since = NEVER  # … as counted from here on, …
        self._is_excused = False  # … or later, since this node was late itself
        self.timeouts = 0  # of the oldest batch in flight
        self._asked_before = 0  # what was sent before the last question comes before this batch
        self._is_answered = True  # that question
        # A batch's number, when it was sent, and what had arrived until then:
        self._timed: tuple[int, float, int] | None = None
        self._sent_once = 0  # batches before this one were sent at least once

    # --- the time-out ---

    def sent(self, number: int, now: float) -> None:
        """Note that a batch leaves, for the first time or again; from the oldest batch in flight on
        the time runs in which it should be acknowledged."""
        if number < self._sent_once:
            self._timed = None  # which of the two is acknowledged cannot be known (Karn)
        else:
            self._sent_once = number + 1
            self._timed = self._timed or (number, now, self._buffer.arrived_bytes)
        if self.ask_at == NEVER:
            self._wait(now)

    def restart(self, now: float) -> None:
        """Measure the round trip, and restart the time-out: the peer has acknowledged something new
        or answered, or a new connection begins."""
        self.timeouts = 0
        timed = self._timed
        if timed is not None and timed[0] < self._buffer.acknowledged:
            self.round_trips.measured(now - timed[1], now)
            self._buffer.window.measured(now - timed[1], self._buffer.arrived_bytes - timed[2])
            self._timed = None
        most = self._settings.retransmit_after
        self._rto = min(max(self.round_trips.expected or most, MIN_RTO), most)
        self._wait(now)

    def _wait(self, now: float) -> None:
        self.waits_since = now
        self._is_excused = False
        self.ask_at = now + self._rto if self._buffer.in_flight else NEVER

    def is_overdue(self, now: float) -> bool:
        """Whether the batches in flight are overdue, which `timeouts` counts. The first time that
        this node itself is late, it waits for the same time again, because it may not have read the
        peer's frames yet."""
        if now < self.ask_at:
            return False
        late = now - self.ask_at
        if late >= LATE_LEAST and not self._is_excused:
            self._is_excused = True
            self.ask_at = now + min(late, self._rto)
            return False
        self.timeouts += 1
        return True

    def back_off(self, now: float) -> None:
        """Wait twice as long from now on (section 5.5)."""
        self._rto = min(self._rto * 2.0, self._settings.retry_most * 2.0)
        self._wait(now)

    def postpone(self, seconds: float) -> None:
        """Do not count a stall of this node."""
        self.ask_at += seconds

    # --- questions ---

    def ask(self, now: float) -> int:
        """The number of a question to the peer that is asked now."""
        self._asked += 1
        self._asked_at = now
        self._asked_before = self._buffer.number
        self._is_answered = False
        return self._asked

    def withdraw(self) -> None:
        """A new connection: nothing that comes on a former one counts as an answer."""
        self._is_answered = True

    def sent_again(self) -> None:
        """Note that lost batches were sent again: they come after the last question."""
        self._asked_before = 0

    def answered(self, question: int, acknowledged: int, now: float) -> bool:
        """Whether this is the answer to the last question. Raises ProtocolError if the peer lacks
        batches that it has acknowledged, or was never asked."""
        if question > self._asked:
            raise ProtocolError("answers what was never asked")
        if question < self._asked or self._is_answered:
            return False  # on a lossy network an answer may come late, or twice
        if acknowledged < self._buffer.acknowledged:
            raise ProtocolError("lacks batches that it has acknowledged")
        self._is_answered = True
        self.round_trips.measured(now - self._asked_at, now)
        return True

    def lost(self, gap: int) -> list[InFlightBatch]:
        """The batches to send again after an answer, which has `gap` (as in `Ack`)."""
        end = min(gap, self._asked_before) if gap else self._asked_before
        return self._buffer.unacknowledged_before(end)
