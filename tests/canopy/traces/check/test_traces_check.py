"""`canopy trace check`: planted faults are named, and what is whole is complete."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from canopy.cli.main import main
from canopy.traces.analysis import AnalysisError, TimeWindow, parse_time
from canopy.traces.analysis.check import TraceCheck, check
from canopy.traces.analysis.constants import LINE_BYTES
from canopy.traces.analysis.parsing.lines import LineParser, lines_of
from tests.canopy.traces.planted.faults import HOSTILE, PLANTED
from tests.canopy.traces.planted.good_run import Record, Run, copy_of, written
from tests.support.traces.runs import CORRUPT_LINES

parse = LineParser().parse

LATER = 4_000_000_000.0
"""A clock by which no file is being written."""

FOUND: dict[str, tuple[list[str], list[str]]] = {
    **dict.fromkeys(
        ("a clock an hour ahead", "a clock an hour behind", "a clock two seconds ahead"),
        ([], ["clock"]),
    ),
    "losses under a clock an hour ahead": ([], ["clock"]),
    "a publication and its deliveries removed": (["absent records"] * 4, []),
    "a late SUBACK": ([], ["clock set"]),
    "a clock that is set": ([], ["clock set"]),
    "delivered before it was published": ([], ["clock set"]),
    "a subscription without any record": (["absent records"], []),
    "killed and started again": ([], ["clock set", "clock"]),
    "different sampling": ([], ["sampling"]),
    "a share of the events": ([], ["sampling"]),
    "a share and an event without any record": ([], ["sampling"]),
    "a file cut short": (["no end"], []),
    "copied while it was written": (["no end"] * 4, []),
    "broken JSON in attributes": (["unreadable attributes"], []),
    "a record counted as lost": (["lost records"], []),
    "an absent record": (["absent records"], []),
    "the same while a record is absent": (["absent records"], []),
    "a broken line": (["unreadable lines", "lost records"], []),
    "an absent node": (["absent node"], []),
    "the first records removed": (["absent records"], []),
    "a copy inside of the folder": ([], ["copy"] * 4),
    "a copy that differs": (["contradictions"], ["copy"]),
    "another overlay of the same name": (["overlay in parts"] * 2, []),
    "no header": (["doubt"], []),
    "an unreadable header": (["unreadable lines", "doubt"], []),
    "a header of another overlay": (["doubt"] * 4, []),
    "losses that a header hides": (["doubt"], ["sampling"]),
    "fewer events than the header says": (["doubt"], ["sampling"]),
    "an unreadable publication": (["unreadable lines", "lost records"], []),
    "an unreadable SUBACK": (["unreadable lines", "lost records"], []),
    "an unreadable end of a subscription": (["unreadable lines", "lost records"], []),
    "a time that contradicts its number": (["doubt"], ["clock set"]),
    HOSTILE: ([], ["sampling"]),
}
"""Findings and notes by the name of the planted fault; of the others there are none."""

NOTHING_TO_JUDGE = ("no SUBACK at all",)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Record]]:
    return written(tmp_path_factory.mktemp("good"))


@pytest.fixture
def run(good: dict[int, list[Record]]) -> Run:
    return copy_of(good, "canopy", 1)


def checked(folder: Path) -> TraceCheck:
    return check(folder, clock=lambda: LATER)


def kinds(found: TraceCheck) -> tuple[list[str], list[str]]:
    return [each.kind for each in found.findings], [each.kind for each in found.notes]


def file_of(folder: Path, run: Run, node: int) -> Path:
    (path,) = folder.rglob(f"node={run.name(node)}/*")
    return path


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, good: dict[int, list[Record]], tmp_path: Path) -> None:
    fault = PLANTED[name]
    run = copy_of(good, name, 7)
    fault.plant(run)
    fault.stored(run, tmp_path)
    found = checked(tmp_path)
    assert kinds(found) == FOUND.get(name, ([], []))
    result = "findings" if found.findings else "complete"
    assert found.result == ("nothing to judge" if name in NOTHING_TO_JUDGE else result)


def test_what_is_absent_is_counted_and_timed(run: Run, tmp_path: Path) -> None:
    events = [record["event"] for record in run.of(2, "deliver")[10:13]]
    gone = run.cut(2, lambda record: record.get("event") in events)
    run.store(tmp_path)
    found = checked(tmp_path)
    (finding,) = found.findings
    (absent,) = [node for node in found.nodes if node.node == run.name(2)]
    assert (finding.node, finding.run, finding.records) == (run.name(2), 1, len(gone))
    assert finding.since is not None
    assert finding.until is not None
    assert finding.since < gone[0]["time"] <= gone[-1]["time"] < finding.until
    assert (absent.findings, absent.runs[0].absent, absent.runs[0].end) == (1, 6, "stopped")
    assert "6 records are absent that no node counts as lost" in found.overlays[0].reasons[0]


def test_compressed_files_and_folders_with_spaces_are_read(run: Run, tmp_path: Path) -> None:
    run.store(tmp_path, "traces of Monday (räumt auf)")
    plain = checked(tmp_path)
    path = file_of(tmp_path, run, 2)
    (path.parent / "a b.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    found = checked(tmp_path)
    assert kinds(found) == ([], [])
    assert (found.result, found.records) == ("complete", plain.records)


def test_a_compressed_file_that_is_cut_is_named_and_the_others_are_read(
    run: Run, tmp_path: Path
) -> None:
    run.store(tmp_path)
    path = file_of(tmp_path, run, 2)
    whole = gzip.compress(path.read_bytes())
    path.unlink()
    damaged = path.parent / "a.jsonl.gz"
    damaged.write_bytes(whole[: len(whole) // 2])
    found = checked(tmp_path)
    assert kinds(found)[0] == ["damaged file", "no end"]
    assert found.findings[0].file == str(damaged.relative_to(tmp_path))
    assert "ended before the end-of-stream marker" in found.findings[0].text
    damaged.write_bytes(b"no gzip at all")
    found = checked(tmp_path)
    assert kinds(found)[0] == ["damaged file", "absent node"]
    assert "Not a gzipped file" in found.findings[0].text
    assert len(found.nodes) == 3


def test_a_file_that_is_still_written_is_a_note(run: Run, tmp_path: Path) -> None:
    last = run.of(2, "deliver")[-1]["hlc"]
    run.cut(2, lambda record: record.get("hlc", 0) > last)
    run.store(tmp_path)
    path = file_of(tmp_path, run, 2)
    with path.open("ab") as file:
        file.write(b'{"v":2,"time":17900')
    os.utime(path, (LATER, LATER - 5))
    found = checked(tmp_path)
    assert found.result == "complete"
    assert kinds(found) == ([], ["cut line", "still writing"])
    assert [run.end for node in found.nodes for run in node.runs] == [
        *("stopped", "stopped", "still writing", "stopped")
    ]
    os.utime(path, (LATER, LATER - 90))
    found = checked(tmp_path)
    assert kinds(found)[0] == ["unreadable lines", "no end"]


def test_the_cut_line_of_a_killed_node_is_a_note(run: Run, tmp_path: Path) -> None:
    PLANTED["killed and started again"].plant(run)
    file, *records = run.records[3]
    first = [record for record in records if record["run"] == 1]
    run.records[3] = [file, *first]
    run.store(tmp_path)
    path = file_of(tmp_path, run, 3)
    path.write_bytes(path.read_bytes() + b'{"v":2,"time":17900')
    run.records[3] = [record for record in [file, *records] if record["run"] == 2]
    for other in (0, 1, 2):
        del run.records[other]
    run.store(tmp_path, "later")
    assert "cut line" in kinds(checked(tmp_path))[1]
    assert kinds(checked(tmp_path))[0] == []


def test_of_some_days_only_their_files_are_checked(run: Run, tmp_path: Path) -> None:
    """That processes ran before and after is no finding; what is absent within these days is, and
    so is a process that nobody saw end."""
    for node, (first, *records) in run.records.items():
        name = run.name(node)
        for at, day in enumerate(("20", "21", "22")):
            part = records[at * len(records) // 3 : (at + 1) * len(records) // 3]
            if (node, day) == (2, "21"):
                del part[3:5]
            if (node, day) == (3, "22"):
                continue
            place = tmp_path / f"date=2026-09-{day}" / f"node={name}" / "a.jsonl"
            place.parent.mkdir(parents=True)
            lines = [json.dumps(first), *map(json.dumps, part), ""]
            place.write_text("\n".join(lines))
    window = TimeWindow(parse_time("2026-09-21"), parse_time("2026-09-21", end=True))
    found = check(tmp_path, clock=lambda: LATER, window=window)
    assert [(each.kind, each.node, each.records) for each in found.findings] == [
        ("absent records", run.name(2), 2),
        ("no end", run.name(3), None),
    ]
    assert {node.node: node.runs[0].end for node in found.nodes} == {
        **{run.name(node): "not read on" for node in (0, 1, 2)},
        run.name(3): "no end",
    }
    assert found.files == 4
    before = TimeWindow(None, window.since)
    assert kinds(check(tmp_path, clock=lambda: LATER, window=before))[0] == []
    with pytest.raises(AnalysisError, match="no files of that time"):
        check(tmp_path, window=TimeWindow(parse_time("2026-09-25")))


def test_records_of_another_node_and_files_of_another_kind_are_noted(
    run: Run, tmp_path: Path
) -> None:
    run.store(tmp_path)
    path = file_of(tmp_path, run, 2)
    (path.parent / "b.jsonl.zst").write_bytes(b"?")
    (path.parent / "empty.jsonl").touch()
    (path.parent / ".hidden").touch()
    path.rename(file_of(tmp_path, run, 3).parent / "b.jsonl")
    found = checked(tmp_path)
    assert found.result == "complete"
    assert kinds(found)[1] == ["empty file", "foreign records", "other file"]


def test_a_file_in_two_orders_has_all_its_records(run: Run, tmp_path: Path) -> None:
    """Two files of a node that somebody put together in the wrong order."""
    first, *records = run.records[2]
    half = len(records) // 2
    run.records[2] = [first, *records[half:], *records[:half]]
    run.store(tmp_path)
    assert kinds(checked(tmp_path))[0] == []
    run.records[2] = [first, *records[half + 3 :], *records[:half]]
    run.store(tmp_path, "again")
    for path in tmp_path.glob("date=*"):
        path.rename(tmp_path / "_hidden")
    (finding,) = checked(tmp_path).findings
    assert (finding.kind, finding.records) == ("absent records", 3)


def test_parts_of_a_file_that_are_there_again_count_once(run: Run, tmp_path: Path) -> None:
    run.store(tmp_path)
    file, *records = run.records[2]
    for name, first, last in (("short", 0, 10), ("long", 4, 40)):
        Run({2: [file, *records[first:last]]}).store(tmp_path, name)
    found = checked(tmp_path)
    assert (found.result, found.copies) == ("complete", 10 + 36)
    assert [note.text for note in found.notes] == ["46 records repeat others, and count once"]


def test_a_clock_that_is_set_back_is_noted(run: Run, tmp_path: Path) -> None:
    for record in run.records[2][60:]:
        record["time"] -= 60.0
    run.store(tmp_path)
    notes = [note for note in checked(tmp_path).notes if note.kind == "clock set"]
    assert [note.node for note in notes] == [run.name(2)]
    assert "by up to 60.0 s back" in notes[0].text


@pytest.mark.parametrize(("line", "problem"), CORRUPT_LINES)
def test_a_line_is_refused_for_the_reason_that_spark_gives(line: bytes, problem: str) -> None:
    record, why = parse(line)
    assert record is None
    assert why.startswith(problem)


def test_a_text_field_may_have_any_json_value_as_spark_reads_it() -> None:
    line = b'{"v":2,"time":1,"hlc":4,"node":"a","run":1,"n":4,"kind":"link","reason":{"a": [1]}}'
    record, why = parse(line)
    assert (record.reason, why) == ('{"a":[1]}', "")


def test_lines_go_across_pieces_and_are_bounded() -> None:
    text = b"one\ntwo\r\n\nthree"
    for size in range(1, len(text) + 1):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        lines = [line for some in lines_of(iter(pieces)) for line in some if line]
        assert lines == [b"one", b"two\r", b"three"]
    long = [b"x" * (LINE_BYTES // 2)] * 5
    texts = iter([b"a\n", *long, b"xx\nb\n"])
    lines = [line for some in lines_of(texts) for line in some if line]
    assert [len(line) for line in lines] == [1, LINE_BYTES, 1]
    assert parse(lines[1])[1] == "longer than 16 MB"


Said = tuple[int, str, str]


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Runs `canopy trace check` without Spark: exit code, standard output, standard error."""
    monkeypatch.setitem(sys.modules, "pyspark", None)

    def run(*args: object) -> Said:
        code = main(["trace", "check", *map(str, args)])
        return code, *capsys.readouterr()

    return run


