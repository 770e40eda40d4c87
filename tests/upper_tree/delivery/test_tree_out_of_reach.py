"""Nodes out of reach, or slow, in whole overlays: what is for them waits, or is reported."""

from __future__ import annotations

from msgspec.structs import replace

from canopy.sim.scenario.scenario import Fault, FirstSubscription, Scenario
from harness.overlays import acknowledged, assert_exact, grown, run_green
from overlay.settings import ClusterSettings, Settings, TreeSettings

HALVES = ((0, 1, 4), (2, 3, 5))

DIVIDED = Scenario(
    nodes=6,
    seed=1,
    subscriptions=tuple(FirstSubscription("x >= 0", node=node) for node in range(6)),
    events=tuple({"x": number} for number in range(180)),
    rate=5.0,
    rest=5.0,
    one_within=15.0,
    faults=(Fault(3.0, "partition", groups=HALVES), Fault(28.0, "heal")),
)
"""Longer than links, relays and delegates try; shorter than a lease. Events that everybody wants,
half of them across, flow for eight seconds after it has healed."""

STOPPED = replace(
    DIVIDED, one_within=0.0, faults=(Fault(3.0, "pause", nodes=(5,)), Fault(28.0, "resume"))
)


def test_a_node_that_stands_still_for_less_than_its_lease_misses_nothing() -> None:
    result = run_green(STOPPED)
    assert result.owed > 500
    assert result.reported == 0, "all of it was delivered"


def test_halves_that_are_apart_for_less_than_a_lease_miss_nothing() -> None:
    result = run_green(DIVIDED)
    assert result.owed > 500
    assert result.reported == 0, "all of it was delivered, also what came just after healing"


def test_what_exceeds_the_bound_is_traced_and_reported_to_the_programs() -> None:
    settings = Settings(tree=TreeSettings(held_events=12))
    result = run_green(replace(STOPPED, settings=settings))
    assert result.reported > 30
    assert result.records["drop"] >= result.reported, "an event at a time"


def test_it_is_reported_although_the_nodes_that_gave_it_up_have_left() -> None:
    settings = Settings(tree=TreeSettings(held_events=12))
    leaving = tuple(Fault(20.0 + number, "drain", nodes=(number,)) for number in (1, 2, 3))
    result = run_green(replace(STOPPED, settings=settings, faults=(*STOPPED.faults, *leaving)))
    assert result.reported > 30


def test_what_a_lease_does_not_outlast_is_reported_to_the_programs() -> None:
    settings = Settings(tree=TreeSettings(lease=12.0))
    result = run_green(replace(DIVIDED, settings=settings))
    assert result.reported > 100


def test_what_a_side_without_the_log_did_not_match_is_reported_when_it_has_healed() -> None:
    settings = Settings(cluster=ClusterSettings(size=1))
    groups = ((0, 1, 2, 3, 4), (5,))  # the primary and both observers are on one side
    faults = (Fault(3.0, "partition", groups=groups), Fault(28.0, "heal"))
    result = run_green(replace(DIVIDED, settings=settings, faults=faults))
    assert result.reported > 20


FLOOD = Scenario(
    nodes=4,
    seed=1,
    subscriptions=(FirstSubscription("x >= 0", node=3),),
    events=tuple({"x": number, "text": "-" * 40_000} for number in range(1_000)),
    rate=500.0,
    rest=5.0,
    publishers=2,
    settings=Settings(
        cluster=ClusterSettings(size=2),
        tree=TreeSettings(pending_bytes=4 << 20, held=10 << 20, replicas=1),
    ),
)
"""20 MB per second for two seconds, for the last node, from a host that is another one. Its link is
congested when 8 MB wait."""


def slowly(bandwidth: float) -> Scenario:
    """The flood, on links to the last node that carry so many bytes per second for a while."""
    ways = tuple(Fault(0.0, "throttle", nodes=(node, 3), bandwidth=bandwidth) for node in (0, 1, 2))
    return replace(FLOOD, faults=(*ways, Fault(60.0, "heal")))


def test_publishers_are_slowed_down_to_what_a_subscriber_s_link_carries() -> None:
    """Of 40 MB in two seconds the link takes 16, and its queue and the host hold 18: without the
    slowing 170 events are given up."""
    result = run_green(replace(slowly(8_000_000.0), publishers=1))
    assert result.delivered == 1_000
    assert "drop" not in result.records


def test_a_subscriber_on_a_very_slow_link_learns_what_it_was_not_sent() -> None:
    result = run_green(slowly(500_000.0))
    assert result.reported > 100


def test_a_host_that_publishes_more_at_once_than_a_frame_carries_delivers_it() -> None:
    world = grown(2)
    hosts = [name for name in world.names() if world.node(name).clusters.is_primary]
    (other,) = [name for name in world.names() if name not in hosts]
    world.subscribe(other, "x >= 0")
    acknowledged(world)
    for _ in range(2):  # the second time the tree is known
        world.publish(hosts[0], *({"x": n, "text": "-" * 5_000} for n in range(300)))
        assert_exact(world)
    assert len(world.clients.deliveries) == 600
