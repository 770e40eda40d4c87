"""Whole overlays in the simulator, for tests/overlay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from canopy.sim.checks import Violation
from canopy.sim.checks.deliveries import check_deliveries
from canopy.sim.checks.failure_report import trace_violation as story_of
from canopy.sim.checks.ownership import check_arcs, check_maps
from canopy.sim.scenario.result import Result
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.settings import Settings

READY = 60.0
"""Virtual seconds in which a small overlay is ready."""


def settings(**groups: dict[str, Any]) -> Settings:
    """The defaults with some numbers changed: settings(tree={"split_at": 8})."""
    return msgspec.convert(groups, Settings)


def run_green(scenario: Scenario) -> Result:
    """Run it; every violation is an error with its history."""
    result = ScenarioRun(scenario, WireCodec()).result()
    assert result.green, explain(result.violations, result.stories)
    return result


def explain(violations: Any, stories: Any = ()) -> str:
    """Violations and their records as text."""
    lines = [f"{len(violations)} violations", *(f"{v.kind}: {v.text}" for v in violations[:10])]
    for story in stories[:3]:
        lines += ["", *story]
    return "\n".join(lines)


def grown(nodes: int, seed: int = 1, chosen: Settings | None = None, gap: float = 0.2) -> World:
    """A ready overlay of nodes n0, n1 …, all of which know n0."""
    world = World(seed, WireCodec(), chosen)
    for number in range(nodes):
        world.add_node(seeds=["n0"] if number else [])
        world.run(gap)
    wait(world, world.ready, READY, f"{nodes} nodes ready")
    return world


def acknowledged(world: World, most: float = 60.0) -> None:
    """Run until every subscription has its SUBACK."""
    assert world.run_until(world.acknowledged, most), [
        s for s in world.clients.subscriptions if s.acknowledged is None
    ]


def assert_exact(world: World, grace: float = 10.0) -> None:
    """Settle, then nothing missing, spurious or twice, and maps and arcs are whole."""
    assert world.settle(), {name: world.status(name).pending for name in world.names()}
    violations: list[Violation] = check_deliveries(world, grace=grace)
    violations += [*check_arcs(world), *check_maps(world)]
    for name in world.names():
        assert not world.node(name).counters.get("faults_contained"), world.node(name).counters
    stories = [story_of(world, v) for v in violations[:3] if v.about]
    assert not violations, explain(violations, stories)


def with_role(world: World, role: str) -> list[str]:
    """The nodes that have a role now: primary, standby, broker, none."""
    return [name for name in world.names() if world.node(name).clusters.role == role]


def hosts(world: World) -> dict[str, dict[str, int]]:
    """Per attribute: node name -> how many virtual nodes it hosts."""
    by_id = {world.drivers[name].disk.node: name for name in world.names()}
    found: dict[str, dict[str, int]] = {}
    for name in with_role(world, "primary"):
        for attribute, owned in world.node(name).owner.trees.items():
            counts = found.setdefault(attribute, {})
            for entry in owned.tree.map.entries:
                for peer in entry.hosts:
                    host = by_id.get(peer.id, peer.id)
                    counts[host] = counts.get(host, 0) + 1
    return found


def wait(world: World, condition: Callable[[], bool], most: float, what: str) -> None:
    """Run until `condition`, or fail with `what`."""
    assert world.run_until(condition, most), f"not within {most} s: {what}"