def test_the_exit_code_says_whether_the_records_are_complete(
    run: Run, tmp_path: Path, command: Callable[..., Said]
) -> None:
    run.store(tmp_path / "whole")
    code, said, _ = command(tmp_path / "whole")
    assert (code, said.splitlines()[0]) == (0, "✓ complete: no record is absent or damaged")
    code, said, _ = command(tmp_path / "whole", "--json")
    answer = json.loads(said)
    assert (answer["format"], answer["result"]) == ("canopy-trace-check", "complete")
    assert [node["node"] for node in answer["nodes"]] == [run.name(node) for node in range(4)]

    run.cut(2, lambda record: record["kind"] == "arrive")
    run.store(tmp_path / "torn")
    code, said, _ = command(tmp_path / "torn")
    assert (code, said.splitlines()[0]) == (9, "! not complete: absent records (1)")
    assert "cannot find it exact: 40 records are absent" in said
    code, said, _ = command(f"file:{tmp_path}/torn", "--json")
    assert (code, json.loads(said)["findings"][0]["records"]) == (9, 40)

    for node in run.records:
        run.never(node, lambda record: record["kind"] == "publish")
    run.store(tmp_path / "idle")
    code, said, _ = command(tmp_path / "idle")
    assert code == 5
    assert said.startswith("? nothing to judge: no overlay has both an event and a subscription")

    code, said, error = command(tmp_path / "none")
    assert (code, said) == (1, "")
    assert "does not exist: name the folder that contains date=" in error


