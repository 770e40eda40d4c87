"""The members of the cluster: joining, leaving in order, and being lost (P1).

The primary changes the membership, one version per change, and announces each to all members. A
member accepts a description that is newer than its own and comes from a node that may speak for the
cluster: the primary of before, or the one that the description names.

A member that wants to leave says so (`Leaving`), goes on serving until the primary has moved
elsewhere what it hosts, and is then `Released`. A member whose link is closed is lost: it is no
member any more, without warning; when it returns it is `Released` and may be recruited again. But a
voter stays a member until it is voted out, since it drops its log when it is none: an isolated
primary must not make its voters, one by one, forget what they have voted for. A member that loses
its *primary* asks the others now and then; the voters among the members elect another (`election`),
whose ClusterHello carries a description of a higher epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from overlay.bounded import BoundedDict
from overlay.chord.cluster.election import Election
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.cluster.leader_log import Departures, LeaderLog
from overlay.chord.cluster.messages import ClusterHello
from overlay.chord.constants import CONTACT_AGAIN, LEAVE_WITHIN, REMOVED_MOST
from overlay.chord.epochs import fork_id
from overlay.chord.events import ClaimBelieved, Fenced, MemberJoined, MemberLeaving, MemberLost
from overlay.chord.keys import in_arc
from overlay.chord.messages import Cluster, Contact, Leaving, Membership, Moved, Released
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role import ClusterRole
from overlay.health import Health
from overlay.links.events import LinkUp
from overlay.machine import Key, NodeId, Peer, Timer


class AskPrimary(Timer, frozen=True):
    """Time to try to reach the silent primary again."""


class LeaveAnyway(Timer, frozen=True):
    """Fires when this node was not released in time."""


@dataclass(eq=False)
class ClusterMembers:
    """The membership, at the primary and at the other members."""

    role: ClusterRole
    ring: RingState
    log: FollowerLog
    leader_log: LeaderLog
    heartbeat: Heartbeat
    election: Election
    departures: Departures
    health: Health

    def __post_init__(self) -> None:
        self.port = self.role.port
        # At the primary:
        self._removed = BoundedDict[NodeId, Peer](REMOVED_MOST)  # lost, and no members any more
        self._unreachable: dict[NodeId, Peer] = {}  # lost, but not voted out yet
        self._awaiting_release: dict[NodeId, Peer] = {}  # released once they no longer vote
        self.leader_log.when_configured(self.release_waiting)

    # -- at the primary --------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to lead a cluster: forget the lists of a former primary."""
        self.departures.clear()
        self._removed.clear()
        self._unreachable.clear()
        self._awaiting_release.clear()
        self.port.cancel_timer(AskPrimary())

    def disband(self, reason: str, successor: Cluster | None = None) -> None:
        """Release all members, because this node may no longer lead and no other member takes over.
        `successor`: another cluster that has the arc."""
        own = self._led()
        for member in own.others():
            self.port.send(member, Released(own.key))
        self.leave_cluster(reason, successor)

    def bound_leaving(self) -> None:
        """Have this node leave its cluster after `LEAVE_WITHIN` s, even if its primary has not
        released it."""
        self.port.set_timer(LEAVE_WITHIN, LeaveAnyway())

    def admit(self, peer: Peer) -> None:
        """Make `peer` a member: the standby if there is none, else a match broker."""
        self._removed.pop(peer.id, None)
        self.departures.end_leaving(peer.id)
        self.update(self._led().with_member(peer), "member joined")
        self.port.emit(MemberJoined(peer))

    def release(self, peer: Peer) -> None:
        """Release `peer`, which hosts nothing any more. It has to wait while it votes, while the
        voters change, or while it moves to a new cluster."""
        cluster = self.role.led
        if cluster is None:
            return
        bound = (
            self.log.is_voter(peer.id)
            or self.leader_log.config_pending
            or self.departures.is_moving(peer.id)
        )
        if cluster.has_member(peer.id) and bound:
            # A majority must not depend on who has gone, and an arc needs who is to serve it.
            self._awaiting_release[peer.id] = peer
            self.leader_log.reconfigure()
            return
        self._awaiting_release.pop(peer.id, None)
        self.departures.end_leaving(peer.id)
        if cluster.has_member(peer.id) and peer.id != self.port.me.id:
            self.update(cluster.without(peer.id), "member left")
        self.port.send(peer, Released(cluster.key))

    def release_waiting(self) -> None:
        """Release those who had to wait, and remove lost members, where neither votes any more."""
        if not self.role.is_primary or self.leader_log.config_pending:
            return
        for peer in list(self._awaiting_release.values()):
            if not self.log.is_voter(peer.id):
                self.release(peer)
        for peer in list(self._unreachable.values()):
            if not self.log.is_voter(peer.id):
                self._drop(peer)

    def _drop(self, peer: Peer, left: bool = False) -> None:
        """Remove a member, which is lost or, with `left`, has left."""
        self._unreachable.pop(peer.id, None)
        self.departures.end_leaving(peer.id)
        if not left:
            self._removed.renew(peer.id, peer)
        self.update(self._led().without(peer.id), "member lost")

    def is_unreachable(self, node: NodeId) -> bool:
        """At the primary: whether this member is lost, and a member only until it is voted out."""
        return node in self._unreachable

    def update(self, cluster: Cluster, reason: str) -> None:
        """Adopt `cluster` as the new description, with a standby if it can be, and announce it."""
        standby = self._next_standby(cluster)
        if standby is not None:
            cluster = cluster.with_standby(standby)
        self.role.adopt(cluster, reason)
        self.role.announce()
        self.leader_log.reconfigure()

    def ensure_standby(self) -> None:
        """Choose a standby if there is none, or only one that leaves."""
        if self._next_standby(self._led()) is not None:
            self.update(self._led(), "another standby")

    def prefer_healthy_standby(self) -> None:
        """Regularly, at the primary: choose another standby where the present one is
        less healthy than a voter that follows."""
        cluster = self.role.led
        if cluster is None or cluster.standby is None:
            return
        fit = [b for b in cluster.brokers if self._may_be_standby(b)]
        best = next(iter(self.health.healthy_first(fit)), None)
        severity = self.health.severity
        if best is not None and severity(best.id) < severity(cluster.standby.id):
            self.port.count("standbys_by_health")
            self.update(cluster.with_standby(best), "a healthier standby")

    def _may_be_standby(self, peer: Peer) -> bool:
        follows = self.log.is_voter(peer.id) and self.heartbeat.is_following(peer.id)
        return follows and self.departures.stays(peer.id)

    def on_leaving(self, sender: Peer, message: Leaving) -> None:
        """A member wants to be released, or a node refuses to be one."""
        cluster = self.role.led
        if cluster is not None and message.key == cluster.key:
            if not cluster.has_member(sender.id):
                self.port.send(sender, Released(message.key))
            elif not self.departures.is_leaving(sender.id):
                self.departures.start_leaving(sender)
                self.leader_log.reconfigure()
                self.port.emit(MemberLeaving(sender))
            return
        newest = self.ring.any_cluster()
        if newest is not None and newest.key == message.key:
            self.port.send(sender, Moved(newest))
        else:
            self.port.send(sender, Released(message.key))

    # -- at the other members --------------------------------------------------------------------

    def leave(self) -> None:
        """Ask the primary to release this member. It goes when it is released, or after
        `LEAVE_WITHIN`."""
        self.bound_leaving()
        self.port.send(self.role.own.primary, Leaving(self.role.own.key))

    def on_membership(self, sender: Peer, message: Membership) -> None:
        """A newer description of the own cluster, or of one that this node is to serve in."""
        self.accept_description(sender, message.cluster)

    def on_hello(self, sender: Peer, message: ClusterHello) -> None:
        """HELLO: there is a new primary, or the present one asks how far this node's log is."""
        self._look_at_rival(sender, message.cluster)
        self.log.note_hello(sender, message.cluster, message.number)
        self.accept_description(sender, message.cluster)
        self.log.answer_hello()

    def _look_at_rival(self, sender: Peer, cluster: Cluster) -> None:
        """At a primary: if another node was granted the same epoch, since a voter has voted twice,
        have the voters grant another one. Neither may go on in this epoch."""
        own = self.role.led
        if own is None or sender.id != cluster.primary.id or sender.id == self.port.me.id:
            return
        is_same = (own.key, own.epoch) == (cluster.key, cluster.epoch)
        if is_same and self.ring.claims.is_granted(cluster, own):
            self.port.count("rival_primaries")
            self.election.raise_epoch(own.epoch)

    def leader_named(self, sender: Peer, cluster: Cluster) -> None:
        """Take the description of the own cluster from a node that was taken for the primary."""
        own = self.role.cluster
        if own is not None and own.key == cluster.key:
            self.accept_description(sender, cluster)

    def accept_description(self, sender: Peer, cluster: Cluster) -> None:
        """Adopt the description `cluster` if it is newer than the own one and `sender` may speak
        for it. What that means depends on what this node is: a primary is fenced by it, a member
        follows, one that is not named in it leaves."""
        own = self.role.cluster
        if own is not None and own.key == cluster.key and not cluster.is_newer_than(own):
            return
        if not self._is_authorised(sender, cluster):
            self.port.count("memberships_refused")
            if sender.id == cluster.primary.id and cluster.has_member(self.port.me.id):
                self.port.send(sender, Leaving(cluster.key))
            return
        if not self._is_proven(sender, cluster):
            return
        if self.role.is_primary:
            self.port.emit(Fenced(cluster))  # see `role_changes.fence`
            return
        if own is not None and self._is_led(own, cluster):
            self.port.send(own.primary, Moved(cluster))  # it knows whether it is lost
            return
        if not cluster.has_member(self.port.me.id):
            self.leave_cluster("no member any more")
            return
        new_primary = own is None or own.primary.id != cluster.primary.id
        if own is not None and own.key != cluster.key:
            self.leader_log.forget()  # of the cluster that this one was split off from
        self.role.adopt(cluster, "described by the primary")
        if new_primary or (own is not None and own.epoch != cluster.epoch):
            self._follow()
        self.port.cancel_timer(AskPrimary())
        if self.role.leaving and new_primary:
            self.leave()

    def on_released(self, sender: Peer, message: Released) -> None:
        """Handle that this node no longer serves, or is not needed where it was recruited."""
        own = self.role.cluster
        if own is None:
            if self.role.is_reserved_for(message.key, sender.id):
                self.role.release_reservation()
        elif own.key == message.key and sender.id == own.primary.id:
            self.leave_cluster("released")

    def on_ask_primary(self, timer: AskPrimary) -> None:
        """Try again to reach the primary."""
        self.probe_members()

    def probe_members(self) -> None:
        """While the primary is silent, ask all members who leads, every `CONTACT_AGAIN` seconds."""
        own = self.role.cluster
        if own is not None and not self.role.is_primary and self.heartbeat.is_primary_silent():
            self.port.set_timer(CONTACT_AGAIN, AskPrimary())
            for member in own.members():
                if member.id != self.port.me.id:
                    self.port.send(member, Contact(self.port.me.id))

    def leave_unreleased(self) -> None:
        """Leave although the primary has not released this node."""
        if self.role.leaving and not self.role.is_primary:
            self.leave_cluster("not released in time")

    # -- links -----------------------------------------------------------------------------------

    def on_link_up(self, event: LinkUp) -> None:
        """Handle the return of a peer. A lost member is admitted again if its vote is needed;
        otherwise it is told that it no longer serves. A member whose primary returns asks it for
        the present state."""
        own = self.role.cluster
        if own is None:
            return
        if self.role.is_primary:
            if self._unreachable.pop(event.peer.id, None) is not None:
                self.departures.end_leaving(event.peer.id)
                self.leader_log.restart_follower(event.peer)
                return
            peer = self._removed.pop(event.peer.id, None)
            if peer is not None and (self.log.is_voter(peer.id) or self.leader_log.config_pending):
                self.admit(peer)  # without it there may be no majority to vote it out
                self.leader_log.restart_follower(peer)
            elif peer is not None:
                self.port.send(event.peer, Released(own.key))
        elif event.peer.id == own.primary.id:
            self.port.cancel_timer(AskPrimary())
            self.port.send(event.peer, Contact(self.port.me.id))

    def peer_lost(self, peer: Peer, left: bool) -> None:
        """Handle a lost link. The primary removes the member at once, or, if it votes, when it has
        been voted out. A member tries to reach its primary again. `left`: the peer said that it
        leaves."""
        own = self.role.cluster
        if own is None or not own.has_member(peer.id):
            return
        if self.role.is_primary:
            if self.log.is_voter(peer.id) or self.leader_log.config_pending:
                self._unreachable[peer.id] = peer
                self.departures.start_leaving(peer)
                self.ensure_standby()
                self.leader_log.reconfigure()
            else:
                self._drop(peer, left)
            self.port.emit(MemberLost(peer))
        elif peer.id == own.primary.id:
            self.role.trace("primary unreachable")
            # A node that wants to leave waits, too (`LeaveAnyway`): its vote may be needed.
            self.port.set_timer(CONTACT_AGAIN, AskPrimary())

    # -- parts -----------------------------------------------------------------------------------

    def _is_authorised(self, sender: Peer, cluster: Cluster) -> bool:
        """Return whether `sender` may tell this node about `cluster`."""
        own = self.role.cluster
        if self.ring.ring not in ("", cluster.ring):
            return False
        if own is None:  # recruited, or a member as another sees it: only a node that stays agrees
            return sender.id == cluster.primary.id and not self.role.leaving
        if own.key == cluster.key:
            return sender.id in (own.primary.id, cluster.primary.id) or (
                cluster.epoch > own.epoch and own.has_member(sender.id)
            )  # any member may tell of a higher epoch
        if self.role.is_primary:
            return False
        # A part of our arc becomes a cluster of its own: the old primary says so, or the new one,
        # which was a member beside us; whichever is heard first.
        return cluster.epoch > own.epoch and (
            sender.id == own.primary.id
            or (
                sender.id == cluster.primary.id
                and own.has_member(sender.id)
                and in_arc(cluster.key, own.start, own.key)
            )
        )

    def _is_proven(self, sender: Peer, cluster: Cluster) -> bool:
        """Return whether `cluster` is signed by its primary and, if it names a primary other than
        the present one, believed (`ring.claims`). If it is not, `on_claim_believed` may follow.
        Always True where nodes have no keys."""
        own = self.role.cluster
        if self.ring.claims.signer is None or cluster.primary.id == self.port.me.id:
            return True
        if own is not None and own.key != cluster.key and sender.id == own.primary.id:
            return True  # a part of its arc becomes this cluster
        if own is None:
            return self.ring.claims.is_sealed(cluster) and self.ring.admits(cluster)
        if self.log.is_of(cluster.key) and self.ring.claims.is_sealed(cluster):
            self.ring.claims.prove(cluster, self.log.voters)
        return self.ring.admits(cluster)

    def on_claim_believed(self, event: ClaimBelieved) -> None:
        """Handle that a doubted description is now believed. It may be about the own cluster."""
        own, other = self.role.cluster, event.cluster
        if own is None:  # its primary has said once that this node serves in it
            concerns = other.has_member(self.port.me.id)
        else:
            concerns = own.key == other.key or own.owns(other.key)
        if concerns:
            self.accept_description(other.primary, other)

    def _is_led(self, own: Cluster, other: Cluster) -> bool:
        """Whether `other` is of another branch than the own cluster, which still has its primary.
        (That may have overridden a fork, and go on in its branch; so a fork's count says
        nothing.)"""
        return (
            fork_id(other.epoch) != fork_id(own.epoch)
            and own.primary.id not in (other.primary.id, self.port.me.id)
            and not self.heartbeat.is_primary_silent()
        )

    def shrink(self, start: Key) -> None:
        """Let the own arc begin at `start` from now on: the rest belongs to another cluster."""
        self.update(self._led().changed(start=start), "gave an arc back")

    def _next_standby(self, cluster: Cluster) -> Peer | None:
        """The broker to become the standby, where that is missing or wants to leave; else None."""
        if cluster.standby is not None and not self.departures.is_leaving(cluster.standby.id):
            return None
        staying = [b for b in cluster.brokers if self.departures.stays(b.id)]
        return next(iter(self.health.healthy_first(staying)), None)

    def leave_cluster(self, reason: str, successor: Cluster | None = None) -> None:
        """Leave the cluster: this node was released, the cluster has ended, or another serves its
        arc. `successor`: at a primary, the description without this node, or of the cluster that
        now has its arc."""
        self.leader_log.forget()
        self.heartbeat.end()
        self.port.cancel_timer(AskPrimary())
        self.port.cancel_timer(LeaveAnyway())
        self.role.leave_cluster(reason, successor)
        if self.role.leaving:
            self.role.finish_leaving()

    def follow_new_primary(self, cluster: Cluster) -> None:
        """Follow another member, which leads this cluster now, with this node's copy of the log."""
        self.departures.clear()
        self.role.adopt(cluster, "fenced")
        self._follow()
        if self.role.leaving:
            self.leave()

    def _follow(self) -> None:
        """Follow a primary: end any election, and expect its heartbeats. Answer the HELLO that it
        sent before this node followed it."""
        self.election.cancel()
        self.heartbeat.start_following()
        self.log.answer_hello()

    def _led(self) -> Cluster:
        assert self.role.led is not None, "only the primary changes members"
        return self.role.led
