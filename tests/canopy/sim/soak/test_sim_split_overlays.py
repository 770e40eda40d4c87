"""Overlays that are two for a while: what is expected of them, and that they are one in time."""

from __future__ import annotations

import pytest

from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Fault, Scenario, ScenarioError, parse_scenario
from canopy.sim.world.clients import Division
from canopy.wire.transport.codec import WireCodec
from harness.overlays import run_green
from overlay.chord.ring_merge import Merging
from overlay.settings import ClusterSettings, Settings

APART = Scenario(
    nodes=7,
    seed=3,
    subscriptions=20,
    events=120,
    rate=10.0,
    apart=3,
    one_within=15.0,
    faults=(Fault(2.0, "meet"),),
    settings=Settings(cluster=ClusterSettings(size=3)),
    probes=20,
)


def test_two_overlays_that_meet_are_held_to_one_ring_and_to_all_deliveries() -> None:
    result = run_green(APART)
    assert result.clusters == 1


def test_two_overlays_that_stay_apart_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Merging, "on_other_ring", lambda self, event: None)
    kinds = {violation.kind for violation in ScenarioRun(APART, WireCodec()).result().violations}
    assert {"rings", "missing"} <= kinds


def test_a_partition_that_heals_is_held_to_one_ring() -> None:
    faults = (Fault(1.0, "partition", groups=((0, 1, 2), (3, 4, 5, 6))), Fault(9.0, "heal"))
    scenario = Scenario(
        nodes=7,
        seed=2,
        subscriptions=20,
        events=60,
        rate=10.0,
        rest=10.0,
        one_within=15.0,
        faults=faults,
        probes=20,
    )
    run_green(scenario)


def test_only_nodes_of_one_side_hear_of_each_other_while_an_overlay_is_divided() -> None:
    division = Division(5.0, 9.0, {"a": 0, "b": 0, "c": 1})
    assert not division.parts("a", "b", 6.0)
    assert division.parts("a", "c", 6.0)
    assert division.parts("d", "d", 6.0), "of which side it is is not known"
    assert not division.parts("a", "c", 4.9)
    assert not division.parts("a", "c", 9.0)


def test_the_first_overlay_has_a_node() -> None:
    with pytest.raises(ScenarioError, match="apart"):
        parse_scenario("{nodes: 3, apart: 3}")
