"""Logs that keep to the rules lose nothing that is committed, and each rule is needed for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from overlay import consensus
from overlay.consensus import Tracker
from overlay.machine import Peer
from tests.consensus.naive_logs import NaiveLogs, WrongError

SEEDS = 1_000
STEPS = 200


def run_all(seeds: int) -> list[NaiveLogs]:
    worlds = [NaiveLogs(Random(seed)) for seed in range(seeds)]
    for world in worlds:
        world.run(STEPS)
    return worlds


def test_what_is_committed_is_in_the_log_of_every_later_leader() -> None:
    worlds = run_all(SEEDS)
    assert sum(len(world.truth) for world in worlds) > 8 * SEEDS
    assert sum(len({entry.voters for entry in world.truth}) for world in worlds) > 1.5 * SEEDS
    assert sum(len(world.led) for world in worlds) > 3 * SEEDS


def _of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    original = Tracker.committable

    def committable(
        self: Tracker[consensus.Progress], voters: Sequence[Peer], own: int, quorum: int = 0
    ) -> int:
        first, self.first = self.first, 0
        number = original(self, voters, own, quorum)
        self.first = first
        return number

    patch.setattr(Tracker, "committable", committable)


def _voters_change_at_any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tracker, "may_change", lambda self, committed: True)


def _voters_change_before_an_own_entry_is_committed(patch: pytest.MonkeyPatch) -> None:
    def may_change(self: Tracker[consensus.Progress], committed: int) -> bool:
        return committed >= self.changed or self.changed == self.first

    patch.setattr(Tracker, "may_change", may_change)


def _vote_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consensus, "may_vote", lambda last, epoch, candidate: True)


def _vote_for_any_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consensus, "is_up_to_date", lambda candidate, mine: True)


def _vote_for_the_longest_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consensus, "is_up_to_date", lambda candidate, mine: candidate[1] >= mine[1])


def _follow_who_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consensus, "is_fenced", lambda last, epoch: False)


def _half_commits(patch: pytest.MonkeyPatch) -> None:
    original = Tracker.committable

    def committable(
        self: Tracker[consensus.Progress], voters: Sequence[Peer], own: int, quorum: int = 0
    ) -> int:
        return original(self, voters, own, max(1, len(voters) // 2))

    patch.setattr(Tracker, "committable", committable)


def _half_elects(patch: pytest.MonkeyPatch) -> None:
    def has_half(voters: Sequence[Peer], nodes: set[str]) -> bool:
        return sum(voter.id in nodes for voter in voters) >= len(voters) / 2

    patch.setattr(consensus, "has_majority", has_half)


BREAKS = (
    *(_of_any_epoch, _voters_change_at_any_time, _voters_change_before_an_own_entry_is_committed),
    *(_vote_twice, _vote_for_any_log, _vote_for_the_longest_log, _follow_who_is_fenced),
    *(_half_commits, _half_elects),
)


@pytest.mark.parametrize("breaks", BREAKS)
def test_without_one_of_the_rules_something_is_lost(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(WrongError):
        run_all(SEEDS)
