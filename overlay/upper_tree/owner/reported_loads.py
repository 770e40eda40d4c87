"""The loads that hosts report, and the load of each virtual node by them (C6).

Hosts report with each answer to a serving beat (lease_grants.py) what every virtual node asks of
them. A virtual node's load is the sum over its replicas, in shares of one host's time. Two values
of it are kept:

* the *load*, as it was reported last: by this a virtual node is cut, where a host is busy;
* the *recent most*, which falls by half every `HALF_LIFE` seconds: by this it is merged, and given
  hosts. So what a tree has grown to lasts through a lull of some seconds.

The parts of a virtual node that was cut have no report yet: until then each is taken to have its
share of the load of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from matching import Cut, Interval
from overlay.bounded import BoundedDict
from overlay.machine import Key, NodeId
from overlay.upper_tree.host_load import ServedLoad, VirtualNodeLoad
from overlay.upper_tree.owner.constants import (
    ALONE_SHARE,
    BUSY,
    ESTIMATED_FOR,
    HALF_LIFE,
    HOT_SHARE,
    LOADS_REMEMBERED,
    OVERLOADED,
    REPORT_VALID,
    REPORTS_WITHIN,
    SECONDS_SHARE,
    SPLIT_SHARE,
)
from overlay.upper_tree.partition import short_cut

VirtualNode = tuple[str, Interval]
"""A tree's attribute, and the interval."""


class NodeLoad(msgspec.Struct):
    """The load of one virtual node, in shares of a host's time."""

    reports: dict[NodeId, VirtualNodeLoad] = {}
    most: float = 0.0
    """The recent most of `busy`, at `most_at` …"""
    most_together: float = 0.0
    """… and of the share of `busy` whose events visit something else there, too."""
    most_at: float = 0.0
    estimated: float = 0.0
    estimated_alone: float = 0.0
    estimated_until: float = float("-inf")

    def busy(self, now: float) -> float:
        """All that its replicas are asked for."""
        reported = sum([load.busy for load in self.reports.values()])
        return max(reported, self.estimated) if now < self.estimated_until else reported

    def alone(self, now: float) -> float:
        """Return the part of `busy` that is due to events that visit nothing else at the hosts of
        this virtual node."""
        reported = sum([load.alone for load in self.reports.values()])
        return max(reported, self.estimated_alone) if now < self.estimated_until else reported

    def places(self) -> list[tuple[Cut, float]]:
        """Places of events with the load that each stands for, in order."""
        return sorted(
            (spot, load.alone / len(load.places))
            for load in self.reports.values()
            for spot in load.places
        )

    def together(self, now: float) -> float:
        """Return the recent most of the share of `busy` whose events visit something else at the
        hosts of this virtual node, too."""
        busy = self.busy(now)
        kept: float = 0.5 ** ((now - self.most_at) / HALF_LIFE)
        share = 1 - self.alone(now) / busy if busy else 0.0
        return max(share, kept * self.most_together)

    def recent(self, now: float) -> tuple[float, float]:
        """The recent most of `busy`, and of that the part for events that visit nothing else: 0 if
        fewer than `ALONE_SHARE` of them did so of late. Trees that are visited together are apart
        while a plan is carried out tree by tree, and are not taken to be visited alone for that."""
        kept = 0.5 ** ((now - self.most_at) / HALF_LIFE)
        busy, together = max(self.busy(now), kept * self.most), self.together(now)
        return busy, busy * (1 - together) if together <= 1 - ALONE_SHARE else 0.0

    def hold(self, now: float) -> None:
        """Keep the recent maximum, since the load has changed."""
        together = self.together(now)
        self.most, self.most_together, self.most_at = self.recent(now)[0], together, now


class HotValue(NamedTuple):
    """A value with its share of a virtual node's load, and that of all smaller values."""

    value: Interval
    below: float
    share: float


class HostState(msgspec.Struct):
    """The last report of one host."""

    at: float
    busy: float
    was_busy: bool = False  # by the report before
    nodes: tuple[VirtualNode, ...] = ()


