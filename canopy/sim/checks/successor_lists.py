"""Chord's three, as Zave has them ("How to make Chord correct", IEEE TSE 2017), of clusters (P2).

1. Every successor list has its full length (or all others, in a ring that is smaller).
2. Every list has a successor that lives.
3. There are enough principals. A *principal* is a node that no list skips: in no list, begun with
   its owner, do two neighbours stand on both sides of it. With one more of them than a list is long
   a ring cannot fall apart into two, nor lose members by stabilising.

The first and third imply that the ring is one and ordered. They are stated here over plain lists
of keys, without the order that `node_state.check_ring` expects, so that a ring that is wrong in
its own eyes and right by the names of its members is found as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from canopy.sim.checks.violation import Violation
from canopy.sim.world.world import World
from overlay.machine import Key


def check_chord(world: World) -> list[Violation]:
    """Violations of Zave's invariants by the primaries' successor lists, in a world at rest."""
    lists: dict[Key, list[Key]] = {}
    length = world.settings.ring.successors
    for name in world.names():
        node = world.node(name)
        if node.clusters.is_primary:
            pointers = node.ring.state.pointers
            lists[node.clusters.cluster.key] = [c.key for c in pointers.successors]
    return [Violation("chord", text) for text in chord_violations(lists, length)]


def chord_violations(lists: Mapping[Key, Sequence[Key]], length: int) -> list[str]:
    """`lists`: of every live cluster, which it takes for its successors, nearest first. `length`:
    how many a full list has. What is wrong, in words."""
    found = []
    full = min(length, len(lists) - 1)
    for owner, successors in lists.items():
        others = [key for key in dict.fromkeys(successors) if key != owner]
        if len(others) < full:
            found.append(f"{owner[:8]} lists {len(others)} successors, not {full}")
        if full and not any(key in lists for key in others):
            found.append(f"{owner[:8]} has no successor that lives")
    skipped = dict.fromkeys(key for key in lists if any(_skips(key, *s) for s in lists.items()))
    principals = len(lists) - len(skipped)
    if principals < min(length + 1, len(lists)):
        whom = ", ".join(key[:8] for key in skipped)
        found.append(f"{principals} principals are not enough: some list skips {whom}")
    return found


def _skips(key: Key, owner: Key, successors: Sequence[Key]) -> bool:
    """Whether two neighbours in the list, its owner first, stand on both sides of `key`."""
    ring = dict.fromkeys((owner, *successors))
    return any(_between(before, key, after) for before, after in pairwise(ring))


def _between(before: Key, key: Key, after: Key) -> bool:
    """Whether `key` lies strictly between the two on the ring, going upwards from `before`."""
    if key in (before, after):
        return False
    if before < after:
        return before < key < after
    return key > before or key < after
