"""Another primary for a cluster whose primary is silent (P4).

The bully of the paper only *nominates*: by rank (the standby first, then the match brokers, each a
little later) a voter asks the others. What makes it the primary is a majority of durable grants of
a new epoch. Two rounds:

1. *trial*: would you? A voter that still hears the primary, or whose log is further, would not.
   Nothing changes by this, so a node behind a broken link disturbs nobody.
2. *the epoch*: a voter stores its promise, then answers. An epoch is granted to one node only.

Among those whose log is far enough the healthy go first (T6): a node that stood still lately (it
was paused, or overloaded) waits until the others had their turns. It is never kept from standing,
so that somebody stands where all are unwell.

Nothing that was committed is lost: it is with a majority, of which one also grants, and only to a
log that is at least as far as its own. Of a cluster that forked (P5) only those stand, and are
granted to, whose log is the fork's: the older one names other voters, and they would elect a second
primary without asking the fork's. The winner says HELLO to the members and REJOIN to its ring
neighbours; the old primary is an ordinary member of the new description, and where it wakes up it
is fenced by its epoch: by voters, hosts, ring neighbours, and its own lease (`pulse`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from overlay.chord.consensus.heartbeat import Heartbeat
from overlay.chord.consensus.leader_log import LeaderLog
from overlay.chord.consensus.messages import Grant, Nominate
from overlay.chord.epochs import beyond, lineage
from overlay.chord.events import PrimarySuspected
from overlay.chord.messages import Cluster, Moved
from overlay.chord.role import ClusterRole, has_member
from overlay.links.events import LocalStall
from overlay.machine import Key, NodeId, Peer, Timer, Version
from overlay.settings import ElectionSettings

UNWELL = 60.0
"""Seconds for which a node that stood still for a heartbeat of its links (LinkSettings) lets others
go before it. (MECHANISMS T6 looks back on half an hour of logs.) Wild guess."""


class NominationDue(Timer, frozen=True):
    """This node's turn to nominate itself, if nobody has won meanwhile."""


class CampaignOver(Timer, frozen=True):
    """No majority answered in time."""


class Campaign:
    """What this node asks for."""

    def __init__(
        self, epoch: int, trial: bool, wanted: bool, now: float, start: Key | None = None
    ) -> None:
        self.epoch = epoch
        self.trial = trial
        self.wanted = wanted  # the present primary hands over
        self.since = now
        self.start = start  # where the arc shall begin, if it grows
        self.granted: dict[NodeId, float] = {}  # for how long they grant it to nobody else
        self.refused: dict[NodeId, None] = {}
        self.over = (
            False  # too few have answered in time; what comes late counts, until another one
        )


