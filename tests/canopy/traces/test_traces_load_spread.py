"""T7: how evenly the nodes of a run work."""

from __future__ import annotations

import pytest

from canopy.traces.analysis import load

ROWS = [
    {"data_messages": 10, "deliveries": 1, "matches": 0},
    {"data_messages": 20, "deliveries": 1, "matches": 6},
]


def test_each_kind_of_work_has_a_spread_of_its_own() -> None:
    spread = load.spread_of(ROWS)
    assert spread == {
        "data_messages": {"mean": 15.0, "variance": 25.0, "deviation": 5.0},
        "deliveries": {"mean": 1.0, "variance": 0.0, "deviation": 0.0},
        "matches": {"mean": 3.0, "variance": 9.0, "deviation": pytest.approx(3.0)},
    }


def test_without_nodes_there_is_no_spread() -> None:
    nothing = {"mean": None, "variance": None, "deviation": None}
    assert load.spread_of([]) == dict.fromkeys(load.WORK, nothing)
