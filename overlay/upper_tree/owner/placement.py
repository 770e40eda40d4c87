"""C6: which hosts serve which virtual node, so that few are visited and none is overloaded.

An event visits each host once, with all of its attributes that have a virtual node there. So what
is visited together should be together. Two popular attributes are in one event far more often than
two rare ones: laid out in order of popularity, the trees that most events visit are all on one
host, and the rare ones, which few events visit, are spread over the others. (The order is that of
popularity, not of size: with pivots.py the trees of the most popular attributes are the smallest.)

So the virtual nodes of all trees of a cluster are laid out in that order and cut into *runs* of
what a host has room for. Each run has *replicas*, hosts that serve all of it: as many as hosts and
their rooms allow, up to `tree.replicas`: with hosts enough each has one run, with fewer some have
several, but no more than there is room for.

Where events keep hosts busy (reported_loads.py), a run is also closed when its virtual nodes ask
for a host's share of time *alone*, for events that visit nothing else of the run: such events lose
nothing when the next virtual node is elsewhere. Events that visit several virtual nodes of a run
gain nothing by its being divided. A run that is asked for more than its replicas' shares gets more
replicas: each event visits one of them, for all of its attributes. So a virtual node of a single
value is spread as well. A host's share is `TARGET` of its time; where there are too few hosts for
that it is what each has to take.

Where there are regions, each run has a host in each of those where much of the interest is
(`WantedRegions` in host_selector.py), if there is one, before it has a second one anywhere: so
publishers there visit it without crossing a border.

A plan stands until it has to change: a host has more than its room, a host came or went, half the
hosts would do, or a host is busy. Where a host is busy only what relieves it moves, if that is
enough (`LoadRelief`). Else runs go to the hosts that have most of them already, so that little
moves (rebalance.py does the moving). Under a load that no plan can spread plans are made less and
less often; single moves away from a host that is asked for more than all of its time are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple, TypeVar

from matching import Interval
from overlay.chord.keys import attribute_key
from overlay.machine import NodeId, Peer, Region
from overlay.upper_tree.owner.constants import (
    ALONE_SHARE,
    FILL,
    GROWN,
    PLAN_PERIOD,
    RELIEF_LEAST,
    RELIEF_MOST,
    RELIEF_SOON,
    REPACK_SHARE,
    REPLICAS_MOST,
    SPARE,
    TARGET,
)
from overlay.upper_tree.owner.host_selector import PlacedNode, fair_share, is_hot_shard

T = TypeVar("T")


class HostUse(NamedTuple):
    """The load of hosts apart from the virtual nodes to be placed, and the busy hosts."""

    elsewhere: Mapping[NodeId, float] = {}
    busy: tuple[NodeId, ...] = ()
    worth: int = 0
    """The number of hosts to be counted with, since some share a machine; 0: all."""
    are_overloaded: bool = False
    """Whether some host was asked for more time than it has."""
    regions: tuple[Region, ...] = ()
    """The regions in which each run is to have a host (M1), that of most interest first."""


UNUSED = HostUse()
"""Hosts with nothing to do beside."""


class Plan(NamedTuple):
    """Hosts by (attribute, virtual node), and how many hosts it would take to overfill none."""

    hosts: dict[tuple[str, Interval], tuple[Peer, ...]]
    wanted: int


def by_popularity(attributes: Iterable[str], popularity: Mapping[str, int]) -> list[str]:
    """Most asked for first; equals by the hash of the name, so that all nodes agree."""
    return sorted(attributes, key=lambda name: (-popularity.get(name, 0), attribute_key(name)))


def pack(
    items: Iterable[tuple[T, int]],
    room: int,
    share: float = float("inf"),
    alone: Callable[[T], float] = lambda item: 0.0,
    apart: Callable[[T], object] = lambda item: None,
) -> list[list[T]]:
    """Cut a sequence of (item, registrations) into runs of at most `room` registrations each, of
    which each asks `alone` for at most `share` of a host's time together.

    An item that is larger than that has a run of its own; items for which `apart` is the same, and
    not None, have different runs. The order is kept, so neighbours stay
    together; filling gaps with later items would save a few hosts and cost visits.
    """
    runs: list[list[T]] = []
    filled, taken = 0, 0.0
    for item, registrations in items:
        asked = alone(item)
        kind = apart(item)
        is_there = kind is not None and bool(runs) and kind in map(apart, runs[-1])
        if (
            is_there
            or not runs
            or filled + registrations > room
            or (taken and taken + asked > share)
        ):
            runs.append([])
            filled, taken = 0, 0.0
        runs[-1].append(item)
        filled += registrations
        taken += asked
    return runs


def runs_of(
    nodes: Sequence[PlacedNode],
    popularity: Mapping[str, int],
    room: int,
    share: float = float("inf"),
    shards_apart: bool = True,
) -> list[list[PlacedNode]]:
    """Group the virtual nodes into runs, each of which belongs on one host. `shards_apart`: place
    two shards of a value that is in use in different runs, because on one host an event would take
    as long as without shards."""
    by_tree: dict[str, list[PlacedNode]] = {}
    for node in nodes:
        by_tree.setdefault(node.attribute, []).append(node)
    in_order = [node for name in by_popularity(by_tree, popularity) for node in by_tree[name]]
    sized = ((node, node.registrations) for node in in_order)

    def value(node: PlacedNode) -> tuple[str, Interval] | None:
        is_apart = shards_apart and is_hot_shard(node)
        return (node.attribute, node.interval.around()) if is_apart else None

    return pack(sized, room, share, lambda node: node.alone, value)


def plan_placement(
    nodes: Sequence[PlacedNode],
    popularity: Mapping[str, int],
    hosts: Sequence[Peer],
    room: int,
    replicas: int = 1,
    use: HostUse = UNUSED,
) -> Plan:
    """Choose hosts for each virtual node. If the hosts are too few for one replica of everything,
    all are overfilled equally."""
    size = max(1, int(room * FILL))
    wanted = len(runs_of(nodes, popularity, size)) * replicas
    share = fair_share(nodes, use.worth or len(hosts), sum(use.elsewhere.values()))
    limit = share
    runs = runs_of(nodes, popularity, size, limit)
    if len(runs) > len(hosts):
        runs = runs_of(nodes, popularity, size, limit, shards_apart=False)
    while len(runs) > len(hosts):
        size += size // 4 + 1
        limit *= 1.25
        runs = runs_of(nodes, popularity, size, limit, shards_apart=False)
    assignment = RunAssignment(runs, hosts, room, share, replicas, use.elsewhere, use.regions)
    for _ in range(assignment.rounds):
        assignment.add_replica()
    return Plan(
        {
            (p.attribute, p.interval): tuple(assignment.chosen[n])
            for n, run in enumerate(runs)
            for p in run
        },
        wanted,
    )


class RunAssignment:
    """Gives runs their hosts, one replica per round."""

    def __init__(
        self,
        runs: Sequence[Sequence[PlacedNode]],
        hosts: Sequence[Peer],
        room: int,
        share: float,
        replicas: int,
        elsewhere: Mapping[NodeId, float],
        regions: Sequence[Region] = (),
    ) -> None:
        """`hosts` at least as many as `runs`; `share` of its time that each is to be asked for;
        each run is to have a host in each of `regions`."""
        there = {host.region for host in hosts}
        self.regions = [region for region in regions if region in there]
        self.room = room
        self.hosts = hosts
        self.share = share
        self.sizes = [sum(node.registrations for node in run) for run in runs]
        busy = [sum([node.busy for node in run]) for run in runs]
        self.replicas = [
            min(max(replicas, ceil(each / share - SPARE)), REPLICAS_MOST, len(hosts))
            for each in busy
        ]
        """Number of replicas of each run, …"""
        self.parts = [each / count for each, count in zip(busy, self.replicas, strict=True)]
        """… and what it asks of each."""
        self.chosen: list[list[Peer]] = [[] for _ in runs]
        self._load = {host.id: 0 for host in hosts}
        self._busy = {host.id: elsewhere.get(host.id, 0.0) for host in hosts}
        self._order = {host.id: number for number, host in enumerate(hosts)}
        self._present: list[dict[NodeId, int]] = []
        """Per run, what each host has of it already."""
        for run in runs:
            present: dict[NodeId, int] = {}
            for node in run:
                for host in node.hosts:
                    present[host] = present.get(host, 0) + 1 + node.registrations
            self._present.append(present)

    @property
    def rounds(self) -> int:
        """The number of `add_replica` calls after which each run has all its replicas."""
        return max(self.replicas, default=0)

    def add_replica(self) -> None:
        """Add one host to each run that lacks replicas, if one is available: first to the run
        that has most of its virtual nodes on the host already. In the first round no host gets
        two runs."""
        first = not any(self.chosen)
        open_runs = {
            number
            for number, chosen in enumerate(self.chosen)
            if len(chosen) < self.replicas[number]
        }
        there = [
            (-amount, number, self._order[host])
            for number, present in enumerate(self._present)
            for host, amount in present.items()
            if host in self._order
        ]
        for _, number, at in sorted(there):
            host = self.hosts[at]
            fits = number in open_runs and self._fits(number, host, first)
            fits = fits and not (first and self._is_elsewhere(host))
            if fits and self._has_time(number, host):
                open_runs.discard(number)
                self._give(number, host)
        for number in sorted(open_runs, key=lambda number: (-self.parts[number], number)):
            fit = [host for host in self.hosts if self._fits(number, host, first)]
            if fit:
                self._give(number, min(fit, key=self._rank))
        if first:
            self._cover_regions()

    def _cover_regions(self) -> None:
        """Add a host in each region for each run that has none there, if one has room: the host
        that has most of the run already."""
        for number, chosen in enumerate(self.chosen):
            present = self._present[number]
            for region in self.regions:
                if any(host.region == region for host in chosen):
                    continue
                fit = [h for h in self.hosts if h.region == region and self._fits(number, h, False)]
                if fit:
                    best = min(fit, key=lambda host: (-present.get(host.id, 0), self._rank(host)))
                    self._give(number, best)

    def _is_elsewhere(self, host: Peer) -> bool:
        """Whether a host is in none of the regions, while others are."""
        return bool(self.regions) and host.region not in self.regions

    def _rank(self, host: Peer) -> tuple[bool, float, int, int]:
        elsewhere = self._is_elsewhere(host)
        return elsewhere, self._busy[host.id], self._load[host.id], self._order[host.id]

    def _fits(self, number: int, host: Peer, first: bool) -> bool:
        if host in self.chosen[number]:
            return False
        load = self._load[host.id]
        return load == 0 or (not first and load + 1 + self.sizes[number] <= self.room)

    def _has_time(self, number: int, host: Peer) -> bool:
        """Whether a host that has a run keeps it, rather than one that is asked for less."""
        part = self.parts[number]
        return not part or self._busy[host.id] + part <= self.share * (1 + SPARE)

    def _give(self, number: int, host: Peer) -> None:
        self.chosen[number].append(host)
        self._load[host.id] += 1 + self.sizes[number]
        self._busy[host.id] += self.parts[number]


class Relief:
    """Decides when to relieve busy hosts: soon if the load has grown, and at growing intervals if
    hosts stay busy whatever is done, as where they share one machine. Times are the Port's
    seconds."""

    def __init__(self) -> None:
        self._at = float("-inf")  # when something was done last, …
        self._load = 0.0  # … for what load, …
        self._pause = RELIEF_LEAST  # … and for how long that is to do

    def claim(self, load: float, is_new: bool, now: float) -> bool:
        """Whether to act now, for this load in shares of a host's time. `is_new`: it is another
        load than before, though it may have as much."""
        if now > self._at + RELIEF_MOST:
            self._pause = RELIEF_LEAST
        elif is_new or load > self._load * GROWN:
            self._pause = max(RELIEF_SOON, self._pause / 4)
        if now < self._at + self._pause:
            return False
        self._at, self._load = now, load
        self._pause = min(2 * self._pause, RELIEF_MOST)
        return True


class Placement:
    """The present plan, and when to make another. Times are the Port's seconds."""

    def __init__(self, room: int, replicas: int = 1) -> None:
        """`room`: registrations that a host is to have at most."""
        self.room = room
        self.replicas = replicas
        self.plan = Plan({}, 0)
        self._hosts: tuple[NodeId, ...] = ()
        self._regions: tuple[Region, ...] = ()
        self._next_plan_at = float("-inf")
        self._relieved_at = float("-inf")
        self._relief = Relief()

    def update(
        self,
        nodes: Sequence[PlacedNode],
        popularity: Mapping[str, int],
        hosts: Sequence[Peer],
        now: float,
        use: HostUse = UNUSED,
    ) -> Plan:
        """The plan for these virtual nodes and hosts, made again if that is due."""
        ids = tuple(host.id for host in hosts)
        is_other = ids != self._hosts
        if (
            use.regions != self._regions
            or (now >= self._next_plan_at and self._is_wrong(nodes))
            or self._has_new_shards(nodes)
        ):
            self._replan(nodes, popularity, hosts, now, use)
        elif is_other or use.busy:
            is_due = is_other or self._relieves(nodes, now)
            is_soon = use.are_overloaded and now >= self._relieved_at + RELIEF_LEAST
            may_relieve = use.busy and (is_due or is_soon)
            places = self._relieved(nodes, hosts, use) if may_relieve else None
            if places is not None:
                self._relieved_at = now
                self.plan = Plan(places, self.plan.wanted)
            elif is_due:
                self._replan(nodes, popularity, hosts, now, use)
        self._hosts, self._regions = ids, use.regions
        return self.plan

    def _replan(
        self,
        nodes: Sequence[PlacedNode],
        popularity: Mapping[str, int],
        hosts: Sequence[Peer],
        now: float,
        use: HostUse,
    ) -> None:
        self._next_plan_at = now + PLAN_PERIOD
        self.plan = plan_placement(nodes, popularity, hosts, self.room, self.replicas, use)

    def _relieved(
        self, nodes: Sequence[PlacedNode], hosts: Sequence[Peer], use: HostUse
    ) -> Places | None:
        """Return places that move only enough virtual nodes to relieve the busy hosts; None: this
        needs a new plan."""
        least = min(self.replicas, len(hosts))
        if use.regions or any(len(node.hosts) < least for node in nodes):
            return None
        share = fair_share(nodes, use.worth or len(hosts), sum(use.elsewhere.values()))
        return LoadRelief(nodes, hosts, self.room, share, use.elsewhere).places()

    def is_for(self, hosts: Sequence[Peer]) -> bool:
        """Whether the present plan was made for these hosts."""
        return tuple(host.id for host in hosts) == self._hosts

    def _has_new_shards(self, nodes: Sequence[PlacedNode]) -> bool:
        """Whether a value that is in use was cut into shards: these belong on different hosts."""
        return any(
            is_hot_shard(node) and (node.attribute, node.interval) not in self.plan.hosts
            for node in nodes
        )

    def _relieves(self, nodes: Sequence[PlacedNode], now: float) -> bool:
        """Whether to plan for hosts that are busy now."""
        is_new = any(
            node.busy and (node.attribute, node.interval) not in self.plan.hosts for node in nodes
        )
        return self._relief.claim(sum([node.busy for node in nodes]), is_new, now)

    def _is_wrong(self, nodes: Sequence[PlacedNode]) -> bool:
        load: dict[NodeId, int] = {}
        for node in nodes:
            for host in node.hosts:
                load[host] = load.get(host, 0) + node.registrations
        enough = sum(load.values()) / (self.room * FILL) + max(self.replicas, len(self._regions))
        enough += sum([node.busy for node in nodes]) / TARGET
        return len(load) > REPACK_SHARE * enough or any(
            count > self.room for count in load.values()
        )


