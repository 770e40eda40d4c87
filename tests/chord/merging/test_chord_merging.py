"""Two rings with clusters become one: the smaller id wins, and all go over together."""

from __future__ import annotations

import pytest

from overlay.chord.constants import MERGE_HEARD_WITHIN, RING_LEADERLESS_AFTER
from overlay.chord.events import RingLeft
from overlay.chord.messages import Cluster, Merge, MergePhase, RingEnded, RingMet
from overlay.settings import ClusterSettings
from tests.support.rings import RingNode, RingWorld, middle_of


def two_rings(
    clusters: int = 1, size: int = 3, nodes: int = 6, signed: bool = False
) -> tuple[RingWorld, list[RingNode], list[RingNode]]:
    """Two overlays that do not know each other: the losing one, with so many clusters, and the
    winning one."""
    world = RingWorld(seed=5, cluster=ClusterSettings(size=size), signed=signed)
    made = []
    for _ in range(2):
        side: list[RingNode] = []
        for _ in range(nodes):
            node = world.add(founder=not side, degree=0)
            for other in side:
                link(node, other)
            side.append(node)
        world.run(6)
        made.append(side)
    winner, loser = made
    assert winner[0].ring.id < loser[0].ring.id  # which begins with its founder's id
    for _ in range(3):
        if len(leaders(loser)) >= clusters:
            break
        for node in leaders(loser):
            assert node.clusters.cluster is not None
            node.clusters.request_split(middle_of(node.clusters.cluster))
        world.run(8)
    return world, loser, winner


def leaders(nodes: list[RingNode]) -> list[RingNode]:
    """In the order of their keys: the first one leads a merging."""
    found = [n for n in nodes if n.clusters.is_primary]
    return sorted(found, key=lambda n: n.clusters.cluster.key)  # type: ignore[union-attr]


def link(one: RingNode, other: RingNode) -> None:
    """They are neighbours from now on."""
    one.view.neighbours.append(other.peer)
    other.view.neighbours.append(one.peer)


def rings(world: RingWorld) -> list[str]:
    return list(dict.fromkeys(n.ring.id for n in world.members.values()))


@pytest.mark.parametrize(
    ("clusters", "size", "signed"),
    [(1, 3, False), (1, 1, False), (3, 3, False), (1, 3, True), (1, 1, True), (3, 3, True)],
)
def test_the_smaller_ring_id_wins_and_all_nodes_go_over(
    clusters: int, size: int, signed: bool
) -> None:
    world, loser, winner = two_rings(clusters, size, nodes=12, signed=signed)
    won, arcs = winner[0].ring.id, len(leaders(winner))
    link(loser[0], winner[-1])
    world.run(12)
    assert rings(world) == [won]
    assert won < "1"
    assert len(world.arcs()) == arcs
    for node in loser:
        (left,) = [e for e in node.events if isinstance(e, RingLeft)]
        assert left.into == won
    world.ring_is_whole()
    world.members_agree()


def test_no_cluster_stops_before_all_are_united_and_none_ends_before_all_have_stopped() -> None:
    world, loser, winner = two_rings(clusters=3, nodes=12)
    slow, clusters = leaders(loser)[-1], len(leaders(loser))
    slow.registry.unites = False
    link(loser[-1], winner[-1])
    world.run(5)
    assert len(rings(world)) == 2
    assert all(max(n.registry.stages) == 1 for n in leaders(loser))
    slow.clusters.merge_phase_reached(MergePhase.UNITED)
    slow.port.turn()
    world.run(2)
    assert all(max(n.registry.stages) == 2 for n in leaders(loser))
    assert len(leaders(loser)) == clusters, "none has ended"
    slow.clusters.merge_phase_reached(MergePhase.STOPPED)
    slow.port.turn()
    world.run(6)
    assert len(rings(world)) == 1


def test_a_cluster_that_hears_no_more_of_who_leads_goes_on_as_before() -> None:
    world, loser, winner = two_rings()
    (leader,) = leaders(loser)
    leader.registry.unites = False
    link(leader, winner[0])
    world.run(2)
    assert leader.registry.stages[-1] == 1
    leader.clusters.merging.into = None  # the other ring was a mistake
    for node in winner:
        world.crash(node)
    world.run(MERGE_HEARD_WITHIN + 2)
    assert leader.registry.stages[-1] == 0
    assert leader.clusters.role == "primary"


def test_a_merging_that_takes_too_long_is_given_up_and_tried_again() -> None:
    world, loser, winner = two_rings()
    (leader,) = leaders(loser)
    leader.registry.unites = False
    link(leader, winner[0])
    world.run(28)
    assert leader.port.counts["mergings_given_up"] == 1
    assert 0 in leader.registry.stages
    leader.registry.unites = True
    world.run(8)
    assert len(rings(world)) == 1


def test_another_primary_begins_the_merging_again() -> None:
    world, loser, winner = two_rings()
    (leader,) = leaders(loser)
    leader.registry.unites = False
    link(loser[-1], winner[0])
    world.run(3)
    world.crash(leader)
    world.run(12)
    assert len(rings(world)) == 1
    world.ring_is_whole()
    world.members_agree()


def test_a_node_whose_ring_has_no_primary_goes_over_by_itself() -> None:
    world, loser, winner = two_rings()
    outsider = next(n for n in loser if n.clusters.role == "none")
    for node in loser:
        if node is not outsider:
            world.crash(node)
    link(outsider, winner[0])
    world.run(RING_LEADERLESS_AFTER + 4)
    assert rings(world) == [winner[0].ring.id]


def test_who_missed_the_end_hears_of_it_when_it_asks() -> None:
    world, loser, winner = two_rings()
    outsider = next(n for n in loser if n.clusters.role == "none")
    ring = outsider.ring.id
    for node in world.members.values():
        if node is not outsider:
            world.cut_link(node, outsider)
    link(next(n for n in loser if n is not outsider), winner[-1])
    world.run(6)
    assert outsider.ring.id == ring
    for node in world.members.values():
        if node is not outsider:
            world.heal_link(node, outsider)
    world.run(6)
    assert outsider.ring.id == winner[0].ring.id


def test_the_end_of_a_ring_for_a_worse_one_is_not_trusted() -> None:
    world, loser, winner = two_rings()
    (leader,) = leaders(winner)
    (worse,) = leaders(loser)
    own, other = leader.clusters.cluster, worse.clusters.cluster
    assert isinstance(own, Cluster)
    assert isinstance(other, Cluster)
    for message in (RingEnded(own.ring, other), Merge(other, 1)):
        worse.port.send(leader.peer, message)
    worse.port.send(leader.peer, RingMet(own.ring, other.ring, worse.peer))
    world.run(5)
    assert leader.ring.id == own.ring
    assert leader.clusters.role == "primary"
    assert leader.registry.stages == []
