"""The state of a cluster's trees, and of other things whose key it owns, as a state machine over
its replicated log (P1).

The primary changes the state only by applying an operation that it appends to the cluster's log.
The voters apply the same operations in the same order and so have the same state. A snapshot, for a
new standby or for the cluster that takes over an arc, is a sequence of operations that makes the
state from nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from matching import Interval
from overlay.chord.keys import attribute_key, key_of
from overlay.machine import Key, NodeId, Peer, Region, Version
from overlay.upper_tree.messages import Entry, Registration
from overlay.upper_tree.partition import PartitionMap

# --- how much each leaf and tenant has registered in the trees of a cluster ---


class LeafHoldings:
    """By subscriber and tree the registrations that are marked as a leaf's or a tenant's; nothing
    is kept of a subscriber that has none. Written by the cluster's state (tree_log.py)."""

    def __init__(self) -> None:
        self._total: dict[NodeId, int] = {}
        self._trees: dict[NodeId, dict[str, int]] = {}

    def of(self, subscriber: NodeId) -> tuple[int, int]:
        """Return how many registrations a subscriber's node has, and in how many trees."""
        return self._total.get(subscriber, 0), len(self._trees.get(subscriber, ()))

    def has(self, subscriber: NodeId, attribute: str) -> bool:
        """Whether it has registrations in this tree."""
        return attribute in self._trees.get(subscriber, ())

    def added(self, registration: Registration) -> None:
        """Count a registration that a tree has taken."""
        if registration.confined is None:
            return
        node, attribute = registration.subscriber.id, registration.attribute
        trees = self._trees.setdefault(node, {})
        trees[attribute] = trees.get(attribute, 0) + 1
        self._total[node] = self._total.get(node, 0) + 1

    def removed(self, registration: Registration) -> None:
        """Uncount a registration that was `added` and that a tree no longer has."""
        if registration.confined is None:
            return
        node, attribute = registration.subscriber.id, registration.attribute
        trees = self._trees[node]
        trees[attribute] -= 1
        if not trees[attribute]:
            del trees[attribute]
        self._total[node] -= 1
        if not trees:
            del self._trees[node], self._total[node]


HOLDERS_PER_ENTRY = 256
"""Cache holders in one entry: 20 KiB at most, well within a frame of the log."""


class Operation(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One entry of the log. Logs are stored, so a renamed class keeps its tag."""


class TreeOperation(Operation, frozen=True):
    """An operation in the cluster's log that concerns the tree of one attribute."""

    attribute: str


class MapChanged(TreeOperation, frozen=True):
    """The tree is created with this map, or its map changes to it."""

    version: Version
    entries: tuple[Entry, ...]


class ChangeBegun(TreeOperation, frozen=True, tag="Preparing"):
    """These hosts are being sent another map, by which they may serve from now on."""

    hosts: tuple[Peer, ...]


class ChangeFinished(TreeOperation, frozen=True, tag="Settled"):
    """The change that began is complete: every host serves by the present map, or not at all."""


class TreeRemoved(TreeOperation, frozen=True, tag="Uprooted"):
    """No registration is left: the tree is removed."""


class RegistrationAdded(TreeOperation, frozen=True, tag="Added"):
    """A registration, with the incarnation of its subscriber."""

    registration: Registration
    incarnation: int


class RegistrationsRemoved(TreeOperation, frozen=True, tag="Ended"):
    """Registrations that were ended, or whose lease has lapsed."""

    ids: tuple[str, ...]


class CacheHoldersChanged(Operation, frozen=True, tag="Told"):
    """From now on the publishers `added` may have cached summaries of trees, and those that are
    `removed` have none any more (summaries/cache_holders.py). `has_unknown`: publishers may have
    some that no log of this arc names.

    Which summaries they have is in no log: they are given often and do not last.
    """

    added: tuple[Peer, ...]
    removed: tuple[NodeId, ...] = ()
    has_unknown: bool = False


class DirectoryChanged(Operation, frozen=True):
    """Sets the directory entry `name` to `value`; empty: removes the entry. The entry is owned with
    the key `key_of(name)`. Only the writer knows the meaning of the value (streams/directory/)."""

    name: str
    value: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    MapChanged
    | ChangeBegun
    | ChangeFinished
    | TreeRemoved
    | RegistrationAdded
    | RegistrationsRemoved
    | CacheHoldersChanged
    | DirectoryChanged
)


def encode(operation: Operation) -> bytes:
    """An operation as a log entry."""
    return _encoder.encode(operation)


def decode(entry: bytes) -> Operation:
    """A log entry as an operation. Raises msgspec.DecodeError on anything else."""
    operation: Operation = _decoder.decode(entry)
    return operation


