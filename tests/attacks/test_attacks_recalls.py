"""Recalls of what publishers know of trees count if an owner says them (a storm of recalls)."""

from __future__ import annotations

import msgspec

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact
from overlay.chord.keys import attribute_key
from overlay.machine import Message
from overlay.upper_tree.messages import AskCached, Invalidate
from tests.attacks.test_attacks_owners import overlay

HIGH = 1 << 52
TERMS = 3
"""Of a summary, for which the storm lasts."""


def storm(world: World, liar: str, victim: str, message: Message) -> None:
    """One message of a storm of them."""
    node = world.node(liar)
    node.turns.begin()
    node.links.send(world.node(victim).me, message)
    node.links.flush()


def others(world: World, *but: str) -> list[str]:
    return [name for name in world.names() if name not in but]


def stormed(world: World, liar: str, victim: str) -> None:
    """`victim` publishes while a voter that owns nothing recalls all that it asks about."""
    cluster = world.node(victim).ring.covering(attribute_key("none"))
    claimed = msgspec.structs.replace(cluster, version=(HIGH, 1))
    for number in range(TERMS * 20):
        storm(world, liar, victim, Invalidate(("x", "none"), number, HIGH))
        storm(world, liar, victim, AskCached(claimed))
        world.publish(victim, {"x": 5, "none": number}, receipt=True)
        world.run(world.settings.tree.summary_term / 20)


def test_a_voter_that_owns_no_tree_recalls_nothing() -> None:
    """Its epoch would have owners' answers rejected, so that no publication ended."""
    world, liar = overlay()
    subscriber, victim = others(world, liar)[:2]
    world.subscribe(subscriber, "x > 1")
    acknowledged(world)
    world.publish(victim, {"x": 3, "none": 1})
    world.run(1)
    stormed(world, liar, victim)
    assert world.node(victim).publisher.unaccepted <= 2  # those of the last moments
    assert world.settle()
    counters = world.node(victim).counters
    assert counters["orders_refused"] >= TERMS * 20
    assert counters["lookups_absent"] > 0
    assert_exact(world)


def test_an_owner_s_recall_is_obeyed_though_another_one_storms() -> None:
    world, liar = overlay()
    victim = others(world, liar)[0]
    for _ in range(3):
        world.publish(victim, {"x": 5})
        world.run(1)
    stormed(world, liar, victim)
    world.subscribe(others(world, liar)[1], "none >= 0")
    storm(world, liar, victim, Invalidate(("none",), 1, HIGH))
    acknowledged(world)
    world.publish(victim, {"none": 7})
    assert_exact(world)
