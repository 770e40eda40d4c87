"""Clusters that lose members merge with the next one (P1): events flow all the time, none is lost
and none comes twice, whatever happens in the middle of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from canopy.sim.checks.cluster_logs import LogWatch, check_voters
from harness.overlays import acknowledged, assert_exact, grown, settings, wait, with_role
from node import Node
from overlay.chord.keys import attribute_key
from overlay.settings import Settings
from tests.support.examples import overlay_seeds

THREE = settings(cluster={"size": 3, "split_trees": 40, "merge_after": 2.0})

FIVE = settings(cluster={"size": 5, "split_trees": 40, "merge_after": 2.0, "merge_below": 4})
"""A cluster that merges has three voters still, and can lose another one."""

SEEDS = [1]

NAMES = "abcdefgh"


class Overlay:
    """Two full clusters, of which the first one is to lose members. Every look is one at all logs
    and owners as well."""

    def __init__(self, seed: int, chosen: Settings = THREE) -> None:
        nodes = 2 * chosen.cluster.size
        self.world = world = grown(nodes, seed, chosen)
        self.wrong: list[str] = []
        self.watch = LogWatch(world, lambda kind, text: self.wrong.append(f"{kind}: {text}"))
        for number in range(32):
            where = f"{NAMES[number % 8]} BETWEEN {number} AND {number + 9}"
            world.subscribe(f"n{number % nodes}", where)
        acknowledged(world)
        (primary,) = with_role(world, "primary")
        keys = sorted(map(attribute_key, NAMES))
        world.node(primary).clusters.request_split(keys[len(keys) // 2 - 1])
        wait(world, lambda: len(self.primaries()) == 2, 40, "two clusters")
        world.run(5)
        self.small, self.large = self.primaries()
        self._number = 0

    def primaries(self) -> list[str]:
        """Names of the nodes that lead a cluster, in ring order."""
        world = self.world
        found = with_role(world, "primary")
        return sorted(found, key=lambda name: world.node(name).clusters.cluster.key)

    def counted(self, name: str) -> int:
        """What all nodes that run have counted."""
        return sum(self.world.status(node).counters.get(name, 0) for node in self.world.names())

    def members(self, name: str) -> list[str]:
        """The other nodes of the cluster that a node leads."""
        cluster = self.world.node(name).clusters.cluster
        others = {peer.id for peer in cluster.others()}
        return [n for n in self.world.names() if self.world.drivers[n].disk.node in others]

    def shrink(self, left: int) -> None:
        """The first cluster loses members, brokers first, until so many are left."""
        clusters = self.world.node(self.small).clusters
        for size in range(len(clusters.members()), left, -1):
            self.world.crash(self.members(self.small)[-1])
            self.run(10, lambda size=size: len(clusters.members()) < size)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let events flow for so long, or until something is so. Whether it is."""
        waits = until is not None
        end = self.world.now + seconds
        while self.world.now < end:
            self._number += 1 if waits else 4
            names = self.world.names()
            if self._number % 12 == 0:
                at = self._number // 12
                attributes = {NAMES[at % 8]: at % 41, NAMES[(at + 3) % 8]: at % 37}
                self.world.publish(names[at % len(names)], attributes)
            if self._number % 96 == 0:
                at = self._number // 96
                self.world.subscribe(names[at % len(names)], f"{NAMES[at % 8]} > {at % 30}")
            self.world.run(0.005 if waits else 0.02)
            self.watch.look()
            if until is not None and until():
                return True
        return False

    def end(self) -> None:
        """At rest there is one cluster, and everything came that had to."""
        world = self.world
        merged = self.run(90, lambda: len(self.primaries()) == 1)
        assert merged, [world.node(name).clusters.cluster for name in self.primaries()]
        self.run(3)
        acknowledged(world)
        assert_exact(world)
        assert not check_voters(world)
        assert not self.wrong


@pytest.mark.parametrize("seed", overlay_seeds(2))
def test_a_cluster_that_lost_a_member_merges_while_events_flow(seed: int) -> None:
    overlay = Overlay(seed)
    overlay.shrink(left=2)
    overlay.end()
    assert overlay.counted("cluster_merges") == overlay.counted("clusters_taken_in") == 1


STEPS: dict[str, Callable[[Node, Node], bool]] = {
    "promised": lambda small, large: large.clusters.log.config.promised is not None,
    "stopping": lambda small, large: small.arc_merge._under_way,
    "decided": lambda small, large: small.clusters.log.is_given,
    "arriving": lambda small, large: large.clusters.taking_in._arriving is not None,
    "taken": lambda small, large: large.clusters.log.config.taken is not None,
}


@pytest.mark.parametrize(
    ("victim", "step"),
    [
        ("small", "stopping"),
        ("small", "decided"),
        ("large", "promised"),
        ("large", "decided"),
        ("large", "arriving"),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_either_primary_dies_in_the_middle_of_it(seed: int, victim: str, step: str) -> None:
    overlay = in_the_middle(seed, step)
    overlay.world.crash(overlay.small if victim == "small" else overlay.large)
    overlay.end()


@pytest.mark.parametrize("step", ["promised", "decided"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_link_between_the_primaries_is_cut_in_the_middle_of_it(seed: int, step: str) -> None:
    overlay = in_the_middle(seed, step)
    overlay.world.network.sever(overlay.small, overlay.large)
    overlay.run(15)
    overlay.world.network.heal()
    overlay.end()


def in_the_middle(seed: int, step: str) -> Overlay:
    """A merge that has come to this step."""
    overlay = Overlay(seed, FIVE)
    overlay.shrink(left=3)
    small, large = overlay.world.node(overlay.small), overlay.world.node(overlay.large)
    assert overlay.run(40, lambda: STEPS[step](small, large))
    return overlay
