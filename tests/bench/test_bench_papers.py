"""The papers' experiments: each has its numbers, its page, and commands that there are."""

from __future__ import annotations

import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.experiments.pictures import Picture, series_of
from bench.lab.record import keep
from bench.lab.tables import PAGES, table
from bench.papers import __main__ as command
from bench.papers.features import FEATURES, place_of
from bench.papers.registry import EXPERIMENTS, PAPERS, Experiment, chosen

HEAD = {"date": "2026-01-02", "processor": "p", "cores": 2, "load": [0.5, 1.0]}


def test_every_experiment_has_a_section_and_commands_that_there_are() -> None:
    page = (PAGES / "papers.md").read_text(encoding="utf-8")
    names = [one.name for one in EXPERIMENTS]
    assert len(set(names)) == len(names)
    for one in EXPERIMENTS:
        assert f"\n### {one.name}\n" in page
        assert one.picture is None or f"(papers/{one.name}.svg)" in page
        for line in (*one.fast, *one.full):
            program, flag, module, *_ = shlex.split(line)
            assert (program, flag) == ("python", "-m")
            assert find_spec(module), line
            assert shlex.join(shlex.split(line)) == line, "as the results have it"
        for run in command.runs_of(one):
            assert run.get("form", "") == one.form_of(run["command"]), run["command"]
    assert page.count("\n### ") == len(names)
    fast = [one for one in EXPERIMENTS if one.fast]
    assert {one.paper for one in fast} == set(PAPERS)
    assert sum(one.seconds for one in fast) <= 20 * 60
    for feature in FEATURES:
        assert all(place_of(test) for test in feature.tests)


def test_papers_and_experiments_are_chosen_by_name() -> None:
    assert {one.paper for one in chosen(["venus"])} == {"venus"}
    assert [one.name for one in chosen(["minos-features", "minos-features"])] == ["minos-features"]
    assert chosen([]) == list(EXPERIMENTS)
    with pytest.raises(LookupError, match="kafka"):
        chosen(["kafka"])


def experiment(name: str, line: str) -> Experiment:
    full = ("python -m bench.papers.capture --changes 1000000 --json",)
    return Experiment(name, "a title", "one", (line,), full, 1)


def test_a_table_has_the_rows_of_the_full_form_though_the_fast_one_is_newer(
    tmp_path: Path,
) -> None:
    def kept(line: str, form: str, *rows: dict[str, Any]) -> None:
        keep(tmp_path / "one.json", {"form": form, "command": line, "commit": form, "rows": rows})

    spec = "one.json | best | kind: kind | took .1f: took | run.commit: commit"
    kept("a", "fast", {"kind": "b", "took": 2.5}, {"kind": "c", "took": 3})
    assert "| b | 2.5 | fast |" in table(spec, tmp_path)
    kept("b", "full", {"kind": "b", "took": 18.5})
    kept("a", "fast", {"kind": "b", "took": 2.5}, {"kind": "c", "took": 3})
    assert table(spec, tmp_path).splitlines()[2:] == ["| b | 18.5 | full |"]
    assert "| c | 3.0 | fast |" in table(f"{spec} | kind=c", tmp_path), "the full form has none"


def test_a_picture_has_a_series_for_each_value_and_the_last_row_of_a_point() -> None:
    picture = Picture("lines", "n", "s", {"of": " nodes"}, "", "", where={"kind": "a"})
    rows: list[dict[str, Any]] = [
        {"kind": "a", "of": 3, "n": 1, "s": 9.0},
        {"kind": "a", "of": 3, "n": 1, "s": 0.5},
        {"kind": "b", "of": 3, "n": 2, "s": 2.0},
        {"kind": "a", "of": 1, "n": 2, "s": 0.7},
        {"kind": "a", "of": 1, "n": 3},
    ]
    assert series_of(picture, rows) == {"3 nodes": {1: 0.5}, "1 nodes": {2: 0.7}}
    curves = picture._replace(curves={"s": "seconds", "of": "nodes"}, where={"n": 2})
    assert series_of(curves, rows) == {"seconds": {2: 0.7}, "nodes": {2: 1}}


def test_what_a_commit_has_measured_is_not_measured_again_and_a_failure_leaves_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = experiment("one", "python -m bench.papers.capture --json")
    two = experiment("two", "python -m bench.papers.power --json")
    ran: list[str] = []

    def measure(words: list[str]) -> dict[str, Any]:
        ran.append(shlex.join(words))
        if "bench.papers.capture" in words:
            raise ValueError("no JSON")
        return {"command": shlex.join(words), "commit": "abc", **HEAD, "rows": [{"took": 1}]}

    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "commit", lambda: "abc+")
    monkeypatch.setattr(command, "write_page", lambda: None)
    assert command.run_all([one, two], full=False, again=False) == 1
    assert ran == [*one.fast, *two.fast]
    assert "failed: one" in capsys.readouterr().err
    assert json.loads((tmp_path / "one.json").read_text())[0]["command"] == two.fast[0]
    ran.clear()
    assert command.run_all([two], full=False, again=False) == 0
    assert ran == []
    assert command.run_all([two], full=False, again=True) == 0
    assert ran == [*two.fast]
