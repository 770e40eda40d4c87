"""One node cannot end a ring in which it does not serve."""

from __future__ import annotations

from msgspec.structs import replace

from overlay.chord.merging.messages import RingEnded
from overlay.chord.messages import Cluster
from overlay.machine import Peer
from tests.support.rings import RingWorld, cluster_of, grown

STRANGER, OTHER = Peer("ffffffffffffffff", "host:99"), Peer("fffffffffffffffe", "host:98")


def forged(own: Cluster) -> Cluster:
    """A cluster of a ring with the smallest id there can be."""
    return replace(own, ring="0", primary=STRANGER, standby=None, brokers=())


def rings(world: RingWorld) -> set[str]:
    return {node.ring.id for node in world.members.values()}


def test_an_outsider_alone_does_not_end_a_ring() -> None:
    """Attack 4: each node that heard it went over, and passed it on."""
    world = grown(3, nodes=8, clusters=1, size=3)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    for node in list(world.members.values()):
        for _ in range(3):  # one who says it again is no second witness
            node.port.hear(RingEnded(own.ring, forged(own)), STRANGER)
    world.run(10)
    assert rings(world) == {own.ring}
    assert world.primaries() == [primary]
    assert primary.port.counts["ring_ends_doubted"] == 3


def test_nor_does_it_have_a_ring_forgotten_that_others_serve_in() -> None:
    world = grown(3, nodes=8, clusters=1, size=3)
    node = next(n for n in world.members.values() if n.clusters.role == "none")
    node.port.hear(RingEnded("another", forged(cluster_of(world.primaries()[0]))), STRANGER)
    assert "another" not in node.ring.state.ended


def test_two_witnesses_and_the_own_primary_are_believed() -> None:
    world = grown(3, nodes=8, clusters=1, size=3)
    (primary,) = world.primaries()
    own = cluster_of(primary)
    idle = [n for n in world.members.values() if n.clusters.role == "none"]
    ended = RingEnded(own.ring, forged(own))
    idle[0].port.hear(ended, STRANGER)
    assert idle[0].ring.id == own.ring
    idle[0].port.hear(ended, OTHER)
    idle[1].port.hear(ended, primary.peer)
    assert (idle[0].ring.id, idle[1].ring.id) == ("0", "0")
