"""The simulation of examples/ says what it says it does, as a program and as a notebook."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.simulation.lost_primary import simulate

FOLDER = Path(__file__).parents[3] / "examples" / "simulation"


def test_a_primary_is_lost_and_every_event_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))  # a notebook runs in its folder
    monkeypatch.delitem(sys.modules, "lost_primary", raising=False)
    cells = json.loads((FOLDER / "lost_primary.ipynb").read_text(encoding="utf-8"))["cells"]
    there: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), there)
    for found in (*there["outcomes"], *there["larger"]):
        assert found.delivered == found.expected > 200
        assert 0 < found.led_after < 5
    assert simulate(1) == tuple(there["outcomes"][0]), "a seed is the whole run"
    assert there["larger"][0][1:] != there["outcomes"][0][1:]
    assert len(capsys.readouterr().out.splitlines()) == 5
