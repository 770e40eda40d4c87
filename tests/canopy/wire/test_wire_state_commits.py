"""What is stored at the end of a turn and behind it, on a real disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from canopy.wire.durable import DiskError
from canopy.wire.folder import DataFolder
from canopy.wire.state_file import StateFile
from overlay.links.messages import Ack
from tests.support.real.wire_rig import PATIENCE, rig


class SlowDisk:
    """Writes wait until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.goes = threading.Semaphore(0)
        original = StateFile.write

        def write(file: StateFile, records: Sequence[bytes], replace: bool) -> None:
            self.begun.release()
            assert self.goes.acquire(timeout=PATIENCE)
            original(file, records, replace)

        monkeypatch.setattr(StateFile, "write", write)


def restored(path: Path) -> list[bytes]:
    folder = DataFolder(path)
    folder.close()
    return folder.restored


def durable(folder: DataFolder) -> threading.Semaphore:
    """Released whenever there is a ticket to take."""
    rung = threading.Semaphore(0)
    folder.state.on_durable(rung.release)
    return rung


def test_a_ticket_is_taken_when_its_records_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataFolder(tmp_path)
    rung, disk = durable(folder), SlowDisk(monkeypatch)
    assert folder.state.store_later(b"one") == 1
    folder.state.sync()  # does not wait
    assert disk.begun.acquire(timeout=PATIENCE)
    assert folder.state.take() == 0
    assert [folder.state.store_later(each) for each in (b"two", b"three")] == [2, 3]
    folder.state.sync()
    assert folder.state.take() == 0
    disk.goes.release()
    assert rung.acquire(timeout=PATIENCE)
    assert folder.state.take() == 1
    assert disk.begun.acquire(timeout=PATIENCE)
    disk.goes.release()
    assert rung.acquire(timeout=PATIENCE)
    assert (folder.state.take(), folder.state.take()) == (3, 0), "one write for both"
    folder.close()
    assert restored(tmp_path) == [b"one", b"two", b"three"]


def test_what_is_stored_at_once_takes_along_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataFolder(tmp_path)
    rung, disk = durable(folder), SlowDisk(monkeypatch)
    folder.state.store_later(b"one")
    folder.state.sync()
    assert disk.begun.acquire(timeout=PATIENCE), "it is being written"
    folder.state.store_later(b"two")
    folder.state.store(b"three")
    disk.goes.release(2)
    folder.state.sync()
    assert rung.acquire(timeout=PATIENCE)
    assert folder.state.take() == 2
    assert b"three" in (tmp_path / "state").read_bytes()
    folder.close()
    assert restored(tmp_path) == [b"one", b"two", b"three"]


def test_what_replaces_all_takes_the_place_of_what_waits(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    rung = durable(folder)
    folder.state.store_later(b"one")
    assert folder.state.store_later(b"all", replace=True) == 2
    folder.state.store_later(b"two")
    folder.state.sync()
    assert rung.acquire(timeout=PATIENCE)
    assert folder.state.take() == 3
    folder.close()
    assert restored(tmp_path) == [b"all", b"two"]


def test_what_waits_when_the_folder_is_closed_is_written(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.state.store_later(b"one")
    folder.close()
    assert restored(tmp_path) == [b"one"]


@pytest.mark.trio
async def test_a_turn_that_stores_behind_it_does_not_wait_and_the_node_hears_when_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataFolder(tmp_path)
    async with rig(folder) as one:
        disk = SlowDisk(monkeypatch)
        stream = await one.dial()
        (_, number) = await one.has("accepted")

        def store() -> None:
            assert one.driver.store_later(b"entry") == 1
            one.driver.write(number, Ack(1, 2))

        one.driver.turn(store)
        with trio.fail_after(PATIENCE):
            assert await stream.receive_some(), "its frames leave"
        assert b"entry" not in (tmp_path / "state").read_bytes()
        assert not any(each[0] == "stored" for each in one.node.inputs)
        disk.goes.release()
        assert await one.has("stored") == ("stored", 1)
        assert b"entry" in (tmp_path / "state").read_bytes()
        one.nursery.cancel_scope.cancel()
    folder.close()


@pytest.mark.trio
async def test_a_disk_that_refuses_behind_a_turn_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DataFolder(tmp_path)

    def write(file: StateFile, records: Sequence[bytes], replace: bool) -> None:
        raise DiskError("cannot write")

    with pytest.RaisesGroup(DiskError, flatten_subgroups=True):
        async with rig(folder) as one:
            monkeypatch.setattr(StateFile, "write", write)
            one.driver.turn(one.driver.store_later, b"entry")
            await trio.sleep(PATIENCE)
    with pytest.raises(DiskError):
        one.driver.turn(lambda: None)
    assert not any(each[0] == "stored" for each in one.node.inputs)
    folder.close()
