"""Streams in whole overlays under faults: what is acknowledged stays, somebody leads again, and
what programs are answered is linearizable."""

from __future__ import annotations

import pytest

from harness.logs import WrongError
from harness.stream_world import trial
from streams.services.append.appender import Appender
from streams.services.read.shard_readings import ShardReadings
from tests.streams.directory.linear_programs import LinearPrograms
from tests.support.examples import seeds


@pytest.mark.parametrize("seed", seeds(8))
def test_streams_survive_crashes_restarts_and_partitions(seed: int) -> None:
    world = trial(seed, LinearPrograms)
    assert world.acknowledged
    assert any(operation.output == 0 for operation in world.appends)


@pytest.mark.parametrize(("machine", "what"), [(Appender, "appends"), (ShardReadings, "positions")])
def test_answers_that_come_before_their_commit_are_found(
    machine: type, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a leader answers what it has appended, and perhaps loses. Seed 53 shows both."""
    monkeypatch.setattr(machine, "when_committed", lambda self, then, number=None: then())
    with pytest.raises(WrongError, match=what):
        trial(53, LinearPrograms)