def test_many_findings_of_a_kind_are_some_lines_and_hide_no_other(
    run: Run, tmp_path: Path, command: Callable[..., Said]
) -> None:
    run.store(tmp_path)
    for number in range(30):
        folder = tmp_path / "date=2026-09-21" / f"node=stray{number}"
        folder.mkdir()
        (folder / "a.jsonl").write_text("hello [red]\n" * (number + 1))
    run.records = {2: run.records[2]}
    run.of(2, "deliver")[4]["hops"] = 9
    run.store(tmp_path, "other")
    code, said, _ = command(tmp_path)
    assert code == 9
    assert "not complete: unreadable lines (30), contradictions (1)" in said
    assert said.count("  unreadable lines: ") == 6
    assert "node=stray29/a.jsonl: 30 lines of it are no record: not a JSON object (30)" in said
    assert "unreadable lines: 25 more; --json has all" in said
    assert "contradictions: node-2 (" in said


def test_progress_is_named_on_standard_error(
    run: Run, tmp_path: Path, command: Callable[..., Said]
) -> None:
    run.store(tmp_path)
    _, _, error = command(tmp_path)
    first, last = error.splitlines()
    assert first == "checking the traces …"
    assert last.startswith("  4 files, ")
    steps: list[tuple[str, int, int]] = []
    check(tmp_path, lambda *step: steps.append(step))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.jsonl"))
    assert [file for file, _, _ in steps] == ["a.jsonl"] * 4
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert {total for _, _, total in steps} == {size}
