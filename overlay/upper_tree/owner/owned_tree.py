"""The trees that this node decides about as a primary, and what it alone knows of them (C6, P1).

The cluster's log has each tree's partition map and registrations (tree_log.py). `OwnedTree` adds
what is in no log: which registrations wait for their SUBACK, which hosts have answered what, and
how far a change of the map is. It is written through methods that say what happened; what follows
from that (messages, log entries) is up to registry.py, registration_ends.py, rebalance.py and
registry_merge.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import NodeId, Peer, Region, Version
from overlay.upper_tree.compiled_selectors import boxes_of
from overlay.upper_tree.messages import Registration
from overlay.upper_tree.owner.constants import (
    MAX_STALE_HOSTS,
    SCAN_PERIOD,
    SCAN_SHARE,
    SUMMARY_PAUSE_LEAST,
    SUMMARY_PAUSE_MOST,
    SUMMARY_STALE_SHARE,
)
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.pivots import Popularity
from overlay.upper_tree.summary import Box, Summary


class SummaryState:
    """The present summary of an owned tree, and when to make the next one (C9). Written by the
    summaries' machines. Times are the Port's seconds.

    Where registrations keep coming, summaries do not last, and giving and recalling them costs more
    than they save. So a summary that was contradicted within the time that publishers may cache it
    makes the tree wait twice as long before the next one is made.
    """

    def __init__(self) -> None:
        self.current: Summary | None = None
        self.digest = 0
        """The digest of the last summary that was made, by which publishers name it."""
        self._size = 0  # registrations that the summary was made of
        self._made_at = 0.0
        self._contradicted_at = float("-inf")
        self._pause = 0.0

    def replace(self, summary: Summary, digest: int, size: int, now: float) -> None:
        """Set a new summary, made from `size` registrations."""
        self.current, self.digest = summary, digest
        self._size, self._made_at = size, now

    def is_current(self, size: int) -> bool:
        """Return whether there is a summary and few of its registrations have ended. `size`: the
        present number of registrations of the tree."""
        return self.current is not None and self._size - size <= size // SUMMARY_STALE_SHARE

    def may_rebuild(self, now: float) -> bool:
        """Whether no registration has contradicted a summary for long enough."""
        return self._contradicted_at + self._pause <= now

    def contradicted(self, now: float, term: float) -> None:
        """Drop the summary, which does not cover a new registration. `term`: seconds for which
        publishers may cache a summary."""
        self._contradicted_at = now
        if self.current is not None and now - self._made_at < term:
            self._pause = min(2.0 * self._pause, SUMMARY_PAUSE_MOST)
        elif self.current is not None or not self._pause:
            self._pause = SUMMARY_PAUSE_LEAST
        self.current = None

    def outdated(self, now: float) -> None:
        """Registrations came while a summary was being made, which may not admit them."""
        self._contradicted_at = now


class HostLoads:
    """The load of each host (C6): the number of registrations in its virtual nodes, plus one for
    each virtual node. The share of a tree is counted again only after the tree has changed."""

    def __init__(self) -> None:
        self._total: dict[NodeId, int] = {}
        self._by_tree: dict[str, dict[NodeId, int]] = {}  # as counted last
        self._changed: dict[str, None] = {}

    def changed(self, attribute: str) -> None:
        """Note that the tree was created or removed, or that its map or registrations have
        changed."""
        self._changed[attribute] = None

    def take_changed(self) -> list[str]:
        """The trees that have changed since; each is to be counted by `count`."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def count(self, attribute: str, shares: Iterable[tuple[NodeId, int]]) -> None:
        """Replace the tree's part in the loads of hosts by `shares`; without shares, remove it."""
        for host, load in self._by_tree.pop(attribute, {}).items():
            self._total[host] -= load
            if not self._total[host]:
                del self._total[host]
        mine: dict[NodeId, int] = {}
        for host, load in shares:
            mine[host] = mine.get(host, 0) + load
        for host, load in mine.items():
            self._total[host] = self._total.get(host, 0) + load
        if mine:
            self._by_tree[attribute] = mine

    def clear(self) -> None:
        """Forget what all trees put on hosts, as at the end of a primary's term."""
        self._total.clear()
        self._by_tree.clear()
        self._changed.clear()

    @property
    def total(self) -> Mapping[NodeId, int]:
        """Registrations in the virtual nodes of all owned trees that each host serves, by node."""
        return self._total


