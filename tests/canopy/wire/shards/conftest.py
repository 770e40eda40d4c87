"""Disks of shards over files, whose threads end with the test."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from canopy.wire.shards import log_disk
from tests.support.real.wire_rig import PATIENCE
from tests.support.shards.disk_rig import NODE, Rig


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> float:
    """Of a node that has the time for each small write."""
    monkeypatch.setattr(log_disk, "FIRST_TOOK", 0.0)
    monkeypatch.setattr(log_disk, "OWN_TOOK_MOST", math.inf)
    return math.inf


@pytest.fixture
def rigs() -> Iterator[Callable[..., Rig]]:
    """Makes rigs, and ends their threads."""
    made: list[Rig] = []

    def make(path: Path, node: str = NODE) -> Rig:
        made.append(Rig(path, node))
        return made[-1]

    yield make
    for each in made:
        assert each.disk.close(PATIENCE)
