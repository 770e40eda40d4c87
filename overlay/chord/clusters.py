"""The cluster machine (P1): this node's role in at most one cluster, and all that follows from it.

`Clusters` builds the parts and routes messages, timers and events to them; it decides nothing
itself. The registry of the trees (overlay/upper_tree/owner) uses it as its replicated log: it
appends entries, answers the events FollowerSnapshotWanted, DiskSnapshotWanted, ArcLeaving,
ArcMerging, ArcArrived, MergePhaseWanted and MemberLeaving, and asks which keys this node `owns`.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlay.chord.cluster.election import Election
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.cluster.journal import Journal
from overlay.chord.cluster.leader_log import Departures, LeaderLog
from overlay.chord.epochs import above_fork
from overlay.chord.events import (
    ArcTaken,
    ClusterMoved,
    Committed,
    Fenced,
    PredecessorUnheard,
    Role,
    RoleChanged,
)
from overlay.chord.membership.cluster_merge import ClusterLoad, ClusterMerges
from overlay.chord.membership.handover import HandOvers
from overlay.chord.membership.members import ClusterMembers, LeaveAnyway
from overlay.chord.membership.recruitment import Founding, FoundingDue, Recruiting, RecruitRound
from overlay.chord.membership.taking_in import TakingIn
from overlay.chord.membership.taking_over import TakingOver
from overlay.chord.messages import Cluster, MergePhase
from overlay.chord.recovery.observed_logs import ObservedLogs
from overlay.chord.recovery.observers import Observers
from overlay.chord.recovery.recovery import Recovery
from overlay.chord.ring.ring import Ring
from overlay.chord.ring_merge import Merging
from overlay.chord.role import ClusterRole, RecruitingView
from overlay.chord.role_changes import RoleChanges
from overlay.health import Health
from overlay.links.events import LinkDown, MessageDropped
from overlay.machine import (
    Handlers,
    Key,
    Machine,
    NodeId,
    Peer,
    Port,
    Stored,
    by_id,
    handlers_of,
)
from overlay.settings import ClusterSettings, ElectionSettings


class Clusters(Machine):
    """A cluster, seen from one node."""

    def __init__(
        self,
        port: Port,
        settings: ClusterSettings,
        ring: Ring,
        view: RecruitingView,
        founder: bool,
        election: ElectionSettings | None = None,
        restored: Sequence[bytes] = (),
        health: Health | None = None,
    ) -> None:
        """`founder`: this node has no seeds, and founds the ring at its start unless it served or
        voted in one before. `restored`: the stored records. `health`: the known health of nodes;
        None: it is never known."""
        super().__init__(port)
        self.health = health = health or Health(port)
        chosen = election or ElectionSettings()
        state = ring.state
        self.ring = ring
        self.journal = journal = Journal(port, restored)
        self.cluster_role = role = ClusterRole(port, ring, view, journal, settings.serve)
        # cluster
        self.log = log = FollowerLog(role, journal, settings)
        self.heartbeat = heartbeat = Heartbeat(chosen, role, log, journal, health)
        self.election = Election(chosen, role, log, heartbeat, health, signer=state.claims.signer)
        departures = Departures()
        self.leader_log = leader_log = LeaderLog(
            role,
            log,
            departures,
            heartbeat,
            settings.size,
            one_may_lie=settings.commit == "more",
        )
        # membership
        founder = founder and journal.cluster is None and not self.companions()
        self.founding = Founding(role, state, view, founder, ring.settings.found_after)
        members = ClusterMembers(
            role, state, log, leader_log, heartbeat, self.election, departures, health
        )
        self.membership = members
        self.recruiting = recruiting = Recruiting(
            settings, role, state, view, journal, members, health
        )
        logs = (log, leader_log, heartbeat, self.election)
        parts = (role, ring, *logs, members, departures, recruiting, journal)
        self.handovers, self.taking_over = HandOvers(*parts), TakingOver(*parts)
        self.merges, self.taking_in = ClusterMerges(*parts), TakingIn(*parts)
        # recovery and merging
        self.observers = Observers(role, state, view, leader_log)
        self.observed_logs = ObservedLogs(role, state)
        self.recovery = Recovery(
            chosen,
            role,
            state,
            view,
            log,
            heartbeat,
            self.observed_logs,
            serves=settings.serve,
        )
        state.ask_for_primary(self.recovery.misses_primary)
        changes = (self.handovers, self.merges, self.taking_in)
        self.merging = Merging(role, ring, view, heartbeat, members, changes)
        self.merges.yield_to(self.handovers, self.taking_in, self.merging)
        self.taking_in.yield_to(
            self.handovers, self.merges, self.merging, suspect=self.recovery.suspect
        )
        self.role_changes = RoleChanges(
            *parts, view, self.handovers, self.taking_over, self.merges, self.recovery
        )

    def handlers(self) -> Handlers:
        """The handlers of this machine and of its parts."""
        return handlers_of(
            self,
            self.log,
            self.leader_log,
            self.heartbeat,
            self.election,
            self.role_changes,
            self.membership,
            self.recruiting,
            self.handovers,
            self.taking_over,
            self.merges,
            self.taking_in,
            self.observers,
            self.observed_logs,
            self.recovery,
            self.merging,
        )

    def start(self) -> None:
        """Go on where the former process ended; else found, or wait to hear of a ring."""
        self.cluster_role.advertise_idle()
        self._found(self.founding.start())
        cluster = self.journal.cluster
        if cluster is not None and self.cluster_role.cluster is None:
            self._resume(cluster)
        self.taking_over.resume()

    # -- what this node is -----------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster | None:
        """The newest description of the own cluster."""
        return self.cluster_role.cluster

    @property
    def role(self) -> Role:
        """The role of this node in its cluster."""
        return self.cluster_role.kind

    @property
    def is_primary(self) -> bool:
        """Whether this node leads its cluster."""
        return self.cluster_role.is_primary

    @property
    def left(self) -> bool:
        """Whether a node that was asked to `leave` has drained and may stop."""
        return self.cluster_role.left

    def members(self) -> tuple[Peer, ...]:
        """All members of the own cluster, this node included, the primary first."""
        return () if self.cluster is None else self.cluster.members()

    @property
    def is_followed(self) -> bool:
        """Whether this node is the primary of its cluster and a majority of the voters follows."""
        return self.is_primary and self.heartbeat.has_lease()

    @property
    def lease_left(self) -> float:
        """Seconds for which this node alone decides, whatever happens; 0.0 or less: none."""
        return self.heartbeat.lease_left() if self.is_primary else 0.0

    @property
    def led_for(self) -> float:
        """Seconds that this node has led its cluster under the present epoch."""
        return self.port.now - self.heartbeat.led_since

    def is_silent(self, node: NodeId) -> bool:
        """Whether this node leads and does not hear this member: a voter did not answer the last
        heartbeats, or the link is down."""
        if not self.is_primary or node == self.port.me.id:
            return False
        return self.membership.is_unreachable(node) or (
            self.log.is_voter(node) and not self.heartbeat.is_following(node)
        )

    def owns(self, key: Key) -> bool:
        """Whether this node alone decides about `key` now, as the primary of the arc; False while
        that part of the arc is being given away."""
        cluster = self.cluster_role.led
        return (
            cluster is not None
            and cluster.owns(key)
            and not self.handovers.is_leaving(key)
            and not self.merges.is_leaving(key)
            and not self.taking_in.is_arriving(key)
            and not self.log.is_split_off(key)
            and self.heartbeat.has_lease()
        )

    def companions(self) -> tuple[Peer, ...]:
        """The nodes with which this one served or voted before it was started."""
        last, cluster = self.journal.last_vote, self.journal.cluster
        found = () if cluster is None else cluster.members()
        voters = () if last is None else last.others
        return tuple(by_id((*found, *voters), besides=self.port.me.id).values())

    # -- what the registry does at the primary ---------------------------------------------------

    def append(self, entry: bytes) -> int:
        """Write `entry` to the cluster's log. Returns its index; Committed(next > index) follows
        when a majority of the voters has it."""
        assert self.is_primary, "only the primary writes"
        handover = self.handovers.current
        assert handover is None or handover.kind == "split" or not handover.asked, (
            "the log has been handed over"
        )
        return self.leader_log.append((entry,))

    def append_all(self, entries: Sequence[bytes]) -> int:
        """Append entries in one step; returns the index of the last. Not while an arc leaves."""
        return self.leader_log.append(entries)

    def is_copied(self, index: int) -> bool:
        """Whether every observer that answers has entry `index`; ObserversProgressed says when this
        may have changed."""
        return self.observers.is_copied(index)

    def is_whole(self, key: Key) -> bool:
        """Whether the copy that this node has of the log of the cluster `key` lacks nothing that
        was acknowledged to a subscriber."""
        return self.observed_logs.is_whole(key)

    def forget_log(self, key: Key) -> None:
        """Forget the copy of the log of the cluster `key`, which is no longer needed."""
        self.observed_logs.forget(key)

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        """Answer to FollowerSnapshotWanted: the whole state as of now, as entries of the log."""
        self.leader_log.send_snapshot(entries)
        self.observers.send_snapshot(entries)

    def store_snapshot(self, entries: Sequence[bytes]) -> None:
        """Answer to DiskSnapshotWanted: the whole state as of now, for this node's own disk."""
        if self.log.voter_log is not None:
            self.journal.compact(self.log.voter_log, entries)

    def transfer(self, entries: Sequence[bytes]) -> None:
        """Hand over the state of an arc, as the answer to ArcLeaving, when nothing of it is under
        way."""
        self.handovers.transfer(entries)

    def hand_to_successor(self, entries: Sequence[bytes]) -> None:
        """Answer ArcMerging with the state of the whole arc, which this node no longer serves."""
        self.merges.hand_over(entries)

    def arc_stored(self) -> None:
        """Answer to ArcArrived: the trees of that arc are in the log."""
        self.taking_in.stored()

    def report_load(self, load: ClusterLoad) -> None:
        """Regularly, at the primary: what the cluster owns. If that is little and members are
        missing, it merges with its successor."""
        self.merges.report(load)
        self.taking_in.report(load)

    def merge_phase_reached(self, phase: MergePhase, tree_users: Sequence[Peer] = ()) -> None:
        """Answer to MergePhaseWanted: the registry has reached `phase`. `tree_users`: nodes that
        used the trees, to be informed when the ring has ended."""
        self.merging.reached(phase, tree_users)

    def release(self, peer: Peer) -> None:
        """Answer to MemberLeaving: nothing is hosted by `peer` any more."""
        self.membership.release(peer)

    def outrank(self, epoch: int) -> None:
        """Have the voters grant an epoch above `epoch`, below which some node accepts no primary.
        (A fork that is gone may have been higher than the cluster that has its arc now.)"""
        self.election.raise_epoch(above_fork(epoch, self.port.rng))

    def request_split(self, middle: Key) -> None:
        """Give the arc up to and including `middle` to a cluster of its own as soon as there are
        members enough for it. Ignored unless this node is the primary and no split is under way."""
        self.handovers.request_split(middle)

    def idle_peers(self) -> tuple[Peer, ...]:
        """Neighbours that say that they serve in no cluster."""
        return self.cluster_role.idle_peers()

    def want(self, members: int) -> None:
        """Recruit until the cluster has `members` members, because of its load. It keeps them when
        fewer would do."""
        self.recruiting.grow_for_load(members)

    def prefer(self, peers: Sequence[Peer]) -> None:
        """Recruit these first (nodes that subscribe to the own attributes)."""
        self.recruiting.prefer(peers)

    # -- coming and going ------------------------------------------------------------------------

    def leave(self) -> None:
        """Drain: serve until others have taken over; then `left` is True. Bounded in time."""
        if self.cluster_role.leaving:
            return
        self.cluster_role.start_leaving()
        if self.cluster_role.left:
            return
        if self.is_primary:
            self.merges.give_up("the primary leaves")
            self.membership.bound_leaving()
            self.handovers.leave()
        else:
            self.membership.leave()

    def on_founding_due(self, timer: FoundingDue) -> None:
        """No ring was heard of for some time."""
        self._found(self.founding.due())

    def on_recruit_round(self, timer: RecruitRound) -> None:
        """Regular maintenance of members, voters, lease, hand-overs and observers."""
        self.recruiting.refresh()
        self.leader_log.reconfigure()
        self.membership.release_waiting()
        self.membership.prefer_healthy_standby()
        self.role_changes.check_lease()
        self.handovers.consider()
        self.merges.consider()
        self.taking_in.consider()
        self.observers.refresh()

    def on_stored(self, event: Stored) -> None:
        """More of the log is durable here: acknowledge it, or commit it."""
        self.journal.stored(event.ticket)
        self.log.acknowledge_stored()
        self.leader_log.commit_stored()

    def on_committed(self, event: Committed) -> None:
        """More of the log is committed: what changes the arc may be decided."""
        self.handovers.committed()
        self.merges.committed()
        self.taking_in.committed()

    def on_arc_taken(self, event: ArcTaken) -> None:
        """The copy of the other cluster's log has served its purpose."""
        self.observed_logs.forget(event.arc.key)

    def on_leave_anyway(self, timer: LeaveAnyway) -> None:
        """Leave, whatever may still wait for this node."""
        if self.is_primary and self.cluster_role.leaving:
            self.handovers.leave_now()
        else:
            self.membership.leave_unreleased()

    def on_fenced(self, event: Fenced) -> None:
        """Another cluster serves our keys under a higher epoch."""
        self.role_changes.fence(event.cluster)

    def on_predecessor_unheard(self, event: PredecessorUnheard) -> None:
        """The cluster before this one may be led by nobody."""
        self.recovery.suspect(event.cluster)

    def on_message_dropped(self, event: MessageDropped) -> None:
        """The link to a node had no room. All that is asked again after a while needs nothing; the
        log is what goes on only if it is told."""
        self.leader_log.dropped(event)
        self.log.dropped(event)
        self.observers.dropped(event)

    def on_link_down(self, event: LinkDown) -> None:
        """The link to a node is down: every part that relied on it has to know."""
        self.recruiting.peer_lost(event.peer.id)
        self.observers.peer_lost(event.peer.id)
        self.observed_logs.peer_lost(event.peer.id)
        if not event.left:
            self.recovery.peer_lost(event.peer.id)
        self.membership.peer_lost(event.peer, event.left)
        self.handovers.peer_lost(event.peer.id)

    def on_role_changed(self, event: RoleChanged) -> None:
        """Choose observers if this node leads, else end those that it had. Drop the observer's copy
        of the own cluster's log, which a member has as a follower."""
        self.observers.refresh()
        if event.role != "primary":
            self.merges.forget()
            self.taking_in.forget()
        if event.cluster is None:
            self.recovery.cluster_left()
        if event.cluster is not None and event.role != "primary":
            self.observed_logs.forget(event.cluster.key)

    def on_cluster_moved(self, event: ClusterMoved) -> None:
        """A node said who leads a cluster, or has led it."""
        if not event.unled:
            self.recovery.leader_named(event.sender, event.cluster)
        self.merging.leader_named(event.sender, event.cluster, event.unled)
        self.membership.leader_named(event.sender, event.cluster)
        self.role_changes.rival_named(event.sender, event.cluster)

    def _resume(self, cluster: Cluster) -> None:
        """Resume in `cluster`, in which this node served when its former process ended."""
        self.port.count("resumed")
        self.recovery.resume()
        self.log.resume(cluster)
        self.cluster_role.resume(cluster)
        self.heartbeat.resume(self.journal.election_timeout)
        if self.cluster_role.must_be_elected:
            self.election.raise_epoch(cluster.epoch)  # its voters wait for no other primary

    def _found(self, cluster: Cluster | None) -> None:
        if cluster is not None:
            self.role_changes.found(cluster)
