"""The tour of the default demo: a node and a whole cluster are killed in it, and Spark finds all
deliveries exact."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.process
@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_demo_shows_all_scenes_and_is_exact(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "canopy", "demo", "--duration", "5", "--json", "--tour"]
    ended = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=800,
    )
    found = json.loads(ended.stdout)
    assert ended.returncode == 0, found["problems"]
    cut, split, crossed, stream, lost, cluster = (scene["said"] for scene in found["tour"])
    assert "was cut: " in cut
    assert "clusters, led by the nodes" in split
    assert "20 messages went from region to region" in crossed
    assert "on the disks of three nodes" in stream
    assert "was killed" in lost
    assert "all of these events were delivered" in cluster
    page = (tmp_path / "out" / "report" / "report.html").read_text()
    assert all(scene["title"] in page for scene in found["tour"])
