"""Mutants of the product: what is changed, by which tests, and what is said to survive."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from bench.mutations.mutants import Copy, Mutant, changed_files, importers, mutants

TEXT = '''"""Says 1."""

MOST = 3


def f(a: int, b: tuple[int, 2]) -> int:
    """Not 2."""
    if a < b and not a:
        raise ValueError(f"{a + 1} is 1")
    g("é", a * 2)
    x: list[int, 5] = []
    while a in b:
        a += 1
        continue
    return "ä" if a is None else True
'''


def test_comparisons_conditions_numbers_and_statements_change_one_at_a_time() -> None:
    found = mutants(TEXT)
    assert sorted((one.line, one.was, one.new) for one in found) == [
        (8, "a < b", "a <= b"),
        (8, "a < b and not a", "a < b or not a"),
        (8, "not a", "a"),
        (10, "2", "3"),
        (10, "a * 2", "a // 2"),
        (10, 'g("é", a * 2)', "pass"),
        (12, "a in b", "a not in b"),
        (13, "1", "2"),
        (13, "a += 1", "pass"),
        (14, "continue", "pass"),
        (15, "True", "False"),
        (15, "a is None", "a is not None"),
    ]
    before = TEXT.splitlines()
    for one in found:
        compile(one.text, "mutant", "exec")
        lines = one.text.splitlines()
        assert [n + 1 for n, line in enumerate(lines) if line != before[n]] == [one.line]


def test_a_module_is_tried_by_the_smallest_tests_that_import_it() -> None:
    found = importers("overlay/backlog.py")
    assert "tests/links/test_links_backlog.py" in found
    assert importers("overlay/none.py") == []
    assert len(importers("overlay/machine.py")) == 6


def test_only_files_of_the_product_that_are_there_are_looked_at() -> None:
    assert all(name.startswith(("overlay/", "node.py")) for name in changed_files("HEAD"))


def test_what_passes_with_a_mutant_survives_and_the_file_is_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []

    def passes(self: Copy, tests: Sequence[str], seconds: float) -> bool:
        return not written or written[-1] == "kept"

    monkeypatch.setattr(Copy, "_passes", passes)
    monkeypatch.setattr(Copy, "_write", lambda self, file, text: written.append(text))
    drawn = [Mutant(1, "", "", "kept"), Mutant(2, "", "", "lost")]
    later = time.monotonic() + 1_000
    found = [survives for _, survives in Copy().tries("overlay/backlog.py", drawn, later)]
    assert found == [True, False]
    assert written[-1].startswith('"""')
    assert list(Copy().tries("overlay/backlog.py", drawn, 0.0)) == []
    assert list(Copy().tries("overlay/none.py", drawn, later)) == []
