"""Where the events of a batch go that have the same attributes: decided once for all of them (C7).

For most trees the answer is the same for every event: nobody subscribes, or one host serves all
values that this publisher has heard of. Only a tree that is spread over several hosts asks for the
event's value. Whatever wants a closer look (a tree that is not known, one whose summary may let an
event skip it) has no plan: such events go pair by pair, as the publisher's `_route` does.
"""

from __future__ import annotations

from typing import NamedTuple

from overlay.machine import NodeId, Peer
from overlay.upper_tree.locations import KnownTree, Locations
from overlay.upper_tree.messages import EVENT_TREE


class Plan(NamedTuple):
    """The trees that events with certain attributes visit."""

    fixed: dict[NodeId, tuple[Peer, list[str]]]
    """By host: the trees that all these events visit there."""
    spread: list[tuple[str, KnownTree]]
    """Trees of several hosts."""


def plan(names: list[str], locations: Locations, me: NodeId, now: float) -> Plan | None:
    """The plan for events with these attributes, `$event` among them; None: each by itself."""
    fixed: dict[NodeId, tuple[Peer, list[str]]] = {}
    spread: list[tuple[str, KnownTree]] = []
    for name in names:
        if locations.is_absent(name, now):
            continue
        tree = locations.tree(name)
        if tree is None:
            return None
        host = tree.only_host
        if host is None or host.id != me:
            wanted = name != EVENT_TREE and locations.summaries.wants_a_look(name, now)
            if wanted or not tree.is_known:
                return None
        if host is None:
            spread.append((name, tree))
        else:
            fixed.setdefault(host.id, (host, []))[1].append(name)
    return Plan(fixed, spread)
