"""Programs that append through their nodes, through crashes, cut links and bad disks."""

from __future__ import annotations

import pytest

from tests.support.shards.producing_world import trial_of_programs

SEEDS = 15
"""In the suite; `python -m tests.streams.search programs` looks at more."""


@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_what_programs_append_is_there_once_and_in_their_order(first: int) -> None:
    for seed in range(first, first + 5):
        world = trial_of_programs(seed)
        assert any(p.acknowledged for p in world.programs.values()), f"seed {seed}: nothing"
