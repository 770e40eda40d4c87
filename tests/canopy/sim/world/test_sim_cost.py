"""What a run costs is measured beside the run, and does not change it."""

from __future__ import annotations

import gc
import json
import weakref

import msgspec
import pytest
from click.testing import CliRunner

from canopy.cli.sim.command import replay_command, sim, with_options
from canopy.sim.scenario.scenario import Scenario, ScenarioError, parse_scenario
from canopy.sim.world.cost import Meter, collector_at_rest, peak, resident


class Knot:
    """Something that only the cyclic collector can free."""

    def __init__(self) -> None:
        self.me = self


def test_the_command_reports_what_the_run_cost() -> None:
    options = ["run", "--nodes", "3", "--subscriptions", "7", "--events", "20", "--quiet"]
    done = CliRunner().invoke(sim, [*options, "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["subscriptions"], facts["published"]) == (7, 20)
    assert facts["cpu_s"] > 0
    assert facts["steps_per_second"] > 0
    assert facts["bytes_per_node"] >= 0
    assert facts["peak_bytes"] > 1_000_000
    assert done.stderr == ""
    text = CliRunner().invoke(sim, options).stdout
    assert "steps per second" in text
    assert "bytes per node" in text


def test_counts_of_the_command_line_are_part_of_the_command_that_repeats_it() -> None:
    counts = {"subscriptions": 2, "events": None}
    assert replay_command(None, 3, 4, "pivot", counts) == (
        "canopy sim run --nodes 3 --seed 4 --routing pivot --subscriptions 2"
    )


def test_a_room_of_the_command_line_is_a_hosts_and_a_virtual_nodes() -> None:
    tree = with_options(Scenario(), None, None, 30, "mixed").settings.tree
    assert (tree.host_entries, tree.split_at, tree.routing) == (30, 30, "pivot")


def test_the_built_in_workload_grows_with_the_overlay() -> None:
    for nodes, first, join, subscribe in ((12, 60, 0.2, 0.01), (3_000, 6_000, 0.02, 20 / 6_000)):
        scenario = Scenario(nodes=nodes)
        assert scenario.first_subscriptions == first
        assert (scenario.join_interval, scenario.subscribe_interval) == (join, subscribe)
    given = msgspec.structs.replace(scenario, subscriptions=5, join_gap=0.0)
    assert (given.first_subscriptions, given.join_interval) == (5, 0.0)
    assert parse_scenario("events: 4", subscriptions=9, events=8) == Scenario(
        subscriptions=9, events=8
    )
    with pytest.raises(ScenarioError):
        parse_scenario("join_gap: -1")


def test_the_meter_sees_memory_and_processor_time() -> None:
    meter = Meter()
    before = resident()
    block = bytearray(64_000_000)
    sum(range(200_000))
    cost = meter.read(steps=1_000, nodes=2)
    assert len(block) == 64_000_000
    assert cost.bytes_per_node > 16_000_000
    assert cost.cpu_s >= 0
    assert peak() >= before > 1_000_000


def test_the_collector_rests_and_takes_away_the_former_world_first() -> None:
    knot = weakref.ref(Knot())
    with collector_at_rest():
        assert knot() is None
        assert not gc.isenabled()
        with collector_at_rest():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_works_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), collector_at_rest():
        raise ZeroDivisionError
    assert gc.isenabled()
