"""A cluster that has become too small joins its arc to that of the cluster after it (P1; *Scatter*,
SOSP 2011). This is the side of the one that ends; `taking_in` is the other.

1. *Offer*: the cluster has had fewer than ``cluster.merge_below`` members for
   ``cluster.merge_after`` seconds and finds none, and it owns little. The cluster after it writes
   into its own log that it would take the arc (`MergeAnswer`: promised), under an epoch above this
   one's.
2. *Stop*: nothing is decided in the arc any more (`ArcMerging`); no host serves its trees, no
   publisher has a summary of them.
3. *Decide*: this cluster's log says that the arc is given (`Configuration.given`). When a majority
   has that, there is no way back.
4. *Deliver*: the state goes to the cluster after this one, which serves the arc when its own log
   has everything, and says so (taken); then this cluster ends, and its members may be recruited.

Before 3 the arc is kept if anything goes wrong, and served again. After 3 every later primary finds
the decision in its log and goes on with 4. If the cluster that promised is lost meanwhile, the arc
goes to the one that is in its place: an offer that is decided names none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from overlay.chord.cluster.leader_log import snapshot_pieces
from overlay.chord.constants import (
    HAND_OVER_MOST,
    MERGE_AGAIN,
    MERGE_LITTLE,
    MERGE_STATE_AGAIN,
    QUIESCE_MOST,
)
from overlay.chord.events import ArcGone, ArcKept, ArcMerging
from overlay.chord.membership.taking_over import LeadershipParts
from overlay.chord.messages import (
    AskMerge,
    Cluster,
    MergeAnswer,
    MergeCancelled,
    MergeOffer,
    MergeState,
)
from overlay.machine import Key, Peer
from overlay.settings import ClusterSettings


class ClusterLoad(Struct, frozen=True):
    """The load of a cluster, as its primary counts it."""

    trees: int
    registrations: int
    load: float
    """Hosts whose time its events ask for."""
    epoch: int = 0
    """The highest under which its hosts were given orders."""

    def fits(self, limits: ClusterSettings, share: float) -> bool:
        """Whether this is at most such a share of what makes a cluster split."""
        return (
            self.trees <= share * limits.split_trees
            and self.registrations <= share * limits.split_registrations
            and self.load <= share * limits.split_load
        )


class OtherChanges(Protocol):
    """Other changes of the arc that may be under way: a hand-over, or the end of the ring."""

    @property
    def is_under_way(self) -> bool:
        """Whether it is about to."""


class ClusterMerge:
    """A merge that is under way and not decided."""

    def __init__(self, arc: Cluster, into: Cluster, until: float) -> None:
        self.arc = arc  # this cluster as it is
        self.into = into
        self.until = until  # then it is given up
        self.stopping = False  # the other one has promised; the trees are being stopped


class ClusterMerges(LeadershipParts):
    """At a primary: its cluster's way into the next one. At most one is under way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.current: ClusterMerge | None = None
        self._load: ClusterLoad | None = None  # None: not known yet
        self._small_since: float | None = None  # since when members are missing
        self._not_before = 0.0
        self._entries: tuple[bytes, ...] | None = None  # the state, once it is at rest
        self._state_sent = float("-inf")

    def yield_to(self, *others: OtherChanges) -> None:
        """Begin nothing while one of `others` is under way. Called once."""
        self._others = others

    # -- what is under way -----------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        """Whether this node leads a cluster that is about to end in the next one."""
        return self.current is not None or (self.role.is_primary and self.log.is_given)

    def is_leaving(self, key: Key) -> bool:
        """Whether nothing is decided about `key`, since it is about to belong to the next
        cluster."""
        current = self.current
        return current is not None and current.stopping and current.arc.owns(key)

    def report(self, load: ClusterLoad) -> None:
        """Take the load of the own cluster. Called regularly, at the primary."""
        self._load = load

    def consider(self) -> None:
        """Run regularly at the primary: begin a merge if it is due, repeat unanswered messages, or
        give the merge up."""
        own, now = self.role.led, self.port.now
        if own is None:
            return
        if self.log.is_given:
            self._go_on()
            return
        merge = self.current
        if merge is None:
            self._begin_if_small(own)
        elif now >= merge.until or merge.arc.epoch != own.epoch or self.role.leaving:
            self.give_up("took too long" if now >= merge.until else "its primary has changed")
        elif not merge.stopping:
            merge.into = self.ring.successor() or merge.into  # it may have another primary
            self._offer(merge.into.primary, merge.arc, decided=False)

    def _begin_if_small(self, own: Cluster) -> None:
        settings, now = self.recruiting.settings, self.port.now
        if len(own.members()) >= min(settings.merge_below, settings.size):
            self._small_since = None
            return
        if self._small_since is None:
            self._small_since = now
        into = self.ring.successor()
        if (
            not self._owns_little()
            or into is None
            or into.start != own.key
            or now - self._small_since < settings.merge_after
            or not self.recruiting.is_exhausted_for(settings.merge_after)
            or now < self._not_before
            or self.role.leaving
            or self._is_busy()
        ):
            return
        count = len(own.members())
        self.current = ClusterMerge(own, into, now + HAND_OVER_MOST)
        self.role.trace(f"merge begins: {count} of {settings.size} members, into {into.key}")
        self._offer(into.primary, own, decided=False)

    def _owns_little(self) -> bool:
        load, limits = self._load, self.recruiting.settings
        return load is not None and load.fits(limits, MERGE_LITTLE)

    def _is_busy(self) -> bool:
        """Whether something else changes the arc or the log's configuration."""
        config = self.log.config
        return (
            config.leaving is not None
            or config.promised is not None
            or self.leader_log.config_pending
            or any(other.is_under_way for other in self._others)
            or not self.heartbeat.has_lease()
        )

    def _offer(self, primary: Peer, arc: Cluster, decided: bool) -> None:
        load = self._load or ClusterLoad(0, 0, 0.0)
        offer = MergeOffer(
            arc, load.trees, load.registrations, load.load, load.epoch, decided=decided
        )
        self.port.send(primary, offer)

    # -- before it is decided --------------------------------------------------------------------

    def on_answer(self, sender: Peer, message: MergeAnswer) -> None:
        """The next cluster has promised to take the arc, has taken it, or does not want it now."""
        own = self.role.led
        if own is None:
            return
        given = self.log.config.given
        if given is not None:
            if message.arc == given and not self.leader_log.config_pending:
                self._answered(sender, message, given)
            return
        merge = self.current
        if merge is None or message.arc != merge.arc or sender.id != merge.into.primary.id:
            return
        if message.answer == "refused":
            self.give_up("refused")
        elif message.answer == "promised" and not merge.stopping:
            if own.epoch != merge.arc.epoch or not self.heartbeat.has_lease():
                self.give_up("its primary has changed")
                return
            merge.stopping = True
            merge.until = min(merge.until, self.port.now + QUIESCE_MOST)
            self.port.emit(ArcMerging(merge.arc, decided=False))

    def hand_over(self, entries: Sequence[bytes]) -> None:
        """Decide on the hand-over, now that the arc is at rest with the state `entries`: the answer
        to ArcMerging. Ignored if the arc was kept meanwhile."""
        if self.log.is_given:
            self._entries = tuple(entries)
            return
        merge, own = self.current, self.role.led
        if merge is None or own is None or not merge.stopping:
            return
        if own.epoch != merge.arc.epoch or self._is_busy():
            self.give_up("its voters have changed")
            return
        self._entries = tuple(entries)
        self.current = None
        self.leader_log.configure(replace(self.log.config, given=merge.arc))
        self.committed()

    def give_up(self, reason: str) -> None:
        """Keep the arc, if that is not decided yet, and try again later."""
        merge = self.current
        if merge is None:
            return
        self.current = None
        self._rest()
        self.role.trace(f"merge given up: {reason}")
        self.port.count("cluster_merges_given_up")
        self.port.send(merge.into.primary, MergeCancelled(merge.arc))
        if merge.stopping:
            self.port.emit(ArcKept(merge.arc))

    def _rest(self) -> None:
        self._not_before = self.port.now + MERGE_AGAIN * (0.5 + self.port.rng.random())

    def forget(self) -> None:
        """Forget the merge, because this node no longer leads, or leads another cluster."""
        self.current = self._entries = self._load = self._small_since = None
        self._state_sent = float("-inf")

    def keep(self, given: Cluster) -> None:
        """Keep the own arc: the next cluster, to which it was given, is lost, and this one has its
        arc."""
        self.forget()
        self.port.emit(ArcKept(given))

    # -- after it is decided ---------------------------------------------------------------------

    def committed(self) -> None:
        """More of the log is committed: perhaps that the arc is given."""
        own = self.role.led
        if own is not None and self.log.is_given and not self.leader_log.config_pending:
            if not own.merged:
                self.role.trace("merge decided")
                self.members.update(own.changed(merged=True), "given to the next cluster")
            self._go_on()

    def _go_on(self) -> None:
        """Have the cluster after this one take the arc."""
        given, into = self.log.config.given, self.ring.successor()
        if given is None or self.leader_log.config_pending or not self.heartbeat.has_lease():
            return
        if self._entries is None:
            self.port.emit(ArcMerging(given, decided=True))
        if into is not None and self.port.now - self._state_sent >= MERGE_STATE_AGAIN:
            self._offer(into.primary, given, decided=True)

    def _answered(self, sender: Peer, message: MergeAnswer, given: Cluster) -> None:
        if message.answer == "taken":
            self._end(given)
        elif message.answer == "promised" and self._entries is not None:
            self._state_sent = self.port.now
            pieces = [run for run, _, _ in snapshot_pieces(self._entries)]
            for number, run in enumerate(pieces):
                self.port.send(sender, MergeState(given, number, len(pieces), run))

    def _end(self, given: Cluster) -> None:
        self.forget()
        self.port.count("cluster_merges")
        self.role.trace("merged into the next cluster")
        self.port.emit(ArcGone(given))
        self.members.disband("merged into the next cluster", self.ring.successor())

    def on_ask(self, sender: Peer, message: AskMerge) -> None:
        """Answer a cluster that has promised to take an arc and asks about its state. Reply if the
        arc was not given away and is not about to be."""
        own, arc = self.role.led, message.arc
        if own is None or not own.owns(arc.key) or self.leader_log.config_pending:
            return
        current = self.current
        offered = current is not None and current.arc == arc
        if self.heartbeat.has_lease() and not offered:
            self.port.send(sender, MergeCancelled(arc))
