"""Recovery of a cluster that is lost: another node takes its place (P5; Phoenix section 2, cluster
failure).

A cluster is *lost* when no node leads it and no election can help, since a majority of its voters
does not answer. A partition looks the same. Trees are soft state, so after a measured time a node
goes on without that majority, under an epoch that forks off (`epochs`):

1. *a member that holds the log*, a former primary included, with the trees in its log;
2. *the ring successor*, where no member acts: its own majority grants the epoch, and its arc grows
   by the lost one;
3. *an outsider*, where no other cluster of the ring is left: it begins with an empty log.

Where the log is gone (2, 3), the node that acts plants the trees from its copy of the log
(`observed_logs`); outsiders with a copy act before those without one. What no copy has, subscribers
register again: they hear of the fork by gossip and renew at once. Until they had time to,
publishers get no answers about these trees (upper_tree/owner/registrations/restoration.py), so
events wait where they were published (the paper's buffer, bounded).

A node that can ask others never acts alone: the remaining members and some neighbours have to
agree. Each refuses if it hears a leader, has not looked for one itself for a while, or is fitter: a
member before an outsider, a further log before a shorter one, then the smaller id. A node that
reaches none at all waits much longer.

A member that was just started waits longer, too: nodes that were stopped with it may be starting as
well, and would elect a primary. Meanwhile it does not stand in the way of another, fitter or not,
that has as much of the log (the ring successor with its copy): nothing is lost by that. It does
after `election.fork_after` only; by then a majority that came back with it has elected one. With
more in its log than the other it refuses as ever, since what the other lacks would be lost.

When the lost cluster comes back it is fenced, and its members are free for any cluster. One that
was led all the time and only out of sight overrides the fork (`role_changes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from overlay.bounded import BoundedDict
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.constants import (
    AGREE_AFTER,
    AGREED_FOR,
    ANSWER_MOST,
    ANSWER_WITHIN,
    COPY_WAIT,
    ISOLATED_WAIT,
    LED_FOR,
    LOST_MOST,
    LOST_ROUND_TRIPS,
    NEIGHBOUR_WAIT,
    NEIGHBOURS_ASKED,
    OUTSIDER_WAIT,
    RANK_WAIT,
    RECOVERY_AGAIN,
    RECOVERY_ROUND,
    RESTARTING,
)
from overlay.chord.epochs import fork_count, new_fork
from overlay.chord.messages import Cluster, Contact, Moved
from overlay.chord.recovery.messages import RecoverReply, RecoverRequest
from overlay.chord.recovery.observed_logs import ObservedLogs
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role import ClusterRole, RecruitingView
from overlay.consensus import EMPTY
from overlay.machine import Key, NodeId, Peer, Timer, Version, by_id
from overlay.settings import ElectionSettings


class RecoveryRound(Timer, frozen=True):
    """Time to look for leaders of the clusters that are missed."""


class RecoveryAnswersDue(Timer, frozen=True):
    """Fires when the time for answers to a recovery question is over."""


class LostCluster:
    """A cluster without a leader, as far as this node knows."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self.cluster = cluster
        self.since = now
        self.not_before = now  # a refusal came
        self.jitter = -1.0  # the part of the wait that is by chance
        self.spread_from = now  # when neighbours may be asked to look as well
        self.neighbours: tuple[Peer, ...] = ()  # that were asked to look as well


class RecoveryAttempt:
    """An attempt of this node to lead a lost cluster, for which it asks other nodes."""

    def __init__(self, lost: LostCluster, epoch: int, now: float) -> None:
        self.lost = lost
        self.epoch = epoch
        self.since = now
        self.unheard = {peer.id: None for peer in lost.cluster.members()}
        self.agreed: dict[NodeId, None] = {}
        self.refused = False

    def is_meant(self, key: Key, epoch: int) -> bool:
        """Whether an answer about the cluster `key` and this epoch is one to this question."""
        return (key, epoch) == (self.lost.cluster.key, self.epoch)


Standing = tuple[bool, Version]
"""Whether a node is a member of the lost cluster, and the position of its log or copy."""


