"""The lab's figures: rows are kept with where they were measured, and pages are made from them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

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
    """`python -m bench.lab.tables` writes the page anew."""
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


def test_conditions_choose_rows(results: Path) -> None:
    assert table("rows.json | size=10 | us: µs", results).splitlines()[2:] == ["| 1.0 |"]


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


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        measure([sys.executable, "-c", "print('| a table |')"])
