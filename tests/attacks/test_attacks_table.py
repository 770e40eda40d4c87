"""The table of attacks (attacks.md) is true: each test that it names is there, and
each file of attacks is in it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def named() -> list[tuple[Path, str]]:
    """Files and tests (or "") that the table names, in its order. `…` is the file before."""
    found: list[tuple[Path, str]] = []
    for row in (HERE / "attacks.md").read_text(encoding="utf-8").splitlines():
        for name in re.findall(r"`([^`]+)`", row.rpartition("| ")[2] if row[:1] == "|" else ""):
            file, _, test = name.partition("::")
            if file == "…":
                found.append((found[-1][0], test))
            elif file.endswith(".py"):
                found.append(((ROOT if file.startswith("tests/") else HERE) / file, test))
            elif file.startswith("tests/"):
                assert (ROOT / file).is_dir(), file
    return found


def test_each_test_that_the_table_of_attacks_names_is_there() -> None:
    rows = named()
    assert len(rows) > 50
    missing = [
        f"{file.name}::{test}"
        for file, test in rows
        if not file.exists() or (test and f"def {test}(" not in file.read_text())
    ]
    assert not missing


def test_each_file_of_attacks_is_in_the_table() -> None:
    files = {file for file in HERE.rglob("test_*.py") if file != Path(__file__)}
    assert not sorted(file.name for file in files - {file for file, _ in named()})