MapReason = Literal["created", "moved", "restored", "full", "busy", "slow", "idle", "silent"]
"""Why a tree has a new map: it is new; other hosts are to serve; hosts that were lost are given the
same again; the only hosts of a virtual node are silent, and another serves beside them; a virtual
node had too many registrations, or was asked for too much, or one value's events took too long
each, and was cut; two had too little, and were merged."""


class PendingRegistration(msgspec.Struct):
    """A registration whose SUBACK is not yet due."""

    registration: Registration
    log_index: int  # number of the log entry that has to be committed
    merging_owner: Peer | None = None
    """The owner in a losing ring that registered it for its subscriber (registry_merge.py)."""
    installed: dict[NodeId, None] = {}
    """The hosts that have acknowledged it."""
    holders: dict[NodeId, float] = {}
    """Publishers with a cached summary that does not admit it, and until when it is valid."""
    unknown_holders_until: float = 0.0
    """Until then a publisher that the owner does not know of may have such a summary."""
    lacks: tuple[PartitionMap, PartitionMap | None, NodeId] | None = None
    """The maps by which a host has to match it that had not acknowledged it at the last look."""

    def await_invalidation(self, holder: NodeId, until: float) -> None:
        """Wait for `holder`, which may use a summary that does not admit this registration, at most
        until `until`."""
        self.holders[holder] = until

    def invalidated(self, holder: NodeId) -> None:
        """Note that `holder` has dropped its copy of the summary."""
        self.holders.pop(holder, None)

    def expire_holders(self, now: float) -> None:
        """Forget holders whose summary is no longer valid."""
        self.holders = {node: until for node, until in self.holders.items() if until > now}

    def is_admitted(self, now: float) -> bool:
        """Whether no publisher has a valid summary any more that does not admit it."""
        return not self.holders and self.unknown_holders_until <= now

    def expiries(self) -> list[float]:
        """The times at which a summary that does not admit it stops being valid."""
        return [self.unknown_holders_until, *self.holders.values()]


class ScanThrottle:
    """Whether it is time to scan all registrations again: 10,000 take tens of milliseconds, in
    which no event goes on, and mostly nothing has changed."""

    __slots__ = ("_at", "_changes", "_map")

    def __init__(self) -> None:
        self._map: PartitionMap | None = None
        self._changes = -1
        self._at = float("-inf")

    def is_due(self, map_: PartitionMap | None, changes: int, size: int, now: float) -> bool:
        """`changes`: how many there have been so far of `size` registrations in this map."""
        if map_ is not self._map or self._changes < 0:
            return True
        since = abs(changes - self._changes)
        return since > 0 and (since * SCAN_SHARE >= size or now >= self._at + SCAN_PERIOD)

    def done(self, map_: PartitionMap | None, changes: int, now: float) -> None:
        """Note that all registrations were scanned in this state."""
        self._map, self._changes, self._at = map_, changes, now


class RegistrationBoxes(dict[str, tuple[Box, ...]]):
    """By id, the conjunctions of a tree's registrations as boxes, as far as their selectors were
    compiled. Their attributes count as asked for. Written by `put`, `take_out` and `forget`."""

    def __init__(self, popularity: Popularity) -> None:
        super().__init__()
        self._popularity = popularity

    def put(self, id_: str, boxes: tuple[Box, ...]) -> None:
        """Keep the boxes of a registration instead of those that it had."""
        self.take_out(id_)
        self[id_] = boxes
        self._popularity.add(boxes)

    def take_out(self, id_: str) -> None:
        """Forget the boxes of a registration, if it has some."""
        self._popularity.remove(self.pop(id_, ()))

    def forget(self) -> None:
        """Forget all: the tree is no longer decided about here."""
        for boxes in self.values():
            self._popularity.remove(boxes)
        self.clear()


