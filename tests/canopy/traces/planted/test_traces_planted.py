"""Faults planted into the records of a good run: each has the verdict that is due to it.

Each fault has nodes and an overlay of its own, and one analysis judges all of them apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from canopy.traces.analysis import AnalysisSummary, analyze
from canopy.traces.analysis.check.gather import read_file
from canopy.traces.analysis.check.job import completeness_of, held_of
from canopy.traces.analysis.read import trace_files
from canopy.traces.analysis.verdict.outcome import absences
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


def test_a_check_without_spark_finds_the_same_to_be_absent(found: AnalysisSummary) -> None:
    folder = Path(found.report).parent.parent / "traces"
    files = [read_file(path) for path in trace_files(folder)]
    complete, _ = completeness_of(files, held_of(files))
    holes = [
        (run.node, run.run, hole.records, hole.cause) for run in complete.runs for hole in run.holes
    ]
    assert sorted(map(str, holes)) == sorted(
        str((row["node"], row["run"], row["records"], row["cause"])) for row in found.incomplete
    )
    assert {node for each in complete.overlays for node in each.absent} == set(found.absent_nodes)
    assert (complete.copies, complete.sample) == (found.copies, found.sample)
    assert sum(file.unreadable for file in files) == found.corrupt_lines == 1
    assert complete.clock_offsets() == pytest.approx(found.clocks, abs=0.001)
    reasons = {each["name"]: each["reasons"] for each in found.overlays}
    assert reasons.keys() == {each.name for each in complete.overlays}
    for overlay in complete.overlays:
        assert set(absences(overlay)) <= set(reasons[overlay.name])
    assert complete.contradictions
