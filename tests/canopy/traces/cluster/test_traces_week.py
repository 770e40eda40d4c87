"""A run with a state on each day of a week, against one run over all days (`make cluster`)."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from canopy.traces.analysis import TimeWindow, analyze, analyze_days, spark_session
from canopy.traces.analysis.prune import close_days
from tests.canopy.traces.test_traces_days import same
from tests.support.traces.days import as_of, day, end_of, week

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
                window=TimeWindow(None, end_of(number)),
                overwrite=True,
            )
            daily.append(found)
        whole = analyze(traces, tmp_path / "whole", session=spark).to_dict()
    last = daily[-1].to_dict()
    different = {name for name in whole if name != "report" and not same(whole[name], last[name])}
    assert not different
    assert whole["faults"] == {"missing": 2, "dropped": 1, "duplicates": 1, "spurious": 1}
    assert {summary.unknown for summary in daily} == {0}
    assert daily[5].unjudged >= 5, "and neither has it when what came after midnight has"
    # On day 3 one of day 1 is not there, but neither are all records of its subscriber.
    assert daily[2].missing == 0
    assert daily[2].unjudged >= 5, "the file of a day of a subscriber has not come"
    assert daily[4].unjudged >= 5, "the file of a day of the publisher has not come"


KEPT = 3  # days before the one that is analysed


def test_days_that_were_closed_leave_their_lines_and_change_no_later_day(tmp_path: Path) -> None:
    traces, state = tmp_path / "traces", tmp_path / "state"
    made = week(traces)
    full = {path: path.read_bytes() for path in traces.rglob("*.jsonl")}
    with spark_session() as spark:
        for number in range(1, 9):
            as_of(made, number, full)
            found = analyze_days(
                *(traces, tmp_path / "out", state),
                session=spark,
                window=TimeWindow(None, end_of(number)),
                overwrite=True,
            )
            last = found.to_dict()
            assert last["unknown"] == 0
            assert "unpublished" not in last["faults"]
            first = date.fromisoformat(day(max(1, number - KEPT)))
            close_days(state, first, end_of(8))
        whole = analyze(traces, tmp_path / "whole", session=spark).to_dict()
        again = analyze_days(traces, tmp_path / "out", state, session=spark, overwrite=True)
    since = day(4)  # when the last analysis of a day began
    lines, kept = whole["days"], [row for row in whole["days"] if row["day"] >= since]
    # A process was killed soon after the midnight of day 1, which shows on day 6: a delivery to it
    # was then around its end, and need not have been made. Day 1 had been closed on day 5.
    assert [row["expected"] for row in (last["days"][0], lines[0])] == [21, 20]
    assert same(last["days"][1:], lines[1:]), "closed after the last record that changes them"
    for name in ("expected", "delivered", "duplicates", "unjudged"):
        assert last[name] == sum(row[name] for row in kept)
    assert last["published"] == sum(row["events"] for row in kept)
    assert last["faults"] == {"missing": 1, "spurious": 1}
    assert (last["subscriptions"], again.subscriptions) == (5, 4), "one left on day 3"
    assert last["since"] == end_of(3)
    assert again.days == found.days
    assert again.expected == sum(row["expected"] for row in lines if row["day"] >= day(5))
