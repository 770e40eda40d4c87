"""Runs with a state, day by day, against one run over all days."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from canopy.cli.main import main
from canopy.cli.traces import from_stream
from canopy.traces.analysis import (
    AnalysisError,
    AnalysisSummary,
    TimeWindow,
    analyze,
    analyze_days,
)
from canopy.traces.analysis.completeness.collect import Facts
from canopy.traces.analysis.days.intake import check_overlay, is_within
from canopy.traces.analysis.days.state import (
    JUDGED,
    LASTING,
    PUBLISHED,
    RECORDS,
    STATE_VERSION,
    Day,
    EventRange,
    StateFolder,
    TakenFile,
    opened,
    read_state,
)
from canopy.traces.analysis.days.verdicts import days_to_read
from canopy.traces.analysis.prune import close_days
from tests.support.traces.days import as_of, day, end_of, week
from tests.support.traces.sent import SentRecords

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # four analyses are one fixture

RUNS = (5, 8)
"""By the end of which days the state is brought up to date. That a run for each day of the week
finds the same is tested where minutes do not matter (`make cluster`)."""


def same(one: Any, other: Any) -> bool:
    """Whether these are equal, but for the order in which floating-point numbers were added."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return bool(one == other)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("days")


@pytest.fixture(scope="module")
def daily(spark: Any, folder: Path) -> dict[int, AnalysisSummary]:
    """The summary of each of `RUNS`."""
    made = week(folder / "traces")
    full = {path: path.read_bytes() for path in (folder / "traces").rglob("*.jsonl")}
    found = {}
    for number in RUNS:
        as_of(made, number, full)
        found[number] = analyze_days(
            *(folder / "traces", folder / "out", folder / "state"),
            session=spark,
            window=TimeWindow(None, end_of(number)),
            overwrite=True,
        )
    return found


