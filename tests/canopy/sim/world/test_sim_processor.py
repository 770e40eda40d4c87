"""Work that takes virtual time: it delays what follows from it, and what comes in meanwhile."""

from __future__ import annotations

import pytest

from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor
from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown

TICK = 0.0025
"""Seconds that ticks of the node's own, which cost a millisecond each, may take in between."""

INSTANT = Conditions(latency_low=0.001, latency_high=0.001)


def latencies(world: World) -> list[float]:
    """Seconds from publishing to showing, in the order of showing."""
    published = {p.identity: p.published for p in world.clients.publications}
    return [d.time - published[d.delivery.event.identity] for d in world.clients.deliveries]


def one_host(processor: Processor | None) -> World:
    """A node alone, which has all there is to do, with a subscriber."""
    world = grown(1)
    world.network.conditions = INSTANT
    world.drivers["n0"].processor = processor
    world.subscribe("n0", "x > 0")
    acknowledged(world)
    return world


def test_without_a_processor_work_takes_no_time() -> None:
    world = one_host(None)
    world.publish("n0", {"x": 1})
    world.run(1.0)
    assert latencies(world) == [0.0]


def test_matching_takes_its_time_and_so_much_more_for_each_interested_node() -> None:
    world = one_host(Processor(per_input=0.001, per_match=0.01, per_recipient=0.1))
    world.publish("n0", {"x": 1})
    world.run(1.0)
    assert latencies(world) == [pytest.approx(0.111, abs=TICK)]


def test_what_comes_in_meanwhile_waits_and_what_is_matched_later_leaves_later() -> None:
    """All that came while it was busy is read before it goes on matching."""
    world = one_host(Processor(per_input=0.001, per_match=0.1, per_recipient=0.0))
    for _ in range(4):
        world.publish("n0", {"x": 1})
    world.run(2.0)
    # one, while three come; those are read and queued, and matched in one turn
    assert latencies(world) == pytest.approx([0.101, 0.405, 0.405, 0.405], abs=TICK)


def test_an_overlay_whose_work_takes_time_is_exact() -> None:
    world = World(3, grown(1)._codec)
    world.processor = Processor(per_match=0.002)
    for number in range(5):
        world.add_node(["n0"] if number else [])
        world.run(0.3)
    assert world.run_until(world.ready, 60)
    for number in range(5):
        world.subscribe(f"n{number}", f"x > {number}")
    acknowledged(world)
    for number in range(40):
        world.publish(f"n{number % 5}", {"x": number % 7})
        world.run(0.003)
    assert_exact(world)
    assert max(latencies(world)) > 0.03


def test_matches_in_vain_cost_what_their_records_would() -> None:
    """Of an event the first tree costs more than the others, whether it has found somebody or not:
    three trees of one event that one tree wants, and two of one that nobody wants."""
    processor = Processor(per_match=0.003, per_further=0.0005, per_recipient=0.0001)
    one_by_one = [
        processor.cost("match", {"recipients": recipients}, is_further)
        for recipients, is_further in ((0, False), (2, True), (0, True), (0, False), (0, True))
    ]
    counted = processor.cost("match", {"recipients": 2}) + processor.cost_unmatched(4, 1)
    assert counted == pytest.approx(sum(one_by_one))
