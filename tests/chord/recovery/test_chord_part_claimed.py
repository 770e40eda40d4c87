"""P5: a cluster of whose arc another one claims a part, and which has to stop there, goes on with
the rest: no node of the ring has that."""

from __future__ import annotations

from random import Random

import pytest

from overlay.chord.epochs import new_fork
from overlay.chord.messages import Cluster
from tests.support.rings import RingNode, RingWorld, cluster_of, grown


def after(world: RingWorld, cluster: Cluster) -> RingNode:
    """The primary of the cluster after this one in the ring."""
    return next(n for n in world.primaries() if cluster_of(n).start == cluster.key)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_cluster_that_took_another_s_arc_and_has_to_give_it_back_keeps_its_own(seed: int) -> None:
    world = grown(seed, nodes=12, clusters=3, size=3)
    lost = cluster_of(world.primaries()[0])
    taker = after(world, lost)
    own = cluster_of(taker)
    epoch = new_fork(lost.epoch, 9, Random(seed))
    taker.clusters.role_changes.take_over_arc(lost, epoch)
    taker.port.turn()
    for _ in range(100):
        if cluster_of(taker).start == lost.start:
            break
        world.run(0.01)
    assert cluster_of(taker).start == lost.start
    # Led too shortly, as far as it knows, to override what others say.
    taker.clusters.role_changes._led_since = world.now
    world.run(30)
    (back,) = world.owners(lost.key)
    assert cluster_of(back).key == lost.key
    (kept,) = world.owners(own.key)
    assert (cluster_of(kept).key, cluster_of(kept).start) == (own.key, lost.key)
    world.ring_is_whole()
