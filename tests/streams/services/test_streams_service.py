"""The base of services: shards take turns, timers ring at the earliest time that was asked for, and
what waits for a commit is called in order, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from overlay.machine import Timer
from streams.services.service import Leaderships, LedShard, ShardService


class WorkOn(Timer, frozen=True):
    """Work is left."""


class Work(LedShard):
    left = 0

    @property
    def has_work(self) -> bool:
        return self.left > 0

    def step(self, budget: int) -> int:
        self.left -= 1
        self.later(WorkOn)  # as when more is committed meanwhile
        self.service.done.append(self.replica.shard)  # type: ignore[attr-defined]
        return 1


class Works(ShardService[Work]):
    kind = Work

    def __init__(self, port: Any) -> None:
        leader = SimpleNamespace()
        self.done: list[str] = []
        self.replicas = {
            name: SimpleNamespace(shard=name, leader=leader, committed=0, followed=None)
            for name in "abc"
        }
        replica: Any = self.replicas.get
        super().__init__(Leaderships(port, replica, lambda: 0), replica)

    def on_work_on(self, timer: WorkOn) -> None:
        self.work(timer, 1)


class FakePort:
    now = 0.0

    def __init__(self) -> None:
        self.delays: list[float] = []

    def set_timer(self, delay: float, timer: Timer) -> None:
        self.delays.append(delay)


def test_shards_with_work_take_turns() -> None:
    works = Works(FakePort())
    for name in "abc":
        kept = works.shard(name)
        assert kept is not None
        kept.left = 2
        kept.later(WorkOn)
    for _ in range(6):
        works.handlers()[WorkOn](WorkOn())
    assert works.done == list("abcabc")


def test_a_timer_rings_at_the_earliest_time_that_was_asked_for() -> None:
    port = FakePort()
    kept = Works(port).shard("a")
    assert kept is not None
    for delay in (5.0, 1.0, 3.0):
        kept.later(WorkOn, delay)
    assert port.delays == [5.0, 1.0]


def test_who_waits_for_a_commit_is_called_in_order_or_not_at_all() -> None:
    works = Works(FakePort())
    kept = works.shard("a")
    assert kept is not None
    called: list[str] = []
    kept.when_committed(lambda: called.append("second"), 2)
    kept.when_committed(lambda: called.append("first, which came later"), 1)
    kept.when_committed(lambda: called.append("never"), 3)
    works.replicas["a"].committed = 2
    kept.committed()
    assert called == ["second", "first, which came later"]
    works.replicas["a"].leader = SimpleNamespace()
    assert works.shard("a") is not kept
    assert called == ["second", "first, which came later"]
