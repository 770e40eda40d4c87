"""What mutmut is given to change, and what is said of that."""

from __future__ import annotations

from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path

import pytest

from bench.mutations import mutants
from bench.mutations.mutants import changed_files, configuration, importers

FILE = "overlay/links/backlog.py"
RESULTS = """
    overlay.links.backlog.a__mutmut_1: killed
    overlay.links.backlog.a__mutmut_2: survived
    overlay.links.backlog.a__mutmut_3: no tests
    overlay.links.backlog.b__mutmut_1: not checked
    overlay.links.backlog.b__mutmut_2: timeout
"""


def test_a_module_is_tried_by_the_smallest_tests_that_import_it() -> None:
    assert "tests/links/test_links_backlog.py" in importers([FILE])
    assert importers(["overlay/none.py"]) == []
    assert len(importers(["overlay/machine.py"])) == 6


def test_only_files_of_the_product_that_are_there_are_looked_at() -> None:
    assert changed_files("HEAD") == []
    assert all((mutants.ROOT / name).exists() for name in changed_files("HEAD~3"))


def test_mutmut_is_told_files_tests_and_what_these_need() -> None:
    found = ConfigParser()
    found.read_string(configuration([FILE], ["tests/links/test_links_backlog.py"]))
    assert found["mutmut"]["source_paths"].split() == [FILE]
    tests = found["mutmut"]["pytest_add_cli_args_test_selection"].split()
    assert tests == ["tests/links/test_links_backlog.py"]
    assert {"overlay", "tests", "pyproject.toml"} <= set(found["mutmut"]["also_copy"].split())


@pytest.mark.parametrize(("results", "code", "last"), [(RESULTS, 0, "1 of 3"), ("", 1, "0 of 0")])
def test_survivors_are_shown_and_nothing_tried_is_a_failure(
    results: str,
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(command: Sequence[str], folder: Path, minutes: float) -> str:
        return {"results": results, "show": f"- was\n+ is {command[-1]}"}.get(command[1], "")

    def git(*words: str) -> str:
        if words[:2] == ("worktree", "add"):
            Path(words[3]).mkdir()
        return ""

    monkeypatch.setattr(mutants, "run", run)
    monkeypatch.setattr(mutants, "git", git)
    assert mutants.main([FILE]) == code
    said = capsys.readouterr().out
    assert said.endswith(f"{last} mutants survived\n")
    assert ("a__mutmut_2" in said) == bool(results)
    assert "a__mutmut_3" not in said
