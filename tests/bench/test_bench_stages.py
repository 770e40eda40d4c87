"""The stages' bench runs, and what it says of the stages makes up the whole."""

from __future__ import annotations

import argparse

import pytest

from bench.node.stages import Stages, measure


@pytest.mark.parametrize("traced", [False, True])
def test_every_stage_of_an_event_is_timed(traced: bool) -> None:
    options = argparse.Namespace(
        subscriptions=40, matches=2.0, events=256, batch=64, seed=3, traced=traced
    )
    found = measure(options)
    assert len(found["stages"]) == 10
    assert all(us > 0 for us in found["stages"].values())
    assert found["bytes_to_clients"] > 100


def test_a_stage_is_without_those_inside_it() -> None:
    stages = Stages()
    inner = stages.timed(lambda: sum(range(20_000)), "inner")
    outer = stages.timed(inner, "outer")
    outer()
    assert stages.seconds["outer"] < stages.seconds["inner"]
