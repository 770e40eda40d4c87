"""What must be true of the way to a virtual node, once a world is at rest (C7).

From every host of a tree an event gets to a host that serves its value, from slice to slice, in no
more steps than the tree is high. Deliveries do not show it: what a host cannot help comes back to
its publisher, who asks the owner, and arrives all the same. So the steps are taken here, value by
value, by what the hosts say; how a tree follows from its list (`upper_tree/partition.py`) is used
nowhere, only that it is balanced.
"""

from __future__ import annotations

from typing import Any

from canopy.sim.checks.violation import Violation
from canopy.sim.world.world import World
from matching import Cut


def check_routes(world: World) -> list[Violation]:
    """From every host to every virtual node of its tree."""
    nodes = {world.drivers[name].disk.node: world.node(name) for name in world.names()}
    violations = []
    for name in world.names():
        node = world.node(name)
        if not node.clusters.is_primary:
            continue
        for attribute, owned in node.owner.trees.items():
            hosts = [host for host in owned.tree.map.hosts() if host in nodes]
            trees = {host: nodes[host].hosting.trees.get(attribute) for host in hosts}
            for host in hosts:
                if trees[host] is None:
                    continue  # reported by `check_trees`
                for entry in owned.tree.map.entries:
                    text = _way(trees, host, entry.interval.lo, len(owned.tree.map.entries))
                    if text:
                        where = f"{attribute} of {name} from {host} to {entry.interval}"
                        violations.append(Violation("route", f"{where}: {text}"))
    return violations


def _way(trees: dict[str, Any], host: str, spot: Cut, size: int) -> str:
    """Follow the slices; what is wrong, or ""."""
    height = size.bit_length()  # of a balanced tree of so many
    for _ in range(height + 1):
        tree = trees.get(host)
        if tree is None:
            return f"leads to {host}, who does not serve it"
        # Of a value that is cut into shards the host of one knows all. (A side of 1 is no shard but
        # what follows the value.)
        if tree.serves_some((*spot[:2], 0) if 0 < spot[2] < 1 else spot):
            return ""
        entry = tree.slice.route(spot)
        if entry is None or any(each.id == host for each in entry.hosts):
            return f"{host} does not know the way on"
        host = entry.hosts[0].id
    return f"not in {height} steps"
