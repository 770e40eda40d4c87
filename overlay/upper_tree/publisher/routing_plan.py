"""Decides where events that have the same attributes go, once for a whole batch of them (C7).

For most trees the answer is the same for every event: it has no subscribers, or one host serves all
values that this publisher has heard of. For two kinds of trees it depends on the event's values:
those that are spread over several hosts, and those whose summary may let the event skip them (C9).
A host gets one visit for all of its trees, so only events that none of them admits skip it: if one
tree cannot be skipped, the summaries of the others are not checked. Where hardly an event skips a
host, since what one of its trees does not admit another does, none are checked either
(summary_cache.py, SkipRate).

If some tree has to be found first there is no plan: such events are routed pair by pair
(publisher.py, `_route`).

A plan is kept until something is learnt or forgotten of any tree (`RoutingPlans`): where an event
comes alone, to make one takes half of the calls that publishing does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from matching import Cut, places
from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.machine import NodeId, Peer
from overlay.upper_tree.messages import EVENT_TREE, value_in
from overlay.upper_tree.publisher.constants import PLANNED_FOR, PLANS_MOST
from overlay.upper_tree.publisher.location_cache import KnownTree, LocationCache
from overlay.upper_tree.publisher.summary_cache import CachedSummary, SkipRate

ByNames = dict[tuple[str, ...], list[Event]]
"""Events by the names of their attributes, or of the trees that they visit."""

ByHost = dict[NodeId, tuple[Peer, list[str]]]
"""By host: the trees for which it was chosen."""

Route = dict[NodeId, tuple[Peer, tuple[str, ...]]]
"""By host: the trees that an event visits there."""


def by_attributes(events: Iterable[Event]) -> ByNames:
    """Events grouped by the attributes that have a value (not NULL)."""
    found: ByNames = {}
    for event in events:
        has = [name for name, value in event.attributes.items() if value is not None]
        found.setdefault(tuple(has), []).append(event)
    return found


def in_parts(by_names: ByNames, most: int) -> Iterator[ByNames]:
    """These events in parts of `most` (at least one), in the order of publication."""
    keyed = [(event, names) for names, events in by_names.items() for event in events]
    keyed.sort(key=lambda pair: pair[0].sequence)
    for start in range(0, len(keyed), most):
        part: ByNames = {}
        for event, names in keyed[start : start + most]:
            part.setdefault(names, []).append(event)
        yield part


class SkippableHost(NamedTuple):
    """A host of trees that all have a usable summary."""

    host: Peer
    trees: tuple[str, ...]
    summaries: tuple[CachedSummary, ...]
    rate: SkipRate


class RoutedEvents(NamedTuple):
    """Events of a batch that go to the same hosts."""

    route: Route
    skipped: tuple[str, ...]
    events: list[Event]


class BatchPlan(NamedTuple):
    """The trees that events with certain attributes visit."""

    fixed: Route
    """The trees that all these events visit."""
    spread: list[tuple[str, KnownTree, CachedSummary | None]]
    """Trees of several hosts, with the summary that may skip them."""
    skippable: list[SkippableHost]
    """Hosts that are visited if one of the summaries admits the event."""

    unknown: dict[str, None]
    """Trees whose summary is to be asked for."""
    expiring: dict[str, None]
    """Trees without subscribers, which is to be asked for again."""

    @property
    def summaries(self) -> list[CachedSummary]:
        """The summaries against which events are checked."""
        found = [summary for *_, summary in self.spread if summary is not None]
        return found + [summary for one in self.skippable for summary in one.summaries]

    def route_events(self, events: Sequence[Event]) -> list[RoutedEvents]:
        """Group the events by the hosts to which they go."""
        hosts: dict[NodeId, Peer] = {}
        decisions = zip(*self._decide(events, hosts), strict=True)
        groups: dict[tuple[NodeId | bool, ...], list[Event]] = {}
        for event, goes in zip(events, decisions, strict=True):
            groups.setdefault(goes, []).append(event)
        return [self._routed(goes, alike, hosts) for goes, alike in groups.items()]

    def _decide(
        self, events: Sequence[Event], hosts: dict[NodeId, Peer]
    ) -> Iterator[list[NodeId | bool]]:
        """Decide where each event goes. Each row of the result belongs to an event; it has a column
        for each host that the event may skip and for each spread tree. The hosts of spread trees
        are added to `hosts`."""
        are_checked = self.skippable or any(summary is not None for *_, summary in self.spread)
        spots = [places_of(event) for event in events] if are_checked else []
        for one in self.skippable:
            admitted: list[NodeId | bool] = []
            for spot in spots:
                for one_summary in one.summaries:
                    if one_summary.check(spot):
                        admitted.append(True)
                        break
                else:
                    admitted.append(False)
            one.rate.record(len(admitted), admitted.count(True))
            yield admitted
        for name, tree, summary in self.spread:
            goes: list[NodeId | bool] = []
            column = places([value_in(event, name) for event in events])
            for number, to in enumerate(tree.hosts_for(column)):
                if summary is not None and not summary.check(spots[number]):
                    goes.append(False)
                    continue
                assert to is not None, "a plan is made of trees with a known host"
                hosts[to.id] = to
                goes.append(to.id)
            yield goes

    def _routed(
        self, goes: tuple[NodeId | bool, ...], events: list[Event], hosts: dict[NodeId, Peer]
    ) -> RoutedEvents:
        """Return the hosts of a group of events from the decisions in `goes`: for each skippable
        host whether it is visited, for each spread tree the host."""
        route = dict(self.fixed)
        skipped: list[str] = []
        for one, admitted in zip(self.skippable, goes, strict=False):
            if admitted:
                route[one.host.id] = (one.host, one.trees)
            else:
                skipped += one.trees
        for (name, _, _), to in zip(self.spread, goes[len(self.skippable) :], strict=True):
            if isinstance(to, bool):
                skipped.append(name)
            else:
                route[to] = (hosts[to], (*route.get(to, (None, ()))[1], name))
        return RoutedEvents(route, tuple(skipped), events)


def places_of(event: Event) -> dict[str, Cut | None]:
    """Return, by attribute, the place of each value in the value space of its tree."""
    return dict(zip(event.attributes, places(event.attributes.values()), strict=True))


class KeptPlan(NamedTuple):
    """A plan, and until when it holds while nothing changes."""

    plan: BatchPlan
    until: float
    changes: tuple[int, int]
    """`LocationCache.changes` and `ReplicaSelector.changes` when it was made."""


class RoutingPlans:
    """The plans of one publisher, by the names of attributes. Bounded: the oldest goes first."""

    def __init__(self, locations: LocationCache, me: NodeId) -> None:
        self._locations = locations
        self._me = me
        self._kept: BoundedDict[tuple[str, ...], KeptPlan] = BoundedDict(PLANS_MOST)

    def get(self, names: tuple[str, ...], now: float) -> BatchPlan | None:
        """The plan for events with these attributes, and `$event`; None: each by itself."""
        locations = self._locations
        changes = (locations.changes, locations.replicas.changes)
        kept = self._kept.get(names)
        if kept is not None and kept.changes == changes and now < kept.until:
            return kept.plan
        trees = [EVENT_TREE, *names]
        found = plan_routing(trees, locations, self._me, now)
        if found is not None and not (found.unknown or found.expiring):
            ends = [min(each.until, each.refresh_at) for each in found.summaries]
            until = min([now + PLANNED_FOR, *ends, *map(locations.absent_until, trees)])
            self._kept[names] = KeptPlan(found, until, changes)
        return found


def plan_routing(
    names: list[str], locations: LocationCache, me: NodeId, now: float
) -> BatchPlan | None:
    """The plan for events with these attributes, `$event` among them; None: each by itself."""
    by_host: ByHost = {}
    found = BatchPlan({}, [], [], {}, {})
    for name in names:
        if locations.is_absent(name, now):
            if locations.absent_until(name) <= now:
                found.expiring[name] = None
            continue
        tree = locations.tree(name)
        if tree is None:
            return None
        host = tree.only_host
        if host is not None:
            by_host.setdefault(host.id, (host, []))[1].append(name)
        elif not tree.is_known:
            return None
        else:
            found.spread.append((name, tree, _usable_summary(found, name, locations, now)))
    if len(by_host) > 1:
        by_host = _together(by_host, locations, now)
    for host, trees in by_host.values():
        one = None if host.id == me else _skippable(found, host, tuple(trees), locations, now)
        if one is None:
            found.fixed[host.id] = (host, tuple(trees))
        else:
            found.skippable.append(one)
    return found


def _together(by_host: ByHost, locations: LocationCache, now: float) -> ByHost:
    """Return the same trees at fewer hosts, where one host serves several of them: trees that are
    visited together do not have the same replicas while a plan is carried out tree by tree, and
    where a hot one has more of them. A tree stays at its own host if the common one is less healthy
    or far behind."""
    groups: list[tuple[tuple[Peer, ...], list[tuple[str, Peer]]]] = []
    for own, trees in sorted(by_host.values(), key=lambda each: -len(each[1])):
        for name in trees:
            tree = locations.tree(name)
            could = (tree.hosts_of_all if tree is not None else ()) or (own,)
            for number, (common, there) in enumerate(groups):
                if both := tuple([host for host in common if host in could]):
                    groups[number] = (both, [*there, (name, own)])
                    break
            else:
                groups.append((could, [(name, own)]))
    found: ByHost = {}
    for common, there in groups:
        host = locations.replicas.choose(there[0][0], common)
        for name, own in there:
            at = own if locations.replicas.outdoes(own, host, now) else host
            found.setdefault(at.id, (at, []))[1].append(name)
    return found


def _skippable(
    found: BatchPlan, host: Peer, trees: tuple[str, ...], locations: LocationCache, now: float
) -> SkippableHost | None:
    """Return how events may skip a host; None: they may not, or would hardly ever."""
    rate = locations.summaries.skip_rate(host.id, trees, now)
    if rate.is_useless or EVENT_TREE in trees:
        return None
    summaries = [_usable_summary(found, name, locations, now) for name in trees]
    good = [summary for summary in summaries if summary is not None]
    if len(good) < len(trees):
        return None
    # Who skips least is looked at first: it decides for the others most often.
    good.sort(key=lambda summary: summary.skipped / (summary.checked or 1))
    return SkippableHost(host, trees, tuple(good), rate)


def _usable_summary(
    found: BatchPlan, name: str, locations: LocationCache, now: float
) -> CachedSummary | None:
    """A tree's usable summary, if there is one. Notes in `found` if it is to be asked for."""
    if name == EVENT_TREE:
        return None
    if locations.summaries.needs_refresh(name, now):
        found.unknown[name] = None
    return locations.summaries.usable(name, now)
