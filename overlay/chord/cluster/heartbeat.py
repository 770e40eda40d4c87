"""Heartbeats, the voters' election timeout and the primary's leader lease (P1, P4).

The primary sends heartbeats, its voters answer. Each heartbeat says how long the voters shall wait
for the next before they suspect the primary (`ElectionTimeout`). Both sides draw their conclusion
from the same messages:

* A voter that hears none for that long suspects the primary. It first doubts itself: if its own
  timer fired late, this node was the slow one (Lifeguard, section III: local health), and it waits
  once more. Then it asks the other voters for a pre-vote (`election`): these are SWIM's indirect
  probes, with every voter as a helper.
* A primary decides only under a *leader lease*: a majority answered heartbeats whose timeout is not
  over, less a margin. No voter grants another candidate an epoch before its timeout is over, so by
  the time another node leads, a primary that was paused or cut off has stopped. The lease assumes
  clocks whose rates differ by less than a fifth; the safety of the log does not.

With its answer a member says whether it finds itself sub-healthy (T6, overlay/health.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from overlay.bounded import BoundedDict
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.journal import Journal
from overlay.chord.cluster.messages import ClusterHeartbeat, ClusterHeartbeatReply
from overlay.chord.constants import (
    HEARTBEATS_KEPT,
    LEADERLESS_AFTER,
    LEASE_SHARE,
    LEASES_KEPT,
    TIMEOUT_HALF_LIFE,
    TIMEOUT_MOST,
    TIMEOUT_SHARE,
)
from overlay.chord.messages import Leaving, Moved
from overlay.chord.role import ClusterRole
from overlay.consensus import NEVER, majority_until
from overlay.health import Health
from overlay.machine import NodeId, Peer, ProtocolError, Timer, by_id
from overlay.settings import ElectionSettings


class ElectionTimeout:
    """The time for which a primary may be silent before its voters act (P3, P4; Lifeguard's idea of
    a measured timeout). All values are seconds.

    A fixed timeout is wrong in some network: where frames are lost or slow, usual delays would
    count as a death, and elsewhere a death would be noticed late. So the primary measures how long
    its heartbeats take until a majority has answered, retransmissions included, and tells its
    voters with each heartbeat how long to wait. A single slow voter does not change the result,
    since a majority answers without it.

    The longest recent time counts, and decays by halves. The timeout is twice that time, so that
    one of two heartbeats may be that late. An answer that took longer than the present timeout
    counts as if it had taken exactly the timeout: the majority was unreachable, which says little
    about the speed of the network. The timeout still follows a network that has become slow, since
    it can double each time.
    """

    def __init__(self, least: float, most: float, heartbeat: float) -> None:
        """`least`, `most`: bounds of the timeout. `heartbeat`: time between two heartbeats."""
        self.least = least
        self.most = most
        self.heartbeat = heartbeat
        self._longest = 0.0
        self._at = 0.0

    def note(self, took: float, asked: float, now: float) -> None:
        """Note that a majority answered a heartbeat after `took` seconds; the heartbeat asked the
        voters to wait for `asked` seconds."""
        self._remember(min(took, asked), now)

    def start_from(self, seconds: float, now: float) -> None:
        """Begin with the timeout that the primary before asked for."""
        self._remember((seconds - 2.0 * self.heartbeat) / TIMEOUT_SHARE, now)

    def seconds(self, now: float) -> float:
        """The election timeout from now on: `TIMEOUT_SHARE` times the longest answer that is
        remembered, and two heartbeats, within the bounds."""
        wanted = TIMEOUT_SHARE * self._remembered(now) + 2.0 * self.heartbeat
        return min(max(wanted, self.least), self.most)

    def _remember(self, took: float, now: float) -> None:
        self._longest = max(took, self._remembered(now))
        self._at = now

    def _remembered(self, now: float) -> float:
        return float(self._longest * 0.5 ** ((now - self._at) / TIMEOUT_HALF_LIFE))


class HeartbeatDue(Timer, frozen=True):
    """At the primary: time for the next heartbeat."""


class PrimarySilent(Timer, frozen=True):
    """At a voter: no heartbeat for the election timeout."""


class SentHeartbeat:
    """A heartbeat that the primary has sent."""

    __slots__ = ("answered", "at", "timeout")

    def __init__(self, at: float, timeout: float) -> None:
        self.at = at
        self.timeout = timeout  # how long it asked the voters to wait
        self.answered = 1  # voters that have it, this node included


@dataclass(eq=False)
class Heartbeat:
    """Both sides of the heartbeat: the primary's lease and the voters' election timeout."""

    settings: ElectionSettings
    role: ClusterRole
    log: FollowerLog
    journal: Journal
    health: Health

    def __post_init__(self) -> None:
        self.port = self.role.port
        self.led_since = 0.0
        self._number = 0
        self.election_timeout = ElectionTimeout(
            self.settings.suspect_after, self.settings.suspect_most, self.settings.heartbeat
        )
        self._sent = BoundedDict[int, SentHeartbeat](HEARTBEATS_KEPT)
        # Until when each voter's answers let us decide.
        self._leased = BoundedDict[NodeId, float](LEASES_KEPT)
        self._answered_at = BoundedDict[NodeId, float](LEASES_KEPT)
        self._asked_timeout = self.settings.suspect_after  # what the last heartbeat asked for
        self._timeout_at = 0.0
        self._due = 0.0  # when PrimarySilent should ring
        self.heard_at = float("-inf")  # when the last heartbeat came …
        self._led_from = 0.0  # … after which there was none for longer than `LEADERLESS_AFTER`

    # -- at the primary --------------------------------------------------------------------------

    def lead(self, supporters: Mapping[NodeId, float], since: float) -> None:
        """Begin to lead. `supporters` are the nodes that voted for this node, each with the
        seconds, counted from `since`, for which it votes for no other node. They are the first
        lease."""
        self.led_since = self.port.now
        self.port.cancel_timer(PrimarySilent())
        self._sent.clear()
        self.election_timeout.start_from(self._asked_timeout, self.port.now)
        most = self.settings.suspect_most
        self._leased.clear()
        for node, seconds in supporters.items():
            self._leased[node] = since + LEASE_SHARE * min(seconds, most)
        self._send_heartbeats()

    def has_lease(self) -> bool:
        """Whether this primary may decide: a majority of the voters followed it lately."""
        return not self.log.fenced and self.lease_left() >= 0.0

    def lease_left(self) -> float:
        """Seconds for which the present answers of a majority keep all others from leading;
        negative: they do not now. A primary that votes alone has as long as other voters would, who
        can join at once."""
        now = self.port.now
        own = now + LEASE_SHARE * self.settings.suspect_after
        return majority_until(self.log.voters, self._leased, self.port.me.id, own) - now

    def is_following(self, node: NodeId) -> bool:
        """Whether this voter answered a heartbeat whose lease is not over."""
        return self._leased.get(node, NEVER) >= self.port.now

    def silent_for(self, node: NodeId) -> float:
        """Seconds since this member last answered a heartbeat; 0 if it never did."""
        return self.port.now - self._answered_at.get(node, self.port.now)

    def on_heartbeat_due(self, timer: HeartbeatDue) -> None:
        """At a primary: send the next heartbeat to the members and voters; otherwise the beat
        ends."""
        if self.role.is_primary:
            self._send_heartbeats()

    def _send_heartbeats(self) -> None:
        cluster = self.role.own
        self._number += 1
        timeout = self.election_timeout.seconds(self.port.now)
        self._sent[self._number] = SentHeartbeat(self.port.now, timeout)
        heartbeat = ClusterHeartbeat(cluster.key, cluster.epoch, self._number, timeout)
        hearers = (*cluster.others(), *self.log.voters)
        for peer in by_id(hearers, besides=self.port.me.id).values():
            self.port.send(peer, heartbeat)
        self.port.set_timer(self.settings.heartbeat, HeartbeatDue())

    def answered(self, sender: Peer, message: ClusterHeartbeatReply) -> int | None:
        """Extend the lease by the answer of a voter that follows. Returns the epoch for which the
        voter has voted if it is higher than this primary's: then it no longer follows."""
        if not self.role.leads(message.key, message.epoch):
            return None
        if not (self.role.own.has_member(sender.id) or self.log.is_voter(sender.id)):
            self.port.count("votes_refused")
            return None
        if message.voted_epoch > message.epoch:
            return message.voted_epoch
        self._answered_at.renew(sender.id, self.port.now)
        if message.health is not None or self.health.words:
            self.health.hear(sender.id, message.health)
        if (sent := self._sent.get(message.number)) is not None:
            if self.log.is_voter(sender.id) or self.log.majority() == 1:
                sent.answered += 1
                # Who votes alone measures by any member: how long messages take it has to know.
                if sent.answered == max(2, self.log.majority()):
                    now = self.port.now
                    self.election_timeout.note(now - sent.at, sent.timeout, now)
            # Of those, too, who do not vote yet: the lease goes on when they begin to.
            until = sent.at + LEASE_SHARE * sent.timeout
            self._leased.renew(sender.id, max(until, self._leased.get(sender.id, until)))
        return None

    # -- at the other voters ---------------------------------------------------------------------

    def led_continuously_since(self) -> float:
        """Since when this node saw a primary in the cluster, with pauses for elections only."""
        now = self.port.now
        return self._led_from if now - self.heard_at <= LEADERLESS_AFTER else now

    def start_following(self) -> None:
        """Follow a new primary: wait for its heartbeat for a whole election timeout."""
        self.port.cancel_timer(HeartbeatDue())
        self._heard()

    def resume(self, timeout: float) -> None:
        """Resume after the start of this process. The previous process may have promised to wait
        for `timeout` seconds, and a primary may still rely on this. The value is no measure of
        present message delays."""
        self._timeout_at = max(self._timeout_at, self.port.now + timeout)
        self._heard()

    def voted(self) -> None:
        """Note that this node has just voted. The candidate may lead already and rely on its lease,
        so no other candidate gets a vote before the lease ends."""
        self._heard()

    def end(self) -> None:
        """Stop all timers: this node serves in no cluster."""
        self.port.cancel_timer(HeartbeatDue())
        self.port.cancel_timer(PrimarySilent())

    def is_primary_silent(self) -> bool:
        """Whether the election timeout is over: the primary may be replaced."""
        return self.port.now >= self._timeout_at

    def timeout_left(self) -> float:
        """Seconds for which this node votes for no other candidate than the last."""
        return max(0.0, self._timeout_at - self.port.now)

    def delay(self) -> float:
        """Seconds by which a majority's answers take longer than `suspect_after` allows for."""
        return max(0.0, self._asked_timeout - self.settings.suspect_after) / TIMEOUT_SHARE

    def round_trip(self) -> float:
        """Seconds in which a majority should have answered this node, by the newest heartbeat."""
        return (
            max(self._asked_timeout, self.election_timeout.seconds(self.port.now)) / TIMEOUT_SHARE
        )

    def on_heartbeat(self, sender: Peer, message: ClusterHeartbeat) -> None:
        """The primary lives: restart the election timeout, and answer. The reply tells a primary of
        an older epoch which one this node has voted for. Raises ProtocolError if the timeout makes
        no sense."""
        if not 0.0 <= message.timeout <= TIMEOUT_MOST:
            raise ProtocolError(f"a heartbeat asks for a timeout of {message.timeout} s")
        cluster = self.role.cluster
        if cluster is None and not self.role.is_reserved:
            # It has left, and the other has not heard that or takes it for a member since.
            self.port.send(sender, Leaving(message.key))
        if cluster is None or cluster.key != message.key:
            return
        voted_epoch = max(self.log.voted_epoch(message.key), cluster.epoch)
        heard = sender.id == cluster.primary.id and voted_epoch == message.epoch
        if heard:
            self._led_from = self.led_continuously_since()
            self.heard_at = self.port.now
            self._asked_timeout = message.timeout
            if message.timeout > self.settings.suspect_after or self.journal.election_timeout:
                self.journal.store_election_timeout(max(message.timeout, self.timeout_left()))
            self._heard()
        if heard or voted_epoch > message.epoch:  # else it is not known here yet that they lead
            reply = ClusterHeartbeatReply(
                message.key, message.epoch, message.number, voted_epoch, self.health.own
            )
            self.port.send(sender, reply)
        if heard:
            self.log.primary_heard(sender)
        if cluster.epoch > message.epoch:
            self.port.send(sender, Moved(cluster))

    def suspects_primary(self) -> bool:
        """Whether the primary is to be suspected, now that PrimarySilent has fired. A timer that
        fired late says more about this node than about the primary: then it waits once more."""
        if self.role.cluster is None or self.role.is_primary:
            return False
        if self.port.now > self._due + self.settings.heartbeat:
            self._heard()
            return False
        return True

    def _heard(self) -> None:
        """Wait a whole timeout from now on; a longer one that was promised before still holds."""
        self._timeout_at = max(self._timeout_at, self.port.now + self._asked_timeout)
        self._due = self._timeout_at
        self.port.set_timer(self._due - self.port.now, PrimarySilent())
