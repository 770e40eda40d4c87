"""In a quiet overlay without failures: delivered = expected, exactly (docs/design/promises.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from canopy.sim.scenario.result import Result
from canopy.sim.scenario.scenario import Scenario
from canopy.sim.scenario.workload import WorkloadShape
from canopy.sim.world.network import Conditions
from harness.overlays import run_green, settings

ROUTINGS = ["pivot", "counting"]
EVENTS = 150
SEEDS = [("pivot", 1), ("counting", 2)]  # `make soak` draws as many as wanted


def scenario(nodes: int, routing: str, seed: int, **more: object) -> Scenario:
    return Scenario(nodes=nodes, seed=seed, settings=settings(tree={"routing": routing}), **more)  # type: ignore[arg-type]


@cache
def quiet(nodes: int, routing: str) -> Result:
    """A run without failures; of twelve nodes, with events that have eight attributes each."""
    if nodes == 12:
        return run_green(
            scenario(nodes, routing, 4, events=EVENTS, shape=WorkloadShape(per_event=8))
        )
    return run_green(scenario(nodes, routing, 1, events=EVENTS))


@pytest.mark.parametrize(
    ("nodes", "routing"),
    [*((nodes, routing) for nodes in (1, 2, 3, 12) for routing in ROUTINGS), (30, "pivot")],
)
def test_everything_expected_is_delivered_once_and_nothing_else(nodes: int, routing: str) -> None:
    result = quiet(nodes, routing)
    assert result.published == EVENTS
    assert result.delivered == result.expected > EVENTS
    assert (result.messages > 0) == (nodes > 1)
    assert result.clusters >= 1
    assert result.refused == 0


def test_pivot_routing_costs_less_than_counting() -> None:
    assert quiet(12, "pivot").messages < quiet(12, "counting").messages


def test_loss_on_the_way_costs_time_and_nothing_else() -> None:
    """With the default routing in test_overlay_splits."""
    conditions = Conditions(loss=0.1, latency_high=0.1)
    result = run_green(scenario(8, "counting", 5, network=conditions, events=200, subscriptions=40))
    assert result.frames_lost > 0
    assert result.delivered >= result.expected > 100


def test_wrong_bits_cost_time_and_nothing_else() -> None:
    conditions = Conditions(damage=0.01)
    result = run_green(scenario(8, "pivot", 5, network=conditions, events=200, subscriptions=40))
    assert result.delivered >= result.expected > 100


@pytest.mark.parametrize("routing", ROUTINGS)
def test_long_delays_reorder_what_different_nodes_say_and_nothing_is_lost(routing: str) -> None:
    slow = settings(
        tree={"routing": routing},
        ring={"found_after": 60.0},
    )
    conditions = Conditions(latency_low=0.01, latency_high=1.5)
    result = run_green(
        Scenario(nodes=8, seed=6, settings=slow, network=conditions, events=100, subscriptions=40)
    )
    assert result.delivered >= result.expected > 100


@pytest.mark.parametrize(("routing", "seed"), SEEDS)
def test_subscriptions_come_and_go_while_events_flow(routing: str, seed: int) -> None:
    result = run_green(
        scenario(
            8,
            routing,
            seed,
            events=160,
            rate=20.0,
            late_subscriptions=40,
            late_unsubscriptions=30,
        )
    )
    assert result.subscriptions == 100


PROGRAM = """
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.sim.world.network import Conditions
from canopy.wire.transport.codec import WireCodec
result = ScenarioRun(
    Scenario(nodes=6, seed=9, events=60, subscriptions=20, network=Conditions(loss=0.02)),
    WireCodec(),
).result()
print(result.trace_hash, result.steps, len(result.violations))
"""


def test_a_seed_is_one_history_of_the_real_node_too() -> None:
    def elsewhere(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    first = elsewhere("1")
    assert first == elsewhere("77")
    assert first.endswith(" 0\n")
