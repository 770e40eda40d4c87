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
from bench.papers import __main__ as command
from bench.papers import page as pages
from bench.papers.experiment import Experiment, Ours, Reported
from bench.papers.features import FEATURES, place_of
from bench.papers.registry import PAPERS, chosen, experiments

HEAD = {"date": "2026-01-02", "processor": "p", "cores": 2, "load": [0.5, 1.0]}


def test_the_page_is_that_of_the_registry_and_the_results() -> None:
    """`python -m bench.papers --page` writes it again."""
    assert pages.PAGE.read_text(encoding="utf-8") == pages.page()


def test_every_experiment_has_a_name_of_its_own_and_commands_that_there_are() -> None:
    assert {paper.name for paper in PAPERS} == {"CBDLO", "Phoenix", "VENUS", "Minos", "Tensor"}
    names = [one.name for one in experiments()]
    assert len(set(names)) == len(names)
    for one in experiments():
        assert one.reported, one.name
        for line in (*one.fast, *one.full):
            program, flag, module, *_ = shlex.split(line)
            assert (program, flag) == ("python", "-m")
            assert find_spec(module), line
        for run in pages.runs_of(one):
            assert run.get("form", "") == one.form_of(run["command"]), run["command"]
    fast = [one for one in experiments() if one.fast]
    assert {one.paper for one in fast} == {paper.name for paper in PAPERS}
    assert sum(one.seconds for one in fast) <= 20 * 60
    for feature in FEATURES:
        assert all(place_of(test) for test in feature.tests)


def test_papers_and_experiments_are_chosen_by_name() -> None:
    assert {one.paper for one in chosen(["venus"])} == {"VENUS"}
    assert [one.name for one in chosen(["minos-features", "minos-features"])] == ["minos-features"]
    assert chosen([]) == experiments()
    with pytest.raises(LookupError, match="kafka"):
        chosen(["kafka"])


def experiment(**other: Any) -> Experiment:
    found = Experiment(
        "one",
        "VENUS",
        "table 9",
        "a title",
        "A question.",
        (
            Reported("rows", "4.2", 18.161, "s", ours=Ours("took", {"kind": "b"}, ".2f")),
            Reported("shape", "4.2", None, words="flat"),
        ),
        "one",
        ("python -m bench.papers.capture --json",),
        ("python -m bench.papers.capture --changes 1000000 --json",),
        1,
        ("one.json | kind: kind | took .1f: took",),
        "It differs.",
    )
    return found._replace(**other)


def kept(
    folder: Path, commit: str, line: str, rows: list[dict[str, Any]], form: str = "fast"
) -> None:
    run = {"command": line, "commit": commit, **HEAD, "rows": rows}
    keep(folder / "one.json", {"form": form, **run} if form else run)


def test_ours_stands_beside_theirs_with_commit_and_load(tmp_path: Path) -> None:
    one = experiment()
    assert "Not measured yet." in "".join(pages._experiment(one, tmp_path))
    kept(tmp_path, "abc+", one.fast[0], [{"kind": "a", "took": 1}, {"kind": "b", "took": 2.5}])
    text = "".join(pages._experiment(one, tmp_path))
    assert "\nThe paper (4.2): rows: 18.161 s (here 2.50 s); flat.\n" in text
    assert "\n`one.json`, fast form, commit abc+, 2026-01-02, load 0.5 to 1.0:\n" in text
    assert "| kind | took |\n|---|---|\n| a | 1.0 |\n| b | 2.5 |\n" in text


def test_the_page_has_the_rows_of_the_full_form_though_the_fast_one_is_newer(
    tmp_path: Path,
) -> None:
    one = experiment()
    kept(tmp_path, "abc", one.full[0], [{"kind": "b", "took": 18.5}], "full")
    kept(tmp_path, "def", one.fast[0], [{"kind": "b", "took": 2.5}, {"kind": "c", "took": 3}])
    kept(tmp_path, "old", "python -m bench.papers.features", [{"kind": "b", "took": 1}], "")
    text = "".join(pages._experiment(one, tmp_path))
    assert "rows: 18.161 s (here 18.50 s)" in text
    assert "\n`one.json`, full form, commit abc, 2026-01-02, load 0.5 to 1.0:\n" in text
    assert "|---|---|\n| b | 18.5 |\n\n" in text
    other = one._replace(tables=("one.json | kind=c | kind: kind",))
    text = "".join(pages._experiment(other, tmp_path))
    assert "fast form, commit def" in text, "the full form has no such row"
    either = one._replace(tables=("one.json | run.form=fast or full | last=kind | took .1f: took",))
    text = "".join(pages._experiment(either, tmp_path))
    assert "fast form, commit def, 2026-01-02, load 0.5 to 1.0, full form, commit abc:" in text
    assert "|---|\n| 2.5 |\n| 3.0 |\n" in text, "the last row of the file"


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
    one, two = experiment(), experiment(name="two", fast=("python -m bench.papers.power --json",))
    ran: list[str] = []

    def measure(words: list[str]) -> dict[str, Any]:
        ran.append(shlex.join(words))
        if "bench.papers.capture" in words:
            raise ValueError("no JSON")
        return {"command": shlex.join(words), "commit": "abc", **HEAD, "rows": [{"took": 1}]}

    for module in (pages, command):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(command, "runs_of", lambda each: pages.runs_of(each, tmp_path))
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