# --- c6: what moves when hosts are busy: as little as relieves them ---
#
# A plan that lays all virtual nodes out again (placement.py) moves many of them: where one run is
# cut a node sooner, so is each that follows. Each move costs its hosts frames and registrations,
# and the reports by which it was made are different a second later. So where the hosts that are
# busy have virtual nodes that could be elsewhere, some of these move to hosts that have time, and
# all others stay.
#
# Only virtual nodes whose events visit next to nothing else there (`alone`) move or get another
# replica by this. What is visited together has to be placed together, and so needs a new plan.

Places = dict[tuple[str, Interval], tuple[Peer, ...]]
"""Hosts by (attribute, virtual node)."""


class LoadRelief:
    """The virtual nodes where they are, and what their hosts are asked for."""

    def __init__(
        self,
        nodes: Sequence[PlacedNode],
        hosts: Sequence[Peer],
        room: int,
        share: float,
        elsewhere: Mapping[NodeId, float],
    ) -> None:
        """`room` in registrations of one host; `share` of its time that each host is to be asked
        for; `elsewhere`: what hosts are asked for beside these virtual nodes."""
        self._hosts = {host.id: host for host in hosts}
        self._room = room
        self._limit = share * (1 + SPARE)
        self._share = share
        self._nodes = nodes
        self._at = [list(node.hosts) for node in nodes]
        self._busy = {host: elsewhere.get(host, 0.0) for host in self._hosts}
        self._filled = dict.fromkeys(self._hosts, 0)
        for node in nodes:
            for host in node.hosts:
                if host in self._hosts:
                    self._busy[host] += node.busy / len(node.hosts)
                    self._filled[host] += 1 + node.registrations

    def places(self) -> Places | None:
        """Return the places of all virtual nodes; None: a few moves do not relieve the busy hosts,
        or a virtual node has no host that may serve it."""
        if not all(host in self._hosts for at in self._at for host in at):
            return None
        for number in self._by_load():
            self._add_replicas(number)
        while busy := [host for host, asked in self._busy.items() if asked > self._limit]:
            if not self._relieve(max(busy, key=lambda host: self._busy[host])):
                return None
        return {
            (node.attribute, node.interval): tuple([self._hosts[host] for host in at])
            for node, at in zip(self._nodes, self._at, strict=True)
        }

    def _by_load(self) -> list[int]:
        return sorted(range(len(self._nodes)), key=lambda number: -self._nodes[number].busy)

    def _may_move(self, number: int) -> bool:
        node = self._nodes[number]
        return 0 < ALONE_SHARE * node.busy <= node.alone and not node.interval.is_shard()

    def _add_replicas(self, number: int) -> None:
        """More hosts for a virtual node that asks each of them for more than it should have."""
        node, at = self._nodes[number], self._at[number]
        most = min(REPLICAS_MOST, len(self._hosts))
        while node.busy / len(at) > self._limit and len(at) < most and self._may_move(number):
            fit = [host for host in self._hosts if self._fits(number, host)]
            if not fit:
                return
            self._place(number, [*at, min(fit, key=lambda host: self._busy[host])])
            at = self._at[number]

    def _relieve(self, busy: NodeId) -> bool:
        """Move one virtual node away from a busy host: the largest that has room elsewhere, or the
        smallest that is enough. Return whether one was moved."""
        excess = self._busy[busy] - self._share
        there = [n for n, at in enumerate(self._at) if busy in at and self._may_move(n)]
        there.sort(key=lambda n: (self._part(n) < excess, abs(self._part(n) - excess)))
        for number in there:
            part = self._part(number)
            fit = [host for host in self._hosts if self._fits(number, host)]
            to = min(fit, key=lambda host: self._busy[host], default=None)
            if to is not None and self._busy[to] + part <= self._limit:
                self._place(number, [to if host == busy else host for host in self._at[number]])
                return True
        return False

    def _part(self, number: int) -> float:
        """Return the load that a virtual node puts on each of its hosts."""
        return self._nodes[number].busy / len(self._at[number])

    def _fits(self, number: int, host: NodeId) -> bool:
        size = 1 + self._nodes[number].registrations
        has_room = not self._filled[host] or self._filled[host] + size <= self._room
        return host not in self._at[number] and has_room

    def _place(self, number: int, at: list[NodeId]) -> None:
        node, before = self._nodes[number], self._at[number]
        for host in before:
            self._busy[host] -= node.busy / len(before)
            self._filled[host] -= 1 + node.registrations
        for host in at:
            self._busy[host] += node.busy / len(at)
            self._filled[host] += 1 + node.registrations
        self._at[number] = at
