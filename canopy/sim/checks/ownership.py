"""Checks who owns what, once the world is at rest: the arcs of the ring's clusters are disjoint and
cover all keys (P2), and each attribute has one partition map, whose virtual nodes are adjacent,
cover the whole value space, and are on hosts that run (C6)."""

from __future__ import annotations

from canopy.sim.checks.violation import Violation
from canopy.sim.world.world import World
from matching import EVERYTHING
from overlay.chord.messages import Cluster


def check_arcs(world: World) -> list[Violation]:
    """The arcs of all primaries are disjoint and cover the ring, once it is at rest."""
    arcs: list[tuple[Cluster, str]] = []
    for name in world.names():
        clusters = world.node(name).clusters
        if clusters.is_primary:
            assert clusters.cluster is not None
            arcs.append((clusters.cluster, name))
    return arc_violations(arcs) if world.names() else []


def arc_violations(arcs: list[tuple[Cluster, str]]) -> list[Violation]:
    """Violations among (description, node that claims it): arcs have to be disjoint, cover the
    ring, and be of one ring."""
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
    """One map per attribute, adjacent and total; every host runs."""
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
