"""M1, M2: names of regions, and how a node's region and tier become known to others."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from canopy.sim.soak.soak import draw_scenario
from canopy.sim.world.network import Conditions
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import READY, acknowledged, assert_exact, hosts, run_green, wait
from overlay.client import GetPeers, Peers
from overlay.machine import Peer
from overlay.regions import distance, entered

A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.mark.parametrize(
    ("mine", "theirs", "crossed"),
    [
        ("us", "us", ""),
        ("us", "eu", "eu"),
        ("us", "eu/de/berlin", "eu"),
        ("eu/fr", "eu/de/berlin", "eu/de"),
        ("eu", "eu/de/berlin", "eu/de"),
        ("eu/de", "eu", "eu"),
        ("", "eu/de", "eu"),
        ("eu", "", ""),
        ("", "", ""),
        ("eu", "europe", "europe"),
    ],
)
def test_an_event_crosses_the_widest_border_first(mine: str, theirs: str, crossed: str) -> None:
    assert entered(mine, theirs) == crossed


def test_borders_are_counted_both_ways() -> None:
    assert distance("eu/de", "eu/de") == distance("", "") == 0
    assert distance("eu/de", "eu/fr") == distance("us", "eu") == 2
    assert distance("eu/de", "eu") == distance("eu", "eu/de") == 1


def test_a_node_without_a_region_costs_two_bytes() -> None:
    encode = msgspec.msgpack.encode
    assert len(encode(Peer(A, "1.2.3.4:5"))) == len(encode((A, "1.2.3.4:5"))) + 2
    old = msgspec.msgpack.decode(encode((A, "1.2.3.4:5")), type=Peer)
    assert (old.region, old.tier) == ("", 0), "as a node says it that knows no regions"


@pytest.mark.parametrize("wrong", [("x" * 65, 0), ("eu", -1), ("eu", 101)])
def test_a_region_or_tier_out_of_bounds_is_no_peer(wrong: tuple[str, int]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode((A, "1.2.3.4:5", *wrong)), type=Peer)


def test_nothing_is_lost_when_an_access_node_dies_while_events_cross() -> None:
    world = World(5, WireCodec())
    world.network.conditions = Conditions(latency_low=0.001, latency_high=0.001, backbone=0.05)
    for number in range(15):
        name, region = f"n{number}", f"r{number % 3}"
        world.network.place(name, region)
        world.add_node(["n0"] if number else [], name, region)
        world.run(0.2)
    wait(world, world.ready, READY, "all nodes are ready")
    for name in world.names():
        world.subscribe(name, "x > 0")
    acknowledged(world)
    world.run(5.0)
    publishing = [world.names()[0], world.names()[1]]
    passed_on: Counter[str] = Counter()
    for number in range(120):
        world.publish(publishing[number % 2], {"x": 1 + number})
        world.run(0.05)
        if number == 40:
            for record in world.recorder.records:
                if record.kind == "forward":
                    passed_on[world.identities[record.node]] += 1
            hosts_now = {host for found in hosts(world).values() for host in found}
            access = [name for name, _ in passed_on.most_common() if name not in hosts_now]
            dead = next(name for name in access if name not in publishing)
            world.crash(dead, silent=True)
    assert_exact(world)


@pytest.mark.parametrize("seed", [3, 5])
def test_a_drawn_scenario_is_green_where_nodes_are_in_regions(seed: int) -> None:
    drawn = draw_scenario(seed)
    network = msgspec.structs.replace(drawn.network, backbone=0.05)
    run_green(msgspec.structs.replace(drawn, regions=3, network=network))


def test_region_and_tier_travel_with_greetings_and_with_gossip() -> None:
    world = World(1, WireCodec())
    world.add_node(name="a", region="eu/de", tier=2)
    world.add_node(["a"], name="b", region="us")
    world.add_node(["b"], name="c")  # hears of a only by what b tells it
    wait(world, world.ready, READY, "three nodes are ready")
    world.run(20.0)
    shown = {name: (world.status(name).region, world.status(name).tier) for name in "abc"}
    assert shown == {"a": ("eu/de", 2), "b": ("us", 0), "c": ("", 0)}
    for name in "abc":
        found = world.ask(name, GetPeers(1))
        assert isinstance(found, Peers)
        by_id = {world.identities[p.node]: (p.region, p.tier) for p in found.peers}
        assert by_id == {other: shown[other] for other in "abc" if other != name}
