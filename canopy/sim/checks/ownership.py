"""Checks who owns what, once the world is at rest: the arcs of the ring's clusters are disjoint and
cover all keys (P2), and each attribute has one partition map, whose virtual nodes are adjacent,
cover the whole value space, and are on hosts that run (C6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from canopy.sim.checks import Violation
from canopy.sim.checks.node_state import led
from canopy.sim.world.world import World
from matching import EVERYTHING
from overlay.chord.messages import Cluster
from overlay.machine import Key


def check_arcs(world: World) -> list[Violation]:
    """Check that the arcs of all primaries are disjoint and cover the ring, once it is at rest."""
    arcs: list[tuple[Cluster, str]] = []
    for name in world.names():
        clusters = world.node(name).clusters
        if clusters.is_primary:
            assert clusters.cluster is not None
            arcs.append((clusters.cluster, name))
    return arc_violations(arcs) if world.names() else []


def arc_violations(arcs: list[tuple[Cluster, str]]) -> list[Violation]:
    """Return the violations among (description, node that claims it): arcs have to be disjoint,
    cover the ring, and belong to one ring."""
    if not arcs:
        return [Violation("arc", "no arc has an owner")]
    arcs = sorted(arcs, key=lambda arc: (arc[0].key, arc[1]))
    violations = []
    for index, (cluster, name) in enumerate(arcs):
        before, other = arcs[index - 1]
        if index and cluster.key == before.key:
            violations.append(Violation("arc", f"{name} and {other} both own {cluster.key[:8]}"))
        if cluster.start != before.key:
            text = (
                f"{name} owns ({cluster.start[:8]}, {cluster.key[:8]}], "
                f"but {other} before it ends at {before.key[:8]}"
            )
            violations.append(Violation("arc", text))
        if cluster.ring != before.ring:
            violations.append(Violation("arc", f"{name} and {other} are in different rings"))
    return violations


def check_maps(world: World) -> list[Violation]:
    """Check that each attribute has one map, adjacent and total, and that every host runs."""
    violations = []
    owners: dict[str, str] = {}
    living = {world.drivers[name].disk.node for name in world.names()}
    for name in world.names():
        node = world.node(name)
        if not node.clusters.is_primary:
            continue
        for attribute, owned in node.owner.trees.items():
            found = owned.tree.map
            other = owners.setdefault(attribute, name)
            if other != name:
                violations.append(Violation("map", f"{name} and {other} both own {attribute}"))
            place = EVERYTHING.lo
            for entry in found.entries:
                if entry.interval.lo != place:
                    text = f"{attribute} at {name}: {entry.interval} does not begin at {place}"
                    violations.append(Violation("map", text))
                place = entry.interval.hi
                for host in entry.hosts:
                    if host.id not in living:
                        text = f"{attribute} at {name}: {host.id} serves it, but does not run"
                        violations.append(Violation("map", text))
            if place != EVERYTHING.hi:
                violations.append(Violation("map", f"{attribute} at {name} ends at {place}"))
    return violations


# --- two rings that meet, and the sides of a partition that heals, are one ring soon (P2, P5) ---

LOOK_AGAIN = 0.25
"""Virtual seconds between two checks. A shorter time would find one ring earlier and cost more."""


def is_one(world: World) -> bool:
    """Return whether all nodes belong to the same ring, and each key has one owner that may
    decide."""
    rings = {world.node(name).ring.id for name in world.names()}
    return len(rings) == 1 and led(world) and not check_arcs(world)


def one_ring(world: World, violations: list[Violation], within: float) -> None:
    """Check repeatedly, for `within` virtual seconds, that there is one ring; one moment
    suffices."""
    if is_one(world):
        return
    if within <= 0.0:
        rings = sorted({world.node(name).ring.id for name in world.names()})
        arcs = "; ".join(violation.text for violation in check_arcs(world)[:2])
        text = f"not one ring in time, at {world.now:.1f} s: {', '.join(rings)}; {arcs}"
        violations.append(Violation("rings", text))
        return
    world.after(LOOK_AGAIN, one_ring, world, violations, within - LOOK_AGAIN)


# Chord's three, as Zave has them ("How to make Chord correct", IEEE TSE 2017), of clusters (P2).
#
# 1. Every successor list has its full length (or all others, in a ring that is smaller). 2. Every
# list has a successor that lives. 3. There are enough principals. A *principal* is a node that no
# list skips: in no list, begun with its owner, do two neighbours stand on both sides of it. With
# one more of them than a list is long a ring cannot fall apart into two, nor lose members by
# stabilising.
#
# The first and third imply that the ring is one and ordered. They are stated here over plain lists
# of keys, without the order that `node_state.check_ring` expects, so that a ring that is wrong in
# its own eyes and right by the names of its members is found as well.


def check_chord(world: World) -> list[Violation]:
    """Return violations of Zave's invariants by the primaries' successor lists, in a world at
    rest."""
    lists: dict[Key, list[Key]] = {}
    length = world.settings.ring.successors
    for name in world.names():
        node = world.node(name)
        if node.clusters.is_primary:
            pointers = node.ring.state.pointers
            lists[node.clusters.cluster.key] = [c.key for c in pointers.successors]
    return [Violation("chord", text) for text in chord_violations(lists, length)]


def chord_violations(lists: Mapping[Key, Sequence[Key]], length: int) -> list[str]:
    """Return violations in words. `lists`: the successors of each live cluster, as it knows them,
    nearest first. `length`: the number of entries of a full list."""
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
    """Return whether `key` lies between two neighbours in the list, its owner first."""
    ring = dict.fromkeys((owner, *successors))
    return any(_between(before, key, after) for before, after in pairwise(ring))


def _between(before: Key, key: Key, after: Key) -> bool:
    """Return whether `key` lies strictly between the two on the ring, going upwards from
    `before`."""
    if key in (before, after):
        return False
    if before < after:
        return before < key < after
    return key > before or key < after