class Tree:
    """One attribute's partition map and registrations."""

    def __init__(
        self, attribute: str, map_: PartitionMap, leaves: LeafHoldings | None = None
    ) -> None:
        """`leaves`: the counts of leaves' registrations over all trees, which this tree updates."""
        self._leaves = LeafHoldings() if leaves is None else leaves
        self.attribute = attribute
        self.map = map_
        self.registrations: dict[str, Registration] = {}
        self.incarnations: dict[str, int] = {}  # of the subscriber, by registration id
        self.unsettled_hosts: dict[NodeId, Peer] = {}
        """Hosts that may serve by another map than `map`."""
        self.interest: Counter[Region] = Counter()
        """Registrations by the region of their subscriber ("": none)."""
        self.registration_changes = 0
        """Number of changes of `registrations` so far."""

    def intervals(self) -> list[Interval]:
        """The interval of each registration, in the order of registration."""
        return [registration.interval for registration in self.registrations.values()]

    def add(self, registration: Registration, incarnation: int) -> None:
        """Add a registration of a subscriber's incarnation. It replaces one with the same id."""
        former = self.registrations.get(registration.id)
        if former is not None:
            self.interest[former.subscriber.region] -= 1
            self._leaves.removed(former)
        self._leaves.added(registration)
        self.registrations[registration.id] = registration
        self.incarnations[registration.id] = incarnation
        self.interest[registration.subscriber.region] += 1
        self.registration_changes += 1

    def remove(self, ids: Iterable[str]) -> None:
        """Remove these registrations. Unknown ids are ignored."""
        for id_ in ids:
            former = self.registrations.pop(id_, None)
            if former is not None:
                del self.incarnations[id_]
                self.interest[former.subscriber.region] -= 1
                self._leaves.removed(former)
        self.registration_changes += 1

    def dropped(self) -> None:
        """Uncount the registrations of a tree that is no longer this cluster's."""
        for registration in self.registrations.values():
            self._leaves.removed(registration)

    def operations(self) -> Iterator[Operation]:
        """The operations that make the tree from nothing."""
        yield MapChanged(self.attribute, self.map.version, self.map.entries)
        if self.unsettled_hosts:
            yield ChangeBegun(self.attribute, tuple(self.unsettled_hosts.values()))
        for id_, registration in self.registrations.items():
            yield RegistrationAdded(self.attribute, registration, self.incarnations[id_])


class ClusterState:
    """The state of the cluster's trees, of the holders of their summaries and of its part of the
    directory, made by applying the entries of the cluster's log."""

    def __init__(self) -> None:
        self._highest: Version | None = (0, 0)  # None: to be found among the trees
        self.trees: dict[str, Tree] = {}
        self.leaves = LeafHoldings()
        """The holdings of leaves and tenants in these trees."""
        self.directory: dict[str, bytes] = {}
        """Values by name, as bytes that this state does not look into."""
        self.cache_holders: dict[NodeId, Peer] = {}
        """Publishers that may have a cached summary of a tree."""
        self.has_unknown_holders = False
        """Whether there may be others that are not in `cache_holders`."""

    def apply(self, operation: Operation) -> None:
        """Change the state by one operation."""
        match operation:
            case RegistrationAdded(attribute, registration, incarnation):
                self.trees[attribute].add(registration, incarnation)
            case MapChanged(attribute, version, entries):
                map_ = PartitionMap(version, entries)
                if self._highest is not None:
                    self._highest = max(self._highest, version)
                if attribute in self.trees:
                    tree = self.trees[attribute]
                    tree.unsettled_hosts.update(tree.map.hosts())
                    tree.map = map_
                else:
                    self.trees[attribute] = Tree(attribute, map_, self.leaves)
            case ChangeBegun(attribute, hosts):
                if attribute in self.trees:
                    self.trees[attribute].unsettled_hosts.update((host.id, host) for host in hosts)
            case ChangeFinished(attribute):
                if attribute in self.trees:
                    self.trees[attribute].unsettled_hosts.clear()
            case TreeRemoved(attribute):
                self.drop(attribute)
            case RegistrationsRemoved(attribute, ids):
                self.trees[attribute].remove(ids)
            case CacheHoldersChanged(added, removed, has_unknown):
                self.cache_holders.update((peer.id, peer) for peer in added)
                for node in removed:
                    self.cache_holders.pop(node, None)
                self.has_unknown_holders = has_unknown
            case DirectoryChanged(name, value):
                if value:
                    self.directory[name] = value
                else:
                    self.directory.pop(name, None)

    def operations(self, wanted: Callable[[Key], bool] = lambda _: True) -> Iterator[Operation]:
        """Yield the operations that make the state of these keys from an empty one. All cache
        holders are named, because the log does not record of which trees they have summaries."""
        for attribute, tree in self.trees.items():
            if wanted(attribute_key(attribute)):
                yield from tree.operations()
        for name, value in self.directory.items():
            if wanted(key_of(name)):
                yield DirectoryChanged(name, value)
        holders = tuple(self.cache_holders.values())
        unknown = self.has_unknown_holders
        for first in range(0, len(holders), HOLDERS_PER_ENTRY):
            yield CacheHoldersChanged(holders[first : first + HOLDERS_PER_ENTRY], (), unknown)
        if unknown and not holders:
            yield CacheHoldersChanged((), (), unknown)

    def hosts(self) -> Iterator[Peer]:
        """Every node that may serve one of the trees, perhaps more than once."""
        for tree in self.trees.values():
            yield from tree.map.hosts().values()
            yield from tree.unsettled_hosts.values()

    def highest(self) -> Version:
        """The latest version of any map."""
        if self._highest is None:
            versions = (tree.map.version for tree in self.trees.values())
            self._highest = max(versions, default=(0, 0))
        return self._highest

    def drop_keys(self, gone: Callable[[Key], bool]) -> None:
        """Trees and what the directory has under these keys are no longer this cluster's."""
        for attribute in [a for a in self.trees if gone(attribute_key(a))]:
            self.drop(attribute)
        self.directory = {n: v for n, v in self.directory.items() if not gone(key_of(n))}

    def drop(self, attribute: str) -> None:
        """Drop a tree that is no longer this cluster's. Unknown trees are ignored."""
        tree = self.trees.pop(attribute, None)
        if tree is not None:
            tree.dropped()
            if tree.map.version == self._highest:
                self._highest = None
