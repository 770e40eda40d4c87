"""Matching without delivering: what a host answers for `canopy pub --dry-run` (C9).

The index is asked as for a visit (visit_handler.py), and nothing else happens: no delivery, no
record in the traces, nothing that a publisher would remember. Under counting routing a host sees
only single constraints and not whole conjunctions, so the asker does not ask at all
(../clients/dry_run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matching import Value, place
from overlay.machine import NodeId, Peer, ProtocolError
from overlay.upper_tree.host.constants import LISTED_MOST
from overlay.upper_tree.host.hosted_tree import HostedTree, SharedIndex
from overlay.upper_tree.inspection_messages import (
    AskMatches,
    MatchesFound,
    NodeMatch,
)
from overlay.upper_tree.messages import EVENT_TREE


def dry_matches(
    index: SharedIndex,
    trees: Mapping[str, HostedTree],
    is_served: Callable[[HostedTree], bool],
    message: AskMatches,
) -> MatchesFound:
    """The answer to an `AskMatches`. `is_served`: whether the owner lets this host serve a tree."""
    if len(message.attributes) != len(message.events):
        raise ProtocolError("a dry run has not the attributes of each event")
    attributes_of = dict(zip(message.events, message.attributes, strict=True))
    visited: dict[int, dict[str, None]] = {number: {} for number in message.events}
    moved: list[tuple[str, tuple[int, ...]]] = []
    for attribute, numbers in message.trees:
        tree = trees.get(attribute)
        if tree is not None and not is_served(tree):
            tree = None
        elsewhere = []
        for number in numbers:
            if number not in visited:
                raise ProtocolError("a dry run names an event that it has not")
            value = True if attribute == EVENT_TREE else attributes_of[number].get(attribute)
            if value is None:
                raise ProtocolError("a dry run names the tree of an attribute that an event lacks")
            if tree is not None and tree.serves_some(place(value)):
                visited[number][attribute] = None
            else:
                elsewhere.append(number)
        if elsewhere:
            moved.append((attribute, tuple(elsewhere)))
    room = LISTED_MOST
    counts: list[int] = []
    listed: list[tuple[NodeMatch, ...]] = []
    for number, mine in visited.items():
        found = _by_node(index, trees, attributes_of[number], mine) if mine else {}
        rows: list[NodeMatch] = []
        for peer, ids in found.values():
            if room <= 0:
                break
            names = tuple(ids)[:room]
            room -= 1 + len(names)
            rows.append(NodeMatch(peer, len(ids), names))
        counts.append(len(found))
        listed.append(tuple(rows))
    return MatchesFound(message.number, tuple(visited), tuple(counts), tuple(listed), tuple(moved))


def _by_node(
    index: SharedIndex,
    trees: Mapping[str, HostedTree],
    attributes: Mapping[str, Value | None],
    visited: Mapping[str, None],
) -> dict[NodeId, tuple[Peer, dict[str, None]]]:
    """The nodes whose registrations in the visited trees match, with their subscriptions' ids."""
    found: dict[NodeId, tuple[Peer, dict[str, None]]] = {}
    for attribute, id_ in index.match(attributes):
        if attribute in visited:
            peer = trees[attribute].subscriber(id_)
            subscription = id_.partition("/")[0]
            found.setdefault(peer.id, (peer, {}))[1][subscription] = None
    return found
