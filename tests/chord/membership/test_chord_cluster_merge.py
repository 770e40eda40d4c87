"""A cluster that is too small merges with the next one (P1): at no moment is a key served twice,
nothing committed is lost, and whoever dies meanwhile, every key has an owner in the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from overlay.chord.constants import MERGE_AGAIN, QUIESCE_MOST
from overlay.chord.events import ArcArrived, ArcKept, ArcMerging, ArcTaken
from overlay.chord.keys import key_of
from overlay.chord.membership.cluster_merge import ClusterLoad
from overlay.chord.messages import MergeOffer, MergeState
from overlay.settings import ClusterSettings, ElectionSettings
from tests.support.examples import seeds
from tests.support.rings import (
    UNRECOVERED,
    RingNode,
    RingWorld,
    ServedOnce,
    cluster_of,
    grown,
    middle_of,
)

KEYS = [key_of(f"attr:{n}") for n in range(24)]

LITTLE = ClusterLoad(3, 10, 0.1)

SETTINGS = ClusterSettings(size=5, merge_below=4, merge_after=1.0)


def two_clusters(
    seed: int,
    settings: ClusterSettings = SETTINGS,
    election: ElectionSettings | None = UNRECOVERED,
    clusters: int = 2,
) -> tuple[RingWorld, RingNode, RingNode]:
    """A ring with an entry for each key; two primaries, the second one's cluster after the first
    one's."""
    world = grown(
        seed, nodes=5 * clusters, clusters=clusters, election=election, cluster=settings, degree=20
    )
    world.checks.append(ServedOnce(world, KEYS))
    for at, key in enumerate(KEYS):
        assert world.write(key, str(at))
    world.run(1)
    small, large = world.primaries()[:2]
    return world, small, large


def run(world: RingWorld, seconds: float, load: ClusterLoad = LITTLE) -> None:
    """Let time pass; each primary says what its cluster owns, as the trees' owner does."""
    for _ in range(int(seconds)):
        for node in world.primaries():
            node.clusters.report_load(load)
        world.run(1)


def shrink(world: RingWorld, node: RingNode, left: int = 3) -> None:
    """Members of the node's cluster die one by one, brokers first."""
    while len(cluster_of(node).members()) > left:
        lost = cluster_of(node).members()[-1]
        world.crash(world.member(lost.id))
        for _ in range(100):
            world.run_to(world.now + 0.05)
            if not cluster_of(node).has_member(lost.id):
                break
    assert len(cluster_of(node).members()) == left


def until(world: RingWorld, reached: Callable[[], bool], most: float = 30.0) -> None:
    """Let time pass in small steps until something is so."""
    end = world.now + most
    while not reached():
        assert world.now < end, "it does not come to that"
        for node in world.primaries():
            node.clusters.report_load(LITTLE)
        world.run_to(world.now + 0.004)


def everything_is_there(world: RingWorld) -> None:
    for at, key in enumerate(KEYS):
        (owner,) = world.owners(key)
        assert owner.registry.entries.count(f"{key}:{at}".encode()) == 1
    entries = [entry for node in world.primaries() for entry in node.registry.entries]
    assert len(entries) == len(KEYS)


def at_rest(world: RingWorld, clusters: int) -> None:
    assert len(world.arcs()) == clusters
    world.ring_is_whole()
    world.members_agree()
    world.copies_agree()
    everything_is_there(world)
    for node in world.primaries():
        config = node.clusters.log.config
        assert config.promised is None
        assert config.given is None
        assert not cluster_of(node).merged


@pytest.mark.parametrize("seed", seeds(4))
def test_a_small_cluster_becomes_part_of_the_next_one_with_its_arc_and_state(seed: int) -> None:
    world, small, large = two_clusters(seed)
    before = cluster_of(small)
    shrink(world, small)
    run(world, 30)
    (arc,) = world.arcs()
    assert (arc.key, arc.start) == (cluster_of(large).key, before.start)
    assert arc.epoch > before.epoch
    assert small.clusters.cluster is None or small.clusters.cluster.key == arc.key
    assert len(arc.members()) == 5
    at_rest(world, 1)
    assert small.port.counts["cluster_merges"] == 1
    assert large.port.counts["clusters_taken_in"] == 1


