"""The Python examples of the documentation run as they stand, against the default folder's node."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import canopy
from harness.real_overlay import Overlay, wait_ready

ROOT = Path(__file__).parents[3]
PAGES = ("docs/guide/python.md", "README.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(text, id=f"{page}-{number}")
    for page in PAGES
    for number, text in enumerate(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")), 1)
]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for XDG_DATA_HOME whose default node runs."""
    folder = tmp_path_factory.mktemp("home")
    overlay = Overlay(folder)
    wait_ready(overlay.start())
    (folder / "canopy").mkdir()
    (folder / "canopy" / "default").symlink_to(folder / "0")
    yield folder
    overlay.stop()


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_of_the_pages_runs(text: str, home: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(home), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() or "print" not in text


def test_the_example_of_the_package_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    results = doctest.testmod(canopy)
    assert (results.attempted, results.failed) == (2, 0)
