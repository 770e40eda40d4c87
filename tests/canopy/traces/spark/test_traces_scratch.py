"""Temporary folders of analyses: removed at the end, or by the next one after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from canopy.traces.analysis.spark.paths import UNLOCKED_SECONDS, scratch_folder

HOLD = """
import sys, time
from canopy.traces.analysis.spark.paths import scratch_folder
with scratch_folder() as folder:
    (folder / "shuffled").write_text("much")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(
    temporary: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        try:
            with scratch_folder() as mine:
                assert left.is_dir()
                assert mine.is_dir()
        finally:
            other.send_signal(signal.SIGKILL)
    assert (left / "shuffled").is_file()
    with scratch_folder() as mine:
        assert [path.name for path in temporary.iterdir()] == [mine.name]
    assert not list(temporary.iterdir())


def test_a_folder_without_a_lock_stays_while_it_may_be_in_use(temporary: Path) -> None:
    new, old = (temporary / f"canopy-spark-{name}" for name in ("new", "old"))
    for path in (new, old):
        path.mkdir()
    at = old.stat().st_mtime - UNLOCKED_SECONDS - 1
    os.utime(old, (at, at))
    with scratch_folder():
        assert new.is_dir()
        assert not old.exists()
