"""Finding trees: negative caching (C5), stale access points (C10), and peers that are not there."""

from __future__ import annotations

import pytest

from harness.overlays import (
    acknowledged,
    assert_exact,
    grown,
    hosts,
    settings,
    wait,
    with_role,
)
from tests.support.examples import overlay_seeds


@pytest.mark.parametrize("seed", overlay_seeds(6))
def test_an_event_right_after_the_suback_of_a_new_attribute_arrives(seed: int) -> None:
    """Its publishers had *no subscribers* just before (C5): the first SUBACK waits for them."""
    world = grown(6, seed)
    for number in range(6):
        world.publish(f"n{number}", {"new": 1})
    world.run(1)
    absent = [r.fields["attribute"] for r in world.recorder.records if r.kind == "absent"]
    assert absent.count("new") >= 5
    subscription = world.subscribe("n3", "new = 2")
    wait(world, lambda: subscription.acknowledged is not None, 3, "SUBACK, long before the term")
    world.run(0.000001)
    for number in range(6):
        world.publish(f"n{number}", {"new": 2})
    assert_exact(world)
    assert len(world.clients.deliveries) == 6


def test_a_publisher_that_can_not_be_recalled_delays_the_suback_by_the_term_at_most() -> None:
    world = grown(8, 3)
    outsider = with_role(world, "none")[0]
    world.publish(outsider, {"new": 1})
    world.run(1)
    others = [name for name in world.names() if name != outsider]
    world.network.partition([[outsider], others])
    world.run(0.1)
    subscription = world.subscribe(others[-1], "new = 2")
    wait(world, lambda: subscription.acknowledged is not None, 30, "SUBACK")
    assert subscription.acknowledged is not None
    assert subscription.acknowledged - subscription.asked > 3
    world.network.heal()
    world.run(30)
    world.publish(outsider, {"new": 2})
    assert_exact(world)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_what_is_known_of_a_tree_that_is_gone_leads_to_the_next_one(seed: int) -> None:
    """The old host says *moved*, and its publishers look again (C10)."""
    world = grown(6, seed, settings(tree={"retry": 60.0, "host_entries": 2, "replicas": 1}))
    wait(world, lambda: len(with_role(world, "broker")) == 3, 30, "a full cluster")
    first = [world.subscribe("n2", f"{attribute} > 0") for attribute in "xyz"]
    acknowledged(world)
    before = hosts(world)
    for number in range(6):
        world.publish(f"n{number}", {"x": 1, "z": 1})
    world.run(15)
    for subscription in first:
        world.unsubscribe(subscription)
    wait(world, lambda: not hosts(world), 30, "the trees are gone")
    for attribute in "zzyx":  # two fill a host, also when trees are packed again
        world.subscribe("n4", f"{attribute} > 0")
        acknowledged(world)
    assert before["x"] != hosts(world)["x"]
    for number in range(6):
        world.publish(f"n{number}", {"x": 3})
    world.run(5)
    assert len(world.clients.deliveries) == 6 * 2 + 6
    assert_exact(world)


@pytest.mark.parametrize("seed", overlay_seeds(3))
def test_stale_access_points_lead_to_a_new_search(seed: int) -> None:
    """Access points that were gossiped before a host died do not lose an event (C10)."""
    world = grown(
        10,
        seed,
        settings(tree={"split_at": 4, "host_entries": 4}, cluster={"split_trees": 100_000}),
    )
    for number in range(24):
        world.subscribe(f"n{number % 10}", f"x BETWEEN {number} AND {number + 3}")
    acknowledged(world)
    for number in range(30):
        world.publish(f"n{number % 10}", {"x": number})
    world.run(20)  # access points spread
    brokers = with_role(world, "broker")
    world.crash(brokers[0])
    world.run(40)
    for number in range(60):
        world.publish(world.names()[number % 9], {"x": number % 27})
        world.run(0.02)
    assert_exact(world)


def test_a_node_whose_peers_do_not_answer_serves_its_own_subscribers() -> None:
    world = grown(0)
    lonely = world.add_node(seeds=["10.77.0.1:9", "10.77.0.2:9"])
    subscription = world.subscribe(lonely, "x > 1 AND y LIKE 'a%'")
    wait(world, lambda: subscription.acknowledged is not None, 60, "SUBACK")
    world.publish(lonely, {"x": 2, "y": "ab"}, {"x": 2, "y": "b"}, {"x": 1, "y": "ab"})
    assert_exact(world)
    assert len(world.clients.deliveries) == 1
    seeds = world.status(lonely).seeds
    assert list(seeds) == ["10.77.0.1:9", "10.77.0.2:9"]
    assert "reached" not in seeds.values()


def test_a_peer_that_appears_late_is_found() -> None:
    world = grown(0)
    world.add_node(seeds=["10.0.0.1:7000"])  # the address that the second node will have
    world.run(3)
    second = world.add_node()
    world.run(60)
    assert world.status("n0").seeds["10.0.0.1:7000"] == "reached"
    assert world.status("n0").ready
    assert world.status(second).ready


@pytest.mark.parametrize("seed", overlay_seeds(5))
def test_ready_means_a_filled_view_and_a_way_into_the_ring(seed: int) -> None:
    """A newcomer of twenty is ready within a moment, and knows as many others as its view holds."""
    world = grown(20, seed, settings(view={"size": 8, "shuffle": 4}))
    newcomer = world.add_node(seeds=[world.node("n7").me.address])
    wait(world, lambda: world.status(newcomer).ready, 2, "ready, without a shuffle's period")
    assert world.node(newcomer).view.is_filled
    assert len(world.node(newcomer).view.peers()) >= 7  # the third exchange may bring no new one
