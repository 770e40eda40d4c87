"""Certificates of simulated nodes end, are renewed in time, and links reopen with them."""

from __future__ import annotations

from collections.abc import Callable

from canopy.sim.world.signer import SimulatedCertificates
from canopy.sim.world.world import RECHECK, World
from canopy.wire.keys.certificates import DAY, NODE_DAYS
from canopy.wire.keys.rotation import RenewalTimes
from canopy.wire.transport.codec import WireCodec
from harness.overlays import acknowledged, wait

LIFE = 30.0
NODES = 3


class Impatient(RenewalTimes):
    """Asks again at once."""

    def may_ask(self, now: float) -> bool:
        return True


def overlay(is_issuing: Callable[[str], bool]) -> tuple[World, SimulatedCertificates]:
    world = World(1, WireCodec())
    world.roles = {}
    world.certificates = SimulatedCertificates(LIFE, Impatient, is_issuing, NODE_DAYS * DAY / LIFE)
    for number in range(NODES):
        world.add_node(["n0"] if number else [])
    wait(world, world.ready, 30.0, "ready")
    world.subscribe("n1", "a > 0")
    acknowledged(world)
    return world, world.certificates


def test_links_end_with_the_certificate_that_was_shown_and_come_again() -> None:
    world, certificates = overlay(lambda name: True)
    world.run(LIFE + 2 * RECHECK)
    assert certificates.renewed >= NODES
    assert not certificates.failed
    assert certificates.cut_off >= NODES - 1  # all links are of the same age
    world.publish("n2", {"a": 1})
    world.run(2.0)
    assert len(world.clients.deliveries) == 1
    assert not any(driver.refused for driver in world.drivers.values())


def test_a_node_that_is_not_certified_again_is_out_until_it_is() -> None:
    away = ["n2"]
    world, certificates = overlay(lambda name: name not in away)
    world.run(LIFE + 10.0)
    assert certificates.failed
    assert certificates.ends("n2") < world.wall("n2")
    assert not world.drivers["n2"].admitted
    assert any(driver.refused for driver in world.drivers.values())
    away.clear()
    world.run(15.0)  # links are tried again within `links.retry_most`
    assert world.drivers["n2"].admitted
    world.publish("n2", {"a": 1})
    world.run(2.0)
    assert len(world.clients.deliveries) == 1
