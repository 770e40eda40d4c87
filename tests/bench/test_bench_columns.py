"""The prototype of batches of columns brings the events that rows bring."""

from __future__ import annotations

from bench.dataplane.columns import NODES, Bench, measure


def test_columns_and_rows_bring_the_same_events() -> None:
    bench = Bench(subscriptions=600, matches=30.0, seed=1)
    for size in (1, 96):  # more than the engine takes at once
        rows, columns = measure(bench, size, 96)
        assert 1 < rows["deliveries"] == columns["deliveries"] < NODES
        assert rows["stages"].keys() == columns["stages"].keys()
