"""The coming primary's side of a hand-over (P1); `handover` is the other side.

A whole cluster that its leaving primary hands over stays the same cluster with the same voters: the
new primary asks them for the epoch like any candidate, except that no silence is needed (Raft's
leadership transfer, dissertation section 3.10).

A part that is split off is a new cluster, for which no voters can vouch. Its coming primary stores
what it is given (`OfferedArc`), confirms that, and waits: it serves when the log of the old cluster
says so with a majority, and not before. The old primary sends it the decision, or it asks the one
that leads the old cluster by then, also after restarts. Meanwhile it serves in no other cluster; if
it leaves, it takes the arc and hands it on like any leaving primary. If the arc cannot be served
here after all, it lets the old cluster know, which takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass

from overlay.chord.cluster.election import Election
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.cluster.journal import Journal, OfferedArc
from overlay.chord.cluster.leader_log import Departures, LeaderLog
from overlay.chord.constants import ASK_ARC_EVERY
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.membership.recruitment import Recruiting
from overlay.chord.messages import ArcGiven, AskArc, Cluster, TakenOver, TakeOver
from overlay.chord.ring.ring import Ring
from overlay.chord.role import ClusterRole
from overlay.machine import Peer, Timer, by_id


class AskArcDue(Timer, frozen=True):
    """Time to ask again whether the arc is decided."""


@dataclass(eq=False)
class LeadershipParts:
    """The parts that begin and end this node's leading have in common."""

    role: ClusterRole
    ring: Ring
    log: FollowerLog
    leader_log: LeaderLog
    heartbeat: Heartbeat
    election: Election
    members: ClusterMembers
    departures: Departures
    recruiting: Recruiting
    journal: Journal

    def __post_init__(self) -> None:
        self.port = self.role.port


class TakingOver(LeadershipParts):
    """The coming primary of an arc, or of a whole cluster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._from: Peer | None = None  # the primary that wants this node to take over
        self._around: tuple[Cluster | None, tuple[Cluster, ...]] = (None, ())  # the ring there

    def resume(self) -> None:
        """Go on after a restart: if an offered arc is stored, ask whether its owner has decided to
        give it."""
        if self.journal.offered.arc is not None:
            self.port.set_timer(ASK_ARC_EVERY, AskArcDue())

    def on_take_over(self, sender: Peer, message: TakeOver) -> None:
        """Lead the cluster if its whole log is here and the voters agree; or, for an arc that
        splits off, store its state, confirm that and wait for the decision."""
        own, arc = self.role.cluster, message.cluster
        voter_log, staged = self.log.voter_log, self.log.staged
        willing = (
            own is not None
            and sender.id == own.primary.id
            and arc.primary.id == self.port.me.id
            and not self.role.leaving
        )
        if (
            willing
            and voter_log is not None
            and voter_log.key == arc.key
            and voter_log.next >= message.index
        ):
            for known in (message.predecessor, *message.successors):
                if known is not None:
                    self.ring.learn(known)
            self._from = sender
            self.election.accept_transfer(arc)  # answered when the voters have granted it
            return
        accepted = (
            willing
            and staged is not None
            and staged.complete
            and (staged.key, staged.position[1]) == (arc.key, message.index)
        )
        self.port.send(sender, TakenOver(arc, accepted))
        if staged is None or not accepted:
            self.log.drop_staged()
            return
        self.journal.store_offer(OfferedArc(arc, own, staged.snapshot()))
        self._around = (message.predecessor, message.successors)
        self.port.set_timer(ASK_ARC_EVERY, AskArcDue())

    # -- an arc that was offered -----------------------------------------------------------------

    def on_ask_arc_due(self, timer: AskArcDue) -> None:
        """No decision yet: ask all who may know it."""
        offered = self.journal.offered
        if offered.arc is None or offered.old is None:
            return
        self.port.set_timer(ASK_ARC_EVERY, AskArcDue())
        newest = self.ring.newest(offered.old.key)
        known = (*offered.old.members(), *(() if newest is None else newest.members()))
        for peer in by_id(known, besides=self.port.me.id).values():
            self.port.send(peer, AskArc(offered.arc))

    def on_arc_given(self, sender: Peer, message: ArcGiven) -> None:
        """The old cluster has decided: serve the arc, or forget it."""
        offered = self.journal.offered
        arc, snapshot = offered.arc, offered.snapshot
        if arc is None or snapshot is None or not _same(arc, message.arc):
            return
        self.port.cancel_timer(AskArcDue())
        elsewhere = self.role.cluster is not None and self.role.cluster.key != (
            "" if offered.old is None else offered.old.key
        )
        self.journal.store_offer(OfferedArc(None))
        if not message.given:
            return
        if elsewhere or self.role.left:
            self.port.count("arcs_refused")
            self.port.send(sender, TakenOver(arc, False))
            return
        self.port.count("hand_overs")
        self.members.begin()
        self.log.adopt(snapshot, arc.start)
        self.role.adopt(arc, "took over", *self._around)
        self.role.announce()
        self.leader_log.lead()
        self.election.cancel()
        self.heartbeat.lead({}, 0.0)
        self.recruiting.begin()

    # -- a whole cluster -------------------------------------------------------------------------

    def taken(self, cluster: Cluster) -> None:
        """Confirm to the leaving primary that the voters have elected this node in its place."""
        self.port.count("hand_overs")
        if self._from is not None:
            self.port.send(self._from, TakenOver(cluster, True))

    def refuse(self) -> None:
        """Report to the leaving primary that the voters did not elect this node in its place."""
        own = self.role.cluster
        if self._from is not None and own is not None:
            epoch = max(own.epoch + 1, self.log.voted_epoch(own.key))
            self.port.send(self._from, TakenOver(own.under(epoch), False))


def _same(one: Cluster, other: Cluster) -> bool:
    return (one.key, one.version, one.primary.id) == (other.key, other.version, other.primary.id)
