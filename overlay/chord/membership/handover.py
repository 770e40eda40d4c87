"""Giving an arc away: a cluster that splits, a primary that leaves (P1; *Scatter*, SOSP 2011).

Both are the same steps, and at no moment do two nodes serve a key:

1. *Quiesce*: the registry begins nothing new in the arc (`ArcLeaving`; `owns` is False for it from
   here on), and hands over its state when everything under way is done (`transfer`). A split is
   given up if that takes longer than `QUIESCE_MOST`, and tried again later.
2. *Ask*: the coming primary gets the state and then `TakeOver`, with a higher epoch.
3. *Decide*: it has stored the state, and says so (`TakenOver`). A leaving primary has left; of a
   split the log now says that the arc is gone. When a majority has that, there is no way back: the
   arc shrinks (`ArcGone`), and `ArcGiven` lets the coming primary serve.

If the coming primary refuses or falls silent before it is decided, the arc is kept and nothing has
happened: it serves nothing that it was not given. If this primary falls silent, the next one finds
in its log whether the arc is gone, and answers all who ask (`AskArc`).

A split cuts the arc (start, key] at a middle: the new cluster gets the first part and so becomes
the ring predecessor. It is made of half of the members, without the primary and the standby, so
that the old part loses nothing; therefore the cluster first recruits to twice its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from overlay.chord.constants import EXHAUSTED_AFTER, HAND_OVER_MOST, QUIESCE_MOST, SPLIT_LEAST
from overlay.chord.events import ArcGone, ArcKept, ArcLeaving
from overlay.chord.keys import in_arc
from overlay.chord.membership.taking_over import LeadershipParts
from overlay.chord.messages import ArcGiven, AskArc, Cluster, Membership, TakenOver, TakeOver
from overlay.machine import Key, NodeId, Peer, Timer


class HandOverTimeout(Timer, frozen=True):
    """Time for a hand-over is over: it is cancelled if the arc is not decided to have gone."""


class HandOver:
    """A hand-over that is under way."""

    def __init__(self, kind: Literal["split", "leave"], arc: Cluster) -> None:
        self.kind = kind
        self.arc = arc  # the cluster as it shall be
        self.asked = False  # TakeOver was sent, or will be
        self.index = 0  # entries that the coming primary has to have
        self.offered_at = -1  # number of the log entry that must be committed before TakeOver …
        self.decided_at = -1  # … and of the one that gives the arc: there is no way back behind it


class HandOvers(LeadershipParts):
    """The old primary's side. At most one hand-over is under way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.current: HandOver | None = None
        self._middle: Key | None = None  # where a split is wanted
        self._refused: dict[NodeId, None] = {}  # would not take over from a primary that leaves

    def is_leaving(self, key: Key) -> bool:
        """Whether `key` lies in an arc that is being handed over."""
        return self.current is not None and self.current.arc.owns(key)

    @property
    def is_under_way(self) -> bool:
        """Whether an arc is being handed over."""
        return self.current is not None

    # -- split -----------------------------------------------------------------------------------

    def request_split(self, middle: Key) -> None:
        """Split at `middle` as soon as there are members enough. Ignored where it cannot be."""
        if self.current is None and self._middle is None and self._may_split(middle):
            self._middle = middle
            size = self.recruiting.settings.size
            self.recruiting.grow_to(max(2 * size, 3))

    def consider(self) -> None:
        """Start a split that was requested, or the hand-over of a primary that leaves, if there are
        members enough by now."""
        own, middle = self.role.cluster, self._middle
        if self.current is not None:
            return
        if self.role.leaving and self.role.is_primary:
            self.leave()  # the next primary may vote by now
            return
        if own is None or middle is None:
            return
        if not self._may_split(middle):
            self._forget_split()
            return
        staying = [m for m in own.members() if not self.departures.is_leaving(m.id)]
        size = self.recruiting.size
        if self.recruiting.is_exhausted_for(EXHAUSTED_AFTER):
            size = min(SPLIT_LEAST, size)
        if len(staying) >= size:
            self._split(own, middle, len(staying) // 2)

    def _split(self, own: Cluster, middle: Key, half: int) -> None:
        brokers = [b for b in own.brokers if not self.departures.is_leaving(b.id)]
        moved = brokers[-half:]
        if not moved:
            return
        self.departures.start_moving(moved)
        if self.leader_log.config_pending or any(self.log.is_voter(member.id) for member in moved):
            self.leader_log.reconfigure()  # first they stop to vote here, one by one
            return
        self._refused.clear()
        arc = own.under(own.epoch + 1, key=middle).served_by(*moved)
        self._begin(HandOver("split", arc))

    def _may_split(self, middle: Key) -> bool:
        own = self.role.led
        if own is None or self.role.leaving or not own.owns(middle) or middle == own.key:
            return False
        config = self.log.config  # a cluster that is merging does nothing else
        return config.given is None and config.promised is None

    def _forget_split(self) -> None:
        self._middle = None
        self.departures.end_moving()
        self.recruiting.usual_size()

    # -- a primary that leaves -------------------------------------------------------------------

    def leave(self) -> None:
        """Hand the cluster to the standby or another voter; with no member left, leave at once."""
        if self.current is not None:
            return  # what is under way ends first, and comes back here
        own = self.role.own
        self._forget_split()
        staying = [m for m in own.others() if self._stays(m)]
        if not staying:
            self.leave_now()
            return
        new_primary = next((m for m in staying if self.log.is_voter(m.id)), None)
        if (
            new_primary is None
            or not self.leader_log.is_configured
            or not self.leader_log.has_majority_without(self.port.me.id)
        ):
            self.leader_log.reconfigure()
            return  # `consider` comes back here when others can decide
        if own.standby is None or own.standby.id != new_primary.id:
            self.members.update(own.with_standby(new_primary), "another standby")
        self._begin(HandOver("leave", self._without_primary()))

    def leave_now(self) -> None:
        """Leave without handing over, after releasing those who wait for it."""
        for member in self.role.own.others():
            if self.departures.is_leaving(member.id):
                self.members.release(member)
        self._end()
        self.role.leave_cluster("left", stored=True)
        self.role.finish_leaving()

    def _stays(self, member: Peer) -> bool:
        return not self.departures.is_leaving(member.id) and member.id not in self._refused

    def _without_primary(self) -> Cluster:
        """The own cluster as its next primary will lead it."""
        own = self.role.own
        assert own.standby is not None
        standby = next((b for b in own.brokers if self._stays(b)), None)
        return own.under(
            own.epoch + 1,
            primary=own.standby,
            standby=standby,
            brokers=tuple(b for b in own.brokers if b != standby),
        )

    def forget(self) -> None:
        """Forget the hand-over, because this node no longer leads."""
        self._middle = None
        self._end()

    # -- the steps at the old primary ------------------------------------------------------------

    def _begin(self, handover: HandOver) -> None:
        self.current = handover
        most = QUIESCE_MOST if handover.kind == "split" else HAND_OVER_MOST
        self.port.set_timer(most, HandOverTimeout())
        self.role.trace(f"{handover.kind} begins")
        self.port.emit(ArcLeaving(handover.arc))

    def transfer(self, entries: Sequence[bytes]) -> None:
        """Send the state of the arc to its coming primary: the answer to ArcLeaving. Ignored if the
        arc was kept meanwhile."""
        handover = self.current
        if handover is None or handover.asked:
            return
        if handover.kind == "split":
            handover.index = self.leader_log.transfer(handover.arc, entries)
            config = replace(self.log.config, leaving=handover.arc)
        else:
            if entries:
                self.leader_log.append(entries)
            voters = tuple(p for p in self.log.voters if p.id != self.port.me.id)
            config = replace(self.log.config, voters=voters)
        handover.asked = True
        self.port.set_timer(HAND_OVER_MOST, HandOverTimeout())
        handover.offered_at = self.leader_log.configure(config)
        if handover.kind == "leave":
            handover.index = self.log.next
        self._ask_when_committed()

    def _vote_for_new_primary(self, handover: HandOver) -> None:
        """Vote for the new primary's epoch, so that this node decides nothing more unless it is
        elected again. Called when the other voters, who vote without this node, have the whole
        log."""
        handover.arc = self._without_primary()  # members may have come and gone meanwhile
        arc = handover.arc
        epoch = max(arc.epoch, self.log.voted_epoch(arc.key) + 1)
        handover.arc = arc.under(epoch)
        self.log.vote(arc.key, epoch, arc.primary.id)

    def committed(self) -> None:
        """Go on with the hand-over after a commit. If the log says that the arc may leave, ask its
        coming primary; if it says that the arc has left, shrink, and let that primary serve."""
        self._ask_when_committed()
        handover = self.current
        if handover is not None and 0 <= handover.decided_at < self.leader_log.committed:
            self._end()
            self._finish_split(handover.arc)
            if self.role.leaving:
                self.leave()

    def on_ask_arc(self, sender: Peer, message: AskArc) -> None:
        """Answer the coming primary of an arc, which asks for the decision about it."""
        own, voter_log = self.role.led, self.log.voter_log
        if (
            own is None
            or voter_log is None
            or self.leader_log.config_pending
            or voter_log.config.leaving is not None
            or not self.heartbeat.has_lease()
        ):
            return  # it is not for this node to say, or not yet decided
        given = not in_arc(message.arc.key, voter_log.config.start, own.key)
        self.port.send(sender, ArcGiven(message.arc, given))

    def _ask_when_committed(self) -> None:
        handover = self.current
        if handover is not None and 0 <= handover.offered_at < self.leader_log.committed:
            handover.offered_at = -1
            if handover.kind == "leave":
                self._vote_for_new_primary(handover)
            self._ask()

    def _ask(self) -> None:
        handover = self.current
        assert handover is not None
        predecessor, successors = self.ring.neighbours()
        if handover.kind == "split":
            own = self._shrunk(handover.arc)
            successors, predecessor = (own, *successors), predecessor or own
        take_over = TakeOver(handover.arc, handover.index, successors, predecessor)
        self.port.send(handover.arc.primary, take_over)

    def on_taken_over(self, sender: Peer, message: TakenOver) -> None:
        """The coming primary has stored the state, leads the whole cluster, or refuses."""
        handover, own = self.current, self.role.cluster
        if own is not None and not message.accepted and message.cluster.key == own.start:
            self._take_arc_back(sender, message.cluster)
        if (
            handover is None
            or not handover.asked
            or sender.id != handover.arc.primary.id
            or message.cluster.key != handover.arc.key
            or message.cluster.epoch < handover.arc.epoch
        ):
            return
        if not message.accepted:
            self._refused[sender.id] = None
            self.abort(perhaps_served=handover.kind == "leave")
        elif handover.kind == "split" and handover.decided_at < 0:
            gone = replace(self.log.config, start=handover.arc.key, leaving=None)
            handover.decided_at = self.leader_log.configure(gone)
            self.committed()
        elif handover.kind == "leave":
            self._end()
            self.role.trace("handed over")
            self.port.emit(ArcGone(handover.arc))
            self.members.leave_cluster("fenced", message.cluster)

    def _take_arc_back(self, new_primary: Peer, arc: Cluster) -> None:
        """Take back an arc that was given and cannot be served there, as if its cluster were
        lost."""
        newest = self.ring.newest(arc.key)
        taken = newest is not None and newest.epoch > arc.epoch
        if self.role.is_primary and new_primary.id == arc.primary.id and not taken:
            self.port.count("arcs_taken_back")
            self.election.take_over_arc(arc.start, arc.epoch)

    def peer_lost(self, node: NodeId) -> None:
        """Handle that `node` does not answer: keep the arc if the node was to lead it, else split
        off without the node."""
        handover = self.current
        if handover is None or handover.decided_at >= 0:
            return
        if handover.arc.primary.id == node:
            self.abort(perhaps_served=handover.asked and handover.kind == "leave")
        elif handover.kind == "split" and not handover.asked:
            rest = (member for member in handover.arc.others() if member.id != node)
            handover.arc = handover.arc.served_by(handover.arc.primary, *rest)

    def on_timeout(self, timer: HandOverTimeout) -> None:
        """Keep the arc, unless it is decided that it leaves."""
        handover = self.current
        if handover is not None and handover.decided_at < 0:
            self.abort(perhaps_served=handover.asked and handover.kind == "leave")

    def abort(self, perhaps_served: bool = False) -> None:
        """Keep the arc and end a hand-over that can no longer succeed: the coming primary does not
        answer, the own voters are lost, or another primary serves the arc. `perhaps_served`: a
        whole cluster may have been taken over nevertheless."""
        handover = self.current
        if handover is None:
            return
        self._end()
        self._forget_split()
        self.role.trace(f"{handover.kind} given up")
        self.port.count("hand_overs_given_up")
        if self.log.voter_log is not None and self.log.config.leaving is not None:
            self.leader_log.configure(replace(self.log.config, leaving=None))
        self.members.ensure_standby()
        self.port.emit(ArcKept(handover.arc))
        if self.role.leaving:
            if perhaps_served:
                self._refused[handover.arc.primary.id] = None
            self.leave()

    def _shrunk(self, arc: Cluster) -> Cluster:
        """The own cluster without `arc` and its members."""
        own = self.role.own
        rest = own.without(*(member.id for member in arc.members()))
        return replace(rest, start=arc.key)

    def _finish_split(self, arc: Cluster) -> None:
        for member in arc.members():
            self.departures.end_leaving(member.id)
        self._forget_split()
        self.port.send(arc.primary, ArcGiven(arc, True))
        self.members.update(self._shrunk(arc), "split")
        for member in arc.others():
            self.port.send(member, Membership(arc))
        self.ring.split_off(arc)
        self.port.count("splits")
        self.port.emit(ArcGone(arc))

    def _end(self) -> None:
        """End the present hand-over."""
        self.current = None
        self.port.cancel_timer(HandOverTimeout())
