"""Wall clocks that differ by hours, and that are turned, change no promise."""

from __future__ import annotations

import msgspec

from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Fault, Scenario
from canopy.sim.scenario.workload import WorkloadShape
from canopy.wire.transport.codec import WireCodec
from harness.overlays import assert_exact, explain, grown
from overlay.settings import Settings, TreeSettings

HOUR = 3_600.0

TURNED = (
    Fault(0.5, "clock", nodes=(0,), seconds=HOUR),
    Fault(1.0, "clock", nodes=(1, 2), seconds=-2 * HOUR),
    Fault(1.5, "clock", seconds=HOUR / 2),
)

LOSSES = (
    Fault(0.8, "crash", role="primary"),
    Fault(3.0, "restart"),
    Fault(4.0, "pause", role="none"),
    Fault(14.0, "resume"),
    Fault(16.0, "lose", role="broker"),
)


def test_whatever_wall_clocks_show_the_same_is_delivered_at_the_same_moment() -> None:
    scenario = Scenario(nodes=8, seed=3, subscriptions=20, events=120, rate=10.0, faults=LOSSES)
    off = msgspec.structs.replace(scenario, clocks=2 * HOUR, faults=(*LOSSES, *TURNED))
    shown = []
    for each in (scenario, off):
        run = ScenarioRun(each, WireCodec())
        result = run.result()
        assert result.green, explain(result.violations, result.stories)
        shown.append(
            [
                (round(s.time, 6), s.node, s.delivery.subscription, s.delivery.event.identity)
                for s in run.world.clients.deliveries
            ]
        )
        walls = [run.world.wall(name) for name in run.world.names()]
        assert (max(walls) - min(walls) > HOUR) == (each is off)
    assert shown[0] == shown[1]
    assert len(shown[0]) > 100


def test_a_gap_of_what_publishers_of_different_hours_published_is_reported() -> None:
    """A subscriber's node stands still, and of what is held for it most is given up."""
    scenario = Scenario(
        nodes=8,
        seed=1,
        subscriptions=16,
        events=200,
        rate=10.0,
        shape=WorkloadShape(attributes=3),
        settings=Settings(tree=TreeSettings(held_events=5)),
        clocks=2 * HOUR,
        faults=(
            Fault(1.0, "pause", role="none"),
            Fault(5.0, "clock", nodes=(0, 1, 2, 3), seconds=-HOUR),
            Fault(16.0, "resume"),
        ),
    )
    run = ScenarioRun(scenario, WireCodec())
    result = run.result()
    assert result.green, explain(result.violations, result.stories)
    assert result.reported > 5, "else it shows nothing"
    spans = [n.until - n.since for n in run.world.clients.notices if n.since and n.until]
    assert max(spans) > HOUR, "by the publishers' clocks"


def test_a_node_that_starts_again_an_hour_earlier_is_the_same_and_gets_everything() -> None:
    world = grown(6, seed=2)
    subscribed = world.subscribe("n4", "x >= 0")
    assert world.run_until(world.acknowledged, 60.0)
    world.publish("n5", {"x": 1})
    world.run(5.0)
    world.crash("n5")
    world.run(1.0)
    world.turn_clock("n5", -HOUR)
    assert world.restart("n5")
    world.run(15.0)
    for number in range(5):
        world.publish("n5", {"x": number})
    assert_exact(world)
    mine = [s for s in world.clients.deliveries if s.delivery.subscription == subscribed.identity]
    assert len(mine) == 6
    times = [s.delivery.event.time for s in mine]
    assert times[1] < times[0] - HOUR / 2
