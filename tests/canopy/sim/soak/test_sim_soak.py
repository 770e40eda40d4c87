"""The soak: a seed is one scenario and one history; what is wrong is reported with its command."""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from canopy.cli.sim.command import sim
from canopy.sim.scenario.fault_injector import FaultInjector
from canopy.sim.scenario.run import ScenarioRun, judge_run
from canopy.sim.scenario.scenario import Fault, FaultPhase, Scenario, check_nodes, parse_scenario
from canopy.sim.soak.shrink import written_down
from canopy.sim.soak.soak import draw_long_scenario, draw_scenario, judge_seed, soak
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import acknowledged, grown, settings, wait, with_role
from overlay.machine import Peer
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.messages import Uninstall
from tests.support.fake_node import FakeNode


def test_a_seed_draws_one_valid_scenario_that_can_be_written_down() -> None:
    drawn = [draw_scenario(seed) for seed in range(200)]
    assert drawn[:50] == [draw_scenario(seed) for seed in range(50)]
    for scenario in drawn:
        check_nodes(scenario)
    for scenario in drawn[:50]:  # the text is most of what this test takes
        assert parse_scenario(msgspec.yaml.encode(scenario).decode()) == scenario
    done = Counter(fault.do for scenario in drawn for fault in scenario.faults)
    assert set(done) >= {"cut", "network", "join", "crash", "lose", "drain", "restart"}
    assert set(done) >= {"block", "clog", "heal", "pause", "resume"}
    assert "throttle" in done
    assert "clock" in done
    assert any(scenario.clocks for scenario in drawn)
    assert any(fault.role == "majority" for scenario in drawn for fault in scenario.faults)
    assert any(scenario.apart for scenario in drawn)
    assert any(fault.groups for scenario in drawn for fault in scenario.faults)
    assert any(fault.wiped for scenario in drawn for fault in scenario.faults)
    assert any(fault.midway for scenario in drawn for fault in scenario.faults)
    assert any(scenario.disk.sync_high for scenario in drawn)
    assert any(scenario.network.link_bandwidth for scenario in drawn)
    assert {s.settings.tree.routing for s in drawn} == {"pivot", "counting"}


def test_a_length_adds_phases_and_leaves_a_seed_as_it_is_otherwise() -> None:
    longer = [draw_long_scenario(seed, 600.0) for seed in range(100)]
    assert [replace(scenario, phases=()) for scenario in longer] == [
        draw_long_scenario(seed) for seed in range(100)
    ]
    assert [draw_long_scenario(seed) for seed in range(100)] == [
        draw_scenario(seed) for seed in range(100)
    ]
    for scenario in longer:
        check_nodes(scenario)
        assert len(scenario.phases) in range(4, 14)
    assert parse_scenario(msgspec.yaml.encode(longer[1]).decode()) == longer[1]
    phases = [phase for scenario in longer for phase in scenario.phases]
    done = Counter(fault.do for phase in phases for fault in phase.faults)
    assert set(done) == {"cut", "network", "join", "crash", "lose", "drain", "restart", "block",
        "clog", "heal", "pause", "resume", "throttle", "clock", "partition"}  # fmt: skip
    assert {phase.one_within > 0 for phase in phases} == {True, False}
    turned = [
        abs(fault.seconds)
        for seed in range(40)
        for phase in draw_long_scenario(seed, 600.0, keys=True).phases
        for fault in phase.faults
    ]
    assert 0 < max(turned) <= 600, "what certificates allow"


def test_phases_begin_with_all_nodes_and_subscriptions_and_are_checked_like_the_first() -> None:
    """Two blackouts, of which nobody is started again by a fault, and a division."""
    gone = Fault(0.5, "crash", nodes=(0, 1, 2, 3, 4, 5))
    apart = (Fault(0.5, "partition", groups=((0, 1, 2, 3), (4, 5))), Fault(1.5, "heal"))
    scenario = Scenario(
        nodes=6, seed=3, subscriptions=6, events=12, rate=6.0, probes=6, faults=(gone,),
        phases=(FaultPhase((gone,)), FaultPhase(apart, 15.0)),
    )  # fmt: skip
    run = ScenarioRun(scenario, WireCodec())
    verdict = judge_run(run)
    assert verdict.green, verdict.violations
    clients = run.world.clients
    assert [fault.do for fault in run.later_faults].count("restart") == 2
    assert len(clients.crashes) == 2 * 6
    assert len(clients.subscriptions) == 6 * 3 + 6
    assert len(clients.publications) == 3 + 3 + 12 + 6, "those before the blackouts, and all"
    (division,) = clients.divisions
    assert division.healed
    (at,) = [run.faults_at + fault.at for fault in run.later_faults if fault.do == "partition"]
    assert division.since < at < division.until < run.world.now
    assert written_down(run).phases == ()
    assert [fault.do for fault in written_down(run).faults].count("restart") == 2


