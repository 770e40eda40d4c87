"""A machine whose processes are all late, since programs publish as fast as nodes take it: the
overlay stays as it is, and every event is delivered once."""

from __future__ import annotations

from collections import Counter
from functools import cache

from canopy.sim.world.clients import Publication
from canopy.sim.world.processor import Processor
from canopy.wire.transport.codec import WireCodec
from overlay.upper_tree.owner.constants import TARGET
from tests.support.shared_processors import SharingWorld

NODES, PROCESSORS = 8, 2
SLOWER = 20
"""Times as slow as usual processors: as many times fewer events saturate them."""

PROCESSOR = Processor(
    per_input=SLOWER * 0.000_02,
    per_match=SLOWER * 0.000_01,
    per_further=SLOWER * 0.000_002,
    per_recipient=SLOWER * 0.000_005,
    per_publish=SLOWER * 0.000_008,
    per_delivery=SLOWER * 0.000_008,
)
BATCH, AHEAD = 64, 4
"""Events of a publication, and publications that a program has under way."""

SECONDS = 6.0


class Saturated:
    """Eight nodes on a machine with two processors. Programs at two of them publish all the time,
    and programs at four others want a quarter of the events each."""

    def __init__(self, seed: int) -> None:
        self.world = world = SharingWorld(seed, WireCodec(), PROCESSORS)
        self.changes: list[float] = []
        world.recorder.listen = lambda node, kind, fields: (
            self.changes.append(world.now) if kind == "map" else None
        )
        for number in range(NODES):
            world.add_node(["n0"] if number else [])
            world.run(0.2)
        assert world.run_until(world.ready, 60.0)
        for number in range(4):
            low, high = number / 4, (number + 1) / 4
            world.subscribe(f"n{2 + number}", f"x >= {low} AND x < {high}")
        assert world.run_until(world.acknowledged, 60.0)
        for driver in world.drivers.values():
            driver.processor = PROCESSOR
        self._rng = world.generator("saturation")
        self._under_way: dict[str, list[list[Publication]]] = {}

    def load(self, seconds: float) -> None:
        """Publish for so long."""
        self._until = self.world.now + seconds
        for name in ("n6", "n7"):
            self._under_way[name] = []
            self.world.at(self.world.now, self._publish, name)
        self.world.run(seconds)

    def _publish(self, name: str) -> None:
        world = self.world
        if world.now >= self._until:
            return
        world.at(world.now + 0.005, self._publish, name)
        ahead = [each for each in self._under_way[name] if not each[-1].identity]
        while len(ahead) < AHEAD:
            events = [{"x": self._rng.random()} for _ in range(BATCH)]
            ahead.append(world.publish(name, *events))
        self._under_way[name] = ahead

    def counts(self) -> Counter[str]:
        """The counters of all nodes together."""
        total: Counter[str] = Counter()
        for name in self.world.names():
            total.update(self.world.node(name).counters)
        return total

    def hosts(self) -> int:
        """How many nodes host the tree."""
        for name in self.world.names():
            node = self.world.node(name)
            if node.clusters.is_primary:
                return len(node.owner.trees["x"].tree.map.hosts())
        raise AssertionError("no primary")


@cache
def saturated() -> tuple[Saturated, Counter[str], int]:
    """The overlay after the load, its counters, and the hosts at the load's end."""
    overlay = Saturated(1)
    overlay.load(SECONDS)
    hosts = overlay.hosts()
    assert overlay.world.settle(60.0)
    return overlay, overlay.counts(), hosts


def test_a_saturated_machine_elects_no_primary_and_loses_no_host() -> None:
    _, counts, _ = saturated()
    assert counts["local_stalls"] > 0 or counts["visits_queued"] > 0, "it is not saturated"
    assert counts["campaigns"] == 0
    assert counts["clusters_recovered"] == 0
    assert counts["incidents_link_down"] == 0
    assert counts["visits_without_lease"] == 0


def test_a_saturated_machine_does_little_twice() -> None:
    _, counts, _ = saturated()
    again = counts["visits_elsewhere"] + counts["visits_retried"] + counts["visits_given_back"]
    assert again < counts["published"] / 10
    assert counts["duplicates"] < counts["published"] / 10


def test_a_machine_gets_as_many_hosts_as_its_processors_carry_and_no_more() -> None:
    _, _, hosts = saturated()
    assert 1 < hosts <= PROCESSORS / TARGET


def test_the_maps_of_a_saturated_machine_settle() -> None:
    overlay, _, _ = saturated()
    assert len(overlay.changes) <= 8


def test_every_event_of_a_saturated_machine_is_delivered_once() -> None:
    overlay, _, _ = saturated()
    clients = overlay.world.clients
    shown = [each.delivery.event.identity for each in clients.deliveries]
    assert len(shown) > 5_000
    assert sorted(shown) == sorted(each.identity for each in clients.publications)
