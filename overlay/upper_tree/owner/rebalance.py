"""Changes of partition maps: moving, splitting, merging virtual nodes, uprooting trees (C6, C7).

A map changes in two steps, so that an event finds all registrations wherever it goes meanwhile:

1. *prepare*: hosts that gain an interval get its registrations and serve it already (`Assign`
   with the coming version, answered by `Assigned`), beside those that serve it now;
2. *commit*: the new map is written to the log; everybody else gets it, and who loses an interval
   stops serving it.

A registration that comes meanwhile goes to the hosts of both maps (1), or waits until whoever is to
stop has stopped (2).

One change at a time per tree. A host whose link is lost while a change is prepared makes it given
up; one that is lost later is found by the next look.

A host whose link was lost is a *stray*: it may be a new process that knows nothing, or have missed
what was said meanwhile. Where it can be reached again it is given everything anew by a change to a
map that may be the same but for its version: it forgets all (`Assign` of nothing), gets all its
registrations, and serves again.
"""

from __future__ import annotations

from collections import Counter

from matching import Interval
from overlay.chord.events import MemberJoined, MemberLeaving, MemberLost
from overlay.chord.keys import attribute_key
from overlay.links.events import LinkDown
from overlay.machine import Handlers, Machine, NodeId, Peer, Port
from overlay.settings import Settings
from overlay.upper_tree.batches import in_batches, weigh_registration
from overlay.upper_tree.events import MapSettled
from overlay.upper_tree.messages import Assign, Assigned, Entry, Install
from overlay.upper_tree.owner.owned_tree import LOOK_PERIOD, Look, OwnedTree
from overlay.upper_tree.owner.owner import BalanceDue, Owner
from overlay.upper_tree.owner.placement import Placement
from overlay.upper_tree.owner.tree_log import MapChanged, Preparing, Settled, Uprooted
from overlay.upper_tree.partition import PartitionMap, best_cut, overlap_count

PREFERRED = 32
"""Subscribers that are asked to host before other nodes. Wild guess."""

LEADERS = 2
"""Members beside the match brokers: primary and standby (P1)."""

UPROOT_AFTER = 5.0
"""Seconds that a tree without registrations stands, for a subscriber who comes back. Wild guess."""

MERGE_SHARE = 4
"""Two neighbours are merged if together they have less than 1/4 of what splits one: far enough
from the split threshold not to oscillate. Wild guess."""