def test_some_seeds_have_regions_and_tiers_and_keep_the_way_between_them() -> None:
    drawn = [draw_scenario(seed) for seed in range(1, 120)]
    placed = [scenario for scenario in drawn if scenario.regions]
    assert len(placed) in range(15, 45)
    assert {scenario.regions for scenario in placed} == {2, 3}
    assert {scenario.tiered for scenario in placed} == {0, 2, 4}
    assert {scenario.network.backbone for scenario in placed} == {0.0, 0.03, 0.08}
    changed = [f.network for s in placed for f in s.faults if f.network and s.network.backbone]
    assert changed
    assert all(network.backbone for network in changed), "a changed network has no shorter ways"
    assert not any(s.tiered or s.network.backbone for s in drawn if not s.regions)


def test_nodes_of_a_scenario_are_in_its_regions_in_turn_and_some_have_a_tier() -> None:
    world = World(1, WireCodec())
    injector = FaultInjector(world, Random(1), regions=2, tiered=3)
    for _ in range(4):
        injector.join()
    peers = [world.node(name).me for name in injector.names]
    assert [(peer.region, peer.tier) for peer in peers] == [
        ("r0", 1), ("r1", 0), ("r0", 0), ("r1", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("killed", "seconds", "wiped", "is_noted"),
    [
        ((0, 1), 20.0, False, True),
        ((0,), 20.0, False, False),
        ((0, 1), 1.0, False, False),
        ((0, 1), 20.0, True, False),
    ],
)
def test_nodes_that_return_together_may_lead_beside_who_took_their_place(
    killed: tuple[int, ...], seconds: float, wiped: bool, is_noted: bool
) -> None:
    """Until both have met, an event may be told as missing (soak with keys, seed 30020)."""
    world = World(1, None, build=FakeNode)  # type: ignore[arg-type]
    injector = FaultInjector(world, Random(1))
    for _ in range(4):
        injector.join()
    world.run(1.0)
    injector.inject(Fault(0.0, "crash", nodes=killed))
    world.run(seconds)
    injector.inject(Fault(0.0, "restart", wiped=wiped))
    assert world.clients.absences == ([(world.now, world.now)] if is_noted else [])


def test_more_than_half_of_one_cluster_is_lost_where_there_are_several() -> None:
    chosen = settings(cluster={"size": 3, "split_trees": 2})
    world = grown(9, seed=1, chosen=chosen)
    injector = FaultInjector(world, Random(1))
    injector.names = world.names()
    for number in range(12):
        world.subscribe("n8", f"a{number} > 0")
    acknowledged(world)
    wait(world, lambda: len(with_role(world, "primary")) > 1, 60.0, "several clusters")
    world.run(10.0)
    before = {
        name: cluster.key
        for name in world.names()
        if (cluster := world.node(name).clusters.cluster) is not None
    }
    injector.inject(Fault(0.0, "crash", role="majority"))
    lost = [crash.node for crash in world.clients.crashes]
    assert len({before[name] for name in lost}) == 1
    assert len(lost) == 2, "of three"


def test_some_seeds_are_green_and_the_same_each_time() -> None:
    one = list(soak(range(1, 4), WireCodec()))
    assert [v.violations for v in one] == [(), (), ()]
    assert [v.result for v in one[:1]] == [v.result for v in soak(range(1, 2), WireCodec())]


def test_a_bad_seed_ends_the_soak_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(self: AssignedTrees, sender: Peer, message: Uninstall) -> None:
        """The node does nothing."""

    monkeypatch.setattr(AssignedTrees, "on_uninstall", kept)
    done = CliRunner().invoke(sim, ["soak", "--seeds", "30", "--json", "--quiet", "--shrink", "0"])
    assert done.exit_code == 1
    facts = json.loads(done.stdout)
    assert len(facts["bad"]) == 1
    assert f"again: canopy sim soak --seed {facts['bad'][0]} --seeds 1" in done.stderr
    bad, finding, *_ = done.stderr.splitlines()
    assert bad == f"seed {facts['bad'][0]} is bad:"
    assert re.fullmatch(r"registration: \S+ of n\d+ at its host \w+ still has .*", finding)
    assert facts["seeds_per_hour"] > 0
    assert facts["seeds_per_cpu_hour"] > 0


def test_an_exception_in_a_node_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: HostedTree, *arguments: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(HostedTree, "install", broken)
    (violation,) = judge_seed(1, WireCodec()).violations
    assert violation.kind == "exception"
    assert "planted" in violation.text
    assert "broken" in violation.text


def test_a_green_soak_says_how_fast_it_was_and_shows_what_a_seed_does() -> None:
    done = CliRunner().invoke(sim, ["soak", "--seed", "2", "--seeds", "1", "--json", "--quiet"])
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert facts["bad"] == []
    assert facts["simulated_hours"] > 0
    shown = CliRunner().invoke(sim, ["soak", "--seed", "2", "--show"])
    assert parse_scenario(shown.stdout) == draw_scenario(2)
