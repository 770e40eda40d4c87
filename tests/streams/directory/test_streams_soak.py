"""Streams in whole overlays under faults: what is acknowledged stays, and somebody leads again."""

from __future__ import annotations

import pytest

from tests.support.stream_world import trial


@pytest.mark.parametrize("seed", range(8))
def test_streams_survive_crashes_restarts_and_partitions(seed: int) -> None:
    assert trial(seed).acknowledged
