"""bench/processes/lowered: root runs as nobody what lies in a folder of root's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.lowered import as_nobody, is_open, open_folder, reached

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root runs programs as nobody")


def test_programs_in_a_folder_of_roots_own_are_run_as_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr("tempfile.tempdir", str(home))  # TMPDIR
    (home / "programs" / "bin").mkdir(parents=True)
    home.chmod(0o700)
    program = home / "programs" / "bin" / "who"
    program.write_text('#!/bin/sh\n. "$(dirname "$0")/../lib/name"\necho "$name" > "$1/said"\n')
    program.chmod(0o700)
    (home / "programs" / "lib").mkdir(mode=0o700)
    (home / "programs" / "lib" / "name").write_text("name=$(id -un)\n")
    (home / "programs" / "lib" / "name").chmod(0o600)
    folder = open_folder("canopy-test-")
    try:
        with pytest.raises(PermissionError):
            subprocess.run([program, folder], cwd="/", check=True, **as_nobody())
        found = reached(home / "programs", "bin", "lib")
        assert is_open(found / "bin" / "who")
        subprocess.run([found / "bin" / "who", folder], cwd="/", check=True, **as_nobody())
        assert (folder / "said").read_text() == "nobody\n"
    finally:
        subprocess.run(["rm", "-r", folder], check=True)
    assert program.stat().st_mode & 0o777 == 0o700, "what was copied is as it was"
