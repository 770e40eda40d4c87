"""A cluster that owns the whole ring, with an entry for each of some keys, to split or to leave."""

from __future__ import annotations

from overlay.chord.keys import key_of
from tests.support.rings import RingNode, RingWorld, ServedOnce, cluster_of, grown, middle_of

KEYS = [key_of(f"attr:{n}") for n in range(24)]


def one_cluster(seed: int, nodes: int = 14, size: int = 5) -> tuple[RingWorld, RingNode]:
    world = grown(seed, nodes=nodes, clusters=1, size=size)
    (node,) = world.primaries()
    world.checks.append(ServedOnce(world, KEYS))
    for at, key in enumerate(KEYS):
        assert world.write(key, str(at))
    world.run(1)
    return world, node


def split(node: RingNode) -> str:
    middle = middle_of(cluster_of(node))
    node.clusters.request_split(middle)
    return middle


def everything_is_there(world: RingWorld) -> None:
    """Each entry is where its key is served, once."""
    for at, key in enumerate(KEYS):
        (owner,) = world.owners(key)
        assert owner.registry.entries.count(f"{key}:{at}".encode()) == 1
    entries = [e for n in world.primaries() for e in n.registry.entries]
    assert len(entries) == len(KEYS)
