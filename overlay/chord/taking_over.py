"""The coming primary's side of a hand-over (P1): see `handover`.

A part that splits off is a new cluster: whoever has all of its state and is asked, leads. A whole
cluster that its leaving primary hands over stays the same cluster with the same voters, so that the
heir asks them for the epoch like any candidate, only that nobody has to be silent for it.
"""

from __future__ import annotations

import msgspec

from overlay.chord.copying import Log
from overlay.chord.election import Election
from overlay.chord.members import Members
from overlay.chord.messages import Cluster, TakenOver, TakeOver
from overlay.chord.recruiting import Recruiting
from overlay.chord.seat import Seat
from overlay.machine import Peer


class TakingOver:
    """Answers TakeOver."""

    def __init__(
        self,
        seat: Seat,
        log: Log,
        members: Members,
        recruiting: Recruiting,
        election: Election,
    ) -> None:
        self.seat = seat
        self.log = log
        self.members = members
        self.recruiting = recruiting
        self.election = election
        self.port = seat.port
        self._from: Peer | None = None  # the primary that wants this node to take over
        election.on_lost = self._refuse

    def on_take_over(self, sender: Peer, message: TakeOver) -> None:
        """Lead this cluster from now on, if everything that belongs to it has arrived."""
        own, held, arc, staged = self.seat.cluster, self.log.held, message.cluster, self.log.staged
        willing = (
            own is not None
            and sender.id == own.primary.id
            and arc.primary.id == self.port.me.id
            and not self.seat.leaving
        )
        if willing and held is not None and held.key == arc.key and held.next >= message.index:
            for known in (message.predecessor, *message.successors):
                if known is not None:
                    self.seat.ring.learn(known)
            self._from = sender
            self.election.take_over(arc)  # answered when the voters have granted it
            return
        accepted = (
            willing
            and staged is not None
            and staged.complete
            and (staged.key, staged.position[1]) == (arc.key, message.index)
        )
        self.port.send(sender, TakenOver(arc, accepted))
        if not accepted:
            self.log.staged = None
            return
        self.port.count("hand_overs")
        self.members.begin()
        self.log.take_staged(arc)
        self.seat.take(arc, "took over", message.predecessor, message.successors)
        self.seat.tell_members()
        self.log.lead()
        self.election.cancel()
        self.election.pulse.lead((), 0.0)
        self.recruiting.begin()

    def taken(self, cluster: Cluster) -> None:
        """The voters have granted what the leaving primary wanted."""
        self.port.count("hand_overs")
        if self._from is not None:
            self.port.send(self._from, TakenOver(cluster, True))

    def _refuse(self) -> None:
        own = self.seat.cluster
        if self._from is not None and own is not None:
            self.port.send(self._from, TakenOver(self._refusal(own), False))

    def _refusal(self, own: Cluster) -> Cluster:
        epoch = max(own.version[0] + 1, self.log.promises.epoch(own.key))
        return msgspec.structs.replace(own, version=(epoch, 0))
