"""M1 in whole overlays: how often events cross between regions, in a small one."""

from __future__ import annotations

import pytest

from bench.experiments.frame import no_progress
from bench.experiments.regions import RegionsPlan, RegionsRow, RegionsRun, largest_part, quantile
from canopy.sim.world.network import Conditions

SMALL = RegionsPlan(
    regions=3,
    nodes=6,
    topics=6,
    publishers=2,
    events=30,
    rate=10.0,
    network=Conditions(latency_low=0.001, latency_high=0.001, backbone=0.079),
)


def row_of(known: bool) -> RegionsRow:
    return RegionsRun(SMALL, no_progress, known).row()


def test_events_cross_once_per_interested_region_and_not_at_all_at_home() -> None:
    row = row_of(known=True)
    assert (row.delivered, row.twice) == (row.expected, 0)
    assert set(row.hosts) == {"r0", "r1", "r2"}
    assert row.ratio <= 1.0
    assert row.own_region == 0.0, "no event comes back into the region of its publisher"
    assert row.inside_p99 is not None
    assert row.inside_p99 < 40.0, "milliseconds: none of these deliveries crosses"
    assert row.together_50 == 1.0


def test_without_regions_the_same_is_measured_and_more_crosses() -> None:
    row = row_of(known=False)
    assert (row.delivered, row.twice) == (row.expected, 0)
    assert row.ratio > 1.3


def test_parts_of_a_graph_are_counted_along_links_in_either_direction() -> None:
    graph = {"a": ["b", "gone"], "b": [], "c": ["b"], "d": ["e"], "e": []}
    assert largest_part(graph) == 3
    assert largest_part({}) == 0


@pytest.mark.parametrize(("share", "expected"), [(0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_quantiles_are_in_milliseconds(share: float, expected: float) -> None:
    assert quantile([n / 1_000 for n in range(1, 101)], share) == expected
    assert quantile([], share) is None
