"""The cluster machine (P1): this node's role in at most one cluster.

Table of contents: `seat` is the role, `founding` the first cluster of a ring, `recruiting` finds
members, `members` lets them come and go, `copying` keeps the standby's copy of the log, `handover`
gives an arc away. This file is what they look like from outside: the registry of the trees appends
entries, answers the events StateWanted, ArcLeaving and MemberLeaving, and asks what it `owns`.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlay.chord.copying import Log
from overlay.chord.events import BetterRing, ClusterMoved, Fenced, Role
from overlay.chord.founding import Founding, FoundingDue
from overlay.chord.handover import HandOvers, HandOverTimeout
from overlay.chord.members import AskPrimary, LeaveAnyway, Members
from overlay.chord.messages import (
    Cluster,
    Leaving,
    LogAck,
    LogEntries,
    Membership,
    Recruit,
    RecruitReply,
    Released,
    TakenOver,
    TakeOver,
)
from overlay.chord.recruiting import Recruiting, RecruitRound, RecruitTimeout, ReservationOver
from overlay.chord.ring import Ring
from overlay.chord.seat import RecruitingView, Seat
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Handlers, Key, Machine, Peer, Port
from overlay.settings import ClusterSettings


class Clusters(Machine):
    """A cluster, seen from one node."""

    def __init__(
        self,
        port: Port,
        settings: ClusterSettings,
        ring: Ring,
        view: RecruitingView,
        founder: bool,
    ) -> None:
        """`founder`: this node has no seeds and founds the ring at its start."""
        super().__init__(port)
        self.ring = ring
        self.seat = Seat(port, ring, view)
        self.log = Log(self.seat)
        self.membership = Members(self.seat, self.log)
        self.recruiting = Recruiting(settings, self.seat, self.membership)
        self.handovers = HandOvers(self.seat, self.log, self.membership, self.recruiting)
        self.founding = Founding(self.seat, founder, ring.settings.found_after)

    def handlers(self) -> Handlers:
        """Messages, timers and events of cluster roles."""
        return {
            Recruit: self.recruiting.on_recruit,
            RecruitReply: self.recruiting.on_reply,
            Membership: self.membership.on_membership,
            Leaving: self.membership.on_leaving,
            Released: self.membership.on_released,
            LogEntries: self.log.on_entries,
            LogAck: self.log.on_ack,
            TakeOver: self.handovers.on_take_over,
            TakenOver: self.handovers.on_taken_over,
            FoundingDue: self.on_founding_due,
            RecruitRound: self.on_recruit_round,
            RecruitTimeout: self.recruiting.on_timeout,
            ReservationOver: self.recruiting.on_reservation_over,
            AskPrimary: self.membership.on_ask_primary,
            LeaveAnyway: self.on_leave_anyway,
            HandOverTimeout: self.handovers.on_timeout,
            ClusterMoved: self.membership.on_cluster_moved,
            Fenced: self.on_fenced,
            BetterRing: self.on_better_ring,
            LinkUp: self.membership.on_link_up,
            LinkDown: self.on_link_down,
        }

    def start(self) -> None:
        """Found, or wait to hear of a ring."""
        self.seat.offer()
        self._found(self.founding.start())

    # -- what this node is -----------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster | None:
        """The newest description of the own cluster."""
        return self.seat.cluster

    @property
    def role(self) -> Role:
        """This node's role in it."""
        return self.seat.role

    @property
    def is_primary(self) -> bool:
        """Whether this node leads its cluster."""
        return self.seat.is_primary

    @property
    def left(self) -> bool:
        """Whether a node that was told to `leave` is free to go."""
        return self.seat.left

    def members(self) -> tuple[Peer, ...]:
        """All who serve in the own cluster, this node included; primary first."""
        return () if self.seat.cluster is None else self.seat.cluster.members()

    def owns(self, key: Key) -> bool:
        """Whether this node alone decides about `key` now, as the primary of the arc; False while
        that part of the arc is being given away."""
        cluster = self.seat.cluster
        return (
            cluster is not None
            and self.seat.is_primary
            and cluster.owns(key)
            and not self.handovers.leaving(key)
        )

    # -- what the registry does at the primary ---------------------------------------------------

    def append(self, entry: bytes) -> int:
        """Write `entry` to the cluster's log. Returns its index; Committed(next > index) follows
        when the standby has it."""
        assert self.seat.is_primary, "only the primary writes"
        handover = self.handovers.current
        assert handover is None or handover.kind == "split" or not handover.asked, (
            "the log has been handed over"
        )
        return self.log.append(entry)

    def copy_state(self, entries: Sequence[bytes]) -> None:
        """Answer to StateWanted: the whole state as of now, as entries of the log."""
        self.log.copy_state(entries)

    def transfer(self, entries: Sequence[bytes]) -> None:
        """Answer to ArcLeaving: the state of that arc; nothing is under way in it any more."""
        self.handovers.transfer(entries)

    def release(self, peer: Peer) -> None:
        """Answer to MemberLeaving: nothing is hosted by `peer` any more."""
        self.membership.release(peer)

    def request_split(self, middle: Key) -> None:
        """Give the arc up to and including `middle` to a cluster of its own, when members can be
        found for it. Ignored unless this node is the primary and none is under way."""
        self.handovers.request_split(middle)

    def want(self, members: int) -> None:
        """Recruit until the cluster has so many members, for the load's sake. It keeps those that
        it has when less will do."""
        self.recruiting.needed = members

    def prefer(self, peers: Sequence[Peer]) -> None:
        """Recruit these first (those that subscribe to the own attributes)."""
        self.recruiting.prefer(peers)

    # -- coming and going ------------------------------------------------------------------------

    def leave(self) -> None:
        """Drain: serve until others have taken over; then `left` is True. Bounded in time."""
        if self.seat.leaving:
            return
        self.seat.leaving = True
        self.seat.offer()
        if self.seat.cluster is None:
            self.seat.left = True
        elif self.seat.is_primary:
            self.membership.limit_leaving()
            self.handovers.leave()
        else:
            self.membership.leave()

    def on_founding_due(self, timer: FoundingDue) -> None:
        """No ring was heard of for some time."""
        self._found(self.founding.due())

    def on_recruit_round(self, timer: RecruitRound) -> None:
        """Regular look at the number of members."""
        self.recruiting.on_round(timer)
        self.handovers.consider()

    def on_leave_anyway(self, timer: LeaveAnyway) -> None:
        """Time is up, whoever may still be waiting."""
        if self.seat.is_primary and self.seat.leaving:
            self.handovers.go()
        else:
            self.membership.on_leave_anyway(timer)

    def on_fenced(self, event: Fenced) -> None:
        """Our keys are served under a higher epoch: whoever paused too long stops here."""
        handover = self.handovers.current
        own = self.seat.cluster
        if own is None or not self.seat.is_primary:
            return
        if handover is not None and handover.arc.key == event.cluster.key:
            return  # we gave it away ourselves; its own word is on the way
        self.port.count("fenced")
        self.membership.disband("fenced")

    def on_better_ring(self, event: BetterRing) -> None:
        """A founder that is still alone gives its ring up. (A ring that has grown cannot yet.)"""
        if self.founding.yields() and not self.seat.leaving:
            self.port.count("rings_given_up")
            self.membership.disband("another ring is better")
            self.ring.outside()
            self.founding.wait()

    def on_link_down(self, event: LinkDown) -> None:
        """Somebody does not answer."""
        self.recruiting.lose(event.peer.id)
        self.membership.on_link_down(event)
        self.handovers.lose(event.peer.id)

    def _found(self, cluster: Cluster | None) -> None:
        if cluster is None:
            return
        self.port.count("founded")
        self.seat.take(cluster, "founded")
        self.log.lead(0)
        self.membership.begin()
        self.recruiting.begin()
