"""Revoked certificates: every link to their nodes is closed, and none is opened again."""

from __future__ import annotations

import pytest

from canopy.sim.world.driver import SimDriver
from canopy.sim.world.signer import SimulatedRevocations, revoked
from canopy.sim.world.world import LOOK, RECHECK, World
from canopy.wire import constants
from canopy.wire.process import security
from canopy.wire.transport.codec import WireCodec
from harness.overlays import READY, acknowledged, settings, wait, with_role
from overlay.rights import Role

NODES = 12
WITHIN = 5.0
"""Virtual seconds in which all links are closed, of 1,000 nodes as well (docs/lab/security.md)."""


def with_revoked() -> tuple[World, list[str]]:
    """An overlay in which the certificates of a primary and of a member were revoked just now."""
    world = World(1, WireCodec(), settings(cluster={"size": 3, "split_trees": 2}))
    world.roles = {f"n{n}": Role.VOTER if n < NODES - 2 else Role.MEMBER for n in range(NODES)}
    for number in range(NODES):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    for number, name in enumerate(world.names()):
        world.subscribe(name, f"x{number} > 1")
    acknowledged(world)
    world.run(3.0)
    lost = [with_role(world, "primary")[0], f"n{NODES - 1}"]
    assert links(world, lost) > 10
    world.revoke(f"n{NODES - 2}", *lost)
    return world, lost


def links(world: World, lost: list[str]) -> int:
    """Connections that other nodes have with these and take for good."""
    ids = {world.drivers[name].disk.node for name in lost}
    return sum(
        principal.id in ids
        for name in world.names()
        if name not in lost
        for principal, _ in world.drivers[name].admitted.values()
    )


def test_every_link_is_closed_within_five_seconds_and_stays_closed() -> None:
    world, lost = with_revoked()
    wait(world, lambda: not links(world, lost), WITHIN, "all closed")
    for _ in range(60):
        world.run(0.05)
        assert not links(world, lost)
    assert sum(world.drivers[name].refused for name in world.names() if name not in lost) > 0
    assert all(world.revocation_stores[name].version for name in world.names() if name not in lost)


def test_who_does_not_look_at_live_connections_closes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    monkeypatch.setattr(SimDriver, "recheck", lambda driver: None)
    world, lost = with_revoked()
    world.run(WITHIN)
    assert links(world, lost)


def test_a_simulated_process_looks_as_often_as_a_real_one() -> None:
    assert (LOOK, RECHECK) == (security.LOOK, constants.RECHECK)


def test_only_a_newer_list_is_taken_that_is_genuine() -> None:
    store, told = SimulatedRevocations(), []
    store.taken = lambda: told.append(store.version)
    assert store.current() == (0, b"")
    assert store.accept(revoked(2, ["a", "b"])) == 2
    assert store.accept(revoked(1, [])) == 2
    assert store.accept(b"forged" + revoked(3, [])) == 2
    assert store.ids == {"a", "b"}
    assert store.current() == (2, revoked(2, ["a", "b"]))
    assert told == [2]