@pytest.mark.parametrize("seed", range(2))
def test_of_three_clusters_two_are_left(seed: int) -> None:
    world, small, _ = two_clusters(seed, clusters=3)
    shrink(world, small)
    run(world, 30)
    at_rest(world, 2)


def test_a_cluster_of_one_node_merges_as_well() -> None:
    world, small, _ = two_clusters(5)
    shrink(world, small, left=1)
    run(world, 40)
    at_rest(world, 1)


def test_a_cluster_that_has_members_enough_does_not_merge() -> None:
    world, small, _ = two_clusters(1)
    shrink(world, small, left=4)
    run(world, 30)
    at_rest(world, 2)
    assert not small.port.of(ArcMerging)


def test_a_cluster_that_finds_a_member_in_time_does_not_merge() -> None:
    world, small, _ = two_clusters(1, ClusterSettings(size=5, merge_below=4, merge_after=6.0))
    shrink(world, small)
    run(world, 3)
    for _ in range(2):
        world.add()
    run(world, 20)
    at_rest(world, 2)
    assert not small.port.of(ArcMerging)


def test_0_keeps_clusters_from_merging() -> None:
    world, small, _ = two_clusters(1, ClusterSettings(size=5, merge_below=0, merge_after=1.0))
    shrink(world, small, left=1)
    run(world, 30)
    assert len(world.arcs()) == 2


@pytest.mark.parametrize(
    "much", [ClusterLoad(251, 1, 0.0), ClusterLoad(1, 5_001, 0.0), ClusterLoad(1, 1, 8.1)]
)
def test_a_cluster_that_owns_much_does_not_merge(much: ClusterLoad) -> None:
    world, small, _ = two_clusters(1)
    shrink(world, small)
    run(world, 20, much)
    assert len(world.arcs()) == 2
    assert not small.port.of(ArcMerging)


def test_a_cluster_takes_no_arc_with_which_it_would_soon_split() -> None:
    world, small, large = two_clusters(1)
    shrink(world, small)
    for _ in range(20):
        small.clusters.report_load(ClusterLoad(100, 1, 0.0))
        large.clusters.report_load(ClusterLoad(401, 1, 0.0))
        world.run(1)
    assert len(world.arcs()) == 2
    assert not small.port.of(ArcMerging)
    large.clusters.report_load(ClusterLoad(400, 1, 0.0))
    for _ in range(30):
        for node in world.primaries():
            node.clusters.report_load(ClusterLoad(100, 1, 0.0))
        world.run(1)
    at_rest(world, 1)


def test_two_small_clusters_do_not_wait_for_each_other() -> None:
    world, small, large = two_clusters(3)
    shrink(world, small)
    shrink(world, large)
    run(world, 4 * MERGE_AGAIN)
    at_rest(world, 1)


def test_a_cluster_that_has_promised_does_not_split() -> None:
    world, small, large = two_clusters(1)
    small.registry.slow = True
    shrink(world, small)
    until(world, lambda: small.registry.merging)
    large.clusters.request_split(middle_of(cluster_of(large)))
    run(world, 3)
    assert large.clusters.handovers.current is None
    small.registry.stop_all()
    run(world, 30)
    at_rest(world, 1)


def test_trees_that_do_not_come_to_rest_keep_their_cluster_which_serves_them_again() -> None:
    world, small, large = two_clusters(1)
    small.registry.slow = True
    shrink(world, small)
    until(world, lambda: small.registry.merging)
    assert not any(world.owners(key) for key in KEYS if cluster_of(small).owns(key))
    run(world, QUIESCE_MOST + 2)
    assert [event.arc.key for event in small.port.of(ArcKept)] == [cluster_of(small).key]
    assert large.clusters.log.config.promised is None
    at_rest(world, 2)


