"""Where the events of a batch go that have the same attributes: decided once for all of them (C7).

For most trees the answer is the same for every event: nobody subscribes, or one host serves all
values that this publisher has heard of. Two kinds of trees ask for the event's values: those that
are spread over several hosts, and those whose summary may let the event skip them (C9). A host gets
one visit for all of its trees, so only events that none of them admits skip it: if one tree cannot
be skipped, nobody looks at the summaries of the others. Where hardly an event skips a host, since
what one of its trees does not admit another does, nobody looks any more, either (`held.py`, Worth).

Whatever has to be found first has no plan: such events go pair by pair, as the publisher's `_route`
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matching import place
from overlay.client import Event
from overlay.machine import NodeId, Peer
from overlay.upper_tree.messages import EVENT_TREE
from overlay.upper_tree.publisher.location_cache import KnownTree, LocationCache
from overlay.upper_tree.publisher.summary_cache import CachedSummary, Worth

Way = dict[NodeId, tuple[Peer, tuple[str, ...]]]
"""By host: the trees that an event visits there."""


class Admitting(NamedTuple):
    """A host of trees that all have a summary worth a look."""

    host: Peer
    trees: tuple[str, ...]
    summaries: tuple[CachedSummary, ...]
    worth: Worth


class Together(NamedTuple):
    """Events of a batch that go the same way."""

    way: Way
    skipped: tuple[str, ...]
    events: list[Event]


class Plan(NamedTuple):
    """The trees that events with certain attributes visit."""

    fixed: Way
    """What all these events visit."""
    spread: list[tuple[str, KnownTree, CachedSummary | None]]
    """Trees of several hosts, with the summary that may skip them."""
    admitting: list[Admitting]
    """Hosts that are visited if one of the summaries admits the event."""

    unknown: dict[str, None]
    """Trees whose summary is to be asked for."""
    fading: dict[str, None]
    """Trees without subscribers, which is to be asked for anew."""

    @property
    def is_fixed(self) -> bool:
        """Whether all events go the same way."""
        return not self.spread and not self.admitting

    def ways(self, events: Sequence[Event]) -> list[Together]:
        """Where each of these events goes, those with the same way together."""
        hosts: dict[NodeId, Peer] = {}
        groups: dict[tuple[NodeId | bool, ...], list[Event]] = {}
        for event in events:
            values = event.attributes.items()
            places = {name: place(value) for name, value in values if value is not None}
            places[EVENT_TREE] = place(True)
            goes: list[NodeId | bool] = []
            for one in self.admitting:
                admitted = any(held.check(places) for held in one.summaries)
                one.worth.tried(admitted)
                goes.append(admitted)
            for name, tree, held in self.spread:
                if held is not None and not held.check(places):
                    goes.append(False)
                    continue
                to = tree.host_for(places[name])
                assert to is not None, "a plan is made of trees with a way in"
                hosts[to.id] = to
                goes.append(to.id)
            groups.setdefault(tuple(goes), []).append(event)
        return [self._together(goes, alike, hosts) for goes, alike in groups.items()]

    def _together(
        self, goes: tuple[NodeId | bool, ...], events: list[Event], hosts: dict[NodeId, Peer]
    ) -> Together:
        """What was decided: of hosts whether they are visited, of spread trees where."""
        way = dict(self.fixed)
        skipped: list[str] = []
        for one, admitted in zip(self.admitting, goes, strict=False):
            if admitted:
                way[one.host.id] = (one.host, one.trees)
            else:
                skipped += one.trees
        for (name, _, _), to in zip(self.spread, goes[len(self.admitting) :], strict=True):
            if isinstance(to, bool):
                skipped.append(name)
            else:
                way[to] = (hosts[to], (*way.get(to, (None, ()))[1], name))
        return Together(way, tuple(skipped), events)


def plan(names: list[str], locations: LocationCache, me: NodeId, now: float) -> Plan | None:
    """The plan for events with these attributes, `$event` among them; None: each by itself."""
    by_host: dict[NodeId, tuple[Peer, list[str]]] = {}
    found = Plan({}, [], [], {}, {})
    for name in names:
        if locations.is_absent(name, now):
            if locations.fades(name, now):
                found.fading[name] = None
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
            found.spread.append((name, tree, _summary(found, name, locations, now)))
    for host, trees in by_host.values():
        one = None if host.id == me else _admitting(found, host, tuple(trees), locations, now)
        if one is None:
            found.fixed[host.id] = (host, tuple(trees))
        else:
            found.admitting.append(one)
    return found


def _admitting(
    found: Plan, host: Peer, trees: tuple[str, ...], locations: LocationCache, now: float
) -> Admitting | None:
    """How events may skip a host; None: they may not, or hardly would."""
    worth = locations.summaries.worth(host.id, trees, now)
    if worth.is_vain or EVENT_TREE in trees:
        return None
    summaries = [_summary(found, name, locations, now) for name in trees]
    good = [held for held in summaries if held is not None]
    if len(good) < len(trees):
        return None
    # Who skips least is looked at first: it decides for the others most often.
    good.sort(key=lambda held: held.skipped / (held.checked or 1))
    return Admitting(host, trees, tuple(good), worth)


def _summary(found: Plan, name: str, locations: LocationCache, now: float) -> CachedSummary | None:
    """A tree's summary, if it is worth a look; notes that it is to be asked for, if it is."""
    if name == EVENT_TREE:
        return None
    if locations.summaries.wants_asking(name, now):
        found.unknown[name] = None
    return locations.summaries.good(name, now)
