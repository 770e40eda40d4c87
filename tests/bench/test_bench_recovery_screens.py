"""The pictures of failures: what the terminal UI shows is what is written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.recovery import monitor
from bench.recovery.screens import FIGURES
from harness.recovery.plan import CUTS, KILLS
from tests.canopy.tui.tui_fake_node import FakeNode


def test_a_line_leaves_the_screen_with_that_tab_as_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "ANSWERED", 0.1)
    node = FakeNode()
    lines = [f"0.0\t{tab}\t{tmp_path / tab}.svg\ta {tab}\n" for tab in ("ring", "incidents")]
    asyncio.run(monitor.watch(node.connect, iter([*lines, ""]).__next__))
    ring = (tmp_path / "ring.svg").read_text(encoding="utf-8")
    incidents = (tmp_path / "incidents.svg").read_text(encoding="utf-8")
    assert "a&#160;ring" in ring or "a ring" in ring
    assert "primary" in ring
    assert "Incidents" in incidents
    assert "█" in ring  # the circle
    assert "█" not in incidents


def test_every_failure_of_a_figure_is_one_that_a_trial_can_play() -> None:
    assert set(FIGURES) <= {*KILLS, *CUTS}
    assert sorted(FIGURES.values()) == [4, 5, 6, 7]
