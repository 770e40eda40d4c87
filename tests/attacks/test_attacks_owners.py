"""Hosts take orders of those who own the tree, and of nobody else (attack 5)."""

from __future__ import annotations

import pytest

from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import READY, acknowledged, assert_exact, settings, wait
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.machine import Key, Message
from overlay.rights import Role
from overlay.upper_tree.messages import Assign, Install, ServingBeat, TreesHosted, Uninstall


def overlay() -> tuple[World, str]:
    """An overlay with keys, and a voter of it that serves in no cluster: it lies."""
    world = World(7, WireCodec(), settings(cluster={"size": 3}))
    world.roles = {f"n{number}": Role.VOTER for number in range(6)}
    for number in range(6):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    world.run(5)
    liar = next(name for name in world.names() if world.node(name).clusters.role == "none")
    return world, liar


ORDERS = {
    "uninstall": lambda epoch, ids, arc: Uninstall("x", epoch, ids),
    "install": lambda epoch, ids, arc: Install("x", epoch, ()),
    "assign": lambda epoch, ids, arc: Assign("x", (epoch, 1)),
    "trees hosted": lambda epoch, ids, arc: TreesHosted(*arc, epoch, ()),
    "serving beat": lambda epoch, ids, arc: ServingBeat(*arc, epoch, 1, 0, 20.0),
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_voter_that_does_not_own_the_tree_gives_no_orders(order: str) -> None:
    """Its epoch would fence the owner at each of its hosts."""
    world, liar = overlay()
    subscriber = next(n for n in world.names() if n != liar)
    world.subscribe(subscriber, "x > 1")
    acknowledged(world)
    hosts = [n for n in world.names() if "x" in world.node(n).hosting.trees]
    victim = world.node(hosts[0])
    ids = tuple(victim.hosting.trees["x"].registrations)
    cluster = victim.ring.covering(attribute_key("x"))
    message: Message = ORDERS[order](cluster.epoch + 5, ids, (cluster.start, cluster.key))
    node = world.node(liar)
    for name in hosts:
        node.turns.begin()
        node.links.send(world.node(name).me, message)
        node.links.flush()
    world.run(2)
    assert victim.hosting.assigned.known_epoch(victim.hosting.trees["x"]) <= cluster.epoch
    assert sum(world.node(name).counters.get("orders_refused", 0) for name in hosts) >= len(hosts)
    for number in range(5):
        world.publish(f"n{number}", {"x": 5 + number})
    assert_exact(world)


def test_another_owner_is_obeyed_when_the_ring_names_it() -> None:
    """The whole cluster dies: a node that its hosts do not know as a member takes over."""
    world, _ = overlay()
    members = [n for n in world.names() if world.node(n).clusters.role != "none"]
    others = [n for n in world.names() if n not in members]
    world.subscribe(others[0], "x > 1")
    acknowledged(world)
    for name in members:
        world.crash(name)
    world.run(60)
    acknowledged(world)
    sent = len(world.clients.deliveries)
    world.publish(others[-1], {"x": 7})
    world.run(10)
    assert len(world.clients.deliveries) == sent + 1


def test_an_owner_whose_order_a_host_did_not_believe_gives_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a healed partition, of which the ring has not heard everywhere."""
    world, liar = overlay()
    first, second = [name for name in world.names() if name != liar][:2]
    world.subscribe(first, "x > 1")
    acknowledged(world)
    hosts = [n for n in world.names() if "x" in world.node(n).hosting.trees]
    host = world.node(next(n for n in hosts if world.node(n).clusters.role != "primary"))
    unknown_before = host.hosting.assigned.claims._unknown

    def unknown(node: str, message: Message, found: Cluster | None = None) -> Key | None:
        if isinstance(message, Install):
            return attribute_key("x")
        return unknown_before(node, message, found)

    with monkeypatch.context() as patched:
        patched.setattr(host.hosting.assigned.claims, "_unknown", unknown)
        waiting = world.subscribe(second, "x > 3")
        world.run(3)
        assert host.counters["orders_refused"] > 0
        assert waiting.acknowledged is None
    acknowledged(world)
    world.publish(first, {"x": 7})
    assert_exact(world)
