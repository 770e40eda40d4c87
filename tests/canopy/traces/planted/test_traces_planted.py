"""Faults planted into the records of a good run: each has the verdict that is due to it.

Each fault has nodes and an overlay of its own, and one analysis judges all of them apart.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from canopy.traces.analysis import AnalysisSummary, analyze
from tests.canopy.traces.planted.faults import PLANTED
from tests.canopy.traces.planted.good_run import copy_of, written

pytestmark = pytest.mark.spark

OTHER_TREES = {
    '[">", ["attr", "a"], ["lit", 5.5]]',
    '[">=", ["attr", "a"], ["lit", 5]]',
    '[">", ["attr", "number"], ["lit", 5]]',
}


@pytest.fixture(scope="module")
def found(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> AnalysisSummary:
    """The analysis of all runs."""
    folder = tmp_path_factory.mktemp("planted")
    good = written(folder / "good")
    for number, (name, fault) in enumerate(PLANTED.items(), 1):
        run = copy_of(good, name, number)
        fault.plant(run)
        fault.stored(run, folder / "traces" / f"{number:02}")
    return analyze(folder / "traces", folder / "report", session=spark)


@pytest.mark.parametrize("name", PLANTED)
def test_the_verdict_on_a_planted_fault(name: str, found: AnalysisSummary) -> None:
    fault = PLANTED[name]
    rows = [row for row in found.overlays if row["name"].partition(" #")[0] == name]
    assert {row["result"] for row in rows} == {fault.result}, rows
    assert [row["faults"] for row in rows] == [fault.faults] * len(rows)
    assert {row["unjudged"] for row in rows} == {fault.unjudged}


def test_a_subscription_with_another_tree_is_named_with_both(found: AnalysisSummary) -> None:
    named = [row for row in found.by_subscription if "tree" in row]
    assert {(row["name"], row["selector"]) for row in named} == {("on 2", "a > 5")}
    assert {json.dumps(json.loads(row["tree"])[1:]) for row in named} == OTHER_TREES
