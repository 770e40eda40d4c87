"""Where the events of a batch go that have the same attributes: decided once for all of them (C7).

For most trees the answer is the same for every event: nobody subscribes, or one host serves all
values that this publisher has heard of. Two kinds of trees ask for the event's values: those that
are spread over several hosts, and those whose summary may let the event skip them (C9). A host gets
one visit for all of its trees, so only events that none of them admits skip it: if one tree cannot
be skipped, nobody looks at the summaries of the others.

Whatever has to be found or asked for first has no plan: such events go pair by pair, as the
publisher's `_route` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matching import Cut
from overlay.machine import NodeId, Peer
from overlay.upper_tree.held import Held
from overlay.upper_tree.locations import KnownTree, Locations
from overlay.upper_tree.messages import EVENT_TREE

Way = dict[NodeId, tuple[Peer, tuple[str, ...]]]
"""By host: the trees that an event visits there."""


class Admitting(NamedTuple):
    """A host of trees that all have a summary worth a look."""

    host: Peer
    trees: tuple[str, ...]
    summaries: tuple[Held, ...]


class Plan(NamedTuple):
    """The trees that events with certain attributes visit."""

    fixed: Way
    """What all these events visit."""
    spread: list[tuple[str, KnownTree, Held | None]]
    """Trees of several hosts, with the summary that may skip them."""
    admitting: list[Admitting]
    """Hosts that are visited if one of the summaries admits the event."""

    @property
    def is_fixed(self) -> bool:
        """Whether all events go the same way."""
        return not self.spread and not self.admitting

    def way(self, places: Mapping[str, Cut], skipped: dict[str, None]) -> Way:
        """Where an event goes that lies there; notes the trees that it skips."""
        way = dict(self.fixed)
        for host, trees, summaries in self.admitting:
            if any(held.check(places) for held in summaries):
                way[host.id] = (host, trees)
            else:
                skipped.update(dict.fromkeys(trees))
        for name, tree, held in self.spread:
            if held is not None and not held.check(places):
                skipped[name] = None
                continue
            to = tree.host_for(places[name])
            assert to is not None, "a plan is made of trees with a way in"
            way[to.id] = (to, (*way.get(to.id, (to, ()))[1], name))
        return way


def plan(names: list[str], locations: Locations, me: NodeId, now: float) -> Plan | None:
    """The plan for events with these attributes, `$event` among them; None: each by itself."""
    by_host: dict[NodeId, tuple[Peer, dict[str, Held | None]]] = {}
    spread: list[tuple[str, KnownTree, Held | None]] = []
    for name in names:
        if locations.is_absent(name, now):
            continue
        tree = locations.tree(name)
        if tree is None:
            return None
        host = tree.only_host
        held = None
        if host is None or host.id != me:
            if not tree.is_known:
                return None
            if name != EVENT_TREE:
                if locations.summaries.wants_asking(name, now):
                    return None
                held = locations.summaries.good(name, now)
        if host is None:
            spread.append((name, tree, held))
        else:
            by_host.setdefault(host.id, (host, {}))[1][name] = held
    fixed: Way = {}
    admitting = []
    for host, trees in by_host.values():
        summaries = [held for held in trees.values() if held is not None]
        if len(summaries) == len(trees):
            # Who skips least is looked at first: it decides for the others most often.
            summaries.sort(key=lambda held: held.skipped / (held.checked or 1))
            admitting.append(Admitting(host, tuple(trees), tuple(summaries)))
        else:
            fixed[host.id] = (host, tuple(trees))
    return Plan(fixed, spread, admitting)
