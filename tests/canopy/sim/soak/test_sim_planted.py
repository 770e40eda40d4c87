"""The mutation check's list is in step with the code, and a planted fault is caught."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.mutations import check as mutations
from bench.mutations.check import ROOT, Catch, check, copy_tree, plant, table
from bench.mutations.planted import PLANTED, Edit


def test_every_fault_can_be_planted_and_is_still_python() -> None:
    assert len({planted.name for planted in PLANTED}) == len(PLANTED) >= 15
    for planted in PLANTED:
        texts: dict[str, str] = {}
        for edit in planted.edits:
            text = texts.get(edit.path) or (ROOT / edit.path).read_text(encoding="utf-8")
            assert text.count(edit.old) == 1, f"{planted.name}: {edit.path} has not {edit.old!r}"
            texts[edit.path] = text.replace(edit.old, edit.new)
        for text in texts.values():
            ast.parse(text)


def test_a_list_that_is_out_of_step_is_refused(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    with pytest.raises(ValueError, match="0 times"):
        plant(tmp_path, [Edit("node.py", "no such text", "")])


def test_a_planted_fault_is_found_by_the_soak() -> None:
    (planted,) = [p for p in PLANTED if p.name == "a trace list that is ignored"]
    catch = check(planted, 40, {})
    assert catch.seed is not None
    assert catch.by.startswith("walk:")


def test_a_seed_that_is_red_anyway_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red with the fault: 2, 5 and 9; without it: 2 and 5."""
    asked: list[tuple[bool, int, int]] = []

    def fake(root: Path, first: int, seeds: int) -> tuple[int | None, str]:
        planted = root != ROOT
        asked.append((planted, first, seeds))
        for seed in (2, 5, 9) if planted else (2, 5):
            if first <= seed < first + seeds:
                return seed, "bad"
        return None, "not found"

    monkeypatch.setattr(mutations, "soak", fake)
    red: dict[int, bool] = {}
    assert check(PLANTED[0], 20, red).seed == 9
    assert red == {2: True, 5: True, 9: False}
    assert asked[::2] == [(True, 1, 20), (True, 3, 18), (True, 6, 15)]
    assert check(PLANTED[0], 8, red).seed is None
    assert check(PLANTED[0], 5, red).seed is None


def test_the_table_says_what_was_not_found() -> None:
    lines = table([Catch("one", "C3", 7, "walk: a|b", 1.0), Catch("two", "C5", None, "", 1.0)])
    assert "| one | C3 | 7 | walk: a\\|b |" in lines
    assert "**not found**" in lines[-1]
