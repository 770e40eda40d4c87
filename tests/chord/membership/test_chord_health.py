"""The health file orders who leads and who is recruited, and excludes none (T6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from overlay.chord.keys import key_of
from overlay.health import HealthReport, NodeHealth
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, grown

KEY = key_of("attr:x")
SOON = 1.5
"""Seconds in which another primary has to serve."""


def primary(world: RingWorld) -> RingNode:
    (node,) = world.primaries()
    return node


def standby(world: RingWorld) -> RingNode:
    return next(n for n in world.members.values() if n.clusters.role == "standby")


def say(readers: Sequence[RingNode], sick: Sequence[RingNode], valid_for: float = 600.0) -> None:
    """Have `readers` load a file that calls `sick` sub-healthy."""
    nodes = {node.peer.id: NodeHealth(1, "disk") for node in sick}
    for reader in readers:
        reader.clusters.health.update(HealthReport(nodes, valid_for))


def voters(world: RingWorld) -> list[RingNode]:
    """The members besides the primary, in the order of their ranks."""
    cluster = primary(world).clusters.cluster
    assert cluster is not None
    return [world.member(peer.id) for peer in cluster.others()]


@pytest.mark.parametrize("seed", seeds(3))
def test_a_primary_chooses_a_healthy_standby(seed: int) -> None:
    world = grown(seed, nodes=5, clusters=1, size=5)
    leader, before = primary(world), standby(world)
    say([leader], [before])
    world.run(SOON)
    assert standby(world) is not before
    cluster = leader.clusters.cluster
    assert cluster is not None
    assert cluster.has_member(before.peer.id)
    world.run(5)
    assert leader.clusters.cluster == cluster  # changed once


@pytest.mark.parametrize("seed", seeds(5))  # of two whose turns meet by chance either may win
def test_a_sub_healthy_standby_leads_only_after_the_healthy(seed: int) -> None:
    world = grown(seed, nodes=5, clusters=1, size=5)
    world.write(KEY, "kept")
    world.run(1)
    ranked = voters(world)
    say(ranked, ranked[:2])
    world.crash(primary(world))
    world.run(SOON)
    (new,) = world.owners(KEY)
    assert new is ranked[2]
    assert new.registry.entries == [f"{KEY}:kept".encode()]
    description = new.clusters.cluster
    assert description is not None
    assert description.standby == ranked[3].peer  # and the sub-healthy are behind it as well


@pytest.mark.parametrize("seed", seeds(3))
def test_where_all_are_sub_healthy_one_leads_all_the_same(seed: int) -> None:
    world = grown(seed, nodes=5, clusters=1, size=5)
    world.write(KEY, "kept")
    world.run(1)
    ranked = voters(world)
    say(list(world.members.values()), list(world.members.values()))
    world.crash(primary(world))
    world.run(SOON)
    assert world.owners(KEY) == [ranked[0]]


@pytest.mark.parametrize("seed", seeds(3))
def test_the_only_log_that_is_far_enough_leads_though_its_node_is_sub_healthy(seed: int) -> None:
    world = grown(seed, nodes=3, clusters=1, size=3)
    world.write(KEY, "kept")
    world.run(1)
    leader, (further, behind) = primary(world), voters(world)
    world.cut_link(leader, behind)
    world.write(KEY, "new")
    world.run(0.5)
    say([further, behind], [further])
    world.crash(leader)
    world.run(2 * SOON)
    assert world.owners(KEY) == [further]


def test_a_report_that_is_over_changes_nothing() -> None:
    world = grown(1, nodes=5, clusters=1, size=5)
    ranked = voters(world)
    say(ranked, ranked[:2], valid_for=3.0)
    world.run(3.5)
    world.crash(primary(world))
    world.run(SOON)
    assert world.owners(KEY) == [ranked[0]]


def test_the_healthy_are_recruited_first() -> None:
    world = grown(2, nodes=7, clusters=1, size=3)
    leader = primary(world)
    idle = [node for node in world.members.values() if node.clusters.role == "none"]
    assert len(idle) == 4
    say([leader], idle[:3])
    leader.clusters.want(4)
    world.run(SOON)
    assert idle[3].clusters.role == "broker"
    assert [node.clusters.role for node in idle[:3]] == ["none"] * 3
    leader.clusters.want(7)
    world.run(2 * SOON)
    assert "none" not in [node.clusters.role for node in world.members.values()]
