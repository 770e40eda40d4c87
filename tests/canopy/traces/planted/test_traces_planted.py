"""Faults planted into the records of a good run: each has the verdict that is due to it.

Each fault has nodes and an overlay of its own, and one analysis judges all of them apart.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from canopy.traces.analysis import AnalysisSummary, analyze
from canopy.traces.analysis.check.gather import read_file
from canopy.traces.analysis.check.job import completeness_of, held_of
from canopy.traces.analysis.constants import EXAMPLES_SHOWN, GROUPS_SHOWN
from canopy.traces.analysis.read import trace_files
from canopy.traces.analysis.report.wording import percent
from canopy.traces.analysis.verdict.outcome import absences
from canopy.traces.analysis.wrong import KINDS
from tests.canopy.traces.planted.faults import PLANTED, judged_right, plant
from tests.canopy.traces.planted.good_run import APART

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
    plant(folder)
    return analyze(folder / "traces", folder / "report", session=spark)


@pytest.mark.parametrize("name", PLANTED)
def test_the_verdict_on_a_planted_fault(name: str, found: AnalysisSummary) -> None:
    judged_right(name, found)


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
    assert sum(file.unreadable for file in files) == found.corrupt_lines == 5
    assert complete.clock_offsets() == pytest.approx(found.clocks, abs=0.001)
    assert complete.clock_steps() == pytest.approx(found.clock_steps, abs=0.001)
    assert 7_200.0 in map(round, found.clock_steps.values())
    assert not found.clocks_agree
    reasons = {each["name"]: each["reasons"] for each in found.overlays}
    assert reasons.keys() == {each.name for each in complete.overlays}
    for overlay in complete.overlays:
        assert set(absences(overlay)) <= set(reasons[overlay.name])
    assert complete.contradictions


def test_many_of_one_kind_hide_none_of_another(found: AnalysisSummary) -> None:
    """What is wrong is grouped by node, cause and time."""
    number = list(PLANTED).index("many given up beside two losses") + 1
    host, near, far = (f"{number:08x}{node:08x}" for node in (1, 2, 3))
    rows = [row for row in found.wrong if row["node"] in (near, far)]
    assert [(row["kind"], row["node"], row["by"], row["count"], row["cause"]) for row in rows] == [
        ("missing", far, None, 2, "sent to its node and never arrived"),
        ("dropped", near, host, 30, "held too long"),
    ]
    assert [(row["events"], row["subscriptions"]) for row in rows] == [(2, 1), (30, 1)]
    assert rows[1]["last"] - rows[1]["first"] == pytest.approx(29 * APART, abs=1)
    kinds = [row["kind"] for row in found.wrong]
    assert kinds == sorted(kinds, key=KINDS.index)
    for kind in set(kinds):
        assert kinds.count(kind) == min(GROUPS_SHOWN, found.wrong[kinds.index(kind)]["groups"])
    every = {
        kind: sum(row["count"] for row in found.wrong if row["kind"] == kind) for kind in KINDS
    }
    for kind in ("missing", "dropped", "discarded", "corrupted", "duplicates", "unknown"):
        assert every[kind] == getattr(found, kind), kind


def test_each_kind_has_its_quota_of_examples_in_the_report(found: AnalysisSummary) -> None:
    page = Path(found.report).read_text()
    examples = page[page.index("<h3>Examples</h3>") : page.index("How fast")]
    shown = re.findall(r'<b class="flag">([^<]+)</b>', examples)
    assert shown.count("missing") == found.missing < EXAMPLES_SHOWN
    assert shown.count("dropped") == EXAMPLES_SHOWN < found.dropped
    assert shown.count("2 times") == found.duplicates == 2


def test_the_first_screen_says_what_the_verdict_rests_on(found: AnalysisSummary) -> None:
    page = Path(found.report).read_text()
    basis = page[page.index("What this rests on") : page.index('id="wrong"')]
    tiles = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)<", basis))
    assert tiles == {
        "not judged": percent(found.unjudged_share),
        "withheld": str(found.withheld),
        "sampling": percent(found.sample),
        "absent nodes": str(len(found.absent_nodes)),
        "absent records": f"{sum(row['records'] or 0 for row in found.incomplete)} and more",
        "clocks": "60.0 min",
    }
    assert found.withheld > 60
    assert basis.count('<div class="warn">') == 5
    assert 'class="verdict bad"' in page
