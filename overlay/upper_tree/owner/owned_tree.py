"""An owned tree with what the primary alone knows of it: who still has to answer (C6, P1)."""

from __future__ import annotations

from collections.abc import Callable

from matching import Interval
from overlay.machine import NodeId, Peer, Version
from overlay.upper_tree.messages import Registration
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.partition import PartitionMap, overlap_count
from overlay.upper_tree.summary import Box, Summary

MAX_STRAYS = 64
"""Strays that a tree remembers: more than any tree loses before the next look. Those that do not
come back are forgotten, the oldest first. Wild guess."""


class Waiting:
    """A registration whose SUBACK is not yet due."""

    __slots__ = ("believers", "blind_until", "index", "installed", "registration", "sponsor")

    def __init__(self, registration: Registration, index: int) -> None:
        self.registration = registration
        self.index = index  # of its log entry
        self.sponsor: Peer | None = None  # who registered it instead of its subscriber (uniting.py)
        self.installed: dict[NodeId, None] = {}  # hosts that have it
        self.believers: dict[NodeId, float] = {}  # who may skip it, and until when (beliefs.py)
        self.blind_until = 0.0  # … and until when somebody whom we forgot may

    def is_believed(self, now: float) -> bool:
        """Whether nobody is told any more what this registration contradicts."""
        return not self.believers and self.blind_until <= now

    def believed_until(self) -> list[float]:
        """When what contradicts it ends by itself."""
        return [self.blind_until, *self.believers.values()]

    def forget_believers(self, now: float) -> None:
        """Those whose term is over."""
        self.believers = {node: until for node, until in self.believers.items() if until > now}


LOOK_PERIOD = 1.0
"""Seconds between looks when nothing happens: leases end, hosts stay unfit. Wild guess."""

LOOK_SHARE = 64
"""A look at all registrations is due before that if one in so many has changed. Wild guess."""


class Look:
    """Whether it is time to look at all registrations again: 10,000 take tens of milliseconds, in
    which no event goes on, and mostly nothing has changed."""

    __slots__ = ("at", "changes", "map")

    def __init__(self) -> None:
        self.map: PartitionMap | None = None
        self.changes = -1
        self.at = float("-inf")

    def is_due(self, map_: PartitionMap | None, changes: int, size: int, now: float) -> bool:
        """`changes`: how many there have been so far of `size` registrations in this map."""
        if map_ is not self.map or self.changes < 0:
            return True
        since = abs(changes - self.changes)
        return since > 0 and (since * LOOK_SHARE >= size or now >= self.at + LOOK_PERIOD)

    def done(self, map_: PartitionMap | None, changes: int, now: float) -> None:
        """They have been looked at."""
        self.map, self.changes, self.at = map_, changes, now


class OwnedTree:
    """A tree with what the primary alone knows of it: who still has to answer."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.waiting: dict[str, Waiting] = {}  # by registration id
        self.boxes: dict[str, tuple[Box, ...]] = {}  # by registration id, where they are known
        self.summary: Summary | None = None  # what publishers are told (beliefs.py) …
        self.digest = 0  # … what it is known by …
        self.summarised = 0  # … and how many registrations it was made of
        self.made_at = 0.0  # … when it was made, …
        self.at_odds = float("-inf")  # when a registration last contradicted it, and …
        self.rest = 0.0  # … how long none must, before the next one is made
        self.next: PartitionMap | None = None  # map that is being prepared
        self.previous: PartitionMap | None = None  # map that some host may still serve
        self.awaited: dict[NodeId, Peer] = {}  # hosts that have not answered `Assign`
        self.prepared: dict[NodeId, Peer] = {}  # hosts that were told of `next`
        self.strays: dict[NodeId, Peer] = {}
        """Hosts that may not hold what the map says: their link was lost, or they prepared a change
        that was given up. They are given all anew (balance.py)."""
        self.empty_since: float | None = None
        self.sizes = Look()  # at which virtual nodes are too large or too small
        self.unsure = False
        """Another primary took these registrations: that they are here does not say that they were
        acknowledged."""
        self.stopping: dict[NodeId, Peer] = {}  # hosts that shall serve it no more (uniting.py) …
        self.stop_version: Version = (0, 0)  # … and have not answered this version
        self.adopted_at = 0
        """Number of the log entry by which it has the registrations of a lost cluster's tree."""
        self._counted: tuple[tuple[Version, int], list[int]] = (((0, 0), 0), [])

    def counts(self) -> list[int]:
        """How many registrations each virtual node has, of the coming map if there is one."""
        map_, registrations = self.next or self.tree.map, self.tree.registrations
        if len(map_.entries) == 1:
            return [len(registrations)]
        key = (map_.version, len(registrations))
        if self._counted[0] != key:
            intervals = [registration.interval for registration in registrations.values()]
            counts = [overlap_count(entry.interval, intervals) for entry in map_.entries]
            self._counted = (key, counts)
        return self._counted[1]

    @property
    def changing(self) -> bool:
        """Whether a change of the map is under way."""
        return self.next is not None or self.previous is not None

    def maps(self) -> list[PartitionMap]:
        """All maps that some host may serve by."""
        return [m for m in (self.tree.map, self.next, self.previous) if m is not None]

    def begin_anew(self) -> None:
        """Nobody answers any more what was said under the epoch before, not even to the same
        primary: a change that is under way is given up, and every host is a stray."""
        for map_ in self.maps():
            for host in map_.hosts().values():
                self.stray(host)
        for host in (*self.tree.loose.values(), *self.awaited.values()):
            self.stray(host)
        self.next = self.previous = None
        self.awaited.clear()
        self.prepared.clear()

    def hosts_overlapping(self, interval: Interval) -> dict[NodeId, Peer]:
        """Every host that has to match what is registered in `interval` now."""
        maps = (self.tree.map, self.next)
        return {
            host.id: host
            for map_ in maps
            if map_ is not None
            for entry in map_.overlapping(interval)
            for host in entry.hosts
        }

    def ceding(self, interval: Interval, over: Callable[[NodeId], bool]) -> bool:
        """Whether some host may still match an event in `interval` by the map before. (It is given
        no registrations any more, so it must have stopped before one of them is acknowledged.)"""
        return self.previous is not None and any(
            host.id in self.awaited and not over(host.id)
            for entry in self.previous.overlapping(interval)
            for host in entry.hosts
        )

    def all_hosts(self) -> dict[NodeId, Peer]:
        """Every host that may hold registrations of this tree."""
        hosts = {**self.strays, **self.awaited}
        for map_ in self.maps():
            hosts.update(map_.hosts())
        return hosts

    def stray(self, host: Peer) -> None:
        """Do not rely on what this host holds."""
        self.strays.pop(host.id, None)
        self.strays[host.id] = host
        if len(self.strays) > MAX_STRAYS:
            del self.strays[next(iter(self.strays))]
        for waiting in self.waiting.values():
            waiting.installed.pop(host.id, None)

    def installed_everywhere(self, waiting: Waiting, over: Callable[[NodeId], bool]) -> bool:
        """Whether every host that may serve it has the registration. `over`: is the serving lease
        of this host over for certain?"""
        interval = waiting.registration.interval
        return all(
            host in waiting.installed or over(host) for host in self.hosts_overlapping(interval)
        ) and not self.ceding(interval, over)