class Agreement(NamedTuple):
    """The node to which this node has agreed; until then it agrees only to a node that is
    fitter."""

    node: NodeId
    standing: Standing
    until: float

    def is_fitter(self, node: NodeId, standing: Standing) -> bool:
        """Whether the node that was agreed to is fitter than `node`."""
        return (standing, self.node) < (self.standing, node)


class RecoveryOutcome(Protocol):
    """The interface that acts when this node may take the place of a lost cluster
    (`role_changes.RoleChanges`)."""

    def lead_own_log(self, epoch: int) -> None:
        """Lead the cluster, as one of its members, under the fork `epoch` with the own log."""

    def lead_empty(self, cluster: Cluster, lost: Cluster) -> None:
        """Found `cluster`, as an outsider, with an empty log in place of `lost`."""

    def take_over_arc(self, lost: Cluster, epoch: int) -> None:
        """Have the own voters, as the ring successor, grant `epoch` or a higher one, and add the
        arc of `lost`."""


@dataclass(eq=False)
class Recovery:
    """Both sides: a node that would lead a lost cluster, and the nodes that it asks."""

    settings: ElectionSettings
    role: ClusterRole
    ring: RingState
    view: RecruitingView
    log: FollowerLog
    heartbeat: Heartbeat
    observed_logs: ObservedLogs
    serves: bool = True
    """Whether this node may serve in clusters: else it leads none that is lost, and asks nobody to
    look for one."""

    def __post_init__(self) -> None:
        self.port = self.role.port
        self._lost: dict[Key, LostCluster] = {}
        self._asking: RecoveryAttempt | None = None
        self._agreed = BoundedDict[Key, Agreement](LOST_MOST)
        self._answered = BoundedDict[Key, float](LOST_MOST)  # when a suspected leader last has
        self._began = float("-inf")  # this process, if its node served before

    def report_to(self, outcome: RecoveryOutcome) -> None:
        """Let `outcome` act where this node may lead. Called once, before there are attempts."""
        self._outcome = outcome

    def resume(self) -> None:
        """Begin after a start of this process. Its node served in a cluster before, and the other
        members may be starting as well."""
        self._began = self.port.now

    def cluster_left(self) -> None:
        """Stop waiting for members to start, because this node serves in no cluster."""
        self._began = float("-inf")

    # -- suspicion -------------------------------------------------------------------------------

    def suspect(self, cluster: Cluster) -> None:
        """Begin to look for another leader of `cluster`, whose own one is silent. (A cluster whose
        primary is this node is an arc without a leader, before the own one. It replaces what others
        say of a cluster there: its former members, which serve elsewhere or nowhere, agree to
        nothing, and the knowledge of it goes as soon as one of them says so.)"""
        lost = self._lost.get(cluster.key)
        if lost is not None and cluster.primary.id == self.port.me.id:
            lost.cluster = cluster
        elif lost is None and len(self._lost) < LOST_MOST:
            if cluster.primary.id != self.port.me.id:
                self.ring.learn(cluster)
            self._lost[cluster.key] = LostCluster(cluster, self.port.now)
            self.port.set_timer(RECOVERY_ROUND, RecoveryRound())

    def _look_at(self, cluster: Cluster) -> None:
        """Suspect a cluster of which nothing speaks against its leader: neighbours are asked to
        look as well only if that does not answer. (If they were asked at once, and asked others,
        all nodes would ask all leaders all the time, while one cluster is lost.)"""
        if cluster.key not in self._lost:
            self.suspect(cluster)
            if (lost := self._lost.get(cluster.key)) is not None:
                lost.spread_from += 2 * RECOVERY_ROUND

    def misses_primary(self) -> bool:
        """Whether this node has looked for a primary of its own cluster for so long that it may be
        taken for lost."""
        own = self.role.cluster
        lost = None if own is None else self._lost.get(own.key)
        return lost is not None and lost.since <= self.port.now - self.settings.fork_after

    def peer_lost(self, node: NodeId) -> None:
        """Suspect the clusters that `node` led, since the link to it is down."""
        if self._asking is not None:
            self._asking.unheard.pop(node, None)
        own = self.role.cluster
        clusters, hints = self.ring.clusters(), self.ring.hints()
        for cluster in clusters:
            if cluster.primary.id == node and (own is None or own.key != cluster.key):
                self._answered.pop(cluster.key, None)
                self.suspect(cluster)
        if own is None and not clusters and len(hints) == 1 and hints[0].primary.id == node:
            ring, key = hints[0].ring, hints[0].key  # no other cluster was ever heard of
            self.suspect(Cluster(ring, key, key, hints[0].version, hints[0].primary))

    def leader_named(self, sender: Peer, cluster: Cluster) -> None:
        """End the suspicion of a cluster whose leader has answered itself. A leader that has just
        been restarted may not know yet that another one was elected."""
        lost = self._lost.get(cluster.key)
        is_sure = lost is not None and cluster.epoch >= lost.cluster.epoch
        if is_sure and sender.id == cluster.primary.id:
            del self._lost[cluster.key]
            self._answered.renew(cluster.key, self.port.now)

    def _has_answered(self, cluster: Cluster) -> bool:
        """Whether its leader has answered this node lately."""
        return self._answered.get(cluster.key, -inf) > self.port.now - LED_FOR

    def on_round(self, timer: RecoveryRound) -> None:
        """For each cluster that is missed: look whether it is led, ask around, and ask to lead it
        if it is this node's turn."""
        for lost in list(self._lost.values()):
            self._hear_out(lost)
            if self._is_led(lost.cluster):
                self._lost.pop(lost.cluster.key, None)
                continue
            self._probe(lost)
            if self._asking is None and self._attempt_at(lost) <= self.port.now:
                self._ask(lost)
        if self._lost:
            turns = [self._attempt_at(lost) - self.port.now for lost in list(self._lost.values())]
            soon = [turn for turn in turns if 0.0 < turn < RECOVERY_ROUND]
            self.port.set_timer(min(soon, default=RECOVERY_ROUND), RecoveryRound())

    def _hear_out(self, lost: LostCluster) -> None:
        """Ask the leader of a newer description of an arc that this node misses, since the
        description may be of one that has left."""
        newest, gap = self.ring.newest(lost.cluster.key), lost.cluster
        if gap.primary.id == self.port.me.id and newest and newest.epoch > gap.epoch:
            lost.cluster = self.ring.claims.sealed(
                Cluster(gap.ring, gap.key, gap.start, newest.version, self.port.me)
            )
            lost.since = self.port.now
            self.port.send(newest.primary, Contact(self.port.me.id))

    def _is_led(self, cluster: Cluster) -> bool:
        """Whether it has a leader, or its place is taken."""
        own, heartbeat = self.role.cluster, self.heartbeat
        if own is not None and own.key == cluster.key:
            is_primary = self.role.is_primary
            return heartbeat.has_lease() if is_primary else not heartbeat.is_primary_silent()
        newest = self.ring.newest(cluster.key)
        if newest is not None and newest.epoch > cluster.epoch:
            return True
        if cluster.primary.id == self.port.me.id:  # an arc before the own one that nobody leads
            return own is None or own.start != cluster.key
        return newest is None

    def _probe(self, lost: LostCluster) -> None:
        """Ask members and neighbours who leads it, and let some neighbours look as well."""
        if not lost.neighbours and self.port.now >= lost.spread_from:
            lost.neighbours = tuple(self._neighbours(NEIGHBOURS_ASKED))
            for peer in lost.neighbours if self.serves else ():
                self.port.send(peer, RecoverRequest(lost.cluster, 0, EMPTY))
        peers = (*lost.cluster.members(), *self._neighbours(2))
        for peer in by_id(peers, besides=self.port.me.id).values():
            self.port.send(peer, Contact(self.port.me.id))

    def _neighbours(self, most: int) -> list[Peer]:
        peers = list(self.view.peers())
        return self.port.rng.sample(peers, min(most, len(peers)))

    # -- whose turn it is ------------------------------------------------------------------------

    def _attempt_at(self, lost: LostCluster) -> float:
        """Return when it is this node's turn to ask; infinity if it never is."""
        wait = self._attempt_delay(lost)
        lost_after = max(self.settings.fork_after, LOST_ROUND_TRIPS * self.heartbeat.round_trip())
        since = lost.since
        if self.heartbeat.heard_at < self._began:  # no primary of its own since it was started
            since = max(since, self._began + RESTARTING - lost_after)
        return inf if wait is None else max(since + lost_after + wait, lost.not_before)

    def _attempt_delay(self, lost: LostCluster) -> float | None:
        """Return how much longer than others this node waits; None: it should not act."""
        own, cluster = self.role.cluster, lost.cluster
        if self.role.leaving or self.role.is_reserved or (own is None and not self.serves):
            return None
        if lost.jitter < 0.0:
            lost.jitter = self.port.rng.random()
        if own is None:
            knows = self._position(cluster.key) > EMPTY
            wait = OUTSIDER_WAIT + lost.jitter / 2 + (0.0 if knows else COPY_WAIT)
            return wait if self._is_last(lost) else None
        if own.key == cluster.key:
            rank = [p.id for p in own.members()].index(self.port.me.id)
            return RANK_WAIT * (rank + lost.jitter) if self.log.voter_log is not None else None
        return NEIGHBOUR_WAIT if self._is_successor_of(lost) else None

    def _is_successor_of(self, lost: LostCluster) -> bool:
        """Whether this node leads the cluster after the lost one in the ring."""
        own = self.role.led
        return (
            own is not None
            and own.key != lost.cluster.key
            and own.start == lost.cluster.key
            and self.heartbeat.has_lease()
        )

    def _is_last(self, lost: LostCluster) -> bool:
        """Whether no other cluster of the ring is led. Others are suspected for that: first one,
        and when its leader has not answered for a round all."""
        others = [c for c in self.ring.clusters() if c.key != lost.cluster.key]
        if any(map(self._has_answered, others)):
            return False
        missed = [self._lost[c.key].since for c in others if c.key in self._lost]
        if others and not missed:
            self._look_at(self.port.rng.choice(others))
        elif missed and min(missed) <= self.port.now - RECOVERY_ROUND:
            for cluster in others:
                self._look_at(cluster)
        first = lost.cluster.key == min((lost.cluster.key, *(c.key for c in others)))
        return first and self._all_lost(self.port.now - self.settings.fork_after)

    def _all_lost(self, since: float) -> bool:
        """Whether every cluster that is known is missed, at least since `since`."""
        keys = [way.key for way in self.ring.ways()]
        return all(key in self._lost and self._lost[key].since <= since for key in keys)

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, lost: LostCluster) -> None:
        """Ask the members and some neighbours whether this node may lead it."""
        own = self.role.cluster
        epochs = [lost.cluster.epoch, self.log.voted_epoch(lost.cluster.key)]
        epochs += [other.cluster.epoch for other in self._lost.values()]
        highest = max(epochs)
        if own is not None and fork_count(own.epoch) > fork_count(highest):
            epoch = own.epoch + 1  # above all that the lost ones may still grant, as it is
        else:
            epoch = new_fork(highest, len(self.view.peers()), self.port.rng)
        self._asking = RecoveryAttempt(lost, epoch, self.port.now)
        self._asking.unheard.pop(self.port.me.id, None)
        # Those who look for a leader as well: others would refuse, since they do not know better.
        neighbours = () if self._is_successor_of(lost) else lost.neighbours
        request = RecoverRequest(lost.cluster, epoch, self._position(lost.cluster.key))
        asked = (*lost.cluster.members(), *neighbours)
        for peer in by_id(asked, besides=self.port.me.id).values():
            self.port.send(peer, request)
        self.port.set_timer(max(ANSWER_WITHIN, self.heartbeat.round_trip()), RecoveryAnswersDue())

    def on_recover(self, sender: Peer, message: RecoverRequest) -> None:
        """Agree, unless there is a leader or a fitter node. Nodes of other rings get no answer."""
        if self.ring.ring not in ("", message.cluster.ring):
            return
        key, now = message.cluster.key, self.port.now
        standing = (message.cluster.has_member(sender.id), message.position)
        mine = self._standing(message.cluster)
        before = self._agreed.get(key)
        own, newest = self.role.cluster, self.ring.newest(key)
        led = False
        if own is not None and own.key == key:
            newest = own
            led = sender.id != own.primary.id and self._is_led(own)
        led = led or (newest is not None and newest.epoch > message.cluster.epoch)
        taken = before is not None and before.until > now and before.is_fitter(sender.id, standing)
        lost = self._lost.get(key)
        if sender.id == message.cluster.primary.id:
            sure = True  # who leads it says that it is lost
        elif own is None and not standing[0]:  # it would begin the ring again
            sure = self._all_lost(now - AGREE_AFTER)
        else:
            sure = lost is not None and lost.since <= now - AGREE_AFTER
        fitter = mine > standing or self._is_first(message.cluster, sender, standing)
        if fitter and lost is not None and message.position >= mine[1]:
            fitter = not self._gives_way(lost)
        agreed = sure and not (led or taken or fitter)
        is_only_to_look = not message.epoch and self._has_answered(message.cluster)
        if not (led or is_only_to_look) and sender.id != message.cluster.primary.id:
            self.suspect(message.cluster)
        if not message.epoch:
            return
        if agreed:
            self._agreed[key] = Agreement(sender.id, standing, now + AGREED_FOR)
            if self._asking is not None and self._asking.lost.cluster.key == key:
                self._asking.refused = True  # this node does not want it any more
        if led and newest is not None:
            self.port.send(sender, Moved(newest))
        self.port.send(sender, RecoverReply(key, message.epoch, agreed))

    def _gives_way(self, lost: LostCluster) -> bool:
        """Whether this node was just started and will not ask before another has its answers,
        while those that were started with it have had their time to elect a primary."""
        now = self.port.now
        is_starting = self.heartbeat.heard_at < self._began <= now - self.settings.fork_after
        return is_starting and self._attempt_at(lost) > now + ANSWER_MOST

    def _is_first(self, cluster: Cluster, other: Peer, standing: Standing) -> bool:
        """Whether this node asks as well, with as much in its log, and has the smaller id."""
        if self._asking is None or self._asking.lost.cluster.key != cluster.key:
            return False
        mine = Agreement(self.port.me.id, self._standing(cluster), 0.0)
        return mine.is_fitter(other.id, standing)

    def on_reply(self, sender: Peer, message: RecoverReply) -> None:
        """Note whether a node that was asked agrees that the cluster is lost."""
        asking = self._asking
        if asking is None or not asking.is_meant(message.key, message.epoch):
            return
        asking.unheard.pop(sender.id, None)
        if message.agreed:
            asking.agreed[sender.id] = None
        else:
            asking.refused = True

    def on_answers_due(self, timer: RecoveryAnswersDue) -> None:
        """Lead the cluster if none was against it and at least one was for it."""
        asking, now = self._asking, self.port.now
        if asking is None:
            return
        waits = asking.unheard and not asking.refused
        if waits and now < asking.since + ANSWER_MOST:
            self.port.set_timer(ANSWER_WITHIN / 2, RecoveryAnswersDue())
            return
        self._asking = None
        lost = asking.lost
        key = lost.cluster.key
        if self._lost.get(key) is not lost or self._is_led(lost.cluster):
            return
        follows = self._is_successor_of(lost)  # then the own voters agree, or do not
        if asking.refused or not (asking.agreed or follows or now >= lost.since + ISOLATED_WAIT):
            lost.not_before = now + RECOVERY_AGAIN * (0.5 + self.port.rng.random())
            return
        if self._attempt_delay(lost) is None:
            return  # its role has changed meanwhile
        self._lost.pop(key, None)
        self.port.count("clusters_recovered")
        if follows:
            self._outcome.take_over_arc(lost.cluster, asking.epoch)
            return
        if self.role.cluster is not None:
            self._outcome.lead_own_log(asking.epoch)
            return
        start = lost.cluster.start
        if len(self.ring.clusters()) > 1:  # all of the others are lost, too
            start = key
        mine = Cluster(lost.cluster.ring, key, start, (asking.epoch, 0), self.port.me)
        self._outcome.lead_empty(mine, lost.cluster)

    def _standing(self, cluster: Cluster) -> Standing:
        """Return this node's own standing. Its log is newer than the description."""
        return self.log.is_of(cluster.key), self._position(cluster.key)

    def _position(self, key: Key) -> Version:
        return self.log.position if self.log.is_of(key) else self.observed_logs.position(key)
