"""A copied data folder with real processes: on one machine the copy does not start; on two machines
the process that was started earlier ends, and both logs say what to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.wire.constants import FOLDER_COPIED
from canopy.wire.durable import CopiedFolderError
from canopy.wire.folder import DataFolder

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[4]
PATIENCE = 30.0


class Running:
    """A node's process, with its log as far as it has come."""

    def __init__(self, data: Path, machine: Path, *peers: str) -> None:
        """`machine`: the temporary directory, in which processes of one machine lock their ids."""
        machine.mkdir(exist_ok=True)
        options = ["--listen", "127.0.0.1:0", "--data", str(data), "--no-directory", "--no-trace"]
        options += ["--insecure"]  # as one has it that other machines reach
        for peer in peers:
            options += ["--peer", peer]
        self.process = subprocess.Popen(
            [sys.executable, "node.py", *options],
            cwd=ROOT,
            env={"TMPDIR": str(machine), "PATH": ""},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self.log.append(line)
                self._more.notify_all()

    def line(self, word: str) -> str:
        """The first line of the log with `word`; waits for it."""
        with self._more:
            assert self._more.wait_for(lambda: any(word in one for one in self.log), PATIENCE), (
                self.log
            )
            return next(one for one in self.log if word in one)

    @property
    def address(self) -> str:
        return self.line(" listening ").partition("address=")[2].split()[0]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def nodes() -> Iterator[list[Running]]:
    found: list[Running] = []
    yield found
    for one in found:
        one.end()


def test_a_copy_on_another_machine_ends_the_earlier_process_and_both_say_why(
    tmp_path: Path, nodes: list[Running]
) -> None:
    earlier = Running(tmp_path / "node", tmp_path / "1")
    nodes.append(earlier)
    earlier.line(" ready ")
    shutil.copytree(
        tmp_path / "node", tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock", "address")
    )
    later = Running(tmp_path / "copy", tmp_path / "2", earlier.address)
    nodes.append(later)
    assert earlier.process.wait(PATIENCE) == FOLDER_COPIED
    reason = earlier.line("error identity_conflict")
    assert later.address in reason
    assert str(tmp_path / "node") in reason
    assert "Delete node.json and state" in reason
    warning = later.line("warning identity_conflict")
    assert earlier.address in warning
    assert str(tmp_path / "copy") in warning
    assert later.process.poll() is None


def test_a_copy_on_the_same_machine_does_not_start(tmp_path: Path) -> None:
    original = DataFolder(tmp_path / "node")
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    with pytest.raises(CopiedFolderError, match=r"delete node\.json and state in") as error:
        DataFolder(tmp_path / "copy")
    assert str(tmp_path / "node") in str(error.value)
    known = json.loads((tmp_path / "copy" / "node.json").read_text())
    assert known["incarnation"] == 1, "nothing was changed in it"
    original.close()
    moved = DataFolder(tmp_path / "copy")  # a folder that was moved is no copy
    assert moved.node == original.node
    moved.close()


def test_a_lock_file_that_a_killed_process_left_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.wire.folder.tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    folder = DataFolder(tmp_path / "node")
    (home,) = (tmp_path / "tmp").iterdir()
    left = (home / folder.node).read_text()
    folder.close()
    assert not list(home.iterdir()), "a process that ends removes its own"
    (home / folder.node).write_text(left)
    DataFolder(tmp_path / "node").close()


def test_without_a_place_for_the_lock_a_node_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.wire.folder.tempfile.tempdir", str(tmp_path / "nowhere"))
    DataFolder(tmp_path / "node").close()