def test_it_is_not_given_away_under_another_epoch_than_it_was_promised_for() -> None:
    world, small, large = two_clusters(1)
    small.registry.slow = True
    shrink(world, small)
    until(world, lambda: small.registry.merging)
    small.clusters.outrank(cluster_of(small).epoch + 5)
    until(
        world,
        lambda: (
            cluster_of(small).epoch > cluster_of(large).epoch
            and not small.clusters.leader_log.config_pending
        ),
    )
    small.registry.stop_all()
    run(world, 4)
    assert len(world.arcs()) == 2
    assert not small.clusters.log.is_given
    small.registry.slow = False
    run(world, 40)
    at_rest(world, 1)


STEPS: dict[str, Callable[[RingNode, RingNode], bool]] = {
    "offered": lambda small, large: small.clusters.merges.current is not None,
    "promised": lambda small, large: large.clusters.log.config.promised is not None,
    "stopping": lambda small, large: bool(small.port.of(ArcMerging)),
    "given": lambda small, large: small.clusters.log.is_given,
    "decided": lambda small, large: cluster_of(small).merged,
    "arriving": lambda small, large: large.clusters.taking_in._arriving is not None,
    "taken": lambda small, large: bool(large.port.of(ArcTaken)),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("victim", ["small", "large"])
def test_a_primary_that_dies_in_the_middle_of_it(victim: str, step: str) -> None:
    """Either primary, at each step: the others complete the merge, or undo it and try again."""
    world, small, large = two_clusters(len(step))
    shrink(world, small)
    until(world, lambda: STEPS[step](small, large))
    world.crash(small if victim == "small" else large)
    run(world, 40)
    at_rest(world, 1)


@pytest.mark.parametrize("step", STEPS)
def test_a_link_that_is_cut_in_the_middle_of_it(step: str) -> None:
    world, small, large = two_clusters(1)
    shrink(world, small)
    until(world, lambda: STEPS[step](small, large))
    world.cut_link(small, large)
    run(world, 8)
    for key in KEYS:  # the rest goes on
        if cluster_of(large).owns(key) and not small.clusters.is_primary:
            assert world.owners(key)
    world.heal_link(small, large)
    run(world, 40)
    at_rest(world, 1)


@pytest.mark.parametrize("step", ["promised", "given", "arriving"])
@pytest.mark.parametrize("victim", ["small", "large"])
def test_a_primary_that_is_started_again_in_the_middle_of_it(victim: str, step: str) -> None:
    """The small cluster is that node alone: no other can be elected in its place."""
    world, small, large = two_clusters(2)
    shrink(world, small, left=1)
    until(world, lambda: STEPS[step](small, large))
    lost = small if victim == "small" else large
    world.crash(lost)
    run(world, 5)
    world.restart(lost)
    run(world, 40)
    at_rest(world, 1)


def test_a_majority_that_is_lost_before_it_is_decided_gives_nothing_away() -> None:
    """The primary alone writes the decision: it does not count, and the cluster that promised
    serves nothing of the arc until that is settled."""
    world, small, large = two_clusters(1)
    small.registry.slow = True
    shrink(world, small)
    until(world, lambda: small.registry.merging)
    others = [world.member(peer.id) for peer in cluster_of(small).others()]
    for other in others:
        world.cut_link(small, other)
    small.registry.stop_all()
    assert small.clusters.log.is_given
    until(world, lambda: any(other.clusters.is_primary for other in others))
    assert cluster_of(large).start == cluster_of(small).key
    assert not large.port.of(ArcArrived)
    for other in others:
        world.heal_link(small, other)
    run(world, 40)
    at_rest(world, 1)


def test_an_arc_is_not_taken_before_a_majority_of_the_next_cluster_has_its_state() -> None:
    world, small, large = two_clusters(1)
    shrink(world, small)
    until(world, lambda: STEPS["decided"](small, large))
    others = [world.member(peer.id) for peer in cluster_of(large).others()]
    for other in others:
        world.cut_link(large, other)
    until(world, lambda: any(other.clusters.is_primary for other in others))
    assert not large.port.of(ArcTaken)
    run(world, 30)  # the state is with the small cluster still, and goes to the new primary
    for other in others:
        world.heal_link(large, other)
    run(world, 10)
    at_rest(world, 1)


def test_a_state_that_came_in_part_is_dropped_by_the_next_primary_and_sent_again() -> None:
    world, small, large = two_clusters(1)
    shrink(world, small)
    until(world, lambda: cluster_of(small).merged)
    arc = small.clusters.log.config.given
    assert arc is not None
    standby = world.member(cluster_of(large).others()[0].id)
    wrong = f"{next(key for key in KEYS if arc.owns(key))}:in part".encode()
    for node in (large, standby):  # as if the last pieces of a long log entry were lost with it
        assert node.clusters.log.config.promised == arc
    large.clusters.append(wrong)
    large.registry.entries.append(wrong)
    until(world, lambda: wrong in standby.registry.entries)
    world.crash(large)
    run(world, 40)
    at_rest(world, 1)


def test_an_arc_that_was_taken_is_not_taken_again() -> None:
    """The answer is lost with the link; meanwhile the arc has been split off again at the very
    same key, and is not the next cluster's any more."""
    world, small, large = two_clusters(1)
    key = cluster_of(small).key
    shrink(world, small)
    until(world, lambda: STEPS["arriving"](small, large))
    for peer in cluster_of(small).members():
        world.cut_link(world.member(peer.id), large)
    until(world, lambda: bool(large.port.of(ArcTaken)))
    given = small.clusters.log.config.given
    assert given is not None
    for _ in range(5):
        world.add()
    for _ in range(30):
        large.clusters.request_split(key)
        world.run(1)
        if cluster_of(large).start == key:
            break
    assert cluster_of(large).start == key
    assert cluster_of(small).merged
    large.port.hear(MergeOffer(given, 3, 10, 0.1, 0, decided=True), small.peer)
    assert large.clusters.log.config.promised is None
    world.run(1)
    for node in list(world.members.values()):
        world.heal_link(node, large)
    world.run(20)
    assert cluster_of(large).start == key
    world.ring_is_whole()
    everything_is_there(world)


def test_a_lost_cluster_that_gave_its_arc_away_is_recovered_by_the_one_that_promised() -> None:
    world, small, large = two_clusters(1, election=ElectionSettings())
    shrink(world, small, left=1)
    before = cluster_of(small)
    until(world, lambda: small.clusters.log.is_given)
    world.crash(small)
    run(world, 40)
    (arc,) = world.arcs()
    assert (arc.start, arc.key) == (before.start, cluster_of(large).key)
    assert large.clusters.log.config.promised is None
    assert all(len(world.owners(key)) == 1 for key in KEYS)


def test_where_the_cluster_that_promised_is_lost_the_other_has_both_arcs() -> None:
    world, small, large = two_clusters(1, election=ElectionSettings())
    shrink(world, small)
    until(world, lambda: cluster_of(small).merged)
    lost = [world.member(peer.id) for peer in cluster_of(large).members()]
    for node in lost:
        world.crash(node)
    run(world, 40)
    (arc,) = world.arcs()
    assert arc.start == arc.key
    assert small.port.of(ArcKept)
    mine = [key for key in KEYS if any(f"{key}:".encode() in e for e in small.registry.entries)]
    assert mine
    assert all(len(world.owners(key)) == 1 for key in KEYS)


def test_a_state_that_was_not_promised_to_be_taken_is_ignored() -> None:
    world, small, large = two_clusters(1)
    large.port.hear(MergeState(cluster_of(small), 0, 1, ()), small.peer)
    run(world, 3)
    at_rest(world, 2)
    assert not large.port.of(ArcTaken)