class Election:
    """Both sides: candidate and voter."""

    def __init__(
        self, settings: ElectionSettings, seat: ClusterRole, log: LeaderLog, pulse: Heartbeat
    ) -> None:
        self.settings = settings
        self.seat = seat
        self.log = log
        self.pulse = pulse
        self.port = seat.port
        self.campaign: Campaign | None = None
        self.arc: Cluster | None = None  # the cluster as a leaving primary wants it to be
        self.on_won: Callable[[Cluster, Campaign], None] = lambda cluster, campaign: None
        self.on_lost: Callable[[], None] = lambda: None
        self._highest = 0  # epoch that was heard of
        self._unwell_until = float("-inf")
        self._favoured: tuple[NodeId, float] = ("", 0.0)  # a candidate, and until when no other one

    @property
    def is_asking(self) -> bool:
        """Whether this node asks for an epoch now."""
        return self.campaign is not None and not self.campaign.over

    # -- candidate -------------------------------------------------------------------------------

    def suspect(self) -> None:
        """The primary is silent: wait for one's turn."""
        cluster = self.seat.cluster
        if cluster is None or self.is_asking or not self._may_stand():
            return
        self.port.trace(
            "cluster", epoch=cluster.version[0], name=cluster.key, reason="primary silent"
        )
        self.port.emit(PrimarySuspected(cluster))
        rank = max(0, [p.id for p in cluster.members()].index(self.port.me.id) - 1)
        pause = self._pause()
        wait = pause * rank + self.settings.rank_wait * self.port.rng.random()
        if self.port.now < self._unwell_until:  # after the healthy ones; but not for ever
            wait += min(pause * (len(self.log.voters) - 1), 2.0 * self.pulse.round_trip())
        self.port.set_timer(wait, NominationDue())

    def on_local_stall(self, event: LocalStall) -> None:
        """This node was late: it may be again."""
        self._unwell_until = self.port.now + UNWELL

    def on_nomination_due(self, timer: NominationDue) -> None:
        """Still nobody?"""
        if not self.is_asking and self._may_stand() and self._leaderless():
            self._ask(trial=True, wanted=False)

    def take_over(self, arc: Cluster) -> None:
        """The leaving primary wants this node to lead."""
        self.arc = arc
        self._highest = max(self._highest, arc.version[0] - 1)
        self._ask(trial=False, wanted=True)

    def absorb(self, start: Key, above: int) -> None:
        """At a primary: lead on under an epoch over `above`, with an arc that begins at `start`."""
        self._highest = max(self._highest, above)
        if not self.is_asking:
            self._ask(trial=True, wanted=False, start=start)

    def inherit(self, epoch: int) -> None:
        """Lead under `epoch`, though no majority grants it (`recovery`)."""
        cluster = self.seat.cluster
        assert cluster is not None
        self.log.inherit()
        campaign = Campaign(epoch, trial=False, wanted=False, now=self.port.now)
        campaign.granted[self.port.me.id] = 0.0
        won = self._description(cluster, campaign)
        self.cancel()
        self.on_won(won, campaign)

    def renew(self, above: int) -> None:
        """At a primary, or one that led before it was started: lead on, under an epoch over
        `above`."""
        self._highest = max(self._highest, above)
        if not self.is_asking and (self.seat.is_primary or self._may_stand()):
            self._ask(trial=True, wanted=False)

    def on_campaign_over(self, timer: CampaignOver) -> None:
        """Too few answers. Another turn, at another time."""
        self._lose()

    def cancel(self) -> None:
        """Somebody leads."""
        self.campaign = self.arc = None
        self.port.cancel_timer(CampaignOver())
        self.port.cancel_timer(NominationDue())

    def _ask(self, trial: bool, wanted: bool, start: Key | None = None) -> None:
        cluster = self.seat.cluster
        assert cluster is not None
        promised = self.log.promises.epoch(cluster.key)
        assert self.log.held is not None
        leaving = self.log.held.config.leaving
        gone = 0 if leaving is None else leaving.version[0]  # perhaps served under this epoch
        highest = max(promised, cluster.version[0], self._highest, gone)
        if lineage(highest) != lineage(cluster.version[0]):
            highest = beyond(highest, self.port.rng)  # that one is of others: not in their lineage
        epoch = highest + 1
        self.campaign = Campaign(epoch, trial, wanted, self.port.now, start)
        self.port.set_timer(self._timeout(), CampaignOver())
        self.port.count("campaigns", 0 if trial else 1)
        if not trial:
            self.log.promises.make(cluster.key, epoch, self.port.me.id, self.log.voters)
        self._favoured = (self.port.me.id, self.port.now + self._pause())
        message = Nominate(cluster.key, epoch, self.log.position, trial, wanted)
        for peer in self.log.voters:
            if peer.id != self.port.me.id:
                self.port.send(peer, message)
        self._count_in(self.port.me.id)

    def on_grant(self, sender: Peer, message: Grant) -> None:
        """Yes or no."""
        campaign, cluster = self.campaign, self.seat.cluster
        self._highest = max(self._highest, message.promised)
        if (
            campaign is None
            or cluster is None
            or (message.key, message.epoch, message.trial)
            != (cluster.key, campaign.epoch, campaign.trial)
        ):
            return
        if message.granted:
            self._count_in(sender.id, message.term)
        elif self.log.votes(sender.id):
            campaign.refused[sender.id] = None
            if len(campaign.refused) > len(self.log.voters) - self.log.majority():
                self._lose()

    def _count_in(self, node: NodeId, term: float = 0.0) -> None:
        campaign, cluster = self.campaign, self.seat.cluster
        assert campaign is not None
        assert cluster is not None
        if self.log.votes(node):
            campaign.granted[node] = term
        if len(campaign.granted) < self.log.majority():
            return
        if campaign.trial and self.pulse.heard_at >= campaign.since:
            return  # the primary lives, and counts on this node's answer
        if campaign.trial:
            self._ask(trial=False, wanted=campaign.wanted, start=campaign.start)
            return
        won = self._description(cluster, campaign)
        self.cancel()
        self.port.count("elections_won")
        self.on_won(won, campaign)

    def _description(self, cluster: Cluster, campaign: Campaign) -> Cluster:
        """The cluster under this node."""
        me, epoch = self.port.me, campaign.epoch
        held = self.log.held
        assert held is not None
        config = held.config
        start = config.start if config.leaving is None else config.leaving.start
        start = campaign.start or start
        if self.arc is not None:
            return msgspec.structs.replace(self.arc, start=start, version=(epoch, 0))
        if cluster.primary.id == me.id:
            return msgspec.structs.replace(cluster, start=start, version=(epoch, 0))
        # The silent primary stays a member, last in rank, until its link is lost as well: if it was
        # only slow or cut off it keeps its log, and its vote.
        rest = [p for p in (*cluster.members()[1:], cluster.primary) if p.id != me.id]
        return Cluster(
            cluster.ring,
            cluster.key,
            start,
            (epoch, 0),
            me,
            rest[0] if rest else None,
            tuple(rest[1:]),
        )

    def _lose(self) -> None:
        self.port.cancel_timer(CampaignOver())
        self._favoured = ("", 0.0)
        if self.campaign is not None:
            self.campaign.over = True
        if self.arc is not None:
            self.campaign = self.arc = None
            self.on_lost()
        if self._leaderless():
            wait = self._timeout() * (0.5 + self.port.rng.random())
            self.port.set_timer(wait, NominationDue())

    def _timeout(self) -> float:
        """Longer where messages take long."""
        return max(self.settings.grant_timeout, self.pulse.round_trip())

    def _pause(self) -> float:
        """Seconds from one rank's turn to the next: the earlier shall have time for both rounds,
        since of two who ask for an epoch at the same time both may have too few votes."""
        return max(self.settings.rank_wait, 2.0 * self.pulse.delay())

    def _may_stand(self) -> bool:
        cluster = self.seat.cluster
        return (
            cluster is not None
            and self.log.held is not None
            and not self.seat.leaving
            and self._is_voter()
            and _is_of(self.log.position, cluster)
        )

    def _is_voter(self) -> bool:
        return self.log.votes(self.port.me.id)

    def _leaderless(self) -> bool:
        """Whether there is need for another primary, as far as this node sees."""
        if self.seat.cluster is None:
            return False
        if self.seat.is_primary:
            return self.log.fenced or self._highest > self.seat.cluster.version[0]
        return self.pulse.silent()

    # -- voter -----------------------------------------------------------------------------------

    def on_nominate(self, sender: Peer, message: Nominate) -> None:
        """Would, or does, this voter grant it?"""
        cluster, key = self.seat.cluster, message.key
        if cluster is None or cluster.key != key or self.log.held is None:
            return  # without a log there is nothing to judge a candidate by
        promises = self.log.promises
        granted = (
            message.epoch > cluster.version[0]
            and promises.may(key, message.epoch, sender.id)
            and message.position >= self.log.position
            and _is_of(message.position, cluster)
            and self._lets(sender, message.wanted)
        )
        if granted and message.trial:
            granted = self._favours(sender.id)
        elif granted:
            promises.make(key, message.epoch, sender.id, self.log.voters)
            self.pulse.granted()
            self.cancel()  # one cannot want it oneself
        promised = max(promises.epoch(key), cluster.version[0])
        term = self.pulse.patient_for() if granted else 0.0
        answer = Grant(key, message.epoch, message.trial, granted, promised, term)
        self.port.send(sender, answer)
        if message.epoch <= cluster.version[0] or not has_member(cluster, sender.id):
            self.port.send(sender, Moved(cluster))

    def _favours(self, candidate: NodeId) -> bool:
        """Whether no other one asked for its epoch's trial a short time ago. Of two who go on to
        ask for the epoch itself both may have too few votes."""
        other, until = self._favoured
        if other != candidate and until > self.port.now:
            return False
        self._favoured = (candidate, self.port.now + self._pause())
        return True

    def _lets(self, candidate: Peer, wanted: bool) -> bool:
        """Whether the present primary may be replaced by `candidate`."""
        cluster = self.seat.cluster
        assert cluster is not None
        if self.seat.is_primary:
            return not self.pulse.serving()
        unpromised = self.log.promises.epoch(cluster.key) <= cluster.version[0]
        renewal = candidate.id == cluster.primary.id and unpromised
        return wanted or renewal or self.pulse.silent()


def _is_of(position: Version, cluster: Cluster) -> bool:
    """Whether a log that ends at `position` was written under the fork that leads `cluster`."""
    return lineage(position[0]) >= lineage(cluster.version[0])
