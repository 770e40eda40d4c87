"""The lab's figures: rows are kept with where they were measured, and pages are made from them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.lab import hearing, house, record, ways
from bench.lab.record import RESULTS, keep, measure
from bench.lab.tables import PAGES, TableError, page, table

RUN = {"command": "x", "commit": "abc", "load": [0.5, 1.0]}
ROWS = [
    {"size": 1000, "us": 2.04, "kind": "a|b", "deep": {"p50": 12345}},
    {"size": 10, "us": 1.0, "kind": "c"},
]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    keep(tmp_path / "rows.json", {**RUN, "rows": ROWS})
    return tmp_path


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_has_the_figures_of_its_files(path: Path) -> None:
    """`python -m bench.lab.tables` writes the page again."""
    text = path.read_text(encoding="utf-8")
    assert page(text) == text


def test_every_file_says_where_it_was_measured_and_is_shown() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in PAGES.glob("*.md"))
    for path in sorted(RESULTS.glob("*.json")):
        assert f"<!-- table: {path.name} |" in shown, f"no page shows {path.name}"
        for run in json.loads(path.read_text(encoding="utf-8")):
            assert run["rows"]
            assert {"command", "commit", "date", "processor", "cores", "load"} <= run.keys()


def test_columns_have_keys_formats_and_headers(results: Path) -> None:
    spec = "rows.json | kind: kind | us .1f: µs | deep.p50 ,: p50, µs | run.commit: at"
    assert table(spec, results).splitlines() == [
        "| kind | µs | p50, µs | at |",
        "|---|---|---|---|",
        "| a|b | 2.0 | 12,345 | abc |",
        "| c | 1.0 | | abc |",
    ]


def test_a_cell_may_have_several_values_or_a_quotient(results: Path) -> None:
    spec = "rows.json | {us:.1f} µs of {size:,}: text | size/us .0f: quotient | {deep.p50} ms: p50"
    assert table(spec, results).splitlines()[2:] == [
        "| 2.0 µs of 1,000 | 490 | 12345 ms |",
        "| 1.0 µs of 10 | 10 | |",
    ]


def test_rows_inside_of_rows(tmp_path: Path) -> None:
    inner = [{"curves": [{"mode": "a", "y": [1, 2]}, {"mode": "b", "y": [3]}], "seed": 7}]
    keep(tmp_path / "rows.json", {**RUN, "rows": [{"series": inner, "seed": 1}]})
    spec = "rows.json | each=series.0.curves | {mode}, {seed}: mode | y.1: second"
    assert table(spec, tmp_path).splitlines()[2:] == ["| a, 1 | 2 |", "| b, 1 | |"]
    keep(tmp_path / "items.json", {**RUN, "rows": [{"us": {"a": 1, "b": 2}, "size": 64}]})
    spec = "items.json | each=us | by=name | across=size | name: what | 64.value .1f: 64"
    assert table(spec, tmp_path).splitlines()[2:] == ["| a | 1.0 |", "| b | 2.0 |"]


def test_rows_of_several_systems_stand_side_by_side(tmp_path: Path) -> None:
    rows = [{"size": n, "system": s, "us": n * f} for n in (1, 2) for f, s in ((2, "a"), (3, "b"))]
    keep(tmp_path / "rows.json", {**RUN, "rows": rows})
    spec = "rows.json | by=size | across=system | size: size | a.us: a | b.us: b | b.us/a.us: b / a"
    assert table(spec, tmp_path).splitlines()[2:] == ["| 1 | 2 | 3 | 1.5 |", "| 2 | 4 | 6 | 1.5 |"]


def test_the_last_of_several_rows_has_the_sums_of_all(tmp_path: Path) -> None:
    rows = [{"of": "a", "n": 1, "s": 2}, {"of": "b", "n": 5}, {"of": "a", "n": 3, "red": [7]}]
    keep(tmp_path / "rows.json", {**RUN, "rows": rows})
    spec = "rows.json | last=of | sum=n,s | of: of | n: n | s: s | red: red"
    assert table(spec, tmp_path).splitlines()[2:] == ["| a | 4 | 2 | [7] |", "| b | 5 | | |"]
    spec = "rows.json | last=of | of: of | n: n"
    assert table(spec, tmp_path).splitlines()[2:] == ["| a | 3 |", "| b | 5 |"]
    spec = "rows.json | last=of,n | of: of | n: n"
    assert table(spec, tmp_path).splitlines()[2:] == ["| a | 1 |", "| a | 3 |", "| b | 5 |"]


def test_a_table_may_be_transposed(results: Path) -> None:
    assert table("rows.json | transposed | kind: | us .1f: µs", results).splitlines() == [
        "| | a|b | c |",
        "|---|---|---|",
        "| µs | 2.0 | 1.0 |",
    ]


def test_conditions_choose_rows(results: Path) -> None:
    assert table("rows.json | size=10 | us: µs", results).splitlines()[2:] == ["| 1.0 |"]
    assert len(table("rows.json | kind=c or d | us: µs", results).splitlines()) == 2 + 1
    assert len(table("rows.json | size=10 or 1000 | us: µs", results).splitlines()) == 2 + 2


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("none.json | us: µs", "no bench/results/none.json"),
        ("rows.json | size=11 | us: µs", "no row"),
        ("rows.json | what is this", "neither a column"),
    ],
)
def test_a_comment_that_cannot_be_followed_is_an_error(
    results: Path, spec: str, words: str
) -> None:
    with pytest.raises(TableError, match=words):
        table(spec, results)


def test_a_page_with_other_figures_differs(results: Path) -> None:
    good = page("a\n\n<!-- table: rows.json | us: µs -->\n\nb\n", results)
    assert "| 2.04 |" in good
    assert page(good, results) == good
    assert page(good.replace("2.04", "2.05"), results) == good


def test_a_command_is_run_and_its_former_rows_replaced(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    for printed in ('{"a": 1}', '[{"a": 2}, {"a": 3}]'):
        run = measure([sys.executable, "-c", f"print({printed!r})"])
        keep(path, {**run, "command": "same"})
    keep(path, {**RUN, "rows": ROWS})
    runs = json.loads(path.read_text(encoding="utf-8"))
    assert [run["rows"] for run in runs] == [[{"a": 2}, {"a": 3}], ROWS]
    assert len(runs[0]["load"]) == 2


def test_what_was_transcribed_goes_when_it_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    keep(path, {**RUN, "command": "copied", "transcribed": True, "rows": ROWS})
    keep(path, {**RUN, "rows": ROWS})
    assert [run["command"] for run in json.loads(path.read_text(encoding="utf-8"))] == ["x"]


def test_long_keys_may_be_left_out_of_rows() -> None:
    printed = '[{"rows": [{"a": 1, "trials": [1, 2]}], "trials": 3}]'
    run = measure([sys.executable, "-c", f"print({printed!r})"], ["trials"])
    assert run["rows"] == [{"rows": [{"a": 1}]}]


def test_the_commands_of_a_file_are_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with what it left out, also where its rows were transcribed; a bad exit code is kept."""
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    path = tmp_path / "rows.json"
    code = 'import sys; print(\'{"a": 2, "b": [1]}\'); sys.exit(%d)'
    one, two = (["python", "-c", code % bad] for bad in (0, 3))
    assert record.main(["rows", "--without", "b", "--", *one]) == 0
    keep(path, {**measure(two), "rows": [{"a": 1}], "transcribed": True})
    assert record.main(["--again", "rows"]) == 0
    first, second = json.loads(path.read_text(encoding="utf-8"))
    assert first["rows"] == [{"a": 2}]
    assert second["rows"] == [{"a": 2, "b": [1]}]
    assert (first.get("exit_code"), second["exit_code"]) == (None, 3)


