"""Faults can be planted, stand for all that is promised, and are found by the tests they name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from bench.mutations import check as mutations
from bench.mutations.check import CRASH, HANG, RED, ROOT, ROWS, Row, Tries, is_found, page, row
from bench.mutations.planted import FAULTS, PlantedFault
from bench.mutations.planting import fault, replace, replaced
from overlay.upper_tree import partition
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.partition import tree_children

OVERVIEW = "docs/design/overview.md"
PROMISES = "docs/design/promises.md"
ATTACKS = "tests/attacks/attacks.md"

REFUSED_BY_TYPE = {"A1", "A15", "A17"}
"""Attacks that no replaced function lets in: OpenSSL and the types of messages refuse them, and
their tests try every field and generated inputs."""

POINTS = FAULTS["access-points-of-another-ring"]
WALK = FAULTS["walk-ignores-trace"]


def ids(page: str, letters: str) -> list[str]:
    """The ids that the tables of a page name, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^\| ([{letters}]\d+) \|", text, re.M)


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
    for planted in FAULTS.values():
        assert len(planted.what.split()) > 4, planted.name
        path, *_, name = planted.test.split("[")[0].split("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), planted.name


def test_each_mechanism_promise_and_attack_has_a_fault_that_stands_for_it() -> None:
    must = ids(OVERVIEW, "CPVMT") + ids(PROMISES, "DSY") + ids(ATTACKS, "A")
    stands_for = {planted.stands_for for planted in FAULTS.values()}
    assert set(must) - stands_for == REFUSED_BY_TYPE
    assert stands_for <= {*must, *ids(OVERVIEW, "I")}
    for letter in "DSYA":
        own = sorted(int(id_[1:]) for id_ in must if id_[0] == letter)
        assert own == list(range(1, len(own) + 1)), f"{letter}: one number each"


def test_a_fault_of_an_attack_is_found_by_a_test_that_the_table_of_attacks_names() -> None:
    text = (ROOT / ATTACKS).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (A\d+) \| (.*) \|$", text, re.M))
    for planted in FAULTS.values():
        if planted.stands_for[0] == "A":
            path, _, name = planted.test.partition("[")[0].partition("::")
            places = [f"`{folder}/`" for folder in Path(path).parents]
            named = (f"{Path(path).name}`", f"{Path(path).name}::", f"::{name}`", *places)
            assert any(one in rows[planted.stands_for] for one in named), planted.name


def test_the_page_is_that_of_the_rows() -> None:
    """`python -m bench.mutations.check` makes both, and all rows are of one commit."""
    (run,) = json.loads(ROWS.read_text(encoding="utf-8"))
    rows = [{**found, "run": run} for found in run["rows"]]
    text = mutations.PAGE.read_text(encoding="utf-8")
    assert text.startswith(page(rows))
    assert len(rows) < 225, "keep one fault of those that one test finds alike"


def test_what_stands_in_the_place_of_a_function_has_its_parameters() -> None:
    with pytest.raises(ValueError, match="parameters size, index"):
        replace(tree_children, lambda size: iter(()))
    with pytest.raises(ValueError, match="parameters size, index"):
        replace(tree_children, lambda index, size: iter(()))


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
        fault("C3", "", "")(walk_ignores_trace)


def test_a_planted_fault_is_found_by_its_test() -> None:
    command = [sys.executable, "-m", "bench.mutations.check", "--only", POINTS.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "1 of 1 found\n"
    assert done.stderr.endswith(f"{POINTS.name}: {POINTS.found_by}\n")


def test_only_a_test_that_fails_has_found_something() -> None:
    """Not one that passes, hangs, cannot be run or fails without the fault."""
    for code in (0, 1, 2, 4, CRASH, HANG, RED):
        assert is_found(row(POINTS, code, 1.0)) == (code == 1)


def test_of_tests_that_fail_without_a_fault_nothing_is_planted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    def run(self: Tries, session: object, test: str, name: str) -> int:
        ran.append(name)
        return int(name != "" or test == WALK.test)

    monkeypatch.setattr(Tries, "_code", run)
    rows: list[Row] = []
    Tries([POINTS, WALK], rows.append).pytest_runtestloop(None)  # type: ignore[arg-type]
    assert ran == ["", "", POINTS.name]
    assert [is_found(found) for found in rows] == [True, False]
    assert "without it" in rows[1]["found_by"]


def test_a_run_goes_on_where_it_was_ended_and_keeps_each_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []

    def check(faults: Iterable[PlantedFault], workers: int) -> Iterator[Row]:
        for planted in faults:
            ran.append(planted.name)
            yield row(planted, 1, 1.0)

    few = dict(list(FAULTS.items())[:5])
    monkeypatch.setattr(mutations, "FAULTS", few)
    monkeypatch.setattr(mutations, "check", check)
    monkeypatch.setattr(mutations, "changed", list)
    monkeypatch.setattr(mutations, "ROWS", tmp_path / "mutations.json")
    monkeypatch.setattr(mutations, "write_page", lambda: None)
    head = mutations.place("x")["commit"].removesuffix("+")
    former = [row(planted, 1, 1.0) for planted in list(few.values())[:2]]
    for commit, left in ((head, list(few)[2:]), ("another", list(few))):
        run_before = {"command": "x", "commit": commit, "load": [0, 0], "rows": former}
        mutations.write(mutations.ROWS, [run_before])
        ran.clear()
        assert mutations.main([]) == 0
        assert ran == left
        (kept,) = json.loads(mutations.ROWS.read_text(encoding="utf-8"))
        assert [found["fault"] for found in kept["rows"]] == list(few)
        assert kept["commit"] == head
