"""P6 in a whole overlay whose work takes time: what is urgent comes first, and nothing is lost."""

from __future__ import annotations

from statistics import mean

from canopy.sim.world.processor import Processor
from harness.overlays import acknowledged, assert_exact, grown, settings

EVENTS = 150
SLOW = Processor(per_match=0.01)


def delays(**tree: float) -> dict[str, list[float]]:
    """Seconds to delivery by type of event, where events come twice as fast as they are matched, by
    one host."""
    world = grown(4, chosen=settings(tree={"choice": "hash", **tree}))
    world.subscribe("n1", "type = 'hot'", level=1)
    world.subscribe("n2", "type = 'cold'", level=5)
    acknowledged(world)
    world.publish("n3", {"type": "mild"})  # so that the tree is found
    world.run(5.0)
    for driver in world.drivers.values():
        driver.processor = SLOW
    for number in range(EVENTS):
        world.publish("n3", {"type": "hot" if number % 2 else "cold"})
        world.run(0.005)
    assert_exact(world)
    published = {p.identity: p.published for p in world.clients.publications}
    found: dict[str, list[float]] = {"hot": [], "cold": []}
    for shown in world.clients.deliveries:
        event = shown.delivery.event
        found[str(event.attributes["type"])].append(shown.time - published[event.identity])
    return found


def test_the_urgent_overtake_and_all_arrive() -> None:
    found = delays()
    assert [len(each) for each in found.values()] == [EVENTS // 2, EVENTS // 2]
    assert mean(found["hot"]) < 0.5 * mean(found["cold"])


def test_without_priority_they_wait_alike() -> None:
    found = delays(priority=False)
    assert 0.8 < mean(found["hot"]) / mean(found["cold"]) < 1.25


def test_ageing_bounds_by_how_much_the_urgent_overtake() -> None:
    aged = delays(ageing=0.001)
    assert 0.8 < mean(aged["hot"]) / mean(aged["cold"]) < 1.25