class ReportedLoads:
    """The loads of an owner's virtual nodes and their hosts. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._known_at = float("-inf")
        self._hosts: dict[NodeId, HostState] = {}
        self._nodes: BoundedDict[VirtualNode, NodeLoad] = BoundedDict(LOADS_REMEMBERED)

    def begin(self, now: float, are_known: bool) -> None:
        """Forget all reports, because this node begins or ceases to lead. `are_known`: no host
        serves yet."""
        self._known_at = float("-inf") if are_known else now + REPORTS_WITHIN
        self._hosts.clear()
        self._nodes.clear()

    # --- learning ---

    def reported(self, host: NodeId, load: ServedLoad | None, now: float) -> None:
        """Replace a host's former report by this one; None: it has next to nothing to do."""
        before = self.forget(host, now)
        busy = 0.0 if load is None else load.busy
        state = HostState(now, busy, before is not None and before.busy >= BUSY)
        if load is not None:
            state.nodes = tuple((each.attribute, each.interval) for each in load.nodes)
            for each in load.nodes:
                key = (each.attribute, each.interval)
                node = self._nodes.get(key)
                if node is None:
                    node = NodeLoad()
                node.reports[host] = each
                node.hold(now)
                self._nodes.renew(key, node)
        self._hosts[host] = state

    def forget(self, host: NodeId, now: float) -> HostState | None:
        """Remove and return the last report of a host that is lost or reports again."""
        before = self._hosts.pop(host, None)
        if before is not None:
            for key in before.nodes:
                node = self._nodes.get(key)
                if node is not None and host in node.reports:
                    node.hold(now)
                    del node.reports[host]
        return before

    def expire(self, now: float) -> None:
        """Forget hosts that have not reported for long, and virtual nodes with no load any more."""
        for host in [h for h, state in self._hosts.items() if now - state.at > REPORT_VALID]:
            self.forget(host, now)
        for key in [k for k, node in self._nodes.items() if node.recent(now)[0] < LOAD_LEAST]:
            if not self._nodes[key].reports:
                del self._nodes[key]

    def cut(
        self,
        attribute: str,
        interval: Interval,
        parts: Sequence[tuple[Interval, float]],
        now: float,
    ) -> None:
        """Divide the load of a virtual node among the parts into which it was cut, each with its
        share."""
        whole = self._nodes.get((attribute, interval))
        if whole is None:
            return
        busy, alone, together = whole.busy(now), whole.alone(now), whole.together(now)
        for part, share in parts:
            self._estimate(attribute, part, share * busy, share * alone, together, now)

    def _estimate(
        self,
        attribute: str,
        interval: Interval,
        busy: float,
        alone: float,
        together: float,
        now: float,
    ) -> None:
        until = now + ESTIMATED_FOR
        node = NodeLoad({}, busy, together, now, busy, alone, until)
        self._nodes.renew((attribute, interval), node)

    # --- reading ---

    def are_known(self, now: float) -> bool:
        """Whether hosts that serve have reported since this node began to lead: what none has
        reported is idle."""
        return now >= self._known_at

    def node(self, attribute: str, interval: Interval) -> NodeLoad | None:
        """Return the load of a virtual node; None: it is negligible."""
        return self._nodes.get((attribute, interval))

    def event_seconds(self, attribute: str, interval: Interval) -> float:
        """Return how many seconds of a host's time one event of a virtual node takes, by the last
        reports of hosts that it keeps busy; 0: unknown. Hosts measure their events as a whole, so
        the report of a host that is busier with other virtual nodes does not count."""
        node = self._nodes.get((attribute, interval))
        reports = {} if node is None else node.reports
        found = [
            load.seconds
            for host, load in reports.items()
            if load.busy >= SECONDS_SHARE * self.busy(host)
        ]
        return sum(found) / len(found) if found else 0.0

    def hot_value(self, attribute: str, interval: Interval) -> HotValue | None:
        """The value that has most of a virtual node's load alone, by the last reports; None: none
        has `HOT_SHARE` of it."""
        node = self._nodes.get((attribute, interval))
        places = [] if node is None else node.places()
        weights: dict[Cut, float] = {}
        for spot, weight in places:
            weights[spot] = weights.get(spot, 0.0) + weight
        total = sum(weights.values())
        if not total:
            return None
        spot = max(weights, key=lambda each: weights[each])
        if weights[spot] < HOT_SHARE * total:
            return None
        below = sum([weight for each, weight in weights.items() if each < spot])
        value = Interval(spot, (spot[0], spot[1], 1))
        return HotValue(value, below / total, weights[spot] / total)

    def total(self, now: float) -> float:
        """Return the load of all virtual nodes, by the last reports."""
        return sum([node.busy(now) for node in self._nodes.values()])

    def recent(self, attribute: str, interval: Interval, now: float) -> tuple[float, float]:
        """Return the recent maximum of the load of a virtual node, and of that the part for events
        that visit nothing else (`NodeLoad.recent`)."""
        node = self._nodes.get((attribute, interval))
        return (0.0, 0.0) if node is None else node.recent(now)

    def busy(self, host: NodeId) -> float:
        """The load that a host has last reported, of the trees of all owners; 0 without a
        report."""
        state = self._hosts.get(host)
        return 0.0 if state is None else state.busy

    def is_busy(self, host: NodeId) -> bool:
        """Whether a host is asked for too much: by two reports, or for more time than it has."""
        state = self._hosts.get(host)
        if state is None:
            return False
        return state.busy >= OVERLOADED or (state.was_busy and state.busy >= BUSY)

    def elsewhere(self, host: NodeId) -> float:
        """Return the load of a host from other owners and from other work than this owner's
        trees."""
        state = self._hosts.get(host)
        if state is None:
            return 0.0
        mine = 0.0
        for key in state.nodes:
            node = self._nodes.get(key)
            if node is not None and host in node.reports:
                mine += node.reports[host].busy
        return max(0.0, state.busy - mine)

    def busy_hosts(self) -> list[NodeId]:
        """The hosts that are busy now."""
        return [host for host in self._hosts if self.is_busy(host)]

    def at(self, hosts: Iterable[NodeId]) -> list[str]:
        """The attributes whose virtual nodes keep these hosts busy."""
        states = [self._hosts[host] for host in hosts if host in self._hosts]
        return list({attribute: None for state in states for attribute, _ in state.nodes})


