"""T3: how much may wait for a peer that is out of reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.link_world import Host, LinkWorld
from overlay.links.backlog import PERIOD, REMEMBERED, Backlog
from overlay.links.events import MessageDropped

KB = 1_024


def backlog(floor: int = 10 * KB, most: int = 1_000 * KB, assumed: float = 6.0) -> Backlog:
    return Backlog(floor, most, half_life=60.0, assumed=assumed, now=0.0)


def test_it_holds_what_is_written_in_the_mean_time_of_a_disconnect() -> None:
    sized = backlog()
    assert sized.size(0.0) == 10 * KB
    sized.reconnected(10.0, 0.0)
    sized.reconnected(30.0, 0.0)
    for second in range(1, 121):
        sized.wrote(10 * KB)
        size = sized.size(float(second))
        assert second < 60 or 200 * KB <= size <= 400 * KB, "10 KB a second, 20 to 40 seconds"


def test_as_long_as_no_disconnect_was_seen_one_is_assumed() -> None:
    sized = backlog(assumed=6.0)
    for second in range(1, 121):
        sized.wrote(10 * KB)
        size = sized.size(float(second))
        assert second < 60 or 60 * KB <= size <= 120 * KB


def test_a_slow_flow_counts_by_its_rate() -> None:
    sized = backlog(floor=1, assumed=6.0)
    sized.wrote(100 * KB)
    sized.size(1.0)
    for period in range(1, 100):  # what is written at once counts until it has decayed
        size = sized.size(period * PERIOD)
        sized.wrote(KB)
    assert KB / PERIOD * 6.0 - 1 <= size <= 2 * KB


def test_a_burst_raises_it_at_once_and_silence_halves_it_down_to_the_floor() -> None:
    sized = backlog()
    sized.wrote(100 * KB)
    assert sized.size(1.0) == 100 * KB
    sizes = [sized.size(20.0 + 60.0 * minute) for minute in range(9)][1:]
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=0.01)
    assert sizes[-1] == 10 * KB
    sized = backlog()
    sized.wrote(800 * KB)
    assert sized.size(1.0) == 800 * KB
    sized.size(20.0)
    before = sized.size(40.0)  # it was quiet for longer than a disconnect takes
    assert sized.size(40.0 + 2 * 60.0) == pytest.approx(before / 4, rel=0.01)


def test_disconnects_count_for_a_day() -> None:
    sized = backlog(assumed=6.0)
    sized.reconnected(100.0, 0.0)
    assert sized.disconnect(REMEMBERED - 1.0) == 100.0
    assert sized.disconnect(REMEMBERED + 1.0) == 6.0


@given(
    steps=st.lists(
        st.tuples(st.floats(0.0, 1e5), st.integers(0, 1 << 40), st.none() | st.floats(0.0, 1e6)),
        max_size=100,
    ),
    floor=st.integers(1, 1 << 30),
    most=st.integers(1, 1 << 30),
)
def test_it_keeps_its_bounds(
    steps: list[tuple[float, int, float | None]], floor: int, most: int
) -> None:
    sized, now = Backlog(floor, most, 60.0, 6.0, 0.0), 0.0
    for pause, written, out in steps:
        now += pause
        sized.wrote(written)
        if out is not None:
            sized.reconnected(out, now)
        assert min(floor, most) <= sized.size(now) <= most


def flow(world: LinkWorld, a: Host, b: Host, seconds: float, first: int) -> int:
    """About 100 kB a second."""
    for _ in range(int(seconds * 10)):
        a.send(b, first, text="x" * 10_000)
        first += 1
        world.run(0.1)
    return first


@pytest.mark.parametrize(("floor", "is_lost"), [(50_000, False), (100, True)])
def test_a_link_keeps_what_is_written_while_its_connection_is_lost(
    floor: int, is_lost: bool
) -> None:
    """With a bound that is too small it is dropped: what the flow writes is what decides."""
    most = 50_000 if is_lost else 4_000_000
    world = LinkWorld(delay=0.02)
    a = world.host("a", queue_floor=max(floor, 4_096), queue=most)
    b = world.host("b")
    number = flow(world, a, b, 40.0, 0)
    world.no_route.update(dict.fromkeys(("a:1", "b:1")))
    world.cut()
    number = flow(world, a, b, 4.0, number)
    world.no_route.clear()
    number = flow(world, a, b, 5.0, number)
    world.run(2.0)
    assert bool(a.of(MessageDropped)) == is_lost
    if not is_lost:
        assert b.numbers(a) == list(range(number))
