"""Nodes out of reach, in whole overlays: what is for them waits, and what does not is reported."""

from __future__ import annotations

from msgspec.structs import replace

from canopy.sim.scenario.scenario import Fault, Scenario, Wish
from overlay.settings import ClusterSettings, Settings, TreeSettings
from tests.support.overlays import run_green

HALVES = ((0, 1, 4), (2, 3, 5))

DIVIDED = Scenario(
    nodes=6,
    seed=1,
    subscriptions=tuple(Wish("x >= 0", node=node) for node in range(6)),
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
    assert result.told == 0, "all of it was delivered"


def test_halves_that_are_apart_for_less_than_a_lease_miss_nothing() -> None:
    result = run_green(DIVIDED)
    assert result.owed > 500
    assert result.told == 0, "all of it was delivered, also what came just after healing"


def test_what_exceeds_the_bound_is_traced_and_reported_to_the_programs() -> None:
    settings = Settings(tree=TreeSettings(held_events=12))
    result = run_green(replace(STOPPED, settings=settings))
    assert result.told > 30
    assert result.records["drop"] >= result.told, "an event at a time"


def test_what_a_lease_does_not_outlast_is_reported_to_the_programs() -> None:
    settings = Settings(tree=TreeSettings(lease=12.0))
    result = run_green(replace(DIVIDED, settings=settings))
    assert result.told > 100


def test_what_a_side_without_the_log_did_not_match_is_reported_when_it_has_healed() -> None:
    settings = Settings(cluster=ClusterSettings(size=1))
    groups = ((0, 1, 2, 3, 4), (5,))  # the primary and both observers are on one side
    faults = (Fault(3.0, "partition", groups=groups), Fault(28.0, "heal"))
    result = run_green(replace(DIVIDED, settings=settings, faults=faults))
    assert result.told > 20