LOAD_LEAST = 0.001
"""A virtual node whose recent most is less is forgotten: no threshold is as low."""


def middle_by_load(asked: Sequence[tuple[Key, float]]) -> Key | None:
    """Return the key behind which an arc is split, so that both parts have about half of the load.
    `asked` has the keys of the arc's trees in ring order, each with its load. None if the lighter
    part would have less than `SPLIT_SHARE` of the load, for example where one tree has nearly
    all."""
    total = sum([load for _, load in asked])
    below, best, middle = 0.0, 0.0, None
    for key, load in asked[:-1]:
        below += load
        lighter = min(below, total - below)
        if lighter > best:
            best, middle = lighter, key
    return middle if best >= SPLIT_SHARE * total else None


def cuts_by_load(
    interval: Interval, places: Sequence[tuple[Cut, float]], parts: int
) -> list[tuple[Cut, float]]:
    """Choose where to cut a virtual node into about `parts` parts of equal load. Returns the cuts,
    each with the share of the load below it. `places` are in order, each with its share of the
    load.

    Cuts lie between values that events have, and are short. A value that has a part's load by
    itself gets a part of its own.
    """
    total = sum([weight for _, weight in places])
    if parts < 2 or total <= 0:
        return []
    wanted = total / parts
    values: list[tuple[Cut, float]] = []  # places with all that they stand for
    for spot, weight in places:
        if values and values[-1][0] == spot:
            values[-1] = (spot, values[-1][1] + weight)
        else:
            values.append((spot, weight))
    found: dict[Cut, float] = {}
    begun, below = 0.0, 0.0  # in the part that is open, and in all before the value
    before = interval.lo
    for spot, weight in values:
        after: Cut = (spot[0], spot[1], 1)
        if weight >= wanted:
            found[spot] = below
            found[after] = below + weight
            begun = 0.0
        elif begun and begun + weight / 2 > wanted:
            found[short_cut(before, spot)] = below
            begun = weight
        else:
            begun += weight
        below += weight
        before = spot
    return [
        (cut, share / total)
        for cut, share in found.items()
        if interval.lo < cut < interval.hi and 0 <= share <= total
    ]
