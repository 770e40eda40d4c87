"""Trees as CBDLO has them: cut by their subscriptions, hosted by their subscribers (C6).

Every end of a registration's interval is a cut, so an attribute has at most two virtual nodes more
than its subscriptions have ends (CBDLO 5.2, 5.4). The subscriber whose cut begins a virtual node
hosts it, that of the first registration the lowest one; further replicas go to the subscribers that
registered after. Subscribers that do not agree to host, or are lost, are passed over. Where none is
left the tree is where placement.py puts it.

This is `tree.placement: subscribers`, in the place of room and load (placement.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from matching import Cut, Interval
from overlay.machine import NodeId, Peer
from overlay.upper_tree.owner.constants import SUBSCRIBER_CUTS_MOST
from overlay.upper_tree.owner.tree_log import Tree

Hosts = Mapping[tuple[str, Interval], tuple[Peer, ...]]
"""By (attribute, virtual node), as in a plan."""


def cuts_of(tree: Tree) -> dict[Cut, Peer]:
    """Return the places at which the registrations cut the value space, each with the first
    subscriber that has it there; at most `SUBSCRIBER_CUTS_MOST`."""
    whole = (tree.map.entries[0].interval.lo, tree.map.entries[-1].interval.hi)
    found: dict[Cut, Peer] = {}
    for each in tree.registrations.values():
        for cut in (each.interval.lo, each.interval.hi):
            if cut not in whole and len(found) < SUBSCRIBER_CUTS_MOST:
                found.setdefault(cut, each.subscriber)
    return found


def new_cuts(tree: Tree) -> dict[int, list[Cut]]:
    """The cuts that the map does not have, by the index of the virtual node that they are in."""
    starts = {entry.interval.lo for entry in tree.map.entries}
    missing: dict[int, list[Cut]] = {}
    for cut in sorted(cut for cut in cuts_of(tree) if cut not in starts):
        missing.setdefault(tree.map.find(cut), []).append(cut)
    return missing


def ended_cuts(tree: Tree) -> list[int]:
    """The virtual nodes, by index, after which no registration cuts any more."""
    cuts = cuts_of(tree)
    return [
        index for index, entry in enumerate(tree.map.entries[1:]) if entry.interval.lo not in cuts
    ]


def subscribers_of(tree: Tree) -> list[Peer]:
    """Each once, in the order in which they registered."""
    return list(dict.fromkeys(each.subscriber for each in tree.registrations.values()))


def wanted_hosts(trees: Iterable[Tree], replicas: int) -> list[Peer]:
    """The subscribers that virtual nodes are to be placed at."""
    found: dict[NodeId, Peer] = {}
    for tree in trees:
        most = max(replicas, len(tree.map.entries) + replicas - 1)
        found.update((peer.id, peer) for peer in islice(subscribers_of(tree), most))
    return list(found.values())


def at_subscribers(trees: Iterable[Tree], fit: Collection[NodeId], replicas: int) -> Hosts:
    """The hosts of all virtual nodes of trees that have a subscriber among the `fit`."""
    return {
        (tree.attribute, interval): hosts
        for tree in trees
        for interval, hosts in _placed(tree, fit, replicas)
    }


def _placed(
    tree: Tree, fit: Collection[NodeId], replicas: int
) -> Iterable[tuple[Interval, tuple[Peer, ...]]]:
    peers = [peer for peer in subscribers_of(tree) if peer.id in fit]
    if not peers:
        return
    order = {peer.id: number for number, peer in enumerate(peers)}
    cuts = cuts_of(tree)
    for entry in tree.map.entries:
        first = cuts.get(entry.interval.lo, peers[0])
        start = order.get(first.id, 0)
        others = range(start, start + min(replicas, len(peers)))
        yield entry.interval, tuple([peers[place % len(peers)] for place in others])
