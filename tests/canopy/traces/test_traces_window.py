"""Which files of a trace folder an analysis of some days opens."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import click
import pytest

from canopy.cli.traces.check import window_of
from canopy.traces.analysis import AnalysisError, TimeWindow, parse_time
from canopy.traces.analysis.read import check_folder, files_within
from canopy.traces.analysis.window import day_of


def at(day: int, hour: int = 0) -> float:
    return datetime(2026, 9, day, hour, tzinfo=UTC).timestamp()


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Three days of two nodes, collected in folders of their own, and a file of no day."""
    for node in "ab":
        for day in (21, 22, 23):
            place = tmp_path / f"of {node}" / f"date=2026-09-{day}" / f"node={node}"
            place.mkdir(parents=True)
            (place / "000000-0000.jsonl").write_text("{}\n" * day)
    (tmp_path / "found.jsonl").write_text("{}\n")
    return tmp_path


def test_a_day_as_the_end_of_a_window_is_in_it() -> None:
    assert parse_time("2026-09-21") == at(21)
    assert parse_time("2026-09-21", end=True) == at(22)
    for text in ("2026-09-21T06:00", "2026-09-21 06:00:00", "2026-09-21T08:00+02:00"):
        assert parse_time(text, end=True) == at(21, 6)
    assert window_of("2026-09-21", "2026-09-21") == TimeWindow(at(21), at(22))
    assert window_of(None, None) == TimeWindow()
    for since, until in (("today", None), (None, "2026-09-31"), ("2026-09-22", "2026-09-21")):
        with pytest.raises(click.UsageError):
            window_of(since, until)


def test_the_day_of_a_file_is_what_its_folders_say() -> None:
    assert day_of(Path("x/date=2026-09-21/node=a/a.jsonl")) == date(2026, 9, 21)
    for name in ("a.jsonl", "date=2026-13-21/a.jsonl", "xdate=2026-09-21/a.jsonl"):
        assert day_of(Path(name)) is None
    one = date(2026, 9, 21)
    assert TimeWindow(at(21, 23)).meets(one)
    assert not TimeWindow(at(22)).meets(one)
    assert TimeWindow(None, at(21, 1)).meets(one)
    assert not TimeWindow(None, at(21)).meets(one)


def test_only_files_of_the_time_are_read(traces: Path) -> None:
    window = TimeWindow(at(22, 5), at(22, 6))
    names = {str(path.relative_to(traces)) for path in files_within(traces, window)}
    assert names == {
        "found.jsonl",
        *(f"of {node}/date=2026-09-22/node={node}/000000-0000.jsonl" for node in "ab"),
    }
    assert check_folder(traces, window) == 2 * 3 * 22 + 3
    assert len(files_within(traces, TimeWindow())) == 7
    (traces / "found.jsonl").unlink()
    with pytest.raises(AnalysisError, match="no files of that time: its days are 2026-09-21 to"):
        files_within(traces, TimeWindow(at(24)))
