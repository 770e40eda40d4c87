"""What an analysis refuses before it starts: no traces, outputs that are not its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canopy.traces.analysis import AnalysisError, analyze
from canopy.traces.analysis.output import prepare, write_summary
from canopy.traces.analysis.read import check_folder


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces" / "date=2026-01-01" / "node=a"
    folder.mkdir(parents=True)
    (folder / "000000-0000.jsonl").write_text("{}\n")
    return tmp_path / "traces"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="does not exist: name the folder that contains date="):
        analyze(tmp_path / "none", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(AnalysisError, match="is a file"):
        analyze(tmp_path / "file", tmp_path / "out")


def test_a_folder_without_traces(tmp_path: Path) -> None:
    (tmp_path / "traces" / "_hidden").mkdir(parents=True)
    (tmp_path / "traces" / "_hidden" / "a.jsonl").write_text("{}\n")
    (tmp_path / "traces" / "empty.jsonl").touch()
    with pytest.raises(AnalysisError, match="has no trace records"):
        analyze(tmp_path / "traces", tmp_path / "out")


def test_bytes_are_those_of_the_trace_files(traces: Path) -> None:
    (traces / "notes.txt").write_text("not counted")
    assert check_folder(traces) == 3


def test_an_output_with_other_things_is_not_touched(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(AnalysisError, match=r"other content than an earlier report \(thesis.txt\)"):
        analyze(traces, out)
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


def test_a_former_report_with_other_things_is_not_touched(tmp_path: Path) -> None:
    prepare(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(AnalysisError, match=r"notes\.txt"):
        prepare(tmp_path / "out")
    assert (tmp_path / "out" / "summary.json").is_file()


def test_a_summary_of_something_else_is_no_mark(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "summary.json").write_text('{"format": "theirs"}')
    with pytest.raises(AnalysisError, match="other content"):
        prepare(out)
    assert json.loads((out / "summary.json").read_text())["format"] == "theirs"


def test_a_former_report_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(out)
    (out / "tables" / "load").mkdir(parents=True)
    (out / "report.html").write_text("old")
    prepare(out)
    assert [path.name for path in out.iterdir()] == ["summary.json"]


def test_overwrite_replaces_our_names_and_keeps_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    (out / "report.html").write_text("old")
    prepare(out, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["summary.json", "thesis.txt"]


def test_a_file_as_output(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(AnalysisError, match="is a file"):
        prepare(tmp_path / "out", overwrite=True)


def test_an_interrupted_analysis_leaves_a_mark(tmp_path: Path) -> None:
    prepare(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"] is False
    write_summary(tmp_path / "out", {"format": "canopy-report", "ä": "ü"})
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["summary.json"]
