"""A full disk and a folder that is not what it was: refused at the start, or a loud end."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from canopy.wire.config import NodeConfig, TraceConfig
from canopy.wire.constants import DISK_FAILED, FOLDER_REFUSED, START_ROOM
from canopy.wire.driver import TrioDriver
from canopy.wire.durable import DiskError, FolderError
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.process import node_process
from canopy.wire.process.node_process import NodeProcess, run_node
from canopy.wire.transport.framing import NODE_FRAMES
from overlay.driver import DrivenNode
from overlay.links.messages import Ack, Frame
from tests.support.real.echo_node import EchoNode
from tests.support.real.wire_rig import PATIENCE, rig


@pytest.fixture(autouse=True)
def _memory_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes run in the tests' process here, whose memory is not theirs to arrange."""
    monkeypatch.setattr(node_process, "freeze_heap", lambda: None)
    monkeypatch.setattr(node_process, "return_large_blocks", lambda: None)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writes beyond `size` bytes of a file fail (EFBIG), as those to a full disk or beyond a quota
    do. (Python ignores SIGXFSZ.)"""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def config(folder: Path) -> NodeConfig:
    return NodeConfig(
        listen="127.0.0.1:0", data=str(folder), directory=False, trace=TraceConfig(enabled=False)
    )


def run(folder: Path, on_start: Callable[[TrioDriver], None], **more: object) -> tuple[int, str]:
    """Run a node that does this when it starts; exit code and log."""

    class Starting(EchoNode):
        def start(self) -> None:
            super().start()
            self.alarm = self.driver.clock() + PATIENCE
            on_start(self.driver)

        def on_tick(self) -> None:
            raise AssertionError("it goes on")

    def build(process: NodeProcess) -> DrivenNode:
        return Starting(process.driver, process.me.id, process.me.address)

    log = io.StringIO()
    code = run_node(config(folder), log, build)
    assert "Traceback" not in log.getvalue()
    return code, log.getvalue()


def has_started(driver: TrioDriver) -> None:
    raise AssertionError("it has started")


# --- at the start ---


def test_a_node_does_not_start_on_a_full_disk(tmp_path: Path) -> None:
    DataFolder(tmp_path).close()
    with files_of_at_most(START_ROOM - 1):
        code, log = run(tmp_path, has_started)
    assert code == FOLDER_REFUSED
    assert len(log.splitlines()) == 1
    assert "start_failed" in log
    assert "make room" in log
    assert json.loads((tmp_path / "node.json").read_text())["incarnation"] == 1, "no start counted"
    assert not list(tmp_path.glob("*.new")), "what did not fit is removed"
    DataFolder(tmp_path).close()


def test_a_state_without_its_identity_is_refused(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.close()
    (tmp_path / "node.json").unlink()
    code, log = run(tmp_path, has_started)
    assert code == FOLDER_REFUSED
    assert folder.node in log, "the node whose state it is"
    assert "put node.json back, or move the file state away" in log
    assert not (tmp_path / "node.json").exists()
    (tmp_path / "state").unlink()
    DataFolder(tmp_path).close()


def test_a_state_of_another_node_is_refused(tmp_path: Path) -> None:
    one, two = DataFolder(tmp_path / "1"), DataFolder(tmp_path / "2")
    one.close()
    two.close()
    shutil.copy(tmp_path / "1" / "state", tmp_path / "2" / "state")
    with pytest.raises(FolderError, match=f"{two.node}.*{one.node}.*restore both") as refused:
        DataFolder(tmp_path / "2")
    assert not isinstance(refused.value, DiskError)


def test_an_identity_that_is_older_than_the_state_is_refused(tmp_path: Path) -> None:
    """It would count starts again, and name other events as it has named some before."""
    DataFolder(tmp_path).close()
    old = (tmp_path / "node.json").read_text()
    DataFolder(tmp_path).close()
    last = DataFolder(tmp_path)
    last.state.store(b"a", replace=True)  # the owner is in what takes the place of all
    last.state.sync()
    last.close()
    (tmp_path / "node.json").write_text(old)
    with pytest.raises(FolderError, match="start 1 and 3"):
        DataFolder(tmp_path)


def delete(driver: TrioDriver) -> None:
    """Delete the folder of the running node, then store something."""
    assert driver._folder is not None
    shutil.rmtree(driver._folder.path)
    driver.store(b"a vote")


def test_an_identity_without_its_state_begins_as_another_node_and_says_so(tmp_path: Path) -> None:
    before = DataFolder(tmp_path)
    before.close()
    (tmp_path / "state").unlink()
    code, log = run(tmp_path, delete)
    assert code == DISK_FAILED, "that is how this test ends it"
    assert f"state_missing was={before.node}" in log


# --- while it runs ---


def test_a_node_that_cannot_write_ends_with_the_reason(tmp_path: Path) -> None:
    def fill(driver: TrioDriver) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
        driver.store(bytes(2_000))

    with files_of_at_most(1 << 30):
        code, log = run(tmp_path, fill)
    assert code == DISK_FAILED
    assert "error disk_failed" in log.splitlines()[-1]
    assert f"cannot write {tmp_path}/state" in log
    assert "make room" in log


@pytest.mark.parametrize("replace", [False, True])
def test_a_node_whose_folder_was_deleted_ends_at_its_next_record(
    tmp_path: Path, replace: bool
) -> None:
    def delete(driver: TrioDriver) -> None:
        shutil.rmtree(tmp_path)
        driver.store(b"a vote", replace=replace)

    code, log = run(tmp_path, delete)
    assert code == DISK_FAILED
    assert f"{tmp_path}/state was deleted while the node was running" in log


def test_a_node_that_stores_nothing_notices_that_its_folder_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_process, "FOLDER_CHECK", 0.01)
    path = tmp_path / "node"

    class Deleting(EchoNode):
        def on_tick(self) -> None:
            assert path.exists(), "it goes on"
            shutil.rmtree(path)
            self.alarm = self.driver.clock() + PATIENCE

    def build(process: NodeProcess) -> DrivenNode:
        node = Deleting(process.driver, process.me.id, process.me.address)
        node.alarm = process.driver.clock() + 0.05
        return node

    log = io.StringIO()
    assert run_node(config(path), log, build) == DISK_FAILED
    assert "was deleted while the node was running" in log.getvalue()


def test_a_state_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    copy = tmp_path / "copy"
    shutil.copy(tmp_path / "state", copy)
    folder.check()
    copy.replace(tmp_path / "state")
    with pytest.raises(DiskError, match="was replaced"):
        folder.check()
    folder.state.store(b"a vote")
    with pytest.raises(DiskError, match="was replaced"):
        folder.state.sync()
    folder.close()


def test_after_a_failed_write_nothing_is_stored_any_more(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with files_of_at_most(os.stat(tmp_path / "state").st_size + 10):
        folder.state.store(b"a vote")
        with pytest.raises(DiskError, match="cannot write"):
            folder.state.sync()
    for _ in range(2):  # there is room again; what is on the disk is not known
        with pytest.raises(DiskError, match="cannot write"):
            folder.state.sync()
    with pytest.raises(DiskError):
        folder.check()
    folder.close()
    again = DataFolder(tmp_path)
    assert again.restored == []
    again.close()


def test_a_failed_compaction_leaves_the_old_file(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.state.store(b"old")
    folder.state.sync()
    with files_of_at_most(10):
        folder.state.store(b"all", replace=True)
        with pytest.raises(DiskError, match="cannot write"):
            folder.state.sync()
    folder.close()  # without a word of a bad file descriptor
    again = DataFolder(tmp_path)
    assert again.restored == [b"old"]
    again.close()


@pytest.mark.trio
async def test_nothing_of_a_turn_leaves_that_could_not_be_stored(tmp_path: Path) -> None:
    """Nor with a later turn, in the moment before all tasks have ended."""
    folder = DataFolder(tmp_path)
    async with rig(folder) as one:
        stream = await one.dial()
        (_, number) = await one.has("accepted")
        assert isinstance(number, int)

        def promise(frame: Frame) -> None:
            one.driver.write(number, frame)
            one.driver.store(b"promised")

        with files_of_at_most(10):
            for _ in range(2):
                with pytest.raises(DiskError):
                    one.driver.turn(promise, Ack(1, 2))
            with pytest.raises(DiskError):
                one.driver.turn(lambda: None)
        with trio.move_on_after(0.2) as waiting:
            data = await stream.receive_some()
            assert not data, NODE_FRAMES.decode(data[4:])
        assert waiting.cancelled_caught or not data
        one.nursery.cancel_scope.cancel()
    folder.close()


def test_traces_that_cannot_be_written_are_reported_once_and_counted(tmp_path: Path) -> None:
    settings = NodeConfig(data=str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "traces").write_text("no folder")
    folder, log = DataFolder(settings.folder), io.StringIO()
    process = NodeProcess(settings, folder, Log("info", log), lambda process: EchoNode(None))

    async def main() -> None:
        with trio.move_on_after(1.3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process._write_traces)
                for _ in range(5):
                    process.driver.trace("ready", {})
                    await trio.sleep(0.25)

    trio.run(main)
    folder.close()
    assert log.getvalue().count(" traces ") == 1
    assert "goes on" in log.getvalue()
    assert process._traces is not None
    assert process._traces.lost >= 4
