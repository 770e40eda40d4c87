"""A run with a state on each day of a week, against one run over all days (`make cluster`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from canopy.traces.analysis import Window, analyze, analyze_days, spark_session
from tests.canopy.traces.test_traces_days import same
from tests.support.trace_days import as_of, end_of, week

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(3600)]


def test_seven_daily_runs_find_what_one_run_over_all_finds(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    made = week(traces)
    full = {path: path.read_bytes() for path in traces.rglob("*.jsonl")}
    with spark_session() as spark:
        daily = []
        for number in range(1, 9):
            as_of(made, number, full)
            found = analyze_days(
                *(traces, tmp_path / "out", tmp_path / "state"),
                session=spark,
                window=Window(None, end_of(number)),
                overwrite=True,
            )
            daily.append(found)
        whole = analyze(traces, tmp_path / "whole", session=spark).to_dict()
    last = daily[-1].to_dict()
    different = {name for name in whole if name != "report" and not same(whole[name], last[name])}
    assert not different
    assert whole["faults"] == {"missing": 2, "dropped": 1, "duplicates": 1, "spurious": 1}
    assert {summary.unknown for summary in daily} == {0}
    # On day 3 one of day 1 is not there, but neither are all records of its subscriber.
    assert daily[2].missing == 0
    assert daily[2].unjudged >= 5, "the file of a day of a subscriber has not come"
    assert daily[4].unjudged >= 5, "the file of a day of the publisher has not come"
