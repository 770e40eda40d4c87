"""The cluster's heartbeat: who is silent, and may the primary still decide? (P1, P4)

The primary beats, its voters answer. Both sides draw their conclusion from the same beats:

* A voter that hears none for `suspect_after` suspects the primary. It doubts itself first: if its
  own alarm came late, it was the slow one (Lifeguard), and it listens once more.
* A primary decides only under a *lease*: a majority answered a beat that it sent less than `lease`
  ago. No voter grants anybody else an epoch before `suspect_after` > `lease` has passed, so by the
  time somebody else leads, a primary that was paused or cut off has stopped. (This leans on clocks
  of bounded rates, as DESIGN.md section 5 allows for leases; the log does not.)
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.chord.copying import Log
from overlay.chord.messages import Moved
from overlay.chord.seat import Seat
from overlay.chord.voting_messages import Beat, BeatReply
from overlay.machine import NodeId, Peer, Timer
from overlay.settings import ElectionSettings

LEASE_SHARE = 0.8
"""Of `suspect_after`: clocks may differ in rate by a fifth. Far more than any clock does, since a
process that is slow to look at its clock counts, too."""

BEATS_KEPT = 64
"""Beats whose time of sending is remembered: more than fit into any lease."""


class BeatDue(Timer, frozen=True):
    """At the primary: time to say that it lives."""


class PrimarySilent(Timer, frozen=True):
    """At a voter: no beat for `suspect_after`."""


class Pulse:
    """Both sides of the heartbeat."""

    def __init__(self, settings: ElectionSettings, seat: Seat, log: Log) -> None:
        self.settings = settings
        self.seat = seat
        self.log = log
        self.port = seat.port
        self.on_silence: Callable[[], None] = lambda: None
        self.on_behind: Callable[[int], None] = lambda epoch: None
        self._number = 0
        self._sent: dict[int, float] = {}  # when each beat was sent
        self._answered: dict[NodeId, float] = {}  # when the newest that was answered was sent
        self._heard_at = 0.0
        self._due = 0.0  # when PrimarySilent should ring

    # -- at the primary --------------------------------------------------------------------------

    def lead(self, supporters: tuple[NodeId, ...], since: float) -> None:
        """This node leads; `supporters` were asked at `since` and agreed."""
        self.port.cancel_timer(PrimarySilent())
        self._sent.clear()
        self._answered = dict.fromkeys(supporters, since)
        self._beat()

    def serving(self) -> bool:
        """Whether a majority of the voters followed this primary a short time ago."""
        now = self.port.now
        times = sorted(
            (
                now if peer.id == self.port.me.id else self._answered.get(peer.id, -1e9)
                for peer in self.log.voters
            ),
            reverse=True,
        )
        if not times or self.log.fenced:
            return False
        lease = LEASE_SHARE * self.settings.suspect_after
        return now - times[self.log.majority() - 1] <= lease

    def on_beat_due(self, timer: BeatDue) -> None:
        """Regular."""
        if self.seat.is_primary:
            self._beat()

    def _beat(self) -> None:
        cluster = self.seat.cluster
        assert cluster is not None
        self._number += 1
        self._sent[self._number] = self.port.now
        if len(self._sent) > BEATS_KEPT:
            del self._sent[next(iter(self._sent))]
        beat = Beat(cluster.key, cluster.version[0], self._number)
        hearers = {p.id: p for p in (*cluster.members()[1:], *self.log.voters)}
        hearers.pop(self.port.me.id, None)
        for peer in hearers.values():
            self.port.send(peer, beat)
        self.port.set_timer(self.settings.heartbeat, BeatDue())

    def on_beat_reply(self, sender: Peer, message: BeatReply) -> None:
        """A voter follows, or has promised a higher epoch to somebody."""
        cluster = self.seat.cluster
        if (
            cluster is None
            or not self.seat.is_primary
            or (message.key, message.epoch) != (cluster.key, cluster.version[0])
        ):
            return
        if message.promised > message.epoch:
            self.on_behind(message.promised)
        elif (sent := self._sent.get(message.number)) is not None:
            self._answered[sender.id] = max(sent, self._answered.get(sender.id, sent))

    # -- at the other voters ---------------------------------------------------------------------

    def follow(self) -> None:
        """There is a (new) primary to listen to."""
        self.port.cancel_timer(BeatDue())
        self._heard()

    def granted(self) -> None:
        """Whoever got an epoch from this voter may lead by now, and has its lease: nobody else gets
        one before that ends."""
        self._heard()

    def end(self) -> None:
        """No cluster any more."""
        self.port.cancel_timer(BeatDue())
        self.port.cancel_timer(PrimarySilent())

    def silent(self) -> bool:
        """Whether this node has not heard the primary for so long that it may be replaced."""
        return self.port.now - self._heard_at >= self.settings.suspect_after

    def on_beat(self, sender: Peer, message: Beat) -> None:
        """The primary lives. One that is fenced hears of it by the promised epoch."""
        cluster = self.seat.cluster
        if cluster is None or cluster.key != message.key:
            return
        promised = max(self.log.promises.epoch(message.key), cluster.version[0])
        if sender.id == cluster.primary.id and promised == message.epoch:
            self._heard()
        reply = BeatReply(message.key, message.epoch, message.number, promised)
        self.port.send(sender, reply)
        if cluster.version[0] > message.epoch:
            self.port.send(sender, Moved(cluster))

    def on_silent(self, timer: PrimarySilent) -> None:
        """Suspect the primary, or listen once more."""
        if self.seat.cluster is None or self.seat.is_primary:
            return
        if self.port.now > self._due + self.settings.heartbeat:
            self._heard()  # we were asleep ourselves
            return
        self.on_silence()

    def _heard(self) -> None:
        self._heard_at = self.port.now
        self._due = self.port.now + self.settings.suspect_after
        self.port.set_timer(self.settings.suspect_after, PrimarySilent())