def test_a_folder_day_by_day_and_a_stream_with_all_of_it_have_the_same_verdict(
    spark: Any,
    folder: Path,
    daily: dict[int, AnalysisSummary],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = SentRecords(folder / "traces")
    monkeypatch.setattr(from_stream, "open_client", lambda *_, **__: nullcontext(client))
    monkeypatch.setattr(
        "canopy.traces.analysis.analyze_places",
        lambda traces, out, **_: analyze(Path(traces), Path(out), session=spark),
    )
    words = ["trace", "analyze", "--stream", "traces", "--out", str(folder / "whole"), "--json"]
    assert main(words) == 9, "the run was not exact"
    whole = json.loads(capsys.readouterr().out)
    last = json.loads(json.dumps(daily[RUNS[-1]].to_dict()))
    different = {
        name: (whole[name], last[name])
        for name in whole
        if name != "report" and not same(whole[name], last[name])
    }
    assert not different
    # A loss at noon, one at midnight; the week has each kind of fault once.
    assert whole["faults"] == {"missing": 2, "dropped": 1, "duplicates": 1, "spurious": 1}
    assert whole["unjudged"] == 0
    assert [row["day"] for row in whole["days"]] == [day(number) for number in range(1, 8)]
    for name in ("expected", "delivered", "duplicates", "unjudged"):
        assert sum(row[name] for row in whole["days"]) == whole[name]
    assert sum(row["events"] for row in whole["days"]) == whole["published"]
    page = (folder / "out" / "report.html").read_text()
    assert all(f">{row['day']}</th>" in page for row in whole["days"])


def test_what_has_not_come_yet_is_not_judged_and_never_called_unknown(
    daily: dict[int, AnalysisSummary],
) -> None:
    assert {summary.unknown for summary in daily.values()} == {0}
    missing = [summary.missing for summary in daily.values()]
    assert missing == [1, 2]
    open_ = [summary.unjudged for summary in daily.values()]
    assert open_[0] >= 5, "the file of a day of the publisher has not come"
    # A process had been killed on day 2, which shows on day 6, and changes day 2 without a record
    # of it.
    assert open_[1] == 0


def test_the_state_has_a_few_files_for_each_day(
    folder: Path, daily: dict[int, AnalysisSummary]
) -> None:
    state = read_state(folder / "state")
    assert sorted(state.days) == [day(number) for number in range(1, 9)]
    named = {place for one in state.days.values() for place in one.tables.values()}
    files = [path.relative_to(folder / "state") for path in (folder / "state").rglob("*.parquet")]
    assert {str(path.parent) for path in files} == named
    assert len(files) == len(named) <= 3 * 8


def test_a_closed_day_keeps_its_line_and_what_has_not_ended(
    folder: Path, daily: dict[int, AnalysisSummary], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    shutil.copytree(folder / "state", state)
    before = read_state(state)
    would = close_days(state, date.fromisoformat(day(6)), end_of(8), dry_run=True)
    assert read_state(state) == before
    done = close_days(state, date.fromisoformat(day(6)), end_of(8))
    assert done.days == would.days
    assert [str(one.day) for one in done.days] == [day(number) for number in range(1, 6)]
    assert done.size == would.size > 0
    after = read_state(state)
    assert {name: one.line for name, one in after.days.items()} == {
        name: one.line for name, one in before.days.items()
    }
    assert after.files == before.files, "files that are still there are not new ones"
    with opened(state) as held:
        assert held.closed == [day(number) for number in range(1, 6)]
        assert len(held.places(JUDGED)) == len(held.places(PUBLISHED)) == 2
        assert [place.name for place in held.places(JUDGED)] == [f"of={day(6)}", f"of={day(7)}"]
        rows = pa.concat_tables(
            parquet.read_table(place, columns=["kind", "node", "run", "name"], partitioning=None)
            for name in held.closed
            if (place := held.place(name, RECORDS)) is not None
        ).to_pylist()
        ranges = held.closed_events()
    subscribed = {row["name"] for row in rows if row["kind"] == "subscribe"}
    # Node 4 starts again on day 6, an open day; "short" left on day 3.
    assert subscribed == {"always", "killed", "late", "new"}
    assert {row["kind"] for row in rows} <= set(LASTING)
    started = [(row["node"], row["run"]) for row in rows if row["kind"] == "start"]
    assert len(started) == len(set(started)) == 5, "node 1 started twice, and its first run is over"
    assert {run.rpartition(".")[2] for run in ranges} == {"1", "2"}
    assert len(ranges) == 3, "of one publisher's run, and of another's two"
    # What is to be closed next ends what was killed; today stays open, whatever is asked for.
    done = close_days(state, date(9999, 1, 1), end_of(7) - 1)
    assert [str(one.day) for one in done.days] == [day(6)]
    assert not close_days(state, date.fromisoformat(day(6)), end_of(8)).days
    with pytest.raises(AnalysisError, match="there is no state"):
        close_days(tmp_path / "none", date(2026, 1, 1), 0.0)


def test_events_of_closed_days_are_known_by_their_numbers(spark: Any) -> None:
    condition = is_within([EventRange("n'.1", 3, 5), EventRange("b.2", 1, 1)])
    rows = [("n'.1.2",), ("n'.1.3",), ("n'.1.5",), ("n'.1.6",), ("b.2.1",), ("b.1.1",), (None,)]
    found = spark.createDataFrame(rows, "event string").select(condition).collect()
    assert [row[0] for row in found] == [False, True, True, False, True, False, False]
    assert not spark.range(1).where(is_within([])).count()


def test_a_run_that_is_killed_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    def writes(held: StateFolder, name: str) -> None:
        place = held.draft / RECORDS / f"of={name}"
        place.mkdir(parents=True)
        (place / "part.parquet").write_text(f"by run {held.generation}")
        held.wrote(RECORDS, [name])
        held.state.files[f"{name}.jsonl"] = TakenFile(7, held.generation, [name])
        held.store_facts({f"{name}.jsonl": Facts([], [], [], {"f": held.generation})})

    with opened(tmp_path / "state") as held:
        writes(held, day(1))
        writes(held, day(2))
        held.commit()
    before = read_state(tmp_path / "state")
    with opened(tmp_path / "state") as held:
        writes(held, day(2))
        killed = held.draft
    assert read_state(tmp_path / "state") == before
    with opened(tmp_path / "state") as held:
        assert not killed.exists()
        (place,) = [held.place(day(2), RECORDS)]
        assert place is not None
        assert (place / "part.parquet").read_text() == "by run 1"
        writes(held, day(2))
        held.commit()
        assert held.load_facts()[f"{day(2)}.jsonl"].corrupt == {"f": 2}
        assert not place.exists(), "of an earlier generation, and replaced"
        assert [path.parent.parent.name for path in held.places(RECORDS)] == ["g000001", "g000002"]


def test_the_days_that_are_read_are_those_that_the_judged_ones_need(tmp_path: Path) -> None:
    """Events of day 2 have records on day 3, and some of day 3 on day 6."""
    with opened(tmp_path / "state") as held:
        held.state.days = {day(number): Day() for number in range(1, 8)}
        held.state.days[day(2)].elsewhere = [day(3)]
        held.state.days[day(3)].elsewhere = [day(6)]
        read = {number: days_to_read(held, [day(number)]) for number in (1, 2, 3, 6)}
    assert read == {
        1: {day(1)},
        2: {day(2), day(3)},
        3: {day(2), day(3), day(6)},
        6: {day(3), day(6)},
    }


def test_a_state_of_another_overlay_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "state") as held:
        check_overlay(held, {"canopy", None})
        check_overlay(held, {"canopy", "beside it"})
        with pytest.raises(AnalysisError, match="is of the overlay beside it, canopy, and"):
            check_overlay(held, {"others"})
        assert held.state.overlays == ["beside it", "canopy"]


def states() -> Iterator[tuple[str, dict[str, object], str]]:
    yield "version", {"version": STATE_VERSION + 1}, f"it is of version {STATE_VERSION + 1} for"
    yield "schema", {"schema": 1}, "for trace records of version 1, and this analysis keeps"
    yield "format", {"format": "canopy-report"}, "is no state of an analysis"
    yield "damaged", {"days": 7}, "state.json is damaged"


@pytest.mark.parametrize(
    ("change", "said"), [pytest.param(*row, id=name) for name, *row in states()]
)
def test_a_state_that_cannot_be_used_is_refused(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    with opened(tmp_path / "state") as held:
        held.commit()
    place = tmp_path / "state" / "state.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    with pytest.raises(AnalysisError, match=said), opened(tmp_path / "state"):
        pass


def test_a_state_is_for_one_run_at_a_time_and_replaces_no_other_folder(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "state"),
        pytest.raises(AnalysisError, match="another run uses the state"),
        opened(tmp_path / "state"),
    ):
        pass
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").touch()
    with pytest.raises(AnalysisError, match=r"is no state of an analysis: it has notes\.txt"):
        read_state(other)
