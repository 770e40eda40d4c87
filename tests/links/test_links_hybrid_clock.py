"""The hybrid logical clock: causal order whatever wall clocks show, at the pace of real time."""

from __future__ import annotations

from random import Random

import pytest

from harness.link_world import LinkWorld
from overlay.links.hybrid_clock import LATEST, HybridClock
from overlay.links.messages import Batch, Hello, Welcome

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND


class Machines:
    """Processes with clocks of their own, in one real time."""

    def __init__(self, *walls: float) -> None:
        self.now = 0.0
        self.clocks = [
            HybridClock(lambda start=start: self.now + start, wall)  # type: ignore[misc]
            for start, wall in enumerate(walls)
        ]

    def send(self, one: int, other: int) -> int:
        sent = self.clocks[one].read()
        self.clocks[other].observe(sent)
        return sent


def test_what_follows_from_another_thing_is_later() -> None:
    rng = Random(4)
    machines = Machines(*(1_000.0 + rng.uniform(-3_600.0, 3_600.0) for _ in range(5)))
    seen = [0] * 5  # by each node: the latest time of anything that it can know of
    for _ in range(3_000):
        machines.now += rng.expovariate(1e4)
        one, other = rng.randrange(5), rng.randrange(5)
        read = machines.clocks[one].read()
        assert read > seen[one]
        seen[one] = machines.send(one, other)
        assert seen[one] > read
        seen[other] = max(seen[other], seen[one])


def test_a_node_an_hour_ahead_pulls_the_others_and_time_goes_on_at_its_pace() -> None:
    machines = Machines(10_000.0, 13_600.0)
    machines.send(1, 0)
    behind = machines.clocks[0].read()
    assert 13_600 * SECOND < behind < 13_600 * SECOND + 1_000
    machines.now += 5.0
    assert abs(machines.clocks[0].read() - machines.clocks[1].read()) < 1_000
    assert abs(machines.clocks[0].read() - behind - 5 * SECOND) < 1_000


def test_a_time_in_the_past_changes_nothing() -> None:
    machines = Machines(10_000.0, 13_600.0)
    machines.send(0, 1)
    assert machines.clocks[1].read() < 13_600 * SECOND + 1_000


def test_a_damaged_time_uses_nothing_up() -> None:
    machines = Machines(10_000.0)
    for seen in (LATEST + 1, 2**64 - 1, -5):
        machines.clocks[0].observe(seen)
    assert machines.clocks[0].read() < 10_001 * SECOND
    assert HybridClock(lambda: 7.0, 1e30).read() == 1
    assert HybridClock(lambda: 7.0, -1e30).read() == 1


def test_who_lies_takes_nobody_further_than_a_day_ahead_of_its_own_clock() -> None:
    """Beyond the latest time the clocks would hear of each other no more, until all are started
    again."""
    today = 1_800_000_000.0
    machines = Machines(today, today + 30.0, 0.0)
    for seen in (LATEST, int(today + 3 * 86_400) * SECOND):
        machines.clocks[0].observe(seen)
    assert machines.clocks[0].read() < int(today + 2) * SECOND
    machines.clocks[0].observe(int(today + 86_000) * SECOND)  # some machine's clock is wrong
    assert machines.clocks[0].read() > int(today + 85_000) * SECOND
    machines.send(0, 2)  # whose clock is not set
    assert machines.clocks[2].read() > int(today + 85_000) * SECOND


@pytest.mark.parametrize("ahead", ["a", "b"])
def test_a_batch_brings_its_senders_time(ahead: str) -> None:
    """Also to who dials and to who is dialled, before the first batch."""
    world = LinkWorld(1)
    a, b = (world.host(name, wall=5_000.0 if name == ahead else 1_400.0) for name in "ab")
    a.send(b, 1)
    world.run(1.0)
    (sent,) = [frame for _, frame in a.written if isinstance(frame, Batch)]
    greetings = [f for host in (a, b) for _, f in host.written if isinstance(f, Hello | Welcome)]
    assert 0 < min(greeting.clock for greeting in greetings) < sent.clock
    for host in (a, b):
        assert host.hybrid.read() > max(sent.clock, 5_000 * SECOND)
    before = b.hybrid.read()
    b.send(a, 2)
    world.run(1.0)
    assert a.hybrid.read() > before
