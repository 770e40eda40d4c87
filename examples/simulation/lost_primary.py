"""How long does the loss of a cluster's primary hold events up? A simulation in a page.

    python examples/simulation/lost_primary.py              # three seeds
    python examples/simulation/lost_primary.py 11 12 13 14

Nine whole nodes run in virtual time: two at programs that subscribe, one at a program that
publishes twenty events a second. After ten seconds the primary of the publisher's tree dies without
a word. Printed for each seed: what was expected and came, the longest time that an event took
before and after the death, and when the next primary led. A seed always gives the same line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from matching import compile_selector

NODES, EVENTS, RATE, DEATH = 9, 400, 20.0, 10.0
SELECTORS = ("mag >= 4", "mag < 2 OR place = 'Nome'")


class Outcome(NamedTuple):
    """One seed. Times are virtual seconds."""

    seed: int
    expected: int
    delivered: int
    slowest_before: float
    slowest_after: float
    led_after: float


def primaries(world: World) -> list[str]:
    """The nodes that lead a cluster now."""
    return [name for name in world.names() if world.node(name).clusters.role == "primary"]


def simulate(seed: int) -> Outcome:
    """Run one seed. RuntimeError if the overlay does not get ready."""
    world = World(seed, WireCodec())
    for number in range(NODES):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    world.run_until(world.ready, 60.0)
    members = world.node(primaries(world)[0]).clusters.members
    outside = [name for name in world.names() if world.node(name).clusters.role == "none"]
    if len(outside) < 3:
        raise RuntimeError(f"seed {seed}: {members} members, and no three nodes beside them")
    publisher, *subscribers = outside[:3]
    for node, selector in zip(subscribers, SELECTORS, strict=True):
        world.subscribe(node, selector)
    if not world.run_until(world.acknowledged, 60.0):
        raise RuntimeError(f"seed {seed}: a subscription is not acknowledged")
    draw, begin = world.generator("events"), world.now
    died = led = 0.0
    while len(world.clients.publications) < EVENTS:
        place = draw.choice(["Nome", "Fiji"])
        world.publish(publisher, {"mag": round(draw.uniform(0, 6), 1), "place": place})
        world.run(1 / RATE)
        if not died and world.now - begin > DEATH:
            (victim,) = primaries(world)[:1]
            died = world.now
            world.crash(victim, silent=True)
        if died and not led and primaries(world):
            led = world.now - died
    world.settle()
    published = {one.identity: one for one in world.clients.publications}
    predicates = [compile_selector(selector) for selector in SELECTORS]
    expected = sum(
        predicate.matches(one.attributes) is True
        for one in published.values()
        for predicate in predicates
    )
    taken = [
        (published[shown.delivery.event.identity].published, shown.time)
        for shown in world.clients.deliveries
    ]
    before = max(came - sent for sent, came in taken if came < died)
    after = max(came - sent for sent, came in taken if came >= died)
    return Outcome(seed, expected, len(taken), before, after, led)


def main(seeds: Sequence[str]) -> None:
    """Print a line for each seed."""
    print("seed  expected  delivered  slowest before, s  after, s  next primary after, s")
    for seed in map(int, seeds or ("1", "2", "3")):
        one = simulate(seed)
        print(
            f"{one.seed:4}  {one.expected:8}  {one.delivered:9}  {one.slowest_before:17.3f}"
            f"  {one.slowest_after:8.3f}  {one.led_after:21.2f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
