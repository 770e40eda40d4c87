"""Latencies are counted by Spark, in bins that hide half a per cent at most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from canopy.traces.analysis import latencies
from canopy.traces.analysis.tasks import frame_of_table

pytestmark = pytest.mark.spark

SHARES = (50, 90, 99, 100)


def test_percentiles_are_those_of_all_pairs_within_the_width_of_a_bin(spark: Any) -> None:
    rng = np.random.default_rng(1)
    taken, hops = rng.exponential(5.0, 20_000), rng.integers(1, 4, 20_000)
    count = len(taken)
    pairs = {
        "overlay": pa.array(["o"] * count),
        "verdict": pa.array(["delivered"] * (count - 2) + ["missing", "unjudged"]),
        "copies": pa.array([1] * (count - 3) + [3, 0, 0]),
        "latency_ms": pa.array([*taken[:-2], None, None]),
        "hops": pa.array(hops, pa.int32()),
        "attribute": pa.array(["a"] * count),
        "published": pa.array(np.linspace(100.0, 200.0, count)),
    }
    bins = latencies.pair_bins(spark, frame_of_table(spark, pa.table(pairs)), 100.0, 50.0)
    assert len(bins.verdicts) < count / 10
    counts = latencies.count_verdicts(bins.verdicts)
    assert (counts.expected, counts.missing, counts.unjudged) == (count - 1, 1, 1)
    assert counts.duplicates == 2
    found = [counts.latency_ms[name] for name in ("p50", "p90", "p99", "max")]
    assert found == pytest.approx(np.percentile(taken[:-2], SHARES).tolist(), rel=0.005)
    assert counts.latency_ms["mean"] == pytest.approx(taken[:-2].mean())
    assert counts.latency_ms["variance"] == pytest.approx(taken[:-2].var())
    by_hops = latencies.by(bins.hops, "number")
    for number, spread in by_hops.items():
        mine = taken[:-2][hops[:-2] == number]
        assert spread.number == len(mine)
        assert spread[1:] == pytest.approx(np.percentile(mine, SHARES).tolist(), rel=0.005)
    halves = latencies.by(bins.times, "number")
    assert {time: spread.number for time, spread in halves.items()} == {0: 10_000, 1: 9_998}
    assert latencies.by(bins.attributes, "name")["a"].number == count - 2


def test_percentiles_of_a_few_latencies_are_exact() -> None:
    values = [5.0, 1.0, 40.0, 2.0]
    bins = [
        {"bin": place, "pairs": 1, "total": value, "most": value}
        for place, value in enumerate(values)
    ]
    spread = latencies.spread_of(bins)
    assert spread is not None
    assert spread[1:] == pytest.approx(np.percentile(values, SHARES).tolist())
    assert latencies.spread_of([{"bin": None}]) is None


def test_hosts_and_links_are_compared_by_the_steps_of_the_same_event(spark: Any) -> None:
    """A visit that comes after a match is another one's, and an arrival without its forward is of
    no link."""
    rows = [
        {"kind": kind, "event": event, "attribute": "a", "node": node, "peer": peer, "time": time}
        for kind, event, node, peer, time in (
            ("visit", "1", "p", "h", 0.100),
            ("visit", "1", "q", "h", 0.104),  # another virtual node of the same host
            ("match", "1", "h", None, 0.107),
            ("match", "1", "h", None, 0.101),
            ("visit", "2", "p", "h", 0.200),
            ("match", "2", "i", None, 0.230),  # published there
            ("forward", "1", "h", "s", 0.107),
            ("forward", "1", "h", "t", 0.107),
            ("arrive", "1", "s", "h", 0.127),
            ("arrive", "1", "t", "h", 0.112),
            ("arrive", "1", "u", "d", 0.150),
        )
    ]
    records = frame_of_table(spark, pa.Table.from_pylist(rows))
    found, share = latencies.compared_places(spark, records, [], clocks_agree=True)
    assert share == 1.0
    kept = [(row["sender"], row["node"], row["count"]) for row in found]
    assert kept == [("h", "s", 1), ("h", "t", 1), (None, "h", 2)], "the slowest first"
    assert [row["p50_ms"] for row in found] == pytest.approx([20.0, 5.0, 2.0])
    assert [row["max_ms"] for row in found] == pytest.approx([20.0, 5.0, 3.0])
