"""Fixtures of the command's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.canopy.cli.scripted_node import answer
from tests.support.real.fake_control import FakeControl


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands do not wait for a node that is not there."""
    monkeypatch.setenv("CANOPY_WAIT", "0")


@pytest.fixture
def node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_waiting: None
) -> Iterator[FakeControl]:
    """A scripted node in the default data folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with FakeControl(tmp_path / "canopy" / "default", answer) as fake:
        yield fake
