"""The simulation of examples/ says what it says it does."""

from __future__ import annotations

from examples.simulation.lost_primary import simulate


def test_a_primary_is_lost_and_every_event_comes() -> None:
    found = simulate(1)
    assert found.delivered == found.expected > 200
    assert 0 < found.led_after < 5
    assert simulate(1) == found, "a seed is the whole run"
