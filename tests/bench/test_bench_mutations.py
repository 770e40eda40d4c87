"""Faults can be planted, and the check finds a planted fault and only that."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.lab.record import RESULTS
from bench.lab.tables import rows_of
from bench.mutations import check as mutations
from bench.mutations.check import ROOT, Catch, check, failure, row, table
from bench.mutations.planted import FAULTS
from bench.mutations.planting import fault, replace, replaced
from overlay.upper_tree import partition
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.partition import tree_children

WALK = FAULTS["walk-ignores-trace"]

NOT_FOUND = {"own-visits-uncut"}
"""Faults of which docs/lab/mutations.md says why nothing finds them."""


def test_every_fault_can_be_planted() -> None:
    """In a process of its own, one after the other, each undone before the next."""
    program = (
        "import canopy.sim.soak.soak\n"
        "from bench.mutations import planted, planting\n"
        "undone = []\n"
        "def noting(original):\n"
        "    def change(*what):\n"
        "        undo = original(*what)\n"
        "        undone.append(undo)\n"
        "        return undo\n"
        "    return change\n"
        "for name, module in vars(planted).items():\n"
        "    if name.endswith('_faults'):\n"
        "        module.replace = noting(planting.replace)\n"
        "        module.replace_constant = noting(planting.replace_constant)\n"
        "for name in planted.FAULTS:\n"
        "    planted.plant(name)\n"
        "    assert undone, name\n"
        "    while undone:\n"
        "        undone.pop()()\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_faults_say_what_they_do_and_name_tests_that_exist() -> None:
    assert len(FAULTS) >= 50
    for planted in FAULTS.values():
        assert len(planted.what.split()) > 4, planted.name
        if planted.test:
            path, *_, name = planted.test.split("[")[0].split("::")
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), planted.name


def test_each_fault_has_one_row_that_says_what_it_does_and_what_finds_it() -> None:
    """A row that is missing here is made as docs/lab/mutations.md says."""
    rows = list(rows_of(RESULTS / "mutations.json"))
    assert sorted(found["fault"] for found in rows) == sorted(FAULTS)
    for found in rows:
        planted = FAULTS[found["fault"]]
        is_ = row(Catch(planted, None if planted.test else 1, "red", 1.0))
        if not planted.test:
            found["found_by"] = re.sub("[0-9]+$", "1", found["found_by"])
        elif planted.name in NOT_FOUND:
            is_["found_by"] = "not found"
        for key in ("what", "breaks", "found_by"):
            assert found[key] == is_[key], planted.name


def test_a_replaced_function_is_replaced_where_it_was_imported() -> None:
    original = tree_children

    def none(size: int, index: int) -> Iterator[int]:
        return iter(())

    with replaced(original, none):
        assert list(tree_children(3, 1)) == list(partition.tree_children(3, 1)) == []
        with pytest.raises(ValueError, match="not the original"):
            replace(original, none)
    assert list(tree_children(3, 1)) == list(partition.tree_children(3, 1)) == [0, 2]


def test_a_replaced_method_is_put_back() -> None:
    def uninstall(self: HostedTree, id_: str) -> None:
        pass

    original = HostedTree.uninstall
    with replaced(original, uninstall):
        assert HostedTree.uninstall is uninstall
    assert HostedTree.uninstall is original


def test_two_faults_of_one_name_are_refused() -> None:
    def walk_ignores_trace() -> None:
        pass

    with pytest.raises(ValueError, match="two faults"):
        fault("C3")(walk_ignores_trace)


def test_a_planted_fault_is_found_by_the_soak() -> None:
    catch = check(WALK, 40, {})
    assert catch.seed is not None
    assert catch.by.startswith("walk:")


def test_a_planted_fault_is_found_by_its_test() -> None:
    planted = FAULTS["access-points-of-another-ring"]
    assert check(planted, 0, {}).found
    assert failure(planted.test, "") == ""


def test_a_fixture_that_fails_is_a_test_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "E\nERROR tests/test_a.py::test_b - OSError: gone\n1 error in 0.1s\n"
    done = subprocess.CompletedProcess([], 1, said, "")
    monkeypatch.setattr(mutations.subprocess, "run", lambda *_, **__: done)
    assert failure("tests/test_a.py::test_b", "") == "OSError: gone"


def test_a_seed_that_is_red_anyway_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red with the fault: 2, 5 and 9; without it: 2 and 5."""
    asked: list[tuple[bool, int, int]] = []

    def fake(fault: str, first: int, seeds: int) -> tuple[int | None, str]:
        asked.append((bool(fault), first, seeds))
        for seed in (2, 5, 9) if fault else (2, 5):
            if first <= seed < first + seeds:
                return seed, "bad"
        return None, "not found"

    monkeypatch.setattr(mutations, "soak", fake)
    red: dict[int, bool] = {}
    assert check(WALK, 20, red).seed == 9
    assert red == {2: True, 5: True, 9: False}
    assert asked[::2] == [(True, 1, 20), (True, 3, 18), (True, 6, 15)]
    assert check(WALK, 8, red).seed is None
    assert check(WALK, 5, red).seed is None


def test_the_table_says_what_was_not_found() -> None:
    ring = FAULTS["access-points-of-another-ring"]
    catches = [Catch(WALK, 7, "walk: a|b", 1.0), Catch(WALK, None, "", 1.0)]
    catches += [Catch(ring, None, "assert 1", 1.0), Catch(ring, None, "", 1.0)]
    lines = table(catches)
    assert "| walk-ignores-trace | C3 | soak, seed 7 | walk: a\\|b |" in lines
    assert "**not found**" in lines[3]
    assert ring.test.rpartition("::")[2] in lines[4]
    assert "**not found**" in lines[5]
    assert row(catches[0])["found_by"] == "soak, seed 7"
