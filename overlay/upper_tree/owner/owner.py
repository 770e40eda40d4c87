"""The trees that this node's cluster owns: the owner's role and its log (P1, C6).

`Owner` joins the cluster (overlay/chord) with the trees. It says what this node decides about,
writes and applies the log, makes snapshots for new standbys, and hands trees over when a part of
the arc leaves. What is decided is up to the other machines of this folder.
"""

from __future__ import annotations

from collections.abc import Iterable

from overlay.chord.clusters import Clusters
from overlay.chord.events import (
    ArcGone,
    ArcKept,
    ArcLeaving,
    Committed,
    DiskSnapshotWanted,
    Elected,
    EntryReceived,
    FollowerSnapshotWanted,
    LogReset,
    RoleChanged,
)
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster, MergePhase
from overlay.chord.ring.ring import Ring
from overlay.links.statements import Signer, Tokens
from overlay.machine import Alarm, Key, Machine, NodeId, Peer, Port, Timer, Version
from overlay.settings import Settings
from overlay.upper_tree.messages import Assign, NotOwner
from overlay.upper_tree.owner.constants import REBALANCE_DELAY
from overlay.upper_tree.owner.host_pool import HostPool
from overlay.upper_tree.owner.host_selector import HostSelector
from overlay.upper_tree.owner.host_supervisor import HostSupervisor
from overlay.upper_tree.owner.owned_tree import MapReason, OwnedTree, OwnedTrees
from overlay.upper_tree.owner.tree_log import (
    CacheHoldersChanged,
    ClusterState,
    MapChanged,
    Operation,
    decode,
    encode,
)
from overlay.upper_tree.partition import PartitionMap


class RebalanceDue(Timer, frozen=True):
    """Look at the load of the virtual nodes (rebalance.py)."""


