"""Members that lie in collusion, in whole overlays: with keys they isolate and lead nobody."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec import convert

from canopy.sim.world.world import MeteredNode, World
from canopy.wire.transport.codec import WireCodec
from harness.attacks import ATTACKS
from harness.lying_node import Band, LyingNode
from harness.overlays import READY, acknowledged, assert_exact, wait
from overlay.rights import Role
from overlay.settings import Settings

FOUNDERS = 6
NODES = 16
LIARS = dict.fromkeys(("n7", "n10", "n13", "n15"))
VIEW = 4
"""Entries, as many as there are liars, so that these could fill it."""

PUSH_EVERY = 0.5
"""Virtual seconds between two pushes of a liar: honest nodes exchange views a tenth as often."""


def lied_to(attack: str, has_keys: bool) -> World:
    """An overlay of which a quarter has lied for half a minute, and which a newcomer that knew a
    liar and two honest nodes has joined meanwhile."""
    unranked = {} if has_keys else {"sampling": "shuffle"}
    chosen = convert({"view": {"size": VIEW, **unranked}}, Settings)
    world = World(1, WireCodec(), chosen, build=lambda *args, **more: build(*args, **more))
    band = Band(world.generator("band"), str(world.seed))
    band.attributes = ("x",)
    world.roles = {} if has_keys else None

    def build(*arguments: Any, **options: Any) -> MeteredNode:
        if arguments[0].name in LIARS:
            return LyingNode(ATTACKS[attack](band), *arguments, **options)
        return MeteredNode(*arguments, **options)

    def add(number: int, *seeds: str) -> None:
        name = f"n{number}"
        if world.roles is not None:
            world.roles[name] = Role.VOTER if number < FOUNDERS else Role.MEMBER
        world.add_node(seeds=list(seeds), name=name)
        (band.liars if name in LIARS else band.victims).append(world.node(name).me)

    for number in range(NODES):
        add(number, *(["n0"] if number else []))
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    world.subscribe("n8", "x >= 0")
    acknowledged(world)
    band.lies = True
    add(NODES, "n7", "n1", "n2")
    band.newcomers.append(world.node(f"n{NODES}").me)
    for _ in range(round(30 / PUSH_EVERY)):
        for name in LIARS:
            world.drivers[name].act("push")
        world.run(PUSH_EVERY)
    return world


def isolated(world: World) -> list[str]:
    """The honest nodes that have no honest neighbour."""
    liars = {world.node(name).me.id for name in LIARS}
    honest = (name for name in world.names() if name not in LIARS)
    return [n for n in honest if all(p.id in liars for p in world.node(n).view.peers())]


@pytest.mark.parametrize("attack", ["poisoning", "made-up", "eclipse", "push-and-drop"])
def test_liars_in_views_isolate_nobody_and_take_no_event(attack: str) -> None:
    world = lied_to(attack, has_keys=True)
    assert isolated(world) == []
    for name in ("n3", "n9", f"n{NODES}"):
        world.publish(name, {"x": 1})
    assert_exact(world)


def test_without_keys_liars_fill_views() -> None:
    """So that the test above can fail."""
    assert isolated(lied_to("poisoning", has_keys=False))


VOTERS = 5


def lying_voter(has_keys: bool) -> World:
    """An overlay with one cluster of five, of which the voter last in rank lies."""
    world = World(1, WireCodec(), build=lambda *args, **more: build(*args, **more))
    band = Band(world.generator("band"))
    world.roles = {} if has_keys else None

    def build(*arguments: Any, **options: Any) -> MeteredNode:
        return LyingNode(ATTACKS["voter"](band), *arguments, **options)

    for number in range(2 * VOTERS + 2):
        if world.roles is not None:
            world.roles[f"n{number}"] = Role.VOTER
        world.add_node(["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    wait(world, lambda: len(voters(world)) == VOTERS, READY, "five voters")
    liar = world.node(leader(world)).clusters.cluster.brokers[-1]
    band.liars.append(liar)
    band.victims = [world.node(n).me for n in world.names() if world.node(n).me != liar]
    band.lies = True
    push(world, world.identities[liar.id])
    return world


def push(world: World, name: str) -> None:
    """Have a liar push now, and again and again."""
    world.drivers[name].act("push")
    world.at(world.now + PUSH_EVERY, push, world, name)


def honest(world: World) -> list[str]:
    """The nodes that do not lie."""
    return [n for n in world.names() if world.node(n).me not in world.node(n).attack.band.liars]


def leader(world: World) -> str:
    """The honest node that a majority follows; "": there is none."""
    return next((n for n in honest(world) if world.node(n).clusters.is_followed), "")


def voters(world: World) -> list[str]:
    """The voters of the cluster, by name."""
    primary = leader(world)
    log = world.node(primary).clusters.log if primary else None
    return [world.identities[peer.id] for peer in log.voters] if log else []


def led_by_liar(world: World) -> int:
    """How many honest nodes take the liar for a primary."""
    known = (world.node(name).ring.state.known for name in honest(world))
    liars = {peer.id for peer in world.node("n0").attack.band.liars}
    return sum(any(c.primary.id in liars for c in each) for each in known)


def test_one_voter_of_five_that_lies_leads_nobody_and_loses_nothing() -> None:
    """Four primaries die as soon as a subscription is acknowledged, in two of three rounds while
    one or two honest voters hear nothing of it."""
    world, rng = lying_voter(has_keys=True), Random(1)
    made = []
    for number in range(4):
        wait(world, lambda: len(voters(world)) == VOTERS, READY, "five voters")
        primary = leader(world)
        others = [n for n in voters(world) if n in honest(world) and n != primary]
        for name in others[: number % 3]:
            world.network.block(primary, name)
        outside = [n for n in honest(world) if n not in (primary, *others)]
        subscription = world.subscribe(rng.choice(outside), f"v{number} >= 0")
        world.run_until(lambda: subscription.acknowledged is not None, 0.5 if number % 3 else 20.0)  # noqa: B023
        if subscription.acknowledged is not None:
            made.append(subscription)
        world.crash(primary, silent=True)
        world.network.heal()
        wait(world, lambda: bool(leader(world)), 3.0, "another primary")
        assert led_by_liar(world) == 0
        world.publish(next(n for n in outside if n != subscription.node), {f"v{number}": 1})
        world.run(10.0)
        world.restart(primary)
    shown = {each.delivery.subscription for each in world.clients.deliveries}
    assert made
    assert {each.identity for each in made} <= shown


def test_without_keys_a_voter_that_lies_leads_everybody() -> None:
    """So that the test above can fail."""
    world = lying_voter(has_keys=False)
    world.run(5.0)
    assert led_by_liar(world) == len(honest(world))
