"""The trees that this node's cluster owns, and what of them leaves and arrives (P1, C6).

`Owner` joins the cluster (overlay/chord) with the trees: it applies the log, tells a new standby
the state, and hands trees over when a part of the arc leaves. `Registry`, `Balance` and `Leases`
work on what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    Replanted,
    RoleChanged,
)
from overlay.chord.keys import attribute_key
from overlay.chord.merging.merging import STOPPED
from overlay.chord.messages import Cluster
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Alarm, Handlers, Key, Machine, NodeId, Peer, Port, Timer, Version
from overlay.settings import Settings
from overlay.upper_tree.cluster_view import ClusterView, RingView
from overlay.upper_tree.events import LeasesOver
from overlay.upper_tree.invalidation_table import InvalidationTable
from overlay.upper_tree.messages import (
    Assign,
    NotOwner,
    ServingReply,
    StillHosting,
    TreesHosted,
)
from overlay.upper_tree.owner.host_selector import HostSelector
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.replanting import Replanting
from overlay.upper_tree.owner.serving import LeasesGranted, ServingBeatDue
from overlay.upper_tree.owner.tree_log import ClusterState, Operation, Told, decode, encode
from overlay.upper_tree.pivots import Popularity

BALANCE_DELAY = 0.2
"""Seconds between a change of load and a look at it, so that a burst is looked at once. Wild
guess."""

MAX_DEAD = 10_000
"""Lost nodes that are remembered until they are back, the oldest forgotten first. Wild guess."""


class BalanceDue(Timer, frozen=True):
    """Look at the load of the virtual nodes (balance.py)."""


class Owner(Machine):
    """State of the own cluster's trees, at the primary and (as a copy) at the voters."""

    def __init__(
        self, port: Port, settings: Settings, clusters: ClusterView, ring: RingView
    ) -> None:
        super().__init__(port)
        self.settings = settings
        self.clusters = clusters
        self.ring = ring
        self.balance_alarm = Alarm(port, BalanceDue())
        self.state = ClusterState()
        self.told = InvalidationTable(settings.tree.nobody_term)
        self.popularity = Popularity()
        self.leases = LeasesGranted(port, settings.tree.serving_lease, settings.tree.serving_most)
        self.trees: dict[str, OwnedTree] = {}  # only at the primary
        self.dead: dict[NodeId, None] = {}  # hosts whose link is down
        self.leaving: dict[NodeId, Peer] = {}  # members that want to be released
        self.homes = HostSelector(
            port.me, settings, clusters, self.trees, (self.dead, self.leaving)
        )
        self.committed = 0
        self._number = 0
        self._departing: Cluster | None = None
        self.replanting = Replanting()
        self._transferred: tuple[Cluster, float] | None = None  # the arc that goes, and since when
        self._led: tuple[Key, int] | None = None  # the cluster whose state this is, and its epoch
        self.uniting = 0  # the stage at which these trees are on their way to another ring

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            RoleChanged: self.on_role_changed,
            Elected: self.on_elected,
            Replanted: self.on_replanted,
            EntryReceived: self.on_entry_copied,
            LogReset: self.on_copy_reset,
            FollowerSnapshotWanted: self.on_state_wanted,
            DiskSnapshotWanted: self.on_snapshot_wanted,
            Committed: self.on_committed,
            ArcLeaving: self.on_arc_leaving,
            ArcKept: self.on_arc_kept,
            ArcGone: self.on_arc_gone,
            LinkDown: self.on_link_down,
            LinkUp: self.on_link_up,
            ServingReply: self.on_serving_reply,
            ServingBeatDue: self.on_serving_beat_due,
            StillHosting: self.on_still_hosting,
        }

    # --- ownership ---

    def owns(self, attribute: str) -> bool:
        """Whether this node decides about the attribute now."""
        return self.uniting < STOPPED and self.clusters.owns(attribute_key(attribute))

    def takes(self, attribute: str) -> bool:
        """Whether it takes registrations now, and ends them."""
        return not self.uniting and self.owns(attribute)

    def who_owns(self, attribute: str) -> Cluster | None:
        """Who decides, as far as known; None: not us now, and no better guess."""
        mine = self.clusters.cluster
        key = attribute_key(attribute)
        if mine is not None and mine.owns(key):
            return None if mine.primary.id == self.port.me.id else mine
        known = self.ring.owner(key)
        return None if known is None or known.primary.id == self.port.me.id else known

    def refuse(self, sender: Peer, attributes: Iterable[str]) -> None:
        """We do not own these: name who may."""
        by_owner: dict[str, list[str]] = {}
        for attribute in attributes:
            cluster = self.who_owns(attribute)
            by_owner.setdefault("" if cluster is None else cluster.key, []).append(attribute)
        for names in by_owner.values():
            self.port.send(sender, NotOwner(tuple(names), self.who_owns(names[0])))

    # --- the log ---

    def append(self, operation: Operation) -> int:
        """Write one operation to the log and apply it. Returns its index."""
        index = self.clusters.append(encode(operation))
        self.state.apply(operation)
        return index

    @property
    def epoch(self) -> int:
        """Under which hosts are told; not lower than any that a map of this cluster has."""
        mine = self.clusters.cluster
        return max(self.state.highest()[0], 0 if mine is None else mine.version[0])

    def next_version(self) -> Version:
        """A version later than every map's of this cluster."""
        _, number = self.state.highest()
        self._number = max(self._number, number) + 1
        return (self.epoch, self._number)

    def on_committed(self, event: Committed) -> None:
        """A majority of the voters has everything before `next`."""
        self.committed = event.next

    def on_entry_copied(self, event: EntryReceived) -> None:
        """At a voter, or at the new primary of a split-off arc."""
        self.state.apply(decode(event.entry))

    def on_copy_reset(self, event: LogReset) -> None:
        """A whole new copy follows."""
        self.state = ClusterState()

    def on_state_wanted(self, event: FollowerSnapshotWanted) -> None:
        """A voter lacks more than the log's tail."""
        self.clusters.send_snapshot([encode(o) for o in self.state.operations()])

    def on_snapshot_wanted(self, event: DiskSnapshotWanted) -> None:
        """What the disk has of the log is far longer than the state."""
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
                self.leaving.clear()
                self.leases.begin(self.state.hosts())
                for attribute in self.state.trees:
                    self.adopt(attribute)
            elif led != self._led:  # elected again while it led: hosts go by the new epoch
                for owned in self.trees.values():
                    owned.begin_anew()
        if event.role == "none":
            self.state = ClusterState()
        if event.role == "primary":
            self.watch_hosts()
            self.balance_soon()

    def on_elected(self, event: Elected) -> None:
        """The former primary can be asked nothing: any host may have been told what is not in the
        log, or not have been told what is. A member may even have begun to serve a tree in which
        nobody else knows it as a host."""
        if event.lost.id != self.port.me.id:
            self.dead[event.lost.id] = None
        self.leases.begin(self.state.hosts())
        for owned in self.trees.values():
            owned.unsure = True
            owned.begin_anew()
        for member in (*event.cluster.members(), event.lost):
            if member.id != self.port.me.id:
                self._tell_hosted(member)
        self.watch_hosts()
        self.balance_soon()

    def on_replanted(self, event: Replanted) -> None:
        """Of that arc nothing is known here yet."""
        self.replanting.begin(event.lost, self.port.now)

    def _lay_down(self, void: bool) -> None:
        """No primary any more. `void`: nobody took these trees over (the node was fenced, or gave
        its own ring up for a better one), so nobody may find them at their hosts. What a leaving
        primary handed over is gone from `trees` before."""
        if void and self.uniting < STOPPED:  # else they have dropped them, and may serve others
            epoch, number = self.state.highest()
            for attribute, owned in self.trees.items():
                for host in owned.all_hosts().values():
                    self.port.send(host, Assign(attribute, (epoch, number + 1), (), 0, ()))
        self._led = None
        self._departing = self._transferred = None
        self.trees.clear()
        self.popularity.clear()
        self.leases.end()
        self.port.watch("hosts", ())
        self.balance_alarm.cancel()

    def adopt(self, attribute: str) -> OwnedTree:
        """Begin to decide about a tree of the state."""
        owned = OwnedTree(self.state.trees[attribute])
        self.trees[attribute] = owned
        return owned

    # --- an arc that leaves ---

    def on_arc_leaving(self, event: ArcLeaving) -> None:
        """Some trees go, or all: transfer when nothing of them is under way any more."""
        self._departing = event.arc
        self.settled()

    def on_arc_kept(self, event: ArcKept) -> None:
        """They stay after all."""
        self._departing = self._transferred = None
        self.balance_soon()

    def on_arc_gone(self, event: ArcGone) -> None:
        """They are served by their own cluster now. Their hosts go on serving; the new primary
        moves them when it wants."""
        self._departing = self._transferred = None
        for attribute in [a for a in self.state.trees if event.arc.owns(attribute_key(a))]:
            if attribute in self.trees:
                for boxes in self.trees.pop(attribute).boxes.values():
                    self.popularity.remove(boxes)
            del self.state.trees[attribute]
        if not self.clusters.is_primary:
            return  # a voter, whose copy follows
        self.watch_hosts()

    def is_departing(self, attribute: str) -> bool:
        """Whether the tree is to leave and has not been given to its next owner yet."""
        return self._departing is not None and self._departing.owns(attribute_key(attribute))

    @property
    def is_handing_over(self) -> bool:
        """Whether an arc is being given away: the log may be its next owner's."""
        return self._departing is not None or self._transferred is not None

    def settled(self) -> None:
        """Something that was under way is done: an arc that waits for it may be able to leave."""
        arc = self._departing
        if arc is None or any(
            (owned.waiting or owned.changing or self.wild_strays(owned))
            and arc.owns(attribute_key(attribute))
            for attribute, owned in self.trees.items()
        ):
            return
        self._departing = None
        self._transferred = (arc, self.port.now)
        self.clusters.transfer([encode(o) for o in self._departing_operations(arc)])

    def _departing_operations(self, arc: Cluster) -> list[Operation]:
        def leaves(attribute: str) -> bool:
            return arc.owns(attribute_key(attribute))

        # This node believes what it told itself, which is in no log while it leads (believers.py).
        told = Told((self.port.me,), (), self.state.others)
        mine = self.clusters.cluster
        if mine is not None and mine.key == arc.key:  # the standby has the log
            return [told]
        return [*self.state.operations(leaves), told]

    # --- hosts ---

    def on_link_down(self, event: LinkDown) -> None:
        """A silent host gets no more to do."""
        self.dead[event.peer.id] = None
        if len(self.dead) > MAX_DEAD:
            del self.dead[next(iter(self.dead))]
        self.leaving.pop(event.peer.id, None)
        if event.left:
            self.leases.left(event.peer)
        if self.clusters.is_primary:
            self.balance_soon()

    def on_link_up(self, event: LinkUp) -> None:
        """It is back. If it hosted here before, it may have missed the end of a tree."""
        self.dead.pop(event.peer.id, None)
        if event.fresh and self.clusters.is_primary:
            self._tell_hosted(event.peer)

    def on_still_hosting(self, sender: Peer, message: StillHosting) -> None:
        """A host of an owner that was lost."""
        cluster = self.clusters.cluster
        if self.clusters.is_primary and cluster is not None and cluster.key == message.key:
            if message.epoch > self.epoch:
                self.clusters.outrank(message.epoch)
            self._tell_hosted(sender)

    def _tell_hosted(self, peer: Peer) -> None:
        """What of this arc is at that node; it drops the rest."""
        cluster = self.clusters.cluster
        if cluster is not None:
            hosted = tuple(a for a, owned in self.trees.items() if peer.id in owned.all_hosts())
            start, key, ring = cluster.start, cluster.key, cluster.ring
            self.port.send(peer, TreesHosted(start, key, self.epoch, hosted, ring))

    def live_strays(self, owned: OwnedTree) -> bool:
        """Whether a host that can be reached has to be given all anew."""
        return any(node not in self.dead for node in owned.strays)

    def wild_strays(self, owned: OwnedTree) -> bool:
        """Whether some host may serve by what nobody knows: one that can be reached, or a lost one
        whose lease is not over."""
        return any(n not in self.dead or self.leases.may_serve(n) for n in owned.strays)

    def reachable_hosts(self, owned: OwnedTree) -> dict[NodeId, Peer]:
        """Every host that may hold registrations of this tree and can be told something."""
        return {n: peer for n, peer in owned.all_hosts().items() if n not in self.dead}

    def watch_hosts(self) -> None:
        """Notice the silence of every host, and let it serve."""
        hosts: dict[NodeId, Peer] = {}
        for owned in self.trees.values():
            for map_ in owned.maps():
                hosts.update(map_.hosts())
            hosts.update(self.reachable_hosts(owned))
        self.leases.attend(hosts.values())
        self._grant()
        hosts.pop(self.port.me.id, None)
        self.port.watch("hosts", tuple(hosts.values()))

    # --- serving leases ---

    def _grant(self) -> None:
        """Beats to those whose turn it is, for what of the arc nobody else decides about."""
        cluster = self.clusters.cluster
        if cluster is None or not self.clusters.is_followed or self.uniting >= STOPPED:
            return
        start = cluster.start
        if self._transferred is not None:
            arc, since = self._transferred
            # Its next owner takes leases of before for over `most` seconds after it was given it.
            if self.port.now + self.leases.longest > since + self.leases.most:
                start = arc.key
            if start == cluster.key:
                return
        for node in self.leases.due():
            if self._is_trusted(node):
                self.leases.send(node, start, cluster.key, self.epoch)

    def _is_trusted(self, node: NodeId) -> bool:
        """Whether what the host has will do, or it has been told to forget it."""
        return node not in self.dead and not any(
            node in owned.strays and node not in owned.prepared for owned in self.trees.values()
        )

    def on_serving_reply(self, sender: Peer, message: ServingReply) -> None:
        """A host may serve on."""
        self.leases.on_reply(sender, message)
        self._grant()

    def on_serving_beat_due(self, timer: ServingBeatDue) -> None:
        """Renew all leases; tell who waits for the end of one."""
        if self.leases.rang():
            self.port.emit(LeasesOver())
            self.settled()
        self._grant()

    def balance_soon(self) -> None:
        """Look at the load in a moment."""
        self.balance_alarm.within(BALANCE_DELAY)