class Owner(Machine):
    """State of the own cluster's trees, at the primary and (as a replica) at the voters."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        clusters: Clusters,
        ring: Ring,
        signer: Signer | None = None,
    ) -> None:
        """`signer`: where nodes have keys, so that hosts know each other."""
        super().__init__(port)
        self._tokens = Tokens(signer)
        self.clusters = clusters
        self.ring = ring
        self.trees = OwnedTrees()  # only at the primary
        self.hosts = HostSupervisor(port, settings, clusters, self.trees, self)
        self.pool = HostPool(port, clusters, self, self.hosts.machines)
        self.selector = HostSelector(port, settings, clusters, self.trees, self.hosts, self.pool)
        self._rebalance = Alarm(port, RebalanceDue())
        self.state = ClusterState()
        """The state that the log makes, up to its last entry. To be changed by `append` only."""
        self.committed = 0
        """Number of the first log entry that is not committed."""
        self._number = 0  # of the last version that was given out
        self._departing: Cluster | None = None
        self._unsettled: list[str] = []  # attributes of its trees that the transfer may wait for
        self._transferred: tuple[Cluster, float] | None = None  # the arc that goes, and since when
        self._led: tuple[Key, int] | None = None  # the cluster whose state this is, and its epoch
        self.merge_phase = MergePhase.NONE
        """The phase of the move of these trees to another ring."""

    def assignment(self, map_: PartitionMap, attribute: str, node: NodeId) -> Assign:
        """Return the assignment of a host in this map of a tree. All hosts of the tree get the same
        token, and a new one under each epoch."""
        token = self._tokens.make("visits", attribute, serial=map_.version[0])
        return map_.assignment(attribute, node, token)

    # --- ownership ---

    def decides(self, attribute: str) -> bool:
        """Whether this node decides about the attribute's tree now."""
        return self.decides_key(attribute_key(attribute))

    def decides_key(self, key: Key) -> bool:
        """Return whether this node currently decides about the tree or entry with this key."""
        return self.merge_phase < MergePhase.STOPPED and self.clusters.owns(key)

    def may_locate(self, attribute: str) -> bool:
        """Whether this node may say which hosts a tree has: it decides about it, or is handing it
        over, and no other node decides yet. Its map does not change meanwhile."""
        arc = self._departing or (self._transferred[0] if self._transferred else None)
        is_leaving = arc is not None and arc.owns(attribute_key(attribute))
        held = is_leaving and attribute in self.trees and self.clusters.is_followed
        return held or self.decides(attribute)

    def accepts_registrations(self, attribute: str) -> bool:
        """Whether this owner adds and ends registrations of the attribute now; it does not while
        its ring ends."""
        return self.merge_phase is MergePhase.NONE and self.decides(attribute)

    def known_owner(self, attribute: str) -> Cluster | None:
        """The cluster that decides, as far as known; None: it is not this node now, and no other is
        known."""
        mine = self.clusters.cluster
        key = attribute_key(attribute)
        if mine is not None and mine.owns(key):
            return None if mine.primary.id == self.port.me.id else mine
        known = self.ring.owner(key)
        return None if known is None or known.primary.id == self.port.me.id else known

    def refuse(self, sender: Peer, attributes: Iterable[str]) -> None:
        """Answer that this node does not decide about the attributes, with who may."""
        for names, cluster in self.by_known_owner(attributes):
            self.port.send(sender, NotOwner(tuple(names), cluster))

    def by_known_owner(
        self, attributes: Iterable[str]
    ) -> Iterable[tuple[list[str], Cluster | None]]:
        """The attributes in groups, each with the cluster that decides about all of them."""
        found: dict[str, tuple[list[str], Cluster | None]] = {}
        for attribute in attributes:
            cluster = self.known_owner(attribute)
            found.setdefault(cluster.key if cluster else "", ([], cluster))[0].append(attribute)
        return found.values()

    # --- the log ---

    def append(self, operation: Operation) -> int:
        """Write one operation to the log and apply it. Returns its index."""
        index = self.clusters.append(encode(operation))
        self.state.apply(operation)
        return index

    def append_all(self, operations: Iterable[Operation]) -> int:
        """Write some at once and apply them. Returns the last one's index."""
        operations = list(operations)
        index = self.clusters.append_all([encode(operation) for operation in operations])
        for operation in operations:
            self.state.apply(operation)
        return index

    def write_map(self, attribute: str, map_: PartitionMap, reason: MapReason) -> None:
        """Write to the log that the tree is created with this map, or that its map changes to
        it."""
        epoch, version = map_.version
        self.append(MapChanged(attribute, map_.version, map_.entries))
        self.port.trace(
            "map",
            attribute=attribute,
            epoch=epoch,
            version=version,
            size=len(map_.entries),
            reason=reason,
        )

    @property
    def epoch(self) -> int:
        """Under which hosts are given orders; not lower than any that a map of this cluster has."""
        mine = self.clusters.cluster
        return max(self.state.highest()[0], 0 if mine is None else mine.version[0])

    def next_version(self) -> Version:
        """A version later than every map's of this cluster."""
        _, number = self.state.highest()
        self._number = max(self._number, number) + 1
        return (self.epoch, self._number)

    def on_committed(self, event: Committed) -> None:
        """Note that a majority of the voters has everything before `next`."""
        self.committed = event.next

    def on_entry_received(self, event: EntryReceived) -> None:
        """A log entry came, at a voter or at the new primary of an arc that was split off."""
        self.state.apply(decode(event.entry))

    def on_log_reset(self, event: LogReset) -> None:
        """Clear the state: a snapshot follows."""
        self.state = ClusterState()

    def on_follower_snapshot_wanted(self, event: FollowerSnapshotWanted) -> None:
        """A voter lacks more than the log's tail: send a snapshot."""
        self.clusters.send_snapshot([encode(o) for o in self.state.operations()])

    def on_disk_snapshot_wanted(self, event: DiskSnapshotWanted) -> None:
        """The log on disk is far longer than the state: store a snapshot."""
        self.clusters.store_snapshot([encode(o) for o in self.state.operations()])

    # --- the role ---

    def on_role_changed(self, event: RoleChanged) -> None:
        """Take up or lay down the primary's work."""
        if event.role != "primary":
            self._lay_down(void=event.role == "none")
        elif event.cluster is not None:
            led, self._led = self._led, (event.cluster.key, event.cluster.version[0])
            if led is None or led[0] != event.cluster.key:
                self.committed = 0
                self.hosts.begin(list(self.state.hosts()))
                self.pool.begin(self.state.hosts())
                for attribute in self.state.trees:
                    self.adopt(attribute)
            elif led != self._led:  # elected again while it led: hosts go by the new epoch
                for owned in self.trees.values():
                    owned.begin_epoch()
        if event.role == "none":
            self.state = ClusterState()
        if event.role == "primary":
            self.hosts.watch()
            self.rebalance_soon()

    def on_elected(self, event: Elected) -> None:
        """Lead the cluster after an election. The former primary cannot be asked, so any host may
        have been sent messages that are not in the log, or may lack entries that are."""
        members = list(event.cluster.members())
        self.hosts.begin_elected(event.lost, members, list(self.state.hosts()))
        self.hosts.watch()
        self.rebalance_soon()

    def _lay_down(self, void: bool) -> None:
        """Stop being the primary. `void`: no other took these trees over (the node was fenced, or
        gave its own ring up for a better one), so no event may find them at their hosts. Trees that
        a leaving primary handed over are no longer in `trees`."""
        if void and self.merge_phase < MergePhase.STOPPED:  # else hosts have dropped them already
            epoch, number = self.state.highest()
            for attribute, owned in self.trees.items():
                for host in owned.all_hosts().values():
                    self.port.send(host, Assign(attribute, (epoch, number + 1)))
        self._led = None
        self._departing = self._transferred = None
        self.trees.clear()
        self.hosts.end()
        self.pool.end()
        self._rebalance.cancel()

    def adopt(self, attribute: str) -> OwnedTree:
        """Begin to decide about a tree of the state. KeyError if the state has none."""
        return self.trees.adopt(self.state.trees[attribute])

    def enter_merge_phase(self, phase: MergePhase) -> None:
        """Note the phase in which the end of this node's ring is (`NONE`: the ring does not end).
        registry_merge.py decides about it."""
        self.merge_phase = phase

    def rebalance_soon(self, delay: float = REBALANCE_DELAY) -> None:
        """Set the timer of the next look at the load to `delay` seconds, unless it fires sooner
        (rebalance.py)."""
        self._rebalance.within(delay)

    def rebalance_rang(self) -> None:
        """Note that `RebalanceDue` has fired. To be called first in its handler."""
        self._rebalance.rang()

    # --- an arc that leaves ---

    def on_arc_leaving(self, event: ArcLeaving) -> None:
        """Prepare the trees of an arc that another cluster takes over, and transfer them when no
        change of them is under way."""
        self._departing, self._unsettled = event.arc, []
        self.transfer_if_settled()

    def on_arc_kept(self, event: ArcKept) -> None:
        """The arc was not handed over: its trees stay, and are decided about here again."""
        self._departing = self._transferred = None
        self.rebalance_soon()

    def on_arc_gone(self, event: ArcGone) -> None:
        """The trees are served by their own cluster now. Their hosts go on serving; the new primary
        moves them when it wants."""
        self._departing = self._transferred = None
        for attribute in [a for a in self.trees if event.arc.owns(attribute_key(a))]:
            self.trees.drop(attribute)
        self.state.drop_keys(event.arc.owns)
        if not self.clusters.is_primary:
            return  # a voter, whose copy follows
        self.hosts.watch()

    def is_departing(self, attribute: str) -> bool:
        """Whether the tree is to leave and has not been given to its next owner yet."""
        return self._departing is not None and self._departing.owns(attribute_key(attribute))

    @property
    def is_handing_over(self) -> bool:
        """Whether an arc is being given away: the log may be its next owner's."""
        return self._departing is not None or self._transferred is not None

    def serving_arc(self) -> tuple[Key, Key] | None:
        """(start, key] of the arc for which no other primary decides; None: there is none, or this
        node does not know whether it still leads."""
        cluster = self.clusters.cluster
        is_stopped = self.merge_phase >= MergePhase.STOPPED
        if cluster is None or cluster.merged or not self.clusters.is_followed or is_stopped:
            return None
        start = cluster.start
        if self._transferred is not None:
            arc, since = self._transferred
            # Its next owner takes leases of before for over `most` seconds after it was given it.
            if self.port.now + self.hosts.leases.longest > since + self.hosts.leases.most:
                start = arc.key
            if start == cluster.key:
                return None
        return start, cluster.key

    def transfer_if_settled(self) -> None:
        """Hand the departing arc over if no registration, change of a map or stale host of its
        trees is awaited any more. To be called whenever one of these is done."""
        arc = self._departing
        if arc is None:
            return
        # It is called for each tree that settles: only what was not settled is looked at again.
        while self._unsettled and self._is_settled(self._unsettled[-1]):
            self._unsettled.pop()
        if not self._unsettled:
            mine = (a for a in self.trees if arc.owns(attribute_key(a)))
            self._unsettled = [a for a in mine if not self._is_settled(a)]
        if self._unsettled:
            return
        self._departing = None
        self._transferred = (arc, self.port.now)
        self.clusters.transfer([encode(o) for o in self._departing_operations(arc)])

    def _is_settled(self, attribute: str) -> bool:
        owned = self.trees.get(attribute)
        return owned is None or not (
            owned.pending or owned.is_changing or self.hosts.has_serving_stale(owned)
        )

    def _departing_operations(self, arc: Cluster) -> list[Operation]:
        # This node's own cached summaries are in no log while it leads (cache_holders.py).
        mine = CacheHoldersChanged((self.port.me,), (), self.state.has_unknown_holders)
        cluster = self.clusters.cluster
        if cluster is not None and cluster.key == arc.key:  # the standby has the log
            return [mine]
        return [*self.state.operations(arc.owns), mine]
