"""What is known of nodes' health orders who leads and who is recruited, and excludes none (T6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from overlay.chord.keys import key_of
from overlay.health import SIGN_HOLDS, WORD_HOLDS, Health, HealthReport, NodeHealth
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


def measure(node: RingNode, **measured: float) -> None:
    """What the node's process measures of it every ten seconds."""
    node.clusters.health.judge(node.peer.id, measured)


def test_a_primary_hears_from_its_standby_that_it_is_sick() -> None:
    world = grown(1, nodes=5, clusters=1, size=5)
    leader, sick = primary(world), standby(world)
    measure(sick, disk=96.5)
    world.run(SOON)
    assert standby(world) is not sick
    assert leader.clusters.health.reason(sick.peer.id) == "disk: 96.5 percent of the disk in use"
    before = standby(world)
    measure(sick, disk=50.0)
    world.run(SIGN_HOLDS + 1.0)
    measure(sick, disk=50.0)
    world.run(SOON)
    assert not leader.clusters.health.severity(sick.peer.id)
    assert standby(world) is before, "who is well again takes nothing back"


def test_a_sick_node_waits_for_the_others_though_nobody_heard_it_say_so() -> None:
    world = grown(1, nodes=5, clusters=1, size=5)
    ranked = voters(world)
    world.crash(primary(world))
    measure(ranked[0], memory=97.0)
    world.run(SOON)
    (new,) = world.primaries()
    assert new is ranked[1]


class Clock:
    now = 1_000.0


def test_a_node_judges_itself_by_what_it_measured_lately() -> None:
    clock = Clock()
    health = Health(clock)

    def after(seconds: float, **measured: float) -> tuple[int, str]:
        clock.now += seconds
        health.judge("me", measured)
        return health.severity("me"), health.reason("me")

    assert after(0, late_ms=3.0, disk=94.9, memory=94.0, cpu=100.0, clients=500) == (0, "")
    assert after(10, disk=95.0) == (1, "disk: 95 percent of the disk in use")
    assert after(10, disk=50.0, round_trip_ms=1_500.0)[0] == 2
    assert after(SIGN_HOLDS - 10, disk=50.0)[1].startswith("latency: 1500 ms")
    assert after(10, disk=50.0) == (0, ""), "no sign for so long"
    assert after(10, late_ms=2_000.0) == (0, ""), "it may have been paused once"
    assert after(SIGN_HOLDS, late_ms=1_200.0) == (0, "")
    assert after(10, late_ms=1_100.0, disk=99.0)[1].startswith("late: 1200 ms")
    assert health.own == NodeHealth(2, health.reason("me"))


def test_the_worse_of_a_file_and_a_node_s_own_word_counts_as_long_as_each_holds() -> None:
    clock = Clock()
    health = Health(clock)
    changes = health.changes
    health.update(HealthReport({"a": NodeHealth(1, "file"), "b": NodeHealth(3, "file")}, 100.0))
    health.hear("a", NodeHealth(2, "word"))
    health.hear("b", NodeHealth(2, "word"))
    health.hear("c", NodeHealth(1, "word"))
    assert [health.reason(node) for node in "abc"] == ["word", "file", "word"]
    assert health.changes > changes
    health.hear("a", None)
    assert (health.severity("a"), health.reason("a")) == (1, "file")
    changes = health.changes
    clock.now += WORD_HOLDS
    assert not health.severity("c"), "it is not heard any more"
    assert health.changes > changes
    clock.now += 100.0
    assert not health.severity("b")
