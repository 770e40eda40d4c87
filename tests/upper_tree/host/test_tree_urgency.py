"""P6: the latency map, and the order in which a host serves what waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching import compile_selector
from overlay.client import LEVELS
from overlay.upper_tree.host.constants import BYTES_MOST, EVENTS_MOST
from overlay.upper_tree.host.urgency import LatencyMap, types_of
from overlay.upper_tree.host.visit_scheduler import VisitQueue
from overlay.upper_tree.messages import Visit
from tests.support.trees import event
from tests.support.world import peer

PUB = peer("pub")


def visit(*sequences: int) -> Visit:
    return Visit(PUB, 1, ("x",), tuple(event(n, x=1) for n in sequences))


def order(queue: VisitQueue) -> list[int]:
    """Sequences in the order of serving."""
    return [e.sequence for _ in range(len(queue)) for e in queue.pop(10)[0].events]


# --- the map ---


def test_a_types_priority_is_the_mean_of_its_subscribers_levels() -> None:
    found = LatencyMap()
    found.add(1, ("cpu",))
    found.add(4, ("cpu", "disk"))
    assert found.priority("cpu") == 2.5
    assert found.priority("disk") == 4
    assert found.priority("net") is None
    assert found.grades
    found.remove(1, ("cpu",))
    assert found.priority("cpu") == 4
    found.remove(4, ("cpu", "disk"))
    assert not found.grades
    found.add(3, ())
    assert found.grades


def test_who_names_no_type_counts_for_all_and_who_names_no_level_for_none() -> None:
    found = LatencyMap()
    found.add(2, ())
    found.add(4, ())
    assert found.priority("cpu") == 3
    found.remove(2, ())
    found.remove(4, ())
    found.add(0, ("cpu",))
    assert found.priority("cpu") is None
    found.add(5, ())
    found.add(1, ("cpu",))
    assert found.priority("cpu") == 3
    assert found.priority("net") == 5
    assert found.priority(7) == 5  # an event's `type` may be no text


@given(st.lists(st.tuples(st.integers(0, LEVELS), st.sampled_from([(), ("a",), ("a", "b")]))))
def test_what_ended_leaves_nothing_behind(wishes: list[tuple[int, tuple[str, ...]]]) -> None:
    found = LatencyMap()
    for level, types in wishes:
        found.add(level, types)
    for level, types in wishes:
        found.remove(level, types)
    assert len(found) == 0
    assert found.priority("a") is None


@pytest.mark.parametrize(
    ("selector", "types"),
    [
        ("type = 'cpu' AND load > 90", ("cpu",)),
        ("type IN ('disk', 'cpu')", ("cpu", "disk")),
        ("type IN ('disk', 3)", ("disk",)),
        ("type LIKE 'c%'", ()),
        ("load > 90", ()),
        ("type = 'cpu' OR load > 90", ()),
        ("type = 'cpu' OR type = 'net'", ("cpu", "net")),
        ("type IN (" + ", ".join(f"'t{n}'" for n in range(20)) + ")", ()),
    ],
)
def test_the_types_are_read_out_of_the_selector(selector: str, types: tuple[str, ...]) -> None:
    assert types_of(compile_selector(selector)) == types


# --- the queue ---


def test_the_more_urgent_of_those_that_came_together_goes_first() -> None:
    queue = VisitQueue(1.0)
    for sequence, level in enumerate((3, 1, 5, 1, 2.5)):
        queue.push(visit(sequence), level, 0.0)
    assert order(queue) == [1, 3, 4, 0, 2]


def test_the_same_level_stays_in_order() -> None:
    queue = VisitQueue(1.0)
    for sequence in range(50):
        queue.push(visit(sequence), 2, 0.0)
    assert order(queue) == list(range(50))


def test_without_ageing_it_is_first_in_first_out() -> None:
    queue = VisitQueue(0.0)
    for sequence, level in enumerate((3, 1, 5, 1)):
        queue.push(visit(sequence), level, sequence * 0.001)
    assert order(queue) == [0, 1, 2, 3]


@given(
    st.lists(st.tuples(st.integers(1, LEVELS), st.floats(0, 2)), min_size=1, max_size=60),
    st.floats(0.01, 1),
)
def test_nothing_starves(wishes: list[tuple[int, float]], ageing: float) -> None:
    """What comes (LEVELS - 1) * ageing later, or more, never overtakes."""
    queue = VisitQueue(ageing)
    came: dict[int, float] = {}
    now = 0.0
    for sequence, (level, gap) in enumerate(wishes):
        now += gap
        came[sequence] = now
        queue.push(visit(sequence), level, now)
    served: list[int] = order(queue)
    assert sorted(served) == sorted(came)
    for place, sequence in enumerate(served):
        for earlier in served[:place]:
            assert came[earlier] - came[sequence] <= (LEVELS - 1) * ageing + 1e-9


def test_a_slice_takes_a_part_and_the_rest_keeps_its_place() -> None:
    queue = VisitQueue(1.0)
    queue.push(visit(0, 1, 2), 2, 0.0)
    queue.push(visit(3), 2, 0.0)
    assert [e.sequence for e in queue.pop(2)[0].events] == [0, 1]
    assert queue.events == 2
    assert order(queue) == [2, 3]
    assert (queue.events, queue.bytes) == (0, 0)


def test_the_bounds_are_in_events_and_in_bytes() -> None:
    queue = VisitQueue(1.0)
    queue.push(visit(*range(EVENTS_MOST)), 1, 0.0)
    assert not queue.is_full
    queue.push(visit(0), 1, 0.0)
    assert queue.is_full
    queue = VisitQueue(1.0)
    large = Visit(PUB, 1, ("x",), (event(1, x="." * (BYTES_MOST // 2)),))
    queue.push(large, 1, 0.0)
    assert not queue.is_full
    queue.push(large, 1, 0.0)
    assert queue.is_full
    queue = VisitQueue(1.0)
    for _ in range(9):  # of the host's own clients
        queue.push(Visit(PUB, 0, large.attributes, large.events), 1, 0.0)
    assert not queue.is_full
