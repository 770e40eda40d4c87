"""The simulated disk keeps the contract of overlay/records.py, and fails as disks do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Fault, Scenario
from canopy.sim.world.disk import Disk, DiskConditions
from canopy.sim.world.world import World
from canopy.wire.folder import DataFolder
from overlay.client import Done, Reply, Unsubscribe
from overlay.links.messages import Ack
from overlay.machine import Peer
from overlay.records import HEAD, pack_block, recover
from tests.support.fake_node import FakeNode

STORE = 7  # the client whose commands store


class Keeper(FakeNode):
    """Stores the number of each command of the client STORE, and then sends it to all nodes."""

    def command(self, client: int, command: Any) -> None:
        if client != STORE:
            super().command(client, command)
            return
        self.driver.reply(client, Done(command.request))
        self.driver.store(b"%d" % command.request)
        for connection in self.connections:
            self.driver.write(connection, Ack(command.request, 0))

    def on_frames(self, connection: int, frames: Sequence[Any]) -> None:
        self.frames.extend(frames)


def two(seed: int = 1) -> World:
    world = World(seed, codec=None, build=Keeper)  # type: ignore[arg-type]
    world.add_node()
    world.add_node(seeds=["n0"])
    world.run(1)
    return world


def store(world: World, number: int) -> None:
    world.drivers["n0"].command(STORE, Unsubscribe(number, ""))


def heard(world: World) -> list[int]:
    return [frame.acknowledged for frame in world.node("n1").frames]


def answered(world: World) -> list[Reply]:
    return list(world.clients.answers.values())


def restored(world: World) -> list[int]:
    found = world.node("n0").restored
    return [int(record) for record in found if not record.startswith(b"started")]


def test_what_is_stored_is_durable_before_it_is_sent() -> None:
    world = two()
    world.drivers["n0"].disk.conditions = DiskConditions(sync_low=0.5, sync_high=0.5)
    store(world, 1)
    store(world, 2)
    world.run(0.49)
    assert (heard(world), answered(world)) == ([], [])
    world.run(0.1)
    assert (heard(world), answered(world)) == ([1], [Done(1)])
    world.run(1)
    assert heard(world) == [1, 2]


def test_a_crash_during_the_sync_loses_only_what_was_not_sent() -> None:
    kept = []
    for seed in range(60):
        world = two(seed)
        for number in (10, 11):
            store(world, number)
            world.run(1)
        world.drivers["n0"].disk.conditions = DiskConditions(sync_low=0.5, sync_high=0.5)
        store(world, 12)
        store(world, 13)  # waits until 12 is durable: the process stands still
        world.run(0.2)
        world.crash("n0")
        world.run(1)
        assert heard(world) == [10, 11]
        world.restart("n0")
        assert restored(world)[:2] == [10, 11]
        assert restored(world)[2:] in ([], [12])
        kept.append(len(restored(world)))
        store(world, 14)  # the torn tail does not swallow what comes after it
        world.run(1)
        world.crash("n0")
        world.restart("n0")
        assert restored(world)[-1] == 14
    assert set(kept) == {2, 3}


def test_a_crash_midway_comes_between_storing_and_saying() -> None:
    kept = []
    for seed in range(30):
        world = two(seed)
        world.drivers["n0"].doom(silent=False, within=2)
        world.run(1)
        assert world.names() == ["n0", "n1"]
        store(world, 1)
        assert world.names() == ["n1"]
        world.run(1)
        assert (heard(world), answered(world)) == ([], [])
        world.restart("n0")
        world.run(5)
        assert world.names() == ["n0", "n1"]  # the new process is not doomed
        kept.append(len(restored(world)))
    assert set(kept) == {0, 1}


def test_who_stores_nothing_is_not_spared() -> None:
    faults = (Fault(0.1, "crash", nodes=(1,), midway=True), Fault(5, "restart"))
    scenario = Scenario(nodes=2, subscriptions=0, events=5, faults=faults)
    found = ScenarioRun(scenario, None, build=FakeNode).result(check_state=False)  # type: ignore[arg-type]
    assert found.records["start"] == 3
    world = two()
    world.drivers["n0"].doom(silent=True, within=0.5)
    world.run(1)
    assert world.names() == ["n1"]
    assert [(c.node, c.time) for c in world.clients.crashes] == [("n0", 1.5)]


def test_a_disk_that_refuses_ends_the_process_and_nothing_of_the_turn_leaves() -> None:
    for conditions in (DiskConditions(fail=1), DiskConditions(room=20)):
        world = two()
        world.drivers["n0"].disk.conditions = conditions
        store(world, 1)
        world.run(1)
        assert world.names() == ["n1"]
        assert (heard(world), answered(world)) == ([], [])
        assert [(c.node, c.time) for c in world.clients.crashes] == [("n0", 1.0)]


def test_a_full_disk_starts_no_process_until_there_is_room() -> None:
    world = two()
    world.crash("n0")
    disk = world.drivers["n0"].disk
    disk.conditions = DiskConditions(room=1)
    assert not world.restart("n0")
    assert (world.names(), disk.incarnation) == (["n1"], 1)
    disk.conditions = DiskConditions()
    assert world.restart("n0")
    assert disk.incarnation == 2


def test_without_its_disk_a_node_is_another_one_at_the_same_address() -> None:
    world = two()
    before: Peer = world.node("n0").me
    draws = world.node("n0").rng.random()
    world.crash("n0")
    world.restart("n0", wiped=True)
    after = world.node("n0")
    assert after.me.address == before.address
    assert after.me.id != before.id
    assert (after.incarnation, after.restored) == (1, ())
    assert after.rng.random() != draws
    assert [world.identities[me.id] for me in (before, after.me)] == ["n0", "n0"]


def test_a_paused_process_stays_paused_when_its_disk_has_answered() -> None:
    world = two()
    world.drivers["n0"].disk.conditions = DiskConditions(sync_low=0.1, sync_high=0.1)
    store(world, 1)
    store(world, 2)
    world.drivers["n0"].pause()
    world.run(1)
    assert heard(world) == [1]  # its system wrote what it had said already
    world.drivers["n0"].resume()
    world.run(1)
    assert heard(world) == [1, 2]


def test_torn_tails_are_read_alike_by_a_real_folder(tmp_path: Path) -> None:
    seen = set()
    for seed in range(40):
        disk = Disk("0" * 16, "", Random(seed))
        for number in range(3):
            disk.store(b"whole %d" % number)
        disk.sync()
        for number in range(4):
            disk.store(Random(number).randbytes(300) + b"%d" % number)
        disk.tear()
        data = bytes(disk.data)
        assert not recover(data).damaged
        path = tmp_path / str(seed)
        DataFolder(path).close()
        (path / "state").write_bytes(data)
        folder = DataFolder(path)
        assert list(disk.begin()) == folder.restored
        assert folder.restored[:3] == [b"whole 0", b"whole 1", b"whole 2"]
        assert len(disk.data) == len(data) - folder.cut
        folder.close()
        seen.add(len(folder.restored))
    assert seen == {3, 7}  # all of a turn, or nothing


def test_zeros_at_the_end_are_no_records() -> None:
    block = pack_block(0, [b"one", b""])
    assert recover(block + bytes(10 * HEAD.size)) == ([b"one", b""], len(block), 1, False)


def test_a_whole_block_behind_one_that_is_not_is_damage() -> None:
    blocks = [pack_block(number, [b"%d" % number]) for number in range(4)]
    for lost in range(4):
        for how in (b"", b"x", blocks[lost][:-1], blocks[lost][:3] + b"?" + blocks[lost][4:]):
            data = b"".join([*blocks[:lost], how, *blocks[lost + 1 :]])
            found = recover(data)
            assert found.records == [b"%d" % number for number in range(lost)]
            assert found.damaged == (lost < 3)


def test_what_replaces_the_file_is_all_there_or_not_at_all_after_a_crash() -> None:
    kept = set()
    for seed in range(20):
        disk = Disk("0" * 16, "", Random(seed))
        disk.store(b"old")
        disk.sync()
        disk.store(b"new", b"too", replace=True)
        disk.tear()
        kept.add(disk.begin())
        disk.store(b"later")
        disk.sync()
        assert disk.begin()[-1] == b"later"
    assert kept == {(b"old",), (b"new", b"too")}


def test_a_damaged_disk_makes_another_node() -> None:
    world = two()
    store(world, 1)
    world.run(1)
    before = world.node("n0").me.id
    world.crash("n0")
    world.restart("n0", damaged=True)
    assert world.node("n0").me.id != before
    assert world.node("n0").restored == ()


def test_a_scenario_breaks_disks_and_mends_them() -> None:
    faults = (
        Fault(0.1, "disk", nodes=(1,), disk=DiskConditions(room=0)),
        Fault(0.2, "crash", nodes=(1, 2, 3)),
        Fault(0.3, "restart", nodes=(1, 2)),  # 1 has no room for a start
        Fault(0.4, "restart", nodes=(3,), wiped=True),
        Fault(0.5, "disk", disk=DiskConditions()),
        Fault(0.6, "restart"),
    )
    scenario = Scenario(nodes=5, subscriptions=5, events=60, faults=faults)
    found = ScenarioRun(scenario, None, build=FakeNode).result(check_state=False)  # type: ignore[arg-type]
    assert found.records["start"] == 5 + 3