class TreeSize:
    """The number of a tree's registrations, and when to look whether its virtual nodes have too
    many or too few. Times are the Port's seconds."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._empty_since: float | None = None
        self._scan = ScanThrottle()
        self._counted: tuple[tuple[Version, int], list[int]] = (((0, 0), 0), [])

    def counts(self, map_: PartitionMap) -> list[int]:
        """Return the number of registrations of each virtual node by this map, the tree's or the
        coming one."""
        size = len(self._tree.registrations)
        if len(map_.entries) == 1:
            return [size]
        if self._counted[0] != (map_.version, size):
            counts = map_.counts(self._tree.registrations.values())
            self._counted = ((map_.version, size), counts)
        return self._counted[1]

    def empty_for(self, now: float) -> float:
        """Seconds for which the tree has had no registration, as seen at each call; 0 if it has
        one."""
        if self._tree.registrations:
            self._empty_since = None
            return 0.0
        if self._empty_since is None:
            self._empty_since = now
        return now - self._empty_since

    def is_scan_due(self, now: float) -> bool:
        """Whether to scan for virtual nodes that are too large or too small."""
        tree = self._tree
        size = len(tree.registrations)
        return self._scan.is_due(tree.map, tree.registration_changes, size, now)

    def scanned(self, now: float) -> None:
        """Note that a scan found no virtual node too large or too small."""
        self._scan.done(self._tree.map, self._tree.registration_changes, now)


class OwnedTree:
    """One tree, with the state that only its primary has. Times are the Port's seconds.

    A change of the map goes through `begin_change`, `commit_change` and `finish_change`, or ends
    with `abandon_change` before it is committed. Until then this object waits for the hosts that
    were sent the change: `await_host`, then `host_acknowledged` or `host_lost`.
    """

    def __init__(self, tree: Tree, popularity: Popularity, loads: HostLoads) -> None:
        """`popularity` counts the attributes of the tree's conjunctions, as far as compiled;
        `loads` is notified of each change."""
        self.tree = tree
        self._loads = loads
        loads.changed(tree.attribute)
        self.summary = SummaryState()
        self.size = TreeSize(tree)
        self.boxes = RegistrationBoxes(popularity)
        self._pending: dict[str, PendingRegistration] = {}  # by registration id
        self._acknowledged_unknown = False
        self.restored_index = 0
        """The last log entry by which a lost cluster's registrations were written; 0: none."""
        self.next_map: PartitionMap | None = None
        """The map that is being prepared, if there is one."""
        self.change_reason: MapReason = "created"
        """The reason of the last change of the map."""
        self._previous: PartitionMap | None = None
        self._awaited: dict[NodeId, Peer] = {}  # hosts that have not answered `Assign`
        self._prepared: dict[NodeId, Peer] = {}  # hosts that were sent `next_map`
        self._stale: BoundedDict[NodeId, Peer] = BoundedDict(MAX_STALE_HOSTS)
        self._stopping: dict[NodeId, Peer] = {}
        self._stop_version: Version = (0, 0)

    @property
    def attribute(self) -> str:
        """The attribute whose tree it is."""
        return self.tree.attribute

    # --- registrations ---

    @property
    def pending(self) -> Mapping[str, PendingRegistration]:
        """The registrations whose SUBACK is not due yet, by id."""
        return self._pending

    def register(self, registration: Registration, log_index: int) -> PendingRegistration:
        """Await what the SUBACK of a registration needs: that log entry `log_index` is committed,
        and that hosts and publishers answer. Its boxes are compiled where they were not added
        before (another primary took the registration)."""
        id_ = registration.id
        if id_ not in self.boxes:
            self.boxes.put(id_, boxes_of(registration.selector))
        pending = self._pending[id_] = PendingRegistration(registration, log_index)
        self._loads.changed(self.attribute)
        return pending

    def unregister(self, ids: Iterable[str]) -> None:
        """Drop the pending state and the counts of registrations that the log has removed."""
        for id_ in ids:
            self._pending.pop(id_, None)
            self.boxes.take_out(id_)
        self._loads.changed(self.attribute)

    def take_due(
        self, is_due: Callable[[PendingRegistration], bool], ids: Iterable[str] | None = None
    ) -> list[PendingRegistration]:
        """Take out the pending registrations that may be acknowledged now; of `ids` only, where it
        is known for which of them something has changed."""
        found = self._pending.values() if ids is None else map(self._pending.get, ids)
        due = [pending for pending in found if pending is not None and is_due(pending)]
        for pending in due:
            del self._pending[pending.registration.id]
        return due

    def host_installed(self, host: NodeId, ids: Iterable[str]) -> None:
        """Note that `host` matches these registrations now."""
        for id_ in ids:
            pending = self._pending.get(id_)
            if pending is not None:
                pending.installed[host] = None

    def doubt_acknowledgements(self, restored_index: int = 0) -> None:
        """Take no present registration as acknowledged, since another primary took them.
        `restored_index`: the last log entry by which this primary wrote registrations itself, from
        the replica of a lost cluster's log."""
        self._acknowledged_unknown = True
        self.restored_index = max(restored_index, self.restored_index)

    def trust_acknowledgements(self) -> None:
        """Take all registrations that are not pending as acknowledged: every host has the whole
        log, and no publisher has a summary of a former owner."""
        self._acknowledged_unknown = False

    def was_acknowledged(self, committed: int) -> bool:
        """Whether registrations that are not pending were acknowledged for certain. `committed`:
        the log's entries before this one are."""
        return not self._acknowledged_unknown and self.restored_index < committed

    # --- hosts ---

    @property
    def stale_hosts(self) -> Mapping[NodeId, Peer]:
        """Hosts that may not have what the map says: their link was lost, or they prepared a change
        that was abandoned. They are given everything again (rebalance.py). Bounded: hosts that do
        not come back are forgotten, the oldest first."""
        return self._stale

    def mark_stale(self, host: Peer) -> None:
        """Mark a host as stale: it is given everything again before it counts as serving."""
        self._stale.renew(host.id, host)
        for pending in self._pending.values():
            pending.installed.pop(host.id, None)

    def begin_epoch(self) -> None:
        """Abandon a change that is under way, and mark every host as stale. Under a new epoch no
        host answers messages of the previous one, even if the primary is the same."""
        for map_ in self.maps():
            for host in map_.hosts().values():
                self.mark_stale(host)
        for host in (*self.tree.unsettled_hosts.values(), *self._awaited.values()):
            self.mark_stale(host)
        self.next_map = self._previous = None
        self._loads.changed(self.attribute)
        self._awaited.clear()
        self._prepared.clear()

    def all_hosts(self) -> dict[NodeId, Peer]:
        """Every host that may hold registrations of this tree."""
        hosts = {**self._stale, **self._awaited}
        for map_ in self.maps():
            hosts.update(map_.hosts())
        return hosts

    def hosts_for(self, registration: Registration) -> Mapping[NodeId, Peer]:
        """Every host that has to match this registration now: by the present map, and by the one
        that is being prepared."""
        found = self.tree.map.hosts_of(registration)
        return found if self.next_map is None else {**found, **self.next_map.hosts_of(registration)}

    def is_installed(
        self, pending: PendingRegistration, lease_over: Callable[[NodeId], bool]
    ) -> bool:
        """Whether every host that may serve a virtual node in which it lies has it. `lease_over`:
        is the serving lease of this host over for certain?

        A host that may still match by the former map is given no registrations any more, so it must
        have stopped."""
        registration, maps = pending.registration, (self.tree.map, self.next_map)
        if pending.lacks is not None and pending.lacks[:2] == maps:
            host = pending.lacks[2]  # mostly it is not the one that has answered meanwhile
            if host not in pending.installed and not lease_over(host):
                return False
        for host in self.hosts_for(registration):
            if host not in pending.installed and not lease_over(host):
                pending.lacks = (*maps, host)
                return False
        return self._previous is None or not any(
            host.id in self._awaited and not lease_over(host.id)
            for entry in self._previous.serving(registration)
            for host in entry.hosts
        )

    # --- changes of the map ---

    @property
    def coming_map(self) -> PartitionMap:
        """The map that is being prepared, else the present one."""
        return self.next_map or self.tree.map

    def host_shares(self) -> Iterator[tuple[NodeId, int]]:
        """The load that each virtual node of the coming map adds to each of its hosts."""
        map_ = self.coming_map
        for entry, count in zip(map_.entries, self.size.counts(map_), strict=True):
            for host in entry.hosts:
                yield host.id, 1 + count

    @property
    def is_changing(self) -> bool:
        """Whether a change of the map is under way."""
        return self.next_map is not None or self._previous is not None

    @property
    def is_awaiting_hosts(self) -> bool:
        """Whether the change that is under way waits for a host's answer."""
        return bool(self._awaited)

    def maps(self) -> list[PartitionMap]:
        """All partition maps that some host may serve by."""
        return [m for m in (self.tree.map, self.next_map, self._previous) if m is not None]

    def begin_change(self, new: PartitionMap, reason: MapReason) -> None:
        """Step 1: `new` is being prepared at the hosts that gain intervals."""
        self.next_map = new
        self.change_reason = reason
        self._loads.changed(self.attribute)
        self._awaited.clear()
        self._prepared.clear()

    def await_host(self, host: Peer) -> None:
        """Await the answer of a host to an `Assign` of the change. A host of step 1 has to be given
        everything again if the change is abandoned."""
        self._awaited[host.id] = host
        if self.next_map is not None:
            self._prepared[host.id] = host

    def is_prepared(self, host: NodeId) -> bool:
        """Whether the host was sent the last change in step 1."""
        return host in self._prepared

    def host_acknowledged(self, host: NodeId, version: Version) -> bool:
        """A host has answered an `Assign`. Whether the change that is under way awaited that."""
        if version == self._stop_version:
            self._stopping.pop(host, None)
        expected = self.coming_map.version
        if not self.is_changing or version != expected or host not in self._awaited:
            return False
        del self._awaited[host]
        self._stale.pop(host, None)
        return True

    def host_lost(self, host: Peer) -> bool:
        """The link to a host was lost. Whether the change that is under way awaited the host."""
        self.mark_stale(host)
        self._prepared.pop(host.id, None)
        return self._awaited.pop(host.id, None) is not None

    def abandon_change(self) -> None:
        """Give up a change that is not committed; the hosts that were sent it are stale."""
        for host in self._prepared.values():
            self.mark_stale(host)
        self.next_map = None
        self._loads.changed(self.attribute)
        self._awaited.clear()

    def commit_change(self) -> PartitionMap:
        """Step 2: `next_map`, which is returned, is about to be the tree's map. Until
        `finish_change` some host may serve by the former one."""
        assert self.next_map is not None
        new, self.next_map, self._previous = self.next_map, None, self.tree.map
        return new

    def finish_change(self) -> None:
        """End the change: every awaited host has answered, and all serve by the present map, or are
        stale."""
        self._previous = None

    # --- a ring that ends (registry_merge.py) ---

    def begin_stop(self, version: Version) -> None:
        """Begin a change after which no host serves the tree; hosts acknowledge it by this
        version."""
        self._stopping = self.all_hosts()
        self._stop_version = version

    @property
    def stopping_hosts(self) -> Mapping[NodeId, Peer]:
        """Hosts that have not acknowledged yet that they stopped."""
        return self._stopping

    def cancel_stop(self) -> None:
        """Keep serving: the arc stays here. The hosts, which have dropped everything, are stale and
        are given it again."""
        self._stopping.clear()
        for host in self.all_hosts().values():
            self.mark_stale(host)


