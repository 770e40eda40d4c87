"""At an observer: copies of other clusters' logs, to begin with when one of these clusters is lost
(P5).

A copy is in memory only, and nothing is decided with it: the node that leads the lost cluster's arc
next begins with it (`recovery`, `role_changes`), and the primary of a cluster chooses who keeps one
(`observers`). The entries themselves are applied by the registry as they come (`EntryObserved`). A
copy whose primary was not heard for `OBSERVED_LOG_KEPT` is forgotten, and so is one that has served
its purpose.

A copy is *whole* if it has all that was acknowledged to a subscriber: the primary waited for this
node, and was heard until shortly before its link was lost; it may have waited no longer after that.
"""

from __future__ import annotations

from overlay.chord.constants import OBSERVED_LOG_KEPT, OBSERVED_LOGS_MOST, WHOLE_WITHIN
from overlay.chord.events import (
    EntryObserved,
    ObservedArc,
    ObservedEnded,
    ObservedReset,
    RingLeft,
)
from overlay.chord.messages import Cluster
from overlay.chord.recovery.messages import (
    Observe,
    Observed,
    ObserverEntries,
    ObserverReleased,
    ObserverSnapshot,
)
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role import ClusterRole
from overlay.consensus import EMPTY
from overlay.machine import Key, NodeId, Peer, Timer, Version, by_id


class ObservedLogsDue(Timer, frozen=True):
    """Time to look for copies whose primaries are no longer heard."""


class ObservedLog:
    """The copy of one cluster's log."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.position: Version = EMPTY
        self.arriving: list[bytes] = []  # pieces of the whole state
        self.awaited = False  # its primary waited for us when it was heard last …
        self.heard = 0.0  # … at this time
        self.lost_at: float | None = None  # when its link was lost after that


class ObservedLogs:
    """The copies that this node keeps."""

    def __init__(self, role: ClusterRole, ring: RingState) -> None:
        self.role = role
        self.ring = ring
        self.port = role.port
        self.copies: dict[Key, ObservedLog] = {}

    def position(self, key: Key) -> Version:
        """Return the position of the copy of this cluster's log; (0, 0) if there is none."""
        kept = self.copies.get(key)
        return EMPTY if kept is None else kept.position

    def is_whole(self, key: Key) -> bool:
        """Whether the copy has all that was acknowledged to a subscriber."""
        kept = self.copies.get(key)
        return (
            kept is not None
            and kept.awaited
            and kept.lost_at is not None
            and kept.lost_at - kept.heard <= WHOLE_WITHIN
        )

    # -- what the primary says -------------------------------------------------------------------

    def on_observe(self, sender: Peer, message: Observe) -> None:
        """A primary wants a copy to be kept, or asks how far it is."""
        cluster, kept = message.cluster, self.copies.get(message.cluster.key)
        own = self.role.cluster
        if (
            sender.id != cluster.primary.id
            or self.ring.ring not in ("", cluster.ring)
            or cluster.has_member(self.port.me.id)
            or (own is not None and own.key == cluster.key)
            or (kept is None and len(self.copies) >= OBSERVED_LOGS_MOST)
            or (kept is not None and kept.cluster.epoch > cluster.epoch)
        ):
            self.port.count("observing_refused")
            return
        self.ring.learn(cluster)
        if kept is None:
            kept = self.copies[cluster.key] = ObservedLog(cluster)
            self.port.set_timer(OBSERVED_LOG_KEPT, ObservedLogsDue())
        same = kept.cluster.epoch == cluster.epoch
        kept.cluster = cluster
        self._watch()
        if not same:
            kept.arriving.clear()
        self._heard(kept, awaited=kept.awaited and same)
        self._answer(kept, kept.position)

    def on_entries(self, sender: Peer, message: ObserverEntries) -> None:
        """The next entries of the log, or a sign of life."""
        kept = self._spoken_of(sender, message.key, message.epoch)
        if kept is None:
            return
        self._heard(kept, awaited=False)
        if kept.position != message.after or kept.position == EMPTY:
            self.port.count("observing_gaps")
            self._answer(kept, EMPTY)  # then everything comes again
            return
        for item in message.entries:
            kept.position = (item.epoch, kept.position[1] + 1)
            if item.config is None:
                self.port.emit(EntryObserved(message.key, item.body))
            else:
                self.port.emit(ObservedArc(message.key, item.config.start))
        kept.awaited = message.awaited
        self._answer(kept, kept.position)

    def on_copy(self, sender: Peer, message: ObserverSnapshot) -> None:
        """A piece of the whole state. The former copy is kept until the last piece has come."""
        kept = self._spoken_of(sender, message.key, message.epoch)
        if kept is None:
            return
        self._heard(kept, awaited=False)
        if message.first:
            kept.arriving.clear()
        if message.before is not None and message.before != len(kept.arriving):
            self.port.count("observing_gaps")
            kept.arriving.clear()
            return  # a piece is missing; who is not answered sends all of it again
        kept.arriving += message.entries
        if not message.last:
            self._answer(kept, EMPTY)
            return
        kept.position = message.position
        self.port.emit(ObservedReset(message.key))
        for entry in kept.arriving:
            self.port.emit(EntryObserved(message.key, entry))
        kept.arriving.clear()
        self._answer(kept, kept.position)

    def on_released(self, sender: Peer, message: ObserverReleased) -> None:
        """Drop the copy of a cluster's log, which its primary no longer needs."""
        kept = self.copies.get(message.key)
        if kept is not None and sender.id == kept.cluster.primary.id:
            self.forget(message.key)

    # -- what ends it ----------------------------------------------------------------------------

    def peer_lost(self, node: NodeId) -> None:
        """Note that the link to `node` is down: from now on its copies age."""
        for kept in self.copies.values():
            if kept.cluster.primary.id == node and kept.lost_at is None:
                kept.lost_at = self.port.now

    def forget(self, key: Key) -> None:
        """Drop the copy of this cluster's log, if there is one."""
        if self.copies.pop(key, None) is not None:
            self.port.emit(ObservedEnded(key))
            self._watch()

    def on_ring_left(self, event: RingLeft) -> None:
        """Drop all copies: what belonged to that ring is registered in another by now."""
        for key in list(self.copies):
            self.forget(key)

    def on_observed_logs_due(self, timer: ObservedLogsDue) -> None:
        """Drop the copies that are no longer kept up to date."""
        for key, kept in list(self.copies.items()):
            if self.port.now - kept.heard >= OBSERVED_LOG_KEPT:
                self.forget(key)
        if self.copies:
            self.port.set_timer(OBSERVED_LOG_KEPT / 4, ObservedLogsDue())

    # -- parts -----------------------------------------------------------------------------------

    def _spoken_of(self, sender: Peer, key: Key, epoch: int) -> ObservedLog | None:
        """The copy that the sender may speak for."""
        kept = self.copies.get(key)
        if kept is None or (sender.id, epoch) != (kept.cluster.primary.id, kept.cluster.epoch):
            self.port.count("observing_refused")
            return None
        return kept

    def _heard(self, kept: ObservedLog, awaited: bool) -> None:
        kept.heard, kept.lost_at, kept.awaited = self.port.now, None, awaited

    def _watch(self) -> None:
        """Miss the silence of those who lead."""
        leading = by_id(kept.cluster.primary for kept in self.copies.values())
        self.port.watch("observed", tuple(leading.values()))

    def _answer(self, kept: ObservedLog, position: Version) -> None:
        cluster = kept.cluster
        self.port.send(cluster.primary, Observed(cluster.key, cluster.epoch, position))
