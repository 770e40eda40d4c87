"""Each publisher's events come to each subscription in the order of publication."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from canopy.sim.checks import Violation
from canopy.sim.world.clients import Clients
from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings

ATTRIBUTES = "abcdef"

VARIANTS: dict[str, dict[str, Any]] = {
    "hosts": {"host_entries": 4},  # each tree at hosts of its own
    # Trees of several virtual nodes, but no value in shards: events of one come late (promises.md).
    "split": {"host_entries": 8, "split_at": 8},
    "delegates": {"fan_out": 4},
    "replicas": {"host_entries": 4, "split_at": 4, "replicas": 2},
}


def check_order(clients: Clients, since: float = 0.0) -> list[Violation]:
    """One violation for each event that was shown to a subscription after a later one of its
    publisher. `since`: only of events that were published from then on, in virtual seconds."""
    published = {event.identity: event.published for event in clients.publications}
    last: dict[tuple[str, str, int], int] = {}
    violations: list[Violation] = []
    for shown in clients.deliveries:
        event, subscription = shown.delivery.event, shown.delivery.subscription
        if published.get(event.identity, -1.0) < since:
            continue
        flow = (subscription, event.publisher, event.incarnation)
        before = last.get(flow, 0)
        if event.sequence < before:
            text = f"{event.identity} came to {subscription} after number {before}"
            violations.append(Violation("order", text, (event.identity, subscription)))
        last[flow] = max(before, event.sequence)
    return violations


def term(rng: Random) -> str:
    attribute = rng.choice(ATTRIBUTES)
    match rng.randrange(3):
        case 0:
            return f"{attribute} = {rng.randrange(4)}"
        case 1:
            return f"{attribute} >= {rng.randrange(4)}"
        case _:
            return f"{attribute} BETWEEN {rng.randrange(2)} AND {rng.randrange(2, 4)}"


def selector(rng: Random) -> str:
    def conjunction() -> str:
        return " AND ".join(term(rng) for _ in range(rng.randint(1, 2)))

    return " OR ".join(f"({conjunction()})" for _ in range(rng.randint(1, 3)))


def event(rng: Random) -> dict[str, int]:
    return {name: rng.randrange(4) for name in rng.sample(ATTRIBUTES, rng.randint(1, 3))}


def busy(seed: int, **tree: Any) -> tuple[World, float]:
    """A world in which three nodes have published a lot, and since when their trees were known."""
    rng = Random(seed)
    world = grown(8, seed, settings(tree=tree))
    for number in range(30):
        world.subscribe(world.names()[number % 8], selector(rng))
    acknowledged(world)
    world.run(3.0)
    publishers = world.names()[:3]
    for publisher in publishers:
        for _ in range(4):  # all trees are found, and all links are open
            world.publish(publisher, *({a: v} for a in ATTRIBUTES for v in range(4)))
            world.run(1.0)
    since = world.now
    for _ in range(30):
        made = [event(rng) for _ in range(rng.randint(1, 12))]
        world.publish(rng.choice(publishers), *made, receipt=rng.random() < 0.5)
        world.run(rng.choice([0.0, 0.002, 0.01, 0.05]))
    return world, since


def counted(world: World, name: str) -> int:
    return sum(world.node(each).counters.get(name, 0) for each in world.names())


@pytest.mark.parametrize(
    ("variant", "routing"),
    [(variant, "pivot") for variant in VARIANTS] + [("hosts", "counting")],
)
def test_events_of_a_publisher_come_in_the_order_of_publication(variant: str, routing: str) -> None:
    seed = [*VARIANTS].index(variant) + 1
    tree = {"routing": routing, "order_hold": 0.25, **VARIANTS[variant]}
    world, since = busy(seed, **tree)
    assert_exact(world)
    assert check_order(world.clients, since) == []
    assert counted(world, "order_held") > 0


def test_the_load_would_be_out_of_order_if_nothing_waited() -> None:
    world, since = busy(1, order_hold=0.0, **VARIANTS["hosts"])
    assert_exact(world)
    assert len(check_order(world.clients, since)) > 10
    assert counted(world, "order_held") == 0


@pytest.mark.parametrize("routing", ["pivot", "counting"])
@pytest.mark.parametrize("seed", [3])
def test_waiting_for_earlier_events_loses_and_doubles_nothing(seed: int, routing: str) -> None:
    """On a network that loses frames, so that ways differ by more than anything waits."""
    tree = {"routing": routing, **VARIANTS["replicas"]}
    rng = Random(seed)
    world = grown(8, seed, settings(tree=tree))
    for number in range(30):
        world.subscribe(world.names()[number % 8], selector(rng))
    acknowledged(world)
    world.run(3.0)
    world.network.conditions = msgspec.structs.replace(
        world.network.conditions, loss=0.05, latency_high=0.2
    )
    for _ in range(40):
        world.publish(world.names()[0], *(event(rng) for _ in range(6)))
        world.run(0.05)
    world.network.conditions = msgspec.structs.replace(world.network.conditions, loss=0.0)
    assert_exact(world)
    assert counted(world, "order_held") > 0


def test_events_that_alternate_between_two_attributes_come_as_they_were_published() -> None:
    """Also the first ones, whose trees nothing is known of."""
    world = grown(6, 1, settings(tree={"host_entries": 1}))
    world.subscribe("n5", "b = 1 OR c = 1")
    acknowledged(world)
    world.run(2.0)
    world.publish("n4", *({"b" if number % 2 else "c": 1, "i": number} for number in range(20)))
    assert_exact(world)
    shown = [s.delivery.event.attributes["i"] for s in world.clients.deliveries]
    assert shown == [*range(20)]


def test_what_comes_over_one_host_does_not_wait() -> None:
    world = grown(6, 1)
    for node in world.names():
        world.subscribe(node, "b = 1 OR c = 1")
    acknowledged(world)
    world.run(2.0)
    for _ in range(10):
        world.publish("n4", *({"b" if number % 2 else "c": 1} for number in range(20)))
        world.run(0.01)
    assert_exact(world)
    assert check_order(world.clients) == []
    assert counted(world, "order_held") == 0
