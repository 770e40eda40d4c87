"""What the ledger of committed entries and the look at owners find (P1, P4)."""

from __future__ import annotations

import pytest

from canopy.sim.checks.cluster_logs import LogWatch, check_voters
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.world import World
from harness.overlays import acknowledged, grown, settings, with_role
from overlay.chord.cluster.messages import LogEntry
from overlay.chord.keys import attribute_key

ONE = settings(cluster={"split_trees": 100_000})


@pytest.fixture
def world() -> World:
    world = grown(6, 4, ONE)
    for number in range(6):
        world.subscribe(f"n{number}", f"x > {number}")
    acknowledged(world)
    world.run(3)
    return world


def found(world: World, looks: LogWatch | None = None) -> list[str]:
    kinds: list[str] = []
    watch = looks or LogWatch(world, lambda kind, text: None)
    watch.note = lambda kind, text: kinds.append(kind)
    watch.look()
    return kinds


def test_what_is_as_it_should_be_is_not_reported(world: World) -> None:
    assert found(world) == []
    assert check_voters(world) == []


def test_a_committed_entry_that_is_another_one_later_is_found(world: World) -> None:
    watch = LogWatch(world, lambda kind, text: None)
    assert found(world, watch) == []
    (name,) = with_role(world, "primary")
    log = world.node(name).clusters.leader_log
    (ledger,) = watch._ledger.values()
    ledger[log.committed - 1] = (7, b"something else")
    watch._seen.clear()
    assert found(world, watch) == ["log"]


def test_a_primary_that_begins_with_less_than_was_committed_is_found(world: World) -> None:
    watch = LogWatch(world, lambda kind, text: None)
    assert found(world, watch) == []
    (ledger,) = watch._ledger.values()
    ledger[max(ledger) + 1] = (1, b"lost")
    watch._seen.clear()
    assert found(world, watch) == ["log"]


def test_what_the_only_voter_has_not_on_disk_yet_is_no_promise() -> None:
    world = grown(1, 4, ONE)
    world.drivers["n0"].disk.conditions = DiskConditions(sync_low=0.05, sync_high=0.05)
    watch = LogWatch(world, lambda kind, text: None)
    assert found(world, watch) == []
    clusters = world.node("n0").clusters
    before = clusters.leader_log.committed
    world.subscribe("n0", "x > 0")
    while clusters.log.next == before:
        world.run(0.01)
    assert world.drivers["n0"].disk.waiting
    assert clusters.leader_log.committed == before
    assert found(world, watch) == []
    world.crash("n0")
    world.restart("n0")
    while not world.node("n0").clusters.is_primary:
        world.run(0.1)
    assert found(world, watch) == []


def test_what_only_a_minority_holds_is_not_committed(world: World) -> None:
    (name,) = with_role(world, "primary")
    log = world.node(name).clusters.log
    watch = LogWatch(world, lambda kind, text: None)
    assert found(world, watch) == []
    log.voter_log.add(LogEntry(1, b"only here"))
    world.node(name).clusters.leader_log.committed += 1
    assert found(world, watch) == ["log"]


def test_two_that_decide_about_one_key_are_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.node(with_role(world, "standby")[0])
    key = attribute_key("x")
    monkeypatch.setattr(other.clusters, "owns", lambda asked: asked == key)
    assert found(world) == ["primary"]


def test_a_voter_with_another_state_is_found(world: World) -> None:
    voter = world.node(with_role(world, "standby")[0])
    tree = voter.owner.state.trees.pop("x")
    assert [v.kind for v in check_voters(world)] == ["log"]
    voter.owner.state.trees["x"] = tree
    assert check_voters(world) == []


def test_a_copy_outside_of_the_cluster_with_another_state_is_found() -> None:
    world = grown(6, 1, settings(cluster={"size": 3}))
    world.subscribe("n0", "x > 1")
    acknowledged(world)
    world.run(3)
    assert check_voters(world) == []
    (leader,) = with_role(world, "primary")
    cluster = world.node(leader).clusters
    (observer, *_) = cluster.observers.observers
    copies = world.node(world.identities[observer]).restoration.replicas
    copies[cluster.cluster.key].trees.clear()
    assert [v.kind for v in check_voters(world)] == ["log"]
