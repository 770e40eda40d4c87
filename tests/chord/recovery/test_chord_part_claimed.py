"""P5: a cluster of whose arc another one claims a part, and which has to stop there, goes on with
the rest: no node of the ring has that."""

from __future__ import annotations

from random import Random

import pytest

from overlay.chord.constants import UNHEARD_FOR
from overlay.chord.epochs import new_fork
from overlay.chord.messages import Cluster
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, cluster_of, grown


def after(world: RingWorld, cluster: Cluster) -> RingNode:
    """The primary of the cluster after this one in the ring."""
    return next(n for n in world.primaries() if cluster_of(n).start == cluster.key)


@pytest.mark.parametrize("seed", seeds(3, first=1))
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


@pytest.mark.parametrize("clusters", [2, 3])
def test_keys_whose_cluster_has_ended_are_taken_by_the_one_after_it(clusters: int) -> None:
    world = grown(4, nodes=12, clusters=clusters, size=3)
    ended = world.primaries()[0]
    own = cluster_of(ended)
    ended.clusters.membership.disband("gave up")
    ended.port.turn()
    world.run(UNHEARD_FOR / 2)
    assert world.owners(own.key) == []
    world.run(UNHEARD_FOR)
    assert len(world.owners(own.key)) == 1
    world.ring_is_whole()


def test_a_cluster_before_that_is_there_is_not_looked_for() -> None:
    world = grown(5, nodes=12, clusters=3, size=3)
    world.run(3 * UNHEARD_FOR)
    assert not any(n.port.counts["predecessors_unheard"] for n in world.members.values())
