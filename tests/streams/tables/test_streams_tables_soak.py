"""The newest rows of each key under faults, by seed."""

from __future__ import annotations

import pytest

from tests.streams.tables.table_world import trial_of_tables

SEEDS = [
    0,
    23,  # rows are replaced while they are read
    117,  # the leader changes while the newest rows are read
]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_newest_rows_fold_to_what_was_committed_through_faults(seed: int) -> None:
    world = trial_of_tables(seed)
    assert world.tables_judged > 100
    counters = [port.counters for port in world.ports.values()]
    assert sum(each.get("stream_tables_written", 0) for each in counters) > 5