class Balance(Machine):
    """Keeps the owned trees' virtual nodes on fit hosts, small enough and no smaller."""

    def __init__(self, port: Port, settings: Settings, owner: Owner) -> None:
        super().__init__(port)
        self.settings = settings
        self.owner = owner
        self.placement = Placement(settings.tree.host_entries, settings.tree.replicas)
        self.plan = self.placement.plan
        self._subscribers = Look()  # at who subscribes most

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            BalanceDue: self.on_balance_due,
            Assigned: self.on_assigned,
            LinkDown: self.on_link_down,
            MemberJoined: self.on_member_joined,
            MemberLost: self.on_member_lost,
            MemberLeaving: self.on_member_leaving,
        }

    # --- when to look ---

    def on_balance_due(self, timer: BalanceDue) -> None:
        """One step for each tree; then the cluster as a whole."""
        self.owner.balance_alarm.rang()
        if not self.owner.clusters.is_primary:
            return
        owner = self.owner
        self.plan = self.placement.look(
            owner.homes.parts(), owner.popularity, owner.homes.fit_hosts(), self.port.now
        )
        self._recruit(self._wanted() + LEADERS)
        for attribute, owned in list(owner.trees.items()):
            if not owned.changing and self.owner.owns(attribute):
                self._step(owned)
            elif not owned.changing and self.owner.is_departing(attribute):
                self._let_go(owned)
        self._release()
        self._ask_for_split()
        self.owner.balance_alarm.within(LOOK_PERIOD)

    def _recruit(self, members: int) -> None:
        """Hosts for the load, those first who subscribe most: what they host they need not be
        sent."""
        owner, cluster = self.owner, self.owner.clusters.cluster
        owner.clusters.want(members)
        trees = [owned.tree for owned in owner.trees.values()]
        changes = sum(tree.changes for tree in trees)
        due = self._subscribers.is_due(None, changes, owner.state.registrations, self.port.now)
        if cluster is not None and len(cluster.members()) < members and due:
            self._subscribers.done(None, changes, self.port.now)
            subscribed = Counter(
                registration.subscriber
                for tree in trees
                for registration in tree.registrations.values()
            )
            owner.clusters.prefer([peer for peer, _ in subscribed.most_common(PREFERRED)])

    def _wanted(self) -> int:
        """Hosts for the plan, if clusters may be so large: one that was told to be small recruits
        for the load's sake, not for replicas' sake."""
        replicas = self.settings.tree.replicas
        usual = min(replicas, max(1, self.settings.cluster.size - LEADERS))
        return self.plan.wanted // replicas * usual

    def on_member_joined(self, event: MemberJoined) -> None:
        """Somebody can take load over."""
        self.owner.leaving.pop(event.peer.id, None)
        self.owner.dead.pop(event.peer.id, None)
        self.owner.balance_soon()

    def on_member_lost(self, event: MemberLost) -> None:
        """Its virtual nodes need a host; it may host again as soon as it serves again."""
        self.owner.balance_soon()

    def on_member_leaving(self, event: MemberLeaving) -> None:
        """It is released when it hosts nothing."""
        self.owner.leaving[event.peer.id] = event.peer
        self.owner.balance_soon()

    def _release(self) -> None:
        for peer in list(self.owner.leaving.values()):
            if not any(peer.id in owned.all_hosts() for owned in self.owner.trees.values()):
                del self.owner.leaving[peer.id]
                self.owner.clusters.release(peer)

    def _ask_for_split(self) -> None:
        cluster, trees = self.owner.clusters.cluster, self.owner.trees
        limits = self.settings.cluster
        if cluster is None or len(trees) < 2 or self.owner.uniting:
            return
        if (
            len(trees) > limits.split_trees
            or self.owner.state.registrations > limits.split_registrations
        ):
            keys = sorted(attribute_key(attribute) for attribute in trees)
            after = [key for key in keys if key > cluster.start]
            in_ring_order = after + keys[: len(keys) - len(after)]
            self.owner.clusters.request_split(in_ring_order[len(keys) // 2 - 1])

    # --- what to change ---

    def _step(self, owned: OwnedTree) -> None:
        if self._uproot(owned):
            return
        new = self._moved(owned) or self._resized(owned)
        if new is not None:
            self._prepare(owned, new)
        elif self.owner.live_strays(owned):
            self._restore(owned)

    def _let_go(self, owned: OwnedTree) -> None:
        """What has to be done before a tree can go to its next owner: no SUBACK may wait for a dead
        host, and strays have to be told, since that owner knows nothing of them."""
        if owned.waiting and any(host in self.owner.dead for host in owned.tree.map.hosts()):
            each = [self._without_dead(entry) for entry in owned.tree.map.entries]
            self._prepare(owned, owned.tree.map.moved(self.owner.next_version(), each))
            return
        if self.owner.live_strays(owned):
            self._restore(owned)

    def _without_dead(self, entry: Entry) -> tuple[Peer, ...]:
        alive = tuple(host for host in entry.hosts if host.id not in self.owner.dead)
        return alive or self.owner.homes.emptiest_hosts()

    def _restore(self, owned: OwnedTree) -> None:
        """The same map once more, for the strays' sake."""
        version = self.owner.next_version()
        self._prepare(owned, PartitionMap(version, owned.tree.map.entries))

    def _uproot(self, owned: OwnedTree) -> bool:
        now = self.port.now
        if owned.tree.registrations:
            owned.empty_since = None
            return False
        if owned.empty_since is None:
            owned.empty_since = now
        if now - owned.empty_since < UPROOT_AFTER:
            return False
        attribute = owned.tree.attribute
        version = self.owner.next_version()
        for host in self.owner.reachable_hosts(owned).values():
            self.port.send(host, Assign(attribute, version, (), 0, ()))
        self.owner.append(Uprooted(attribute))
        del self.owner.trees[attribute]
        self.owner.watch_hosts()
        self.port.count("trees_uprooted")
        return True

    def _moved(self, owned: OwnedTree) -> PartitionMap | None:
        """Every virtual node to where it belongs: as planned; or where it is, without those who may
        not host any more."""
        fit = {peer.id for peer in self.owner.homes.fit_hosts()}
        found: list[tuple[Peer, ...]] = []
        for entry in owned.tree.map.entries:
            planned = self.plan.hosts.get((owned.tree.attribute, entry.interval), ())
            hosts = tuple(host for host in planned if host.id in fit)
            hosts = hosts or tuple(host for host in entry.hosts if host.id in fit)
            hosts = hosts or self.owner.homes.home()
            same = {host.id for host in hosts} == {host.id for host in entry.hosts}
            found.append(entry.hosts if same else hosts)
        if found == [entry.hosts for entry in owned.tree.map.entries]:
            return None
        return owned.tree.map.moved(self.owner.next_version(), found)

    def _resized(self, owned: OwnedTree) -> PartitionMap | None:
        """A virtual node is too large, or two are too small."""
        tree, now = owned.tree, self.port.now
        if not owned.sizes.is_due(tree.map, tree.changes, len(tree.registrations), now):
            return None
        new = self._split(owned) or self._merged(owned)
        if new is None:
            owned.sizes.done(tree.map, tree.changes, now)
        return new

    def _split(self, owned: OwnedTree) -> PartitionMap | None:
        limit = self.settings.tree.split_at
        if len(owned.tree.registrations) <= limit:
            return None
        intervals = [r.interval for r in owned.tree.registrations.values()]
        for index, entry in enumerate(owned.tree.map.entries):
            here = [i for i in intervals if i.overlaps(entry.interval)]
            if len(here) > limit and (cut := best_cut(entry.interval, here)) is not None:
                hosts = self.owner.homes.emptiest_hosts()
                self.port.count("virtual_nodes_split")
                return owned.tree.map.split(self.owner.next_version(), index, cut, hosts)
        return None

    def _merged(self, owned: OwnedTree) -> PartitionMap | None:
        map_ = owned.tree.map
        if len(map_.entries) == 1:
            return None
        intervals = [r.interval for r in owned.tree.registrations.values()]
        counts = [overlap_count(entry.interval, intervals) for entry in map_.entries]
        for index in range(len(counts) - 1):
            if (counts[index] + counts[index + 1]) * MERGE_SHARE < self.settings.tree.split_at:
                return map_.merged(self.owner.next_version(), index)
        return None

    # --- step 1: prepare ---

    def _prepare(self, owned: OwnedTree, new: PartitionMap) -> None:
        attribute = owned.tree.attribute
        owned.next = new
        owned.awaited.clear()
        owned.prepared.clear()
        self.owner.append(Preparing(attribute, tuple(new.hosts().values())))
        for host in new.hosts().values():
            gained = self._gained(owned, new, host)
            if not gained or host.id in self.owner.dead:
                continue
            owned.awaited[host.id] = owned.prepared[host.id] = host
            if host.id in owned.strays:
                self.port.send(host, Assign(attribute, new.version, (), 0, ()))
            registrations = [
                r
                for r in owned.tree.registrations.values()
                if any(r.interval.overlaps(interval) for interval in gained)
            ]
            for batch in in_batches(registrations, weigh_registration):
                self.port.send(host, Install(attribute, self.owner.epoch, batch))
            self._assign(owned, host, new)
        self.owner.watch_hosts()
        if not owned.awaited:
            self._commit(owned)

    @staticmethod
    def _gained(owned: OwnedTree, new: PartitionMap, host: Peer) -> list[Interval]:
        """What the host will serve and has not all registrations for."""
        held = () if host.id in owned.strays else owned.tree.map.hosted_by(host.id)
        return [
            interval
            for interval in new.hosted_by(host.id)
            if not any(h.lo <= interval.lo and interval.hi <= h.hi for h in held)
        ]

    def _assign(self, owned: OwnedTree, host: Peer, map_: PartitionMap) -> None:
        hosted, known = map_.hosted_by(host.id), map_.slice_for(host.id)
        message = Assign(owned.tree.attribute, map_.version, hosted, len(map_.entries), known)
        self.port.send(host, message)

    def on_assigned(self, sender: Peer, message: Assigned) -> None:
        """A host has followed; perhaps the last one that was waited for."""
        owned = self.owner.trees.get(message.attribute)
        if owned is not None and message.version == owned.stop_version:
            owned.stopping.pop(sender.id, None)
        if owned is None or not owned.changing:
            return
        version = (owned.next or owned.tree.map).version
        if message.version == version and sender.id in owned.awaited:
            del owned.awaited[sender.id]
            owned.strays.pop(sender.id, None)
            self._go_on(owned)

    def on_link_down(self, event: LinkDown) -> None:
        """A host is lost: a change that it is part of is given up while that is possible. One that
        was to stop serving has stopped."""
        for owned in list(self.owner.trees.values()):
            if event.peer.id not in owned.all_hosts():
                continue
            owned.stray(event.peer)
            owned.prepared.pop(event.peer.id, None)
            if owned.next is not None:
                self._give_up(owned)
            elif owned.awaited.pop(event.peer.id, None) is not None:
                self._go_on(owned)
            elif not owned.changing:
                self._settled(owned)  # perhaps it was the last stray that somebody waited for

    def _give_up(self, owned: OwnedTree) -> None:
        for host in owned.prepared.values():
            owned.stray(host)
        owned.next = None
        owned.awaited.clear()
        self._settled(owned)

    def _go_on(self, owned: OwnedTree) -> None:
        if owned.awaited:
            return
        if owned.next is not None:
            self._commit(owned)
        else:
            self._finish(owned)

    # --- step 2: commit ---

    def _commit(self, owned: OwnedTree) -> None:
        assert owned.next is not None
        old, new, attribute = owned.tree.map, owned.next, owned.tree.attribute
        told: dict[NodeId, Peer] = {**owned.strays, **old.hosts(), **new.hosts()}
        serving = new.hosts()
        owned.previous, owned.next = old, None
        self.owner.append(MapChanged(attribute, new.version, new.entries))
        epoch, version = new.version
        self.port.trace(
            "map", attribute=attribute, epoch=epoch, version=version, size=len(new.entries)
        )
        for host in told.values():
            if host.id in self.owner.dead or (host.id in owned.strays and host.id in serving):
                continue  # not to be told, or back only since the change was prepared
            owned.awaited[host.id] = host
            self._assign(owned, host, new)
        self._go_on(owned)

    def _finish(self, owned: OwnedTree) -> None:
        owned.previous = None
        if not owned.strays:
            self.owner.append(Settled(owned.tree.attribute))
        self.owner.watch_hosts()
        self._settled(owned)

    def _settled(self, owned: OwnedTree) -> None:
        self.port.emit(MapSettled(owned.tree.attribute))
        self.owner.settled()
        self.owner.balance_soon()
