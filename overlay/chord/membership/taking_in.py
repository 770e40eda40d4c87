"""The side of the cluster that takes the arc of the one before it, which has become too small (P1);
`cluster_merge` is the other side.

A promise is an entry of the log (`Configuration.promised`): whoever leads this cluster next keeps
it. While it stands the cluster neither splits nor merges itself. The state that comes then is
written to the log together with the entry by which the arc begins where the other one's did; this
node serves the arc when a majority has both. A primary that is elected before that finds the
promise, drops what has come of the state, and gets it again: the other cluster keeps it until it
hears that the arc is taken.

Only a cluster of a higher epoch takes an arc, so that old descriptions of the other cluster count
no more. A promise ends when the other cluster says that it keeps its arc (`MergeCancelled`), or
when another one has it. If nothing is heard of that cluster it may be lost: then it is recovered
like any other lost cluster (P5), by this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from overlay.chord.constants import ASK_ARC_EVERY, MERGE_ROOM, PROMISE_SILENT
from overlay.chord.events import ArcArrived, ArcTaken
from overlay.chord.membership.cluster_merge import ClusterLoad, OtherChanges
from overlay.chord.membership.taking_over import LeadershipParts
from overlay.chord.messages import (
    AskMerge,
    Cluster,
    MergeAnswer,
    MergeCancelled,
    MergeOffer,
    MergeState,
)
from overlay.machine import Key, Peer, by_id


class TakingIn(LeadershipParts):
    """At a primary: takes over the arc of the preceding cluster when that cluster gives it up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._load: ClusterLoad | None = None  # of the own cluster; None: not known yet
        self._pieces: dict[int, tuple[bytes, ...]] = {}  # of the state, as they come
        self._arriving: tuple[Cluster, Peer] | None = None  # its state is written, not committed
        self._stored_at = -1  # number of the entry that takes it
        self._heard = 0.0  # when the other cluster last spoke …
        self._asked = 0.0  # … and was last asked

    def yield_to(self, *others: OtherChanges, suspect: Callable[[Cluster], None]) -> None:
        """Promise nothing while one of `others` is under way; `suspect` a cluster that is silent.
        Called once."""
        self._others, self._suspect = others, suspect

    @property
    def is_under_way(self) -> bool:
        """Whether this node leads a cluster that has promised to take another arc."""
        if self.role.led is None or self.log.voter_log is None:
            return False
        return self._arriving is not None or self.log.config.promised is not None

    def is_arriving(self, key: Key) -> bool:
        """Return whether `key` lies in an arc whose state this node has not received completely."""
        return self._arriving is not None and self._arriving[0].owns(key)

    def report(self, load: ClusterLoad) -> None:
        """Take the load of the own cluster. Called regularly, at the primary."""
        self._load = load

    def forget(self) -> None:
        """Forget arriving state, because this node no longer leads. The state is in the log, or is
        sent again."""
        self._pieces.clear()
        self._load = self._arriving = None

    # -- the promise -----------------------------------------------------------------------------

    def on_offer(self, sender: Peer, message: MergeOffer) -> None:
        """The cluster before this one is too small: promise to take its arc, or say that it was
        taken."""
        own, arc = self.role.led, message.arc
        if own is None or own.merged or not self.heartbeat.has_lease():
            return
        config = self.log.config
        self._heard = self.port.now
        if config.taken == (arc.key, arc.version) or own.owns(arc.key):
            if not self.leader_log.config_pending and self._arriving is None:
                self._answer(sender, arc, "taken")
        elif config.promised == arc:
            if not self.leader_log.config_pending:
                self._answer(sender, arc, "promised")
        elif self._is_busy() or own.start != arc.key or arc.ring != own.ring:
            if not message.decided:
                self._answer(sender, arc, "refused")
        elif not message.decided and not self._has_room(message):
            self._answer(sender, arc, "refused")
        elif own.epoch <= max(arc.epoch, message.epoch):
            self.election.raise_epoch(max(arc.epoch, message.epoch))  # it will ask again
        else:
            self._pieces.clear()
            self.role.trace(f"promises to take the arc of {arc.key}")
            self.leader_log.configure(replace(config, promised=arc))
            self._answer_promised(sender)

    def _answer_promised(self, sender: Peer) -> None:
        promised = self.log.config.promised
        if promised is not None and not self.leader_log.config_pending:
            self._answer(sender, promised, "promised")

    def _answer(
        self, sender: Peer, arc: Cluster, answer: Literal["promised", "taken", "refused"]
    ) -> None:
        self.port.send(sender, MergeAnswer(arc, answer))

    def _is_busy(self) -> bool:
        config = self.log.config
        return (
            self.role.leaving
            or self.leader_log.config_pending
            or self._arriving is not None
            or config.promised is not None
            or config.leaving is not None
            or any(other.is_under_way for other in self._others)
        )

    def _has_room(self, offered: MergeOffer) -> bool:
        """Whether both together are well below what makes a cluster split."""
        own = self._load
        if own is None:
            return False
        both = ClusterLoad(
            own.trees + offered.trees,
            own.registrations + offered.registrations,
            own.load + offered.load,
        )
        return both.fits(self.recruiting.settings, MERGE_ROOM)

    def consider(self) -> None:
        """Run regularly at the primary: ask about a promised arc."""
        own = self.role.led
        promised = None if own is None or self.log.voter_log is None else self.log.config.promised
        if promised is None or self.leader_log.config_pending or not self.heartbeat.has_lease():
            return
        now = self.port.now
        if self._is_replaced(promised):
            self._withdraw()
            return
        if now - self._asked >= ASK_ARC_EVERY:
            self._asked = now
            newest = self.ring.newest(promised.key)
            known = (*promised.members(), *(() if newest is None else newest.members()))
            for peer in by_id(known, besides=self.port.me.id).values():
                self.port.send(peer, AskMerge(promised))
        if now - self._heard >= PROMISE_SILENT:
            self._heard = now
            self._suspect(promised)

    def _is_replaced(self, promised: Cluster) -> bool:
        """Whether a third cluster has the arc."""
        owner = self.ring.owner(promised.key)
        others = (promised.key, self.role.own.key)
        return owner is not None and owner.key not in others and owner.epoch > promised.epoch

    def on_cancelled(self, sender: Peer, message: MergeCancelled) -> None:
        """The other cluster keeps its arc, or another one has it."""
        if self.role.led is None or self.log.voter_log is None:
            return
        if self.log.config.promised == message.arc and self.heartbeat.has_lease():
            self._withdraw()

    def _withdraw(self) -> None:
        """Withdraw the promise to take the other arc."""
        self._pieces.clear()
        self.leader_log.configure(replace(self.log.config, promised=None))

    # -- what comes ------------------------------------------------------------------------------

    def on_state(self, sender: Peer, message: MergeState) -> None:
        """A piece of the state: the arc is given. With the last one its trees are written to the
        log."""
        own, arc = self.role.led, message.arc
        if own is None or self.log.voter_log is None or not 0 <= message.number < message.pieces:
            return
        pending = self.leader_log.config_pending or self._arriving is not None
        if self.log.config.promised != arc or pending or not self.heartbeat.has_lease():
            return
        self._heard = self.port.now
        self._pieces[message.number] = message.entries
        if len(self._pieces) < message.pieces:
            return
        pieces = [self._pieces[number] for number in range(message.pieces)]
        self._pieces.clear()
        self._arriving = (arc, sender)
        self._stored_at = -1
        self.port.emit(ArcArrived(arc, tuple(entry for piece in pieces for entry in piece)))

    def stored(self) -> None:
        """Write the entry that takes the arc, now that the log has its trees: the answer to
        ArcArrived."""
        config = self.log.config
        if self._arriving is None or self.role.led is None or config.promised is None:
            self._arriving = None
            return
        arc, _ = self._arriving
        taken = replace(config, start=arc.start, promised=None, taken=(arc.key, arc.version))
        self._stored_at = self.leader_log.configure(taken)
        self.committed()

    def committed(self) -> None:
        """More of the log is committed: perhaps that the arc is taken."""
        own = self.role.led
        if (
            own is None
            or self._arriving is None
            or not 0 <= self._stored_at < self.leader_log.committed
        ):
            return
        (arc, sender), self._arriving = self._arriving, None
        self.port.count("clusters_taken_in")
        self.members.update(own.changed(start=arc.start), f"took the arc of {arc.key}")
        self.ring.took(arc)
        self.port.emit(ArcTaken(arc))
        self._answer(sender, arc, "taken")
