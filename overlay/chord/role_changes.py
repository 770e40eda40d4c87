"""Carries out that this node begins or ceases to lead (P4, P5).

Here meet `election` and `recovery`, which decide that this node leads, and `fence`, by which it
hears that another node does. A primary that is fenced is one of four:

* its own voters have elected another member: its trees are the other's, and its copy of the log
  follows;
* its cluster was taken for lost and is led by a fork, or its arc was taken over: the new leader
  does not know its trees, so they end, and subscribers register again. If only a part of its arc is
  claimed, it goes on with the rest, which nobody else has;
* its cluster was never lost, only out of sight: it has its voters grant an epoch above the fork's,
  which fences that one or makes it give back the arc. So of clusters that took each other's place
  on two sides of a partition each keeps its own;
* what it heard is older than what it knows by now: nothing happens.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from overlay.bounded import BoundedDict
from overlay.chord.cluster.election import Campaign
from overlay.chord.cluster.heartbeat import PrimarySilent
from overlay.chord.cluster.messages import ClusterHeartbeatReply
from overlay.chord.constants import NOT_LOST_AFTER, RAISE_AGAIN, RAISES_MOST, REMOVED_MOST
from overlay.chord.epochs import above_fork, fork_count, fork_id
from overlay.chord.events import ArcDivided, ArcGone, Elected, Replanted
from overlay.chord.membership.cluster_merge import ClusterMerges
from overlay.chord.membership.handover import HandOvers
from overlay.chord.membership.taking_over import LeadershipParts, TakingOver
from overlay.chord.messages import Cluster, Moved
from overlay.chord.recovery.recovery import Recovery
from overlay.chord.role import RecruitingView
from overlay.machine import NodeId, Peer


@dataclass(eq=False)
class RoleChanges(LeadershipParts):
    """Begins and ends this node's leading: the outcome of elections and of recoveries."""

    view: RecruitingView
    handovers: HandOvers
    taking_over: TakingOver
    merges: ClusterMerges
    recovery: Recovery

    def __post_init__(self) -> None:
        super().__post_init__()
        self._led_since = 0.0  # since when this cluster is led, as far as this node knows
        self._is_fork = False  # this node leads it without those who have led it before
        self._forks_before: int | None = None  # its fork count before it first overrode a fork
        # Primaries of the forks that it overrode in this branch: the first epoch of each.
        self._overridden = BoundedDict[NodeId, int](REMOVED_MOST)
        # Elections because of what single nodes said: since when, and how many.
        self._raised = BoundedDict[NodeId, tuple[float, int]](REMOVED_MOST)
        self.election.report_to(self)
        self.recovery.report_to(self)

    # -- silence ---------------------------------------------------------------------------------

    def on_primary_silent(self, timer: PrimarySilent) -> None:
        """No heartbeat for the election timeout: the primary may be dead, the cluster lost, or only
        this node forgotten."""
        if not self.heartbeat.suspects_primary():
            return
        if self.role.cluster is not None:
            self.recovery.suspect(self.role.cluster)
        self.election.suspect()
        self.members.probe_members()

    def check_lease(self) -> None:
        """Look for help if this node leads and no majority follows it: its voters may be lost for
        good."""
        if self.role.led is not None and not self.heartbeat.has_lease():
            self.recovery.suspect(self.role.led)

    def on_heartbeat_reply(self, sender: Peer, message: ClusterHeartbeatReply) -> None:
        """A voter follows; or it has voted for a higher epoch than the one under which this node
        leads (for a candidate that was not elected, or for a fork): then ask for a higher one."""
        voted_epoch = self.heartbeat.answered(sender, message)
        if voted_epoch is None:
            return
        own = self.role.own
        if self.heartbeat.has_lease() and not self._may_raise(sender.id):
            return  # a majority follows without it, and it has had its elections
        if fork_id(voted_epoch) == fork_id(own.epoch):
            self.election.raise_epoch(voted_epoch)
        elif self._was_always_led() and (
            fork_count(voted_epoch) > self._count_before(own) or self._is_kept_from(sender.id)
        ):
            self.election.raise_epoch(above_fork(voted_epoch, self.port.rng))

    def _is_kept_from(self, member: NodeId) -> bool:
        """Return whether a member has received nothing of the log since this node began to lead.
        Such a member serves here, but has voted in another branch of the cluster that has ended,
        and does not support a lower epoch."""
        led_for = self.port.now - self.heartbeat.led_since
        return led_for >= NOT_LOST_AFTER and not self.leader_log.has_answered(member)

    def transfer_failed(self) -> None:
        """Report that the voters do not let this node replace a leaving primary."""
        self.taking_over.refuse()

    # -- this node leads -------------------------------------------------------------------------

    def found(self, cluster: Cluster) -> None:
        """Found and lead a new cluster with this node as its only member."""
        self.port.count("founded")
        self._begin_branch(self.port.now)
        self.members.begin()
        self.role.adopt(cluster, "founded")
        self.leader_log.found(cluster)
        self.heartbeat.lead({}, 0.0)
        self.recruiting.begin()

    def lead_empty(self, cluster: Cluster, lost: Cluster) -> None:
        """Nothing is left of the cluster `lost`: found `cluster` in its place."""
        self.found(cluster)
        own = self.role.own  # the same, signed
        self.ring.rejoin(own, lost.primary)
        self._replanted(own, lost, others=own.start != lost.start)

    def _replanted(self, cluster: Cluster, lost: Cluster, others: bool = False) -> None:
        """Tell the trees and the neighbours, who spread it by gossip, that this node now leads the
        arc of `lost`."""
        self.port.emit(Replanted(lost, others))
        for peer in self.view.peers():
            self.port.send(peer, Moved(cluster))

    def take_over_arc(self, lost: Cluster, epoch: int) -> None:
        """Have the voters grant the arc of the lost preceding cluster, except the part that this
        cluster already owns (an older description of the lost one may reach back over the own
        key)."""
        own = self.role.own
        self.election.take_over_arc(own.key if lost.owns(own.key) else lost.start, epoch)

    def lead_own_log(self, epoch: int) -> None:
        """Lead under this epoch with this node's own log, since no other member can lead."""
        self.election.lead_without_majority(epoch)
        # A node that has a majority meanwhile was never without a leader.
        self._begin_branch(self.port.now, is_fork=True)
        self.handovers.abort()

    def election_won(self, cluster: Cluster, campaign: Campaign) -> None:
        """Lead: a majority has granted this node the epoch of `cluster`."""
        cluster = self.ring.sealed(cluster)
        before, was_primary = self.role.own, self.role.is_primary
        given = self.log.config.given
        if campaign.transfer:
            self.taking_over.taken(cluster)
        if not was_primary:
            self.members.begin()
        self.role.adopt(cluster, "elected")
        self.role.announce()
        self.leader_log.lead(campaign.start)
        self.heartbeat.lead(campaign.granted, campaign.since)
        forked = fork_id(cluster.epoch) != fork_id(before.epoch)
        if given is not None and campaign.start is not None:
            self.merges.keep(given)  # what it was given to is part of this cluster now
        if was_primary:
            if campaign.start is not None:  # where the arc began, that of the lost cluster ends
                self._replanted(cluster, replace(cluster, key=before.start))
            elif forked:  # whose primary has sent hosts and publishers something else
                self.port.emit(Elected(cluster, before.primary, forked))
            return
        self._begin_branch(self.heartbeat.led_continuously_since())
        self.ring.rejoin(cluster, before.primary)
        self.recruiting.begin()
        if not campaign.transfer:
            self.port.emit(Elected(cluster, before.primary, forked))

    def _begin_branch(self, since: float, is_fork: bool = False) -> None:
        """Begin a branch that this node leads. The cluster was led without a gap from `since`
        on."""
        self._led_since, self._is_fork, self._forks_before = since, is_fork, None
        self._overridden.clear()

    # -- another node leads ----------------------------------------------------------------------

    def fence(self, other: Cluster) -> None:
        """Our keys are served under a higher epoch: stop, follow, or override the fork."""
        own, handover = self.role.cluster, self.handovers.current
        if own is None or other.epoch <= own.epoch:
            return  # older than the own epoch
        if not self.role.is_primary:
            if self.heartbeat.is_primary_silent():
                self.members.leave_cluster("another serves its arc")
            elif own.primary.id != self.port.me.id:  # else it led before it was started again
                self.port.send(own.primary, Moved(other))  # it knows whether it is lost
            return
        # It may vote for another epoch of its own just now: a majority follows it all the same.
        followed = self.heartbeat.has_lease() or self.election.is_asking
        if self.ring.is_signed() and followed and not self.ring.settles(other):
            if not self.ring.is_refused(other):
                return
            if not self._meets(own, other):
                self._outvote(own, other)
                return
        if handover is not None and handover.arc.key == other.key:
            if handover.decided_at >= 0 or handover.arc.has_member(other.primary.id):
                return  # we gave it away ourselves; its own word is on the way
            self.handovers.abort()  # another has it
        if self._overrides(own, other):
            self._override_fork(own, other)
            return
        if self._is_other_branch(own, other):
            self.port.emit(ArcDivided(own))
            self.port.send(other.primary, Moved(own))
        self.port.count("fenced")
        if self.ring.is_signed() and other.key == own.key:
            # Who has refused to believe `other`, since this node led, believes it by this.
            for peer in self.view.peers():
                self.port.send(peer, Moved(other, unled=True))
        self.election.cancel()
        if other.key != own.key and not other.owns(own.key):
            self._give_back(own, other)
            return
        if other.key != own.key:
            self.members.disband("fenced")
            return
        self.handovers.forget()
        if not own.has_member(other.primary.id):
            self.members.disband("fenced by a fork")
            self.ring.learn(other)
        elif other.has_member(self.port.me.id):
            self.members.follow_new_primary(other)  # its copy stays, and follows
        else:
            self.port.emit(ArcGone(own))
            self.members.leave_cluster("fenced", other)

    def _meets(self, own: Cluster, other: Cluster) -> bool:
        """Return whether `other`, which cannot prove its origin, is treated as another fork. A fork
        cannot prove its own origin either, so of two forks that meet neither is believed, and each
        would outvote the other for ever. `other` counts as a fork if other nodes have granted its
        claim, or if this primary is the only voter, so that nobody can contradict `other`."""
        lone = self.log.majority() == 1
        return fork_count(own.epoch) > 0 and (lone or self.ring.is_followed(other))

    def _outvote(self, own: Cluster, other: Cluster) -> None:
        """Any voter may claim what `other` says, be it a part of the arc, and a majority follows
        this node: a true fork hears of an epoch above its own, which that majority has granted."""
        self.port.count("claims_outvoted")
        if self._may_raise(other.primary.id):
            self.election.raise_epoch(above_fork(other.epoch, self.port.rng))

    def _may_raise(self, node: NodeId) -> bool:
        """Count and limit elections that are caused by statements of `node`, which may lie. Return
        whether one more is allowed; always True where nodes have no keys."""
        since, times = self._raised.get(node, (float("-inf"), 0))
        if self.port.now >= since + RAISE_AGAIN:
            since, times = self.port.now, 0
        self._raised.renew(node, (since, times + 1))
        return times < RAISES_MOST or not self.ring.is_signed()

    def rival_named(self, sender: Peer, other: Cluster) -> None:
        """Handle a stopping primary's statement of the arc that it led. If it led this arc, or a
        part of it, on the other side of a partition, tell the trees."""
        own = self.role.led
        if own is None or sender.id != other.primary.id or other.epoch >= own.epoch:
            return
        overlap = own.owns(other.key) or other.owns(own.key)
        forked = fork_count(own.epoch) + fork_count(other.epoch) > 0
        if overlap and forked and self._is_other_branch(own, other):
            self.port.emit(ArcDivided(own if other.owns(own.key) else other))

    def _is_other_branch(self, own: Cluster, other: Cluster) -> bool:
        """Whether these led without hearing of each other, and not one after the other."""
        return own.key != other.key or fork_id(own.epoch) != fork_id(other.epoch)

    def _override_fork(self, own: Cluster, other: Cluster) -> None:
        """Override a fork of this cluster, which was never lost: give back the arcs taken in place
        of other clusters that were not lost either, and have the voters grant an epoch above that
        of the cluster that took its place."""
        self.port.count("forks_overridden")
        if other.primary.id not in self._overridden:
            self._overridden[other.primary.id] = other.epoch
        if self._forks_before is None and not self._is_fork:
            self._forks_before = fork_count(own.epoch)
        if other.key != own.key and own.owns(other.key):
            self.port.emit(ArcDivided(replace(own, key=other.key)))
            self._give_back(own, other)
        if other.owns(own.key):
            self.election.raise_epoch(above_fork(other.epoch, self.port.rng))

    def _give_back(self, own: Cluster, other: Cluster) -> None:
        """Leave to `other` the part of the own arc up to its key, and go on with the rest: no other
        cluster has that, and without an owner it would stay so."""
        config = replace(self.log.config, start=other.key, promised=None)
        self.leader_log.configure(config)
        self.members.shrink(other.key)
        self.port.emit(ArcGone(replace(own, key=other.key)))

    def _overrides(self, own: Cluster, other: Cluster) -> bool:
        """Whether `other` has taken the place of this cluster, or claims what this one took in its
        place, and this one was never without a leader. (Of two with the same key the one that was
        there before the fork goes on in the fork's own branch, which ends the matter. It does
        so once more for each fork that it meets then: where several nodes were cut off, each
        alone, there is one for each of them, and any of these may have the highest epoch. It does
        not do so again for one that overrides it in turn, which was led all the time as well.)"""
        first = self._overridden.get(other.primary.id)
        before = 0
        if own.key == other.key:
            is_answer = first is not None and first < own.epoch
            before = fork_count(own.epoch) if is_answer else self._count_before(own)
        forked = fork_count(other.epoch) > before
        return forked and self._was_always_led()

    def _count_before(self, own: Cluster) -> int:
        """Return the number of forks before those that this node's cluster has overridden."""
        return fork_count(own.epoch) if self._forks_before is None else self._forks_before

    def _was_always_led(self) -> bool:
        """Whether the cluster has been led for `NOT_LOST_AFTER` seconds, now by this node."""
        followed = self.heartbeat.has_lease() or self.election.is_asking
        return followed and self.port.now - self._led_since >= NOT_LOST_AFTER
