"""Messages, hops, copies and state of a run; the paper's load on full nodes."""

from __future__ import annotations

import json
from random import Random

import pytest
from click.testing import CliRunner

from canopy.cli.sim.command import sim
from canopy.sim.scenario.range_load import LoadShape, PaperWorkload
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.wire.transport.codec import WireCodec
from harness.overlays import settings
from matching import compile_selector

SHAPE = LoadShape(attributes=12, mean=3.0, kinds=0, width=0.9)


def test_the_papers_load_is_one_of_selectors_and_events() -> None:
    one, two = (PaperWorkload(Random(3), SHAPE) for _ in range(2))
    for _ in range(50):
        selector, event = one.selector(), one.event()
        assert (selector, event) == (two.selector(), two.event())
        (conjunction,) = compile_selector(selector).conjunctions
        assert {*conjunction.attributes, *event} <= {f"a{n}" for n in range(12)}


@pytest.mark.parametrize("width", [0.2, 0.9])
def test_a_range_holds_its_share_of_the_values(width: float) -> None:
    shape = LoadShape(attributes=1, mean=1.0, kinds=0, width=width)
    workload = PaperWorkload(Random(5), shape)
    hits = sum(compile_selector(workload.selector()).matches(workload.event()) for _ in range(400))
    assert abs(hits / 400 - width) < 0.1


def test_a_run_shows_its_ways() -> None:
    room = settings(tree={"host_entries": 30})
    scenario = Scenario(
        nodes=12, subscriptions=60, events=60, load=SHAPE, publishers=2, settings=room
    )
    run = ScenarioRun(scenario, WireCodec())
    result = run.result()
    assert result.green
    ways = result.ways
    assert ways is not None
    assert {p.node for p in run.world.clients.publications} == set(run.world.names()[:2])
    assert ways.registrations == 60
    assert ways.ratio_to_lower_bound == round(result.messages / result.lower_bound, 4)
    assert ways.ratio_steady is not None
    assert ways.ratio_steady <= 1.5
    assert 1 <= ways.hops_p50 <= ways.hops_p99 <= 4
    assert 1 <= ways.most_copies <= 16
    assert ways.hosts >= 2
    assert ways.entries_mean <= ways.entries_max <= 30


def test_the_command_knows_the_papers_load() -> None:
    command = [
        "run",
        "--nodes",
        "8",
        "--subscriptions",
        "40",
        "--events",
        "20",
        "--publishers",
        "1",
    ]
    done = CliRunner().invoke(sim, [*command, "--load", "paper", "--json", "--quiet"])
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["registrations"] == 40
    assert facts["ratio_steady"] is not None
    assert facts["hops_p99"] <= 4
