"""Two overlays meet and become one, and no subscriber misses an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from canopy.sim.checks.cluster_logs import check_voters
from canopy.sim.checks.node_state import Watch, check_ring, check_trees, led
from canopy.sim.checks.ownership import check_arcs, check_maps
from canopy.sim.world.network import Conditions
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import acknowledged, settings, wait
from matching import compile_selector
from overlay.client import GetIncidents, Incidents
from overlay.rights import Role
from overlay.settings import Settings

WITHIN = 15.0
"""Seconds in which there has to be one ring."""


class Apart:
    """Two overlays founded apart, each with subscribers and publishers of the same attributes."""

    def __init__(
        self,
        seed: int,
        sizes: tuple[int, int],
        chosen: Settings,
        network: Conditions | None = None,
        keys: bool = False,
    ) -> None:
        self.world = world = World(seed, WireCodec(), chosen)
        if keys:
            world.roles = {f"n{number}": Role.VOTER for number in range(sum(sizes) + 1)}
        world.network.conditions = network or Conditions()
        self.side: dict[str, int] = {}
        self.sides: list[list[str]] = []
        for number, size in enumerate(sizes):
            names: list[str] = []
            for at in range(size):
                seeds = [names[0], names[at // 2]] if names else []
                names.append(world.add_node(seeds=seeds))
                self.side[names[-1]] = number
                world.run(0.1)
            self.sides.append(names)
        wait(world, world.ready, 60, "both ready")
        self.watch = Watch(world)
        self.published = 0
        for number in range(2 * len(self.side)):
            self.subscribe(number)
        acknowledged(world)
        world.run(12)
        self.met = self.one_at = float("inf")

    def subscribe(self, number: int) -> None:
        names = list(self.side)
        node = names[number % len(names)]
        self.world.subscribe(node, f"{'abcd'[number % 4]} BETWEEN {number % 40} AND 30")

    def publish(self, count: int) -> None:
        """From all nodes in turn, fifty a second."""
        names = list(self.side)
        for _ in range(count):
            number = self.published = self.published + 1
            event = {"abcd"[number % 4]: number % 50, "abcd"[number // 4 % 4]: number * 7 % 50}
            self.world.publish(names[number % len(names)], event)
            self.world.run(0.02)
            if self.met <= self.world.now < self.one_at and self.is_one():
                self.one_at = self.world.now

    def meet(self) -> str:
        """A node is started that knows one of each."""
        self.met = self.world.now
        return self.world.add_node(seeds=[self.sides[0][-1], self.sides[1][-1]])

    def is_one(self) -> bool:
        rings = {self.world.node(name).ring.id: None for name in self.side}
        return len(rings) == 1 and led(self.world) and not check_arcs(self.world)

    def missing(self) -> list[str]:
        """Of an event that was published in the same overlay, or later than there was one, after
        the SUBACK: who did not see it. No subscriber sees anything twice, or what does not
        match."""
        clients = self.world.clients
        events = {e.identity: e for e in clients.publications}
        subscriptions = {s.identity: s for s in clients.subscriptions}
        seen: dict[tuple[str, str], None] = {}
        for shown in clients.deliveries:
            pair = (shown.delivery.subscription, shown.delivery.event.identity)
            assert pair not in seen, f"shown twice: {pair}"
            seen[pair] = None
            attributes = events[pair[1]].attributes
            assert compile_selector(subscriptions[pair[0]].selector).matches(attributes)
        return [
            f"{e.identity} of {e.node} at {e.published:.2f} did not reach {s.node}"
            for s in clients.subscriptions
            for e in clients.publications
            if s.acknowledged is not None
            and s.acknowledged < e.published
            and (self.side[s.node] == self.side[e.node] or e.published >= self.one_at)
            and (s.identity, e.identity) not in seen
            and _matches(s.selector, e.attributes)
        ]

    def assert_one(self) -> None:
        """There is one ring by now, and all that it should be."""
        world = self.world
        assert self.one_at - self.met <= WITHIN
        acknowledged(world)
        assert world.settle()
        assert self.missing() == []
        assert [*check_arcs(world), *check_maps(world), *check_ring(world)] == []
        assert check_trees(world, self.watch.calm_since) == []
        assert check_voters(world) == []
        assert list(self.watch.violations.values()) == []


def _matches(selector: str, attributes: Mapping[str, Any]) -> bool:
    return compile_selector(selector).matches(attributes)


ONE = settings(tree={"split_at": 8}, cluster={"split_trees": 100, "size": 5})
MANY = settings(tree={"split_at": 8}, cluster={"split_trees": 1, "size": 3})
COUNTING = settings(tree={"split_at": 8, "routing": "counting"})
SLOW = Conditions(latency_low=0.05, latency_high=0.2, loss=0.02)


@pytest.mark.parametrize(
    ("seed", "sizes", "chosen", "network"),
    [
        (2, (5, 1), ONE, None),
        (3, (8, 8), MANY, None),
        (4, (4, 7), COUNTING, None),
        (5, (5, 5), ONE, SLOW),
    ],
)
def test_two_overlays_that_meet_become_one_and_no_subscriber_misses_an_event(
    seed: int, sizes: tuple[int, int], chosen: Settings, network: Conditions | None
) -> None:
    apart = Apart(seed, sizes, chosen, network)
    before = [apart.world.node(side[0]).ring.id for side in apart.sides]
    apart.publish(50)
    apart.meet()
    for number in range(6):
        apart.publish(60)
        apart.subscribe(100 + number)
    if network is not None:
        apart.publish(300)
    apart.publish(100)
    apart.assert_one()
    assert {apart.world.node(n).ring.id for n in apart.side} == {min(before)}


@pytest.mark.parametrize(("seed", "sizes"), [(1, (6, 6)), (8, (1, 5))])
def test_so_they_do_where_nodes_have_keys_and_the_ring_of_more_voters_goes_on(
    seed: int, sizes: tuple[int, int]
) -> None:
    """As far as they are fewer than three; else the smaller id."""
    apart = Apart(seed, sizes, ONE, keys=True)
    before = [apart.world.node(side[0]).ring.id for side in apart.sides]
    apart.publish(50)
    apart.meet()
    for number in range(6):
        apart.publish(60)
        apart.subscribe(100 + number)
    apart.publish(400)
    apart.assert_one()
    better = before[1] if sizes[0] == 1 else min(before)
    assert {apart.world.node(n).ring.id for n in apart.side} == {better}


def test_the_end_of_a_ring_is_an_incident_of_those_who_were_in_it() -> None:
    apart = Apart(6, (3, 3), ONE)
    before = {n: apart.world.node(n).ring.id for n in apart.side}
    apart.meet()
    apart.publish(200)
    apart.assert_one()
    (lost,) = {before[n] for n in apart.side} - {apart.world.node("n0").ring.id}
    for name in apart.side:
        reply = apart.world.ask(name, GetIncidents(apart.world.clients.request()))
        assert isinstance(reply, Incidents)
        ended = [i for i in reply.incidents if i.what == "ring ended"]
        assert len(ended) == (before[name] == lost)
        assert all(lost in i.text for i in ended)


@pytest.mark.parametrize("side", [0, 1])
def test_a_primary_dies_while_its_ring_is_ended_or_takes_another_one_in(side: int) -> None:
    apart = Apart(7, (6, 6), ONE)
    world = apart.world
    leader = next(n for n in apart.sides[side] if world.node(n).clusters.is_primary)
    apart.meet()
    wait(
        world,
        lambda: any(world.node(n).owner.merge_phase for n in apart.side),
        5,
        "one ring begins to end",
    )
    world.crash(leader)
    del apart.side[leader]
    apart.publish(500)
    wait(world, lambda: len({world.node(n).ring.id for n in apart.side}) == 1, 10, "one ring")
    world.run(25)
    world.clients.crashes.clear()
    at = len(world.clients.publications)
    apart.publish(40)
    assert world.settle()
    later = {p.identity: None for p in world.clients.publications[at:]}
    apart.side[leader] = side
    apart.one_at = world.now - 30
    assert not [text for text in apart.missing() if text.split()[0] in later and leader not in text]
    assert check_trees(world, apart.watch.calm_since) == []