@pytest.mark.parametrize("given", [["rows"], ["--again", "rows", "--", "x"], ["a", "b", "--", "x"]])
def test_what_is_neither_a_command_nor_again_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        record.main(given)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        measure([sys.executable, "-c", "print('| a table |')"])


def test_a_bench_that_is_interrupted_ends_what_it_has_started(tmp_path: Path) -> None:
    bench = f"""
import pathlib, time
pathlib.Path({str(tmp_path / "began")!r}).touch()
try:
    time.sleep(60)
finally:
    pathlib.Path({str(tmp_path / "ended")!r}).touch()
"""
    recording = (
        f"import sys; from bench.lab.record import measure; measure(['python', '-c', {bench!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", recording], cwd=record.ROOT) as process:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)  # to this process only, as a target's end is
    assert (tmp_path / "ended").exists()


def test_a_way_is_what_is_called_beyond_idle_traffic() -> None:
    """The first row opens a session, which the next one finds; both are replicated; a reading reads
    and appends nothing. What nodes do by themselves belongs to none."""
    found = {
        way.name: way for way in ways.walked(("append-first", "append-next", "reading-begins"))
    }
    first, following, reading = found.values()
    leading = ("streams/shard/leader.py", "ShardLeader.append_chunk")
    assert leading in first.calls
    assert leading in following.calls
    assert leading not in reading.calls
    assert following.row()["functions"] < first.row()["functions"]
    assert not {name for _, name in following.calls} & {"Supervision.order", "View.on_shuffle"}


def test_the_first_figures_of_the_house_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "FILE", tmp_path / "house.json")
    for amount in (3, 2, 1):
        house.write({measure.what: amount for measure in house.MEASURES})
    spec = "house.json | by=what | across=when | what: | first.value: first | newest.value: newest"
    lines = table(spec, tmp_path).splitlines()
    assert lines[2] == f"| {house.MEASURES[0].what} | 3 | 1 |"
    assert len(lines) == len({measure.what for measure in house.MEASURES}) + 2
    assert [house.amount(found) for found in (7, ["a", "b"])] == [7, 2]


def test_who_hears_what_is_said_in_the_order_of_calls() -> None:
    """That of the machines, which is the order in which `Turns` calls them."""
    text = hearing.page()
    assert "\n## The machines, in their order\n" in text
    line = next(line for line in text.splitlines() if line.startswith("| `StreamLocated` |"))
    found = re.findall(r"`(\w+)\.\w+`", line.split("|")[3])
    order = [type(machine).__name__ for machine in hearing.built().machines]
    assert len(found) > 1
    assert found == sorted(found, key=order.index)
