"""Changes of partition maps: moving, splitting and merging virtual nodes, removing trees (C6, C7).

A map changes in two steps, so that an event finds all registrations wherever it goes meanwhile:

1. *prepare*: hosts that gain an interval get its registrations and serve it already (`Assign`
   with the coming version, answered by `Assigned`), beside those that serve it now;
2. *commit*: the new map is written to the log; all other hosts get it, and who loses an interval
   stops serving it.

A registration that comes meanwhile goes to the hosts of both maps (1), or waits until the hosts
that are to stop have stopped (2).

One change at a time per tree. If a host's link is lost while a change is prepared, the change is
abandoned; a host that is lost later is found by the next scan.

A host whose link was lost is *stale*: it may be a new process that knows nothing, or have missed
what was said meanwhile. Where it can be reached again it is given everything again by a change to a
map that may be the same but for its version: it drops everything (`Assign` of nothing), gets all
its registrations, and serves again.

A virtual node whose hosts are all silent (`SilentHosts`) gets one more, which goes when they
answer again, or stays when their links are given up. No plan is made for its sake."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from itertools import islice, pairwise
from math import ceil
from typing import NamedTuple

from matching import Cut, Interval
from overlay.chord.events import MemberJoined, MemberLeaving, MemberLost
from overlay.links.events import LinkDown
from overlay.machine import Alarm, Handlers, Machine, NodeId, Peer, Port, Region, Timer
from overlay.settings import Settings
from overlay.upper_tree.events import MapSettled
from overlay.upper_tree.messages import Assign, Assigned, Entry, OrdersRefused
from overlay.upper_tree.owner.cluster_size import ClusterSize
from overlay.upper_tree.owner.constants import (
    CHANGE_COST,
    CUTS_MOST,
    FILL,
    GROW_SHARE,
    MERGE_SHARE,
    MERGED_BUSY,
    OVERLOADED,
    PREFERRED_MOST,
    REMOVE_AFTER,
    SCAN_PERIOD,
    SCANNED_AT_ONCE,
    SHARD_SECONDS,
    SHARDED_BUSY,
    SHARDS_IDLE,
    SLOW,
    SUBSCRIBERS_SEEN,
    TARGET,
)
from overlay.upper_tree.owner.host_selector import (
    HostSelector,
    PlacedNode,
    WantedRegions,
    fair_share,
    is_hot_shard,
)
from overlay.upper_tree.owner.host_supervisor import HostSupervisor
from overlay.upper_tree.owner.owned_tree import MapReason, OwnedTree
from overlay.upper_tree.owner.owner import Owner, RebalanceDue
from overlay.upper_tree.owner.placement import HostUse, Placement, Plan, Relief
from overlay.upper_tree.owner.registration_transfers import RegistrationTransfers
from overlay.upper_tree.owner.reported_loads import HotValue, cuts_by_load
from overlay.upper_tree.owner.subscriber_placement import (
    at_subscribers,
    ended_cuts,
    new_cuts,
    wanted_hosts,
)
from overlay.upper_tree.owner.tree_log import ChangeBegun, ChangeFinished, TreeRemoved
from overlay.upper_tree.partition import PartitionMap, best_cut
from overlay.upper_tree.shards import full_value_cuts, lies_in, may_merge, shard_cuts

Cuts = dict[int, list[tuple[Cut, float]]]
"""By index of a virtual node where to cut it, each place with the share of the load below it."""


class SlowValue(NamedTuple):
    """A value whose events each take long, and the number of parts into which to cut it."""

    hot: HotValue
    parts: int


class SilentRelief:
    """The virtual nodes that have one host more, since all of theirs are silent."""

    def __init__(self, hosts: HostSupervisor, selector: HostSelector) -> None:
        self._hosts = hosts
        self._selector = selector
        self._trees: dict[str, bool] = {}
        """Trees with such virtual nodes; False: not any more, and what they have more is still to
        go."""

    def __bool__(self) -> bool:
        return bool(self._trees)

    def keep(self, attributes: Collection[str]) -> None:
        """Forget trees that are not among these."""
        for attribute in self._trees.keys() - attributes:
            del self._trees[attribute]

    def is_relieved(self, attribute: str) -> bool:
        """Whether some virtual node of the tree has one host more now."""
        return self._trees.get(attribute, False)

    def further_host(self, entry: Entry, hosts: Sequence[Peer]) -> Peer | None:
        """Return an additional host for a virtual node whose `hosts` are all silent: one that
        already serves it, or else the one with the fewest registrations. None if they are not all
        silent."""
        is_silent = self._hosts.is_silent
        if not all(is_silent(host.id) for host in hosts):
            return None
        may = self._hosts.may_be_given_trees
        there = (h for h in entry.hosts if not is_silent(h.id) and may(h.id))
        return next(there, None) or self._selector.relief()

    def placed(self, attribute: str, is_relieved: bool, is_changed: bool) -> None:
        """Note the placement of a tree: whether some virtual node has an additional host, and
        whether the map has to change."""
        if is_relieved or (is_changed and attribute in self._trees):
            self._trees[attribute] = is_relieved
        else:
            self._trees.pop(attribute, None)


class ScanStepDue(Timer, frozen=True):
    """Time to look at the next few owned trees of a round."""


class Rebalance(Machine):
    """Keeps the owned trees' virtual nodes on fit hosts, small enough and no smaller."""

    def __init__(self, port: Port, settings: Settings, owner: Owner) -> None:
        super().__init__(port)
        self._settings = settings
        self._owner = owner
        self._clusters = owner.clusters
        self._trees = owner.trees
        self._hosts = owner.hosts
        self._selector = owner.selector
        self._placement = Placement(settings.tree.host_entries, settings.tree.replicas)
        self._plan = self._placement.plan
        self._at_subscribers = settings.tree.placement == "subscribers"
        self._cutting = Relief()
        self._regions = WantedRegions()
        self._size = ClusterSize(port, settings, owner)
        self._relief = SilentRelief(owner.hosts, owner.selector)
        self._unscanned: deque[str] = deque()  # trees of the present scan
        self._further = Alarm(port, ScanStepDue())
        self.transfers = RegistrationTransfers(port, owner)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**super().handlers(), **self.transfers.handlers()}

    # --- the scan of all trees ---

    def on_rebalance_due(self, timer: RebalanceDue) -> None:
        """Begin to scan all trees, unless the last scan is not done yet."""
        self._owner.rebalance_rang()
        if not self._clusters.is_primary:
            self._unscanned.clear()
            self._relief.keep(())
            self._size.reset()
            return
        if self._unscanned:
            self._owner.rebalance_soon()
            return
        self._plan = self._make_plan()
        self._size.recruit(self._plan.wanted)
        self._unscanned.extend(self._trees)
        self._scan_further()

    def _make_plan(self) -> Plan:
        """Cut virtual nodes that are overloaded, and plan the hosts of each."""
        now, loads = self.port.now, self._hosts.loads
        loads.expire(now)
        self._relief.keep(self._trees.keys())
        if self._at_subscribers:
            return self._plan_at_subscribers()
        nodes = self._selector.virtual_nodes()
        busy = tuple(loads.busy_hosts())
        self._size_pool(nodes, busy)
        regions = self._regions.update(self._trees.interest())
        self._cover(regions)
        if not loads.are_known(now) or (busy and self._owner.pool.is_asking):
            return self._plan  # first to know how much is asked for, and among how many hosts
        hosts = self._selector.fit_hosts()
        elsewhere = {host.id: loads.elsewhere(host.id) for host in hosts} if busy else {}
        worth = self._hosts.machines.worth(hosts)
        if busy:
            share = fair_share(nodes, worth, sum(elsewhere.values()))
            if self._cut_busy(busy, share, len(hosts)):
                return self._plan  # what is cut is placed when it is served as such
        if self._relief and self._placement.is_for(hosts):
            return self._plan  # what relieves a silent host for a while is no reason for another
        are_overloaded = any(loads.busy(host) >= OVERLOADED for host in busy)
        use = HostUse(elsewhere, busy, worth, are_overloaded, regions)
        return self._placement.update(nodes, self._trees.popularity, hosts, now, use)

    def _plan_at_subscribers(self) -> Plan:
        """Ask the subscribers to host, and plan for those that do."""
        trees = [owned.tree for owned in self._trees.values()]
        replicas = self._settings.tree.replicas
        self._owner.pool.ask_for(wanted_hosts(trees, replicas))
        return Plan(dict(at_subscribers(trees, self._fit(), replicas)), replicas)

    def _fit(self) -> frozenset[NodeId]:
        """The nodes at which a plan may place virtual nodes."""
        at_subscribers, selector = self._at_subscribers, self._selector
        fit = selector.fit_subscribers() if at_subscribers else selector.fit_hosts()
        return frozenset([peer.id for peer in fit])

    def _size_pool(self, nodes: Sequence[PlacedNode], busy: Sequence[NodeId]) -> None:
        """Ask further nodes to host if hosts are busy, or give some up if fewer would do."""
        pool = self._owner.pool
        needed = ceil(sum([node.busy for node in nodes]) / TARGET)
        shards = self._wanted_shards(nodes)
        wanted = max(0, max(needed, shards) - len(self._selector.fit_members()))
        if busy or shards > len(self._selector.fit_hosts()):
            subscribed = Counter(
                registration.subscriber
                for attribute in self._hosts.loads.at(busy)
                if (owned := self._trees.get(attribute)) is not None
                for registration in islice(owned.tree.registrations.values(), SUBSCRIBERS_SEEN)
            )
            pool.grow(wanted, [peer for peer, _ in subscribed.most_common(PREFERRED_MOST)])
        else:
            pool.settle(wanted)

    def _wanted_shards(self, nodes: Sequence[PlacedNode]) -> int:
        """The most shards that one value is to have, each on a host of its own: those that it has,
        more where one event takes long."""
        found: Counter[tuple[str, Interval]] = Counter()
        for node in nodes:
            slow = self._slow_value(node.attribute, node.interval)
            if slow is not None:
                found[node.attribute, slow.hot.value.around()] += slow.parts
            elif is_hot_shard(node):
                found[node.attribute, node.interval.around()] += 1
        return min(max(found.values(), default=0), CUTS_MOST)

    def _cover(self, regions: Sequence[Region]) -> None:
        """Ask nodes in the regions that have no host to be one, subscribers first."""
        covered = {host.region for host in self._selector.fit_hosts()}
        lacking = [region for region in regions if region not in covered]
        some = (
            registration.subscriber
            for owned in (self._trees.values() if lacking else ())
            for registration in islice(owned.tree.registrations.values(), SUBSCRIBERS_SEEN)
        )
        there = (peer for peer in islice(some, 16 * SUBSCRIBERS_SEEN) if peer.region in lacking)
        self._owner.pool.cover(regions, lacking, list(islice(there, PREFERRED_MOST)))

    def _cut_busy(self, busy: Sequence[NodeId], share: float, hosts: int) -> bool:
        """Begin to cut the virtual nodes that ask for far more than `share` alone, where one of
        their hosts is busy. Whether some are being cut."""
        is_cutting, load = False, 0.0
        wanted: list[tuple[OwnedTree, Cuts]] = []
        for attribute in self._hosts.loads.at(busy):
            owned = self._trees.get(attribute)
            if owned is None or not self._owner.decides(attribute):
                continue
            if owned.is_changing:
                is_cutting = is_cutting or owned.change_reason == "busy"
            elif cuts := self._cuts(owned, share, hosts):
                wanted.append((owned, cuts))
                load += self._hosts.load_of(owned)
        if wanted and self._cutting.claim(load, False, self.port.now):
            for owned, cuts in wanted:
                self._cut(owned, cuts, "busy")
            is_cutting = True
        return is_cutting

    def _cuts(self, owned: OwnedTree, share: float, hosts: int) -> Cuts:
        """Return where to cut virtual nodes between values."""
        loads, now = self._hosts.loads, self.port.now
        found: Cuts = {}
        for index, entry in enumerate(owned.tree.map.entries):
            node = loads.node(owned.attribute, entry.interval)
            if node is None or len(entry.hosts) >= hosts or entry.interval.is_shard():
                continue  # there is no other host for a part of it, or no value to cut at
            alone = min(node.alone(now), node.recent(now)[1])
            if alone < GROW_SHARE * share or not any(loads.is_busy(h.id) for h in entry.hosts):
                continue
            parts = min(ceil(alone / share), CUTS_MOST)
            if cuts := cuts_by_load(entry.interval, node.places(), parts):
                found[index] = cuts
        return found

    def _slow_value(self, attribute: str, interval: Interval) -> SlowValue | None:
        """The value for which a virtual node is to be cut into shards, since one event takes long;
        None: there is none."""
        loads = self._hosts.loads
        seconds = loads.event_seconds(attribute, interval)
        if seconds < SLOW or loads.recent(attribute, interval, self.port.now)[0] < SHARDED_BUSY:
            return None
        hot = HotValue(interval, 0.0, 1.0)
        if not interval.is_shard():
            most = loads.hot_value(attribute, interval)
            if most is None:
                return None
            hot = most
        return SlowValue(hot, ceil(seconds / SHARD_SECONDS))

    def _shard_cuts(self, owned: OwnedTree) -> Cuts:
        """Return where to cut virtual nodes whose events each take long: around the value with
        most of the events, and within it. Where the load comes only from the number of events,
        more replicas serve them instead: each event visits one replica, and nothing has to be
        gathered."""
        found: Cuts = {}
        hosts = min(len(self._selector.fit_hosts()), CUTS_MOST)
        there = Counter(entry.interval.around() for entry in owned.tree.map.entries)
        for index, entry in enumerate(owned.tree.map.entries):
            slow = self._slow_value(owned.attribute, entry.interval)
            if slow is None:
                continue
            value, below, share = slow.hot
            around = value.around()
            shards = there[around] or 1
            parts = min(slow.parts, hosts - shards + 1)  # each on a host of its own
            within = shard_cuts(value, owned.tree.registrations.values(), parts)
            if within:
                there[around] = shards + len(within)
                cuts = [(cut, below + share * part) for cut, part in within]
                ends = [(value.lo, below), *cuts, (value.hi, below + share)]
                interval = entry.interval
                found[index] = [end for end in ends if interval.lo < end[0] < interval.hi]
        return found

    def _cut(self, owned: OwnedTree, cuts: Cuts, reason: MapReason) -> None:
        map_, now = owned.tree.map, self.port.now
        for index, places in cuts.items():
            interval = map_.entries[index].interval
            ends = [(interval.lo, 0.0), *places, (interval.hi, 1.0)]
            parts = [
                (Interval(lo, hi), above - below) for (lo, below), (hi, above) in pairwise(ends)
            ]
            self._hosts.loads.cut(owned.attribute, interval, parts, now)
        self.port.count("virtual_nodes_split", sum(map(len, cuts.values())))
        at = {index: [cut for cut, _ in places] for index, places in cuts.items()}
        self._prepare(owned, map_.cut(self._owner.next_version(), at), reason)

    def on_scan_step_due(self, timer: ScanStepDue) -> None:
        """Take one step for each of the next trees; a node that is no primary any more drops the
        round."""
        self._further.rang()
        if self._clusters.is_primary:
            self._scan_further()
        else:
            self._unscanned.clear()

    def _scan_further(self) -> None:
        """Look at the next trees and take one step for each. After the last tree look at the
        cluster as a whole."""
        done = 0
        fit = self._fit()
        while self._unscanned and done < SCANNED_AT_ONCE:
            attribute = self._unscanned.popleft()
            owned = self._trees.get(attribute)
            if owned is None or owned.is_changing:
                pass
            elif self._owner.decides(attribute):
                done += CHANGE_COST * self._step(owned, fit)
            elif self._owner.is_departing(attribute):
                done += CHANGE_COST * self._prepare_departure(owned)
            done += 1
        if self._unscanned:
            self._further.within(0.0)
        else:
            self._end_scan()

    def _end_scan(self) -> None:
        for peer in self._hosts.take_released():
            self._clusters.release(peer)
        self._size.review()
        self._hosts.watch()
        self._owner.rebalance_soon(SCAN_PERIOD)

    def on_members_changed(self, event: MemberJoined | MemberLost | MemberLeaving) -> None:
        """A new member can take load over; the virtual nodes of one that is lost or leaves need
        another host."""
        self._owner.rebalance_soon()

    # --- what to change ---

    def _step(self, owned: OwnedTree, fit: Collection[NodeId]) -> bool:
        """Whether something of the tree had to be changed; the `fit` may host."""
        if self._remove(owned):
            return True
        if (moved := self._moved(owned, fit)) is not None:
            is_relieved = self._relief.is_relieved(owned.attribute)
            self._prepare(owned, moved, "silent" if is_relieved else "moved")
        elif not self._resize(owned) and self._hosts.has_reachable_stale(owned):
            self._restore(owned)
        return owned.is_changing

    def _prepare_departure(self, owned: OwnedTree) -> bool:
        """Prepare a tree to go to its next owner, and return whether there was anything to do. No
        SUBACK may wait for an unreachable host. Stale hosts have to be restored, since the next
        owner does not know of them."""
        is_reachable = self._hosts.is_reachable
        if owned.pending and not all(map(is_reachable, owned.tree.map.hosts())):
            each = [self._reachable_hosts(entry) for entry in owned.tree.map.entries]
            moved = owned.tree.map.moved(self._owner.next_version(), each)
            self._prepare(owned, moved, "moved")
        elif self._hosts.has_reachable_stale(owned):
            self._restore(owned)
        return owned.is_changing

    def _reachable_hosts(self, entry: Entry) -> tuple[Peer, ...]:
        reachable = tuple(host for host in entry.hosts if self._hosts.is_reachable(host.id))
        return reachable or self._selector.emptiest_hosts()

    def _restore(self, owned: OwnedTree) -> None:
        """Give stale hosts everything again, by the same map under a new version."""
        version = self._owner.next_version()
        self._prepare(owned, PartitionMap(version, owned.tree.map.entries), "restored")

    def _remove(self, owned: OwnedTree) -> bool:
        """Remove a tree that has had no registration for some time. Whether it was removed."""
        if owned.size.empty_for(self.port.now) < REMOVE_AFTER:
            return False
        attribute = owned.attribute
        version = self._owner.next_version()
        for host in self._hosts.reachable(owned).values():
            self.port.send(host, Assign(attribute, version))
        self._owner.append(TreeRemoved(attribute))
        self._trees.drop(attribute)
        self.port.count("trees_removed")
        return True

    def _moved(self, owned: OwnedTree, fit: Collection[NodeId]) -> PartitionMap | None:
        """Every virtual node to where it belongs: as planned; or where it is, without the nodes
        that may no longer host. One whose hosts are all silent has one more until they answer
        again or are given up. None: all are there."""
        attribute = owned.attribute
        is_relieved = False
        found: list[tuple[Peer, ...]] = []
        for entry in owned.tree.map.entries:
            planned = self._plan.hosts.get((attribute, entry.interval), ())
            hosts = tuple(host for host in planned if host.id in fit)
            hosts = hosts or tuple(host for host in entry.hosts if host.id in fit)
            hosts = hosts or self._selector.hosts_for_new_tree()
            if (further := self._relief.further_host(entry, hosts)) is not None:
                hosts = (*hosts, further)
                is_relieved = True
            same = {host.id for host in hosts} == {host.id for host in entry.hosts}
            found.append(entry.hosts if same else hosts)
        is_changed = found != [entry.hosts for entry in owned.tree.map.entries]
        self._relief.placed(attribute, is_relieved, is_changed)
        if not is_changed:
            return None
        return owned.tree.map.moved(self._owner.next_version(), found)

    def _resize(self, owned: OwnedTree) -> bool:
        """Split a virtual node that is too large, or merge those that are too small. Whether there
        were any."""
        if self._at_subscribers:
            return self._recut(owned)
        if cuts := self._shard_cuts(owned):
            self._cut(owned, cuts, "slow")
            return True
        if owned.size.is_scan_due(self.port.now):
            if (split := self._split(owned)) is not None:
                self._prepare(owned, split, "full")
                return True
            owned.size.scanned(self.port.now)
        if (merged := self._merged(owned)) is not None:
            self._prepare(owned, merged, "idle")
            return True
        return False

    def _recut(self, owned: OwnedTree) -> bool:
        """Cut where registrations have an end, and merge where none has one any more. Whether there
        was such a place."""
        if not owned.size.is_scan_due(self.port.now):
            return False
        tree = owned.tree
        if cuts := new_cuts(tree):
            self.port.count("virtual_nodes_split", sum(map(len, cuts.values())))
            self._prepare(owned, tree.map.cut(self._owner.next_version(), cuts), "full")
        elif joins := ended_cuts(tree):
            self.port.count("virtual_nodes_merged", len(joins))
            self._prepare(owned, tree.map.merged(self._owner.next_version(), joins), "idle")
        else:
            owned.size.scanned(self.port.now)
        return owned.is_changing

    def _split(self, owned: OwnedTree) -> PartitionMap | None:
        limit, map_ = self._settings.tree.split_at, owned.tree.map
        if len(owned.tree.registrations) <= limit:
            return None
        for index, count in enumerate(owned.size.counts(map_)):
            if count <= limit:
                continue
            entry = map_.entries[index]
            here = [r for r in owned.tree.registrations.values() if lies_in(r, entry.interval)]
            version = self._owner.next_version()
            cut = best_cut(entry.interval, [registration.interval for registration in here])
            if cut is not None:
                hosts = self._selector.emptiest_hosts()
                self.port.count("virtual_nodes_split")
                return map_.split(version, index, cut, hosts)
            if cuts := full_value_cuts(entry.interval, here, limit):
                self.port.count("virtual_nodes_split", len(cuts))
                return map_.cut(version, {index: cuts})
        return None

    def _merged(self, owned: OwnedTree) -> PartitionMap | None:
        """Neighbours that have few registrations together and are asked for little become one."""
        map_, loads, now = owned.tree.map, self._hosts.loads, self.port.now
        if len(map_.entries) == 1 or not loads.are_known(now):
            return None
        joins: dict[int, None] = {}
        size, busy = 0, 0.0
        for index, count in enumerate(owned.size.counts(map_)):
            interval = map_.entries[index].interval
            asked, _ = loads.recent(owned.attribute, interval, now)
            most, idle = self._settings.tree.split_at / MERGE_SHARE, MERGED_BUSY
            if interval.is_shard():
                most, idle = self._settings.tree.split_at * FILL, SHARDS_IDLE
            is_like = index > 0 and may_merge(map_.entries[index - 1].interval, interval)
            if is_like and size + count < most and busy + asked < idle:
                joins[index - 1] = None
                size, busy = size + count, busy + asked
            else:
                size, busy = count, asked
        if not joins:
            return None
        self.port.count("virtual_nodes_merged", len(joins))
        return map_.merged(self._owner.next_version(), joins)

    # --- step 1: prepare ---

    def _prepare(self, owned: OwnedTree, new: PartitionMap, reason: MapReason) -> None:
        attribute = owned.attribute
        owned.begin_change(new, reason)
        self._owner.append(ChangeBegun(attribute, tuple(new.hosts().values())))
        gains: dict[Peer, tuple[Interval, ...]] = {}
        for host in new.hosts().values():
            gained = self._gained(owned, new, host)
            if not gained or not self._hosts.is_reachable(host.id):
                continue
            owned.await_host(host)
            if host.id in owned.stale_hosts:
                self.port.send(host, Assign(attribute, new.version))
            gains[host] = tuple(gained)
        if gains:
            self.transfers.begin(owned, new, gains)
        self._hosts.attend(owned)
        if not owned.is_awaiting_hosts:
            self._commit(owned)

    @staticmethod
    def _gained(owned: OwnedTree, new: PartitionMap, host: Peer) -> list[Interval]:
        """Return the intervals of `new` for which the host does not have all registrations yet."""
        served = () if host.id in owned.stale_hosts else owned.tree.map.hosted_by(host.id)
        return [
            interval
            for interval in new.hosted_by(host.id)
            if not any(s.lo <= interval.lo and interval.hi <= s.hi for s in served)
        ]

    def on_assigned(self, sender: Peer, message: Assigned) -> None:
        """A host has followed; perhaps the last one that a change waits for."""
        owned = self._trees.get(message.attribute)
        if owned is None or self.transfers.is_under_way(owned, sender.id):
            return
        if owned.host_acknowledged(sender.id, message.version):
            self._advance(owned)

    def on_link_down(self, event: LinkDown) -> None:
        """A host is lost: a change that it is part of is abandoned while that is possible. A host
        that was to stop serving has stopped."""
        for owned in list(self._trees.values()):
            if event.peer.id in owned.all_hosts():
                self._host_lost(owned, event.peer)

    def on_orders_refused(self, sender: Peer, message: OrdersRefused) -> None:
        """A host has not followed, since it did not know that this node owns the trees: it lacks
        something of them, as if the link had been lost meanwhile."""
        for attribute in message.attributes:
            owned = self._trees.get(attribute)
            if owned is not None and sender.id in owned.all_hosts():
                self._host_lost(owned, sender)

    def _host_lost(self, owned: OwnedTree, host: Peer) -> None:
        was_awaited = owned.host_lost(host)
        if owned.next_map is not None:
            owned.abandon_change()
            self._settled(owned)
        elif was_awaited:
            self._advance(owned)
        elif not owned.is_changing:
            self._settled(owned)  # perhaps a SUBACK waited for this stale host only

    def _advance(self, owned: OwnedTree) -> None:
        """Take the next step of a tree's change, unless a host's answer is still awaited."""
        if owned.is_awaiting_hosts:
            return
        if owned.next_map is not None:
            self._commit(owned)
        else:
            self._finish(owned)

    # --- step 2: commit ---

    def _commit(self, owned: OwnedTree) -> None:
        attribute, old = owned.attribute, owned.tree.map
        new = owned.commit_change()
        serving = new.hosts()
        concerned: dict[NodeId, Peer] = {**owned.stale_hosts, **old.hosts(), **serving}
        self._owner.write_map(attribute, new, owned.change_reason)
        for host in concerned.values():
            is_back = host.id in owned.stale_hosts and host.id in serving  # since it was prepared
            if is_back or not self._hosts.is_reachable(host.id):
                continue
            owned.await_host(host)
            self.port.send(host, self._owner.assignment(new, attribute, host.id))
        self._advance(owned)

    def _finish(self, owned: OwnedTree) -> None:
        owned.finish_change()
        if not owned.stale_hosts:
            self._owner.append(ChangeFinished(owned.attribute))
        self._hosts.attend(owned)
        self._settled(owned)

    def _settled(self, owned: OwnedTree) -> None:
        """Announce that no change of the tree's map is under way any more, for which SUBACKs or the
        transfer of an arc may wait."""
        self.port.emit(MapSettled(owned.attribute))
        self._owner.transfer_if_settled()
        if owned.change_reason == "busy":
            self._owner.rebalance_soon(0.0)  # what was cut is to be placed
        else:
            self._owner.rebalance_soon()
