"""What `canopy trace prune` removes, and what it leaves alone."""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, date, datetime
from pathlib import Path

import click
import pytest

from canopy.cli.main import main
from canopy.cli.traces.prune import _first_kept
from canopy.traces.analysis import AnalysisError
from canopy.traces.analysis.days.state import Day, TakenFile, opened
from canopy.traces.analysis.prune import NOT_TAKEN, WRITTEN, prune

NOW = datetime(2026, 9, 25, 12, tzinfo=UTC).timestamp()


def file(traces: Path, day: int, node: str, data: bytes = b"{}\n", age: float = 86_400.0) -> Path:
    place = traces / f"date=2026-09-{day}" / f"node={node}"
    place.mkdir(parents=True, exist_ok=True)
    path = place / "000000-0000.jsonl"
    path.write_bytes(data)
    os.utime(path, (NOW - age, NOW - age))
    return path


def left(traces: Path) -> set[str]:
    return {str(path.relative_to(traces)) for path in traces.rglob("*")}


def test_days_before_the_first_that_is_kept_go_with_their_folders(tmp_path: Path) -> None:
    for day in (21, 22, 23):
        for node in "ab":
            file(tmp_path, day, node, b"x" * day)
    (tmp_path / "date=2026-09-22" / "notes.txt").touch()
    (tmp_path / "found.jsonl").write_text("{}\n")
    before = left(tmp_path)
    would = prune(tmp_path, date(2026, 9, 23), NOW, dry_run=True)
    assert left(tmp_path) == before
    done = prune(tmp_path, date(2026, 9, 23), NOW)
    assert [(day.day.day, day.files, day.size) for day in done.days] == [(21, 2, 42), (22, 2, 44)]
    assert (done.files, done.size, done.kept) == (4, 86, {})
    assert would.days == done.days
    assert left(tmp_path) == {
        "date=2026-09-22", "date=2026-09-22/notes.txt", "found.jsonl",
        *(name for name in before if name.startswith("date=2026-09-23")),
    }  # fmt: skip


def test_what_may_still_be_written_stays(tmp_path: Path) -> None:
    today, recent = file(tmp_path, 25, "a"), file(tmp_path, 24, "a", age=60)
    old = file(tmp_path, 24, "b", age=7_200)
    found = prune(tmp_path, date(2026, 9, 30), NOW)
    assert found.kept == {WRITTEN: [str(recent), str(today)]}
    assert not old.exists()
    assert today.exists()
    assert recent.exists()


def test_of_one_node_only_its_files_go(tmp_path: Path) -> None:
    gone = [file(tmp_path, day, "a b+ü") for day in (21, 22)]
    others = [file(tmp_path, 21, "b"), file(tmp_path, 23, "a b+ü")]
    found = prune(tmp_path, date(2026, 9, 23), NOW, nodes=["a b+ü"])
    assert (found.files, found.kept) == (2, {})
    assert [path.exists() for path in (*gone, *others)] == [False, False, True, True]


def test_only_what_a_state_has_goes_if_one_is_named(tmp_path: Path) -> None:
    traces, state = tmp_path / "traces", tmp_path / "state"
    taken, grown, other = (file(traces, 21, node) for node in "abc")
    packed = file(traces, 22, "a", b"{}\n" * 9)
    with opened(state) as held:
        for path in (taken, grown, packed):
            name = str(path.relative_to(traces))
            held.state.files[name] = TakenFile(path.stat().st_size, 1, ["2026-09-21"])
        held.commit()
    grown.write_bytes(b"{}\n{}\n")
    os.utime(grown, (0, 0))
    zipped = packed.with_name(f"{packed.name}.gz")
    zipped.write_bytes(gzip.compress(packed.read_bytes()))
    os.utime(zipped, (0, 0))
    packed.unlink()
    found = prune(traces, date(2026, 9, 25), NOW, state=state, dry_run=True)
    assert found.kept == {NOT_TAKEN: [str(grown), str(other)]}
    found = prune(traces, date(2026, 9, 25), NOW, state=state)
    assert found.kept == {NOT_TAKEN: [str(grown), str(other)]}
    assert found.files == 2
    assert [path.exists() for path in (taken, grown, other, zipped)] == [False, True, True, False]
    for place, said in ((tmp_path / "none", "there is no state"), (tmp_path, "there is no state")):
        with pytest.raises(AnalysisError, match=said):
            prune(traces, date(2026, 9, 25), NOW, state=place)
    with pytest.raises(AnalysisError, match="does not exist"):
        prune(tmp_path / "nowhere", date(2026, 9, 25), NOW)


def test_the_command_names_what_goes_and_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path, 21, "a", b"x" * 2_500)
    os.utime(path, (0, 0))
    path = path.rename(path.with_name("b.jsonl"))
    asked = ["trace", "prune", str(tmp_path), "--before", "2026-09-22"]
    assert main([*asked, "--dry-run"]) == 0
    assert "2026-09-21  1 file, 2.5 KB would be removed" in capsys.readouterr().out
    assert path.exists()
    assert main([*asked, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["days"] == [{"day": "2026-09-21", "files": 1, "bytes": 2_500}]
    assert not path.exists()
    assert main(asked) == 0
    assert "nothing of before 2026-09-22 removed" in capsys.readouterr().out
    assert _first_kept(3, None, NOW) == date(2026, 9, 22)
    for keep, before in ((None, None), (1, "2026-09-22"), (None, "yesterday")):
        with pytest.raises(click.UsageError):
            _first_kept(keep, before, NOW)


def test_the_command_closes_days_of_a_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    with opened(state) as held:
        held.state.days = {
            "2026-09-20": Day(line={"day": "2026-09-20"}),
            "2026-09-21": Day(),
            "2026-09-22": Day(line={}),
        }
        held.commit()
    asked = ["trace", "prune", str(state), "--before", "2026-09-22"]
    assert main([*asked, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "2026-09-20  0 bytes would be closed" in said
    assert "kept: 1 day without a line yet, such as 2026-09-21: run canopy trace analyze" in said
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["days"] == [{"day": "2026-09-20", "files": 0, "bytes": 0}]
    assert found["kept"] == {"without a line yet": ["2026-09-21"]}
    assert main(asked) == 0
    assert "nothing of before 2026-09-22 closed" in capsys.readouterr().out
    assert main([*asked, "--node", "a"]) != 0