class OwnedTrees(dict[str, OwnedTree]):
    """The trees that this node decides about, by attribute; empty where it is no primary. Written
    by `adopt`, `drop` and `clear` only."""

    def __init__(self) -> None:
        super().__init__()
        self.popularity = Popularity()
        """Counts the conjunctions that ask for each attribute (pivots.py)."""
        self._loads = HostLoads()

    def loads(self) -> Mapping[NodeId, int]:
        """By host the registrations in its virtual nodes, plus one for each virtual node: of the
        coming map where a change is under way."""
        for attribute in self._loads.take_changed():
            owned = self.get(attribute)
            self._loads.count(attribute, () if owned is None else owned.host_shares())
        return self._loads.total

    @property
    def registrations(self) -> int:
        """The total number of registrations of all trees."""
        return sum(len(owned.tree.registrations) for owned in self.values())

    def interest(self) -> Counter[Region]:
        """Count the registrations of all trees by the region of the subscriber ("": none)."""
        found: Counter[Region] = Counter()
        for owned in self.values():
            found.update(owned.tree.interest)
        return found

    def adopt(self, tree: Tree) -> OwnedTree:
        """Begin to decide about a tree of the log's state."""
        owned = self[tree.attribute] = OwnedTree(tree, self.popularity, self._loads)
        return owned

    def drop(self, attribute: str) -> None:
        """Stop deciding about this tree. Raises KeyError if it is not there."""
        self.pop(attribute).boxes.forget()
        self._loads.changed(attribute)

    def clear(self) -> None:
        """Drop all trees: this node decides about none any more."""
        super().clear()
        self.popularity.clear()
        self._loads.clear()
