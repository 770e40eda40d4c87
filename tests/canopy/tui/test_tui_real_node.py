"""The terminal UI at a node of real processes: what it asks for is what a node answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import TabbedContent

import canopy
from canopy.tui.model.requester import connector
from harness.real_overlay import Overlay, status, wait_ready
from tests.canopy.tui.tui_pilot import Rig, play


@pytest.mark.process
def test_it_subscribes_shows_and_explains_events_and_the_overlay(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path)
    try:
        first = overlay.start()
        wait_ready(first)
        here = status(first)
        wait_ready(overlay.start(here.address))
        other = tmp_path / "1"

        async def scenario(rig: Rig) -> None:
            await rig.subscribe("mag > 4 AND place LIKE '%Alaska'", "quakes")
            with canopy.connect(other) as client:
                client.publish({"id": "q1", "mag": 5.1, "place": "Nome, Alaska"}, receipt=True)
                client.publish({"id": "q2", "mag": 5.2, "place": "Fiji"}, receipt=True)
            await rig.sees("q1", "Nome, Alaska", "quakes")
            assert "q2" not in rig.text
            await rig.press("w")
            await rig.sees("through the tree of mag", "saw")
            await rig.press("escape", "2")
            await rig.until(lambda: getattr(rig.app.main_screen, "TITLE", "") == "overlay")
            await rig.sees(here.node, "● ready")
            rig.app.screen.query_one("#tabs", TabbedContent).active = "trees"
            await rig.sees("●  mag")
            rig.app.screen.query_one("#tabs", TabbedContent).active = "ring"
            await rig.sees("★ primary")

        play(scenario, connect=connector(str(tmp_path / "0")))
    finally:
        overlay.stop()
