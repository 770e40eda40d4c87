"""What a cluster knows of its trees, as a state machine over its operation log (P1).

The primary changes the state only by applying an operation that it appends to the cluster's log;
the standby applies the copies of the same operations in the same order and so holds the same
state. A copy for a new standby, or for the cluster that takes over an arc, is the state told again
as operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from overlay.machine import NodeId, Peer, Version
from overlay.upper_tree.messages import Entry, Registration
from overlay.upper_tree.partition import PartitionMap

TOLD_MOST = 256
"""Peers in one entry: 20 KiB at most, well within a frame of the log (chord/copying.py)."""


class Operation(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One entry of the log."""


class TreeOperation(Operation, frozen=True):
    """One that is about one tree."""

    attribute: str


class MapChanged(TreeOperation, frozen=True):
    """The tree is planted with this map, or its map changes to it."""

    version: Version
    entries: tuple[Entry, ...]


class Preparing(TreeOperation, frozen=True):
    """These hosts are being told of another map, by which they may serve from now on."""

    hosts: tuple[Peer, ...]


class Settled(TreeOperation, frozen=True):
    """Every host serves by the present map, or not at all."""


class Uprooted(TreeOperation, frozen=True):
    """Nobody subscribes any more: the tree is gone."""


class Added(TreeOperation, frozen=True):
    """A registration, with the incarnation of its subscriber."""

    registration: Registration
    incarnation: int


class Ended(TreeOperation, frozen=True):
    """Registrations that are gone."""

    ids: tuple[str, ...]


class Told(Operation, frozen=True):
    """From now on `peers` may believe something that they were told of trees, and `over` nothing
    any more (believers.py). `others`: somebody may whom no log of this arc names.

    What they were told is in no log: telling is frequent and short-lived.
    """

    peers: tuple[Peer, ...]
    over: tuple[NodeId, ...] = ()
    others: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    MapChanged | Preparing | Settled | Uprooted | Added | Ended | Told
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

    def __init__(self, attribute: str, map_: PartitionMap) -> None:
        self.attribute = attribute
        self.map = map_
        self.registrations: dict[str, Registration] = {}
        self.incarnations: dict[str, int] = {}  # of the subscriber, by registration id
        self.loose: dict[NodeId, Peer] = {}  # hosts that may serve by another map than `map`
        self.changes = 0  # of `registrations`, so far

    def operations(self) -> Iterator[Operation]:
        """The tree told again."""
        yield MapChanged(self.attribute, self.map.version, self.map.entries)
        if self.loose:
            yield Preparing(self.attribute, tuple(self.loose.values()))
        for id_, registration in self.registrations.items():
            yield Added(self.attribute, registration, self.incarnations[id_])


class ClusterState:
    """All trees of a cluster."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.believers: dict[NodeId, Peer] = {}  # who may believe something of a tree …
        self.others = False  # … and whether these are not all

    def apply(self, operation: Operation) -> None:
        """Change the state by one operation."""
        match operation:
            case MapChanged(attribute, version, entries):
                map_ = PartitionMap(version, entries)
                if attribute in self.trees:
                    tree = self.trees[attribute]
                    tree.loose.update(tree.map.hosts())
                    tree.map = map_
                else:
                    self.trees[attribute] = Tree(attribute, map_)
            case Preparing(attribute, hosts):
                if attribute in self.trees:
                    self.trees[attribute].loose.update((host.id, host) for host in hosts)
            case Settled(attribute):
                if attribute in self.trees:
                    self.trees[attribute].loose.clear()
            case Uprooted(attribute):
                self.trees.pop(attribute, None)
            case Added(attribute, registration, incarnation):
                tree = self.trees[attribute]
                tree.registrations[registration.id] = registration
                tree.changes += 1
                tree.incarnations[registration.id] = incarnation
            case Ended(attribute, ids):
                tree = self.trees[attribute]
                tree.changes += 1
                for id_ in ids:
                    tree.registrations.pop(id_, None)
                    tree.incarnations.pop(id_, None)
            case Told(peers, over, others):
                self.believers.update((peer.id, peer) for peer in peers)
                for node in over:
                    self.believers.pop(node, None)
                self.others = others

    def operations(self, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Operation]:
        """The state of the wanted attributes told again as operations. Believers are of all."""
        for attribute, tree in self.trees.items():
            if wanted(attribute):
                yield from tree.operations()
        believers = tuple(self.believers.values())
        for first in range(0, len(believers), TOLD_MOST):
            yield Told(believers[first : first + TOLD_MOST], (), self.others)
        if self.others and not believers:
            yield Told((), (), self.others)

    def hosts(self) -> Iterator[Peer]:
        """Every node that may serve one of the trees, perhaps more than once."""
        for tree in self.trees.values():
            yield from tree.map.hosts().values()
            yield from tree.loose.values()

    @property
    def registrations(self) -> int:
        """How many registrations all trees have."""
        return sum(len(tree.registrations) for tree in self.trees.values())

    def highest(self) -> Version:
        """The latest version of any map."""
        return max((tree.map.version for tree in self.trees.values()), default=(0, 0))
