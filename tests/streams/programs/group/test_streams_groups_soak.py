"""Groups under faults, by seed: every row is done with once, and a key is with one program."""

from __future__ import annotations

import pytest

from tests.streams.programs.group.groups_world import trial_of_groups
from tests.support.examples import seeds


@pytest.mark.parametrize("seed", seeds(3))
def test_groups_whose_options_change_are_done_with_every_row_once(seed: int) -> None:
    world = trial_of_groups(seed, edits=0.3)
    changed = sum(port.counters.get("stream_groups_changed", 0) for port in world.ports.values())
    assert changed > 5
    assert len(world.confirmed) > 20


@pytest.mark.parametrize("seed", seeds(3))
def test_groups_are_done_with_every_row_once_through_faults(seed: int) -> None:
    world = trial_of_groups(seed)
    assert len(world.confirmed) > 20
