"""A number per event: the same as a dictionary by identity, of the last so many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overlay.client import Event
from overlay.upper_tree.delivery.event_counts import EventCounts, by_source
from tests.support.trees import event

EVENTS = [
    event(number, publisher, incarnation)
    for publisher in "pq"
    for incarnation in (1, 2)
    for number in range(4)
]

batches = st.lists(
    st.tuples(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=6), st.integers(1, 3)),
    max_size=12,
)


@given(batches, st.integers(1, 20))
def test_it_counts_like_a_dictionary_that_forgets_what_came_first(
    batches: list[tuple[list[Event], int]], kept: int
) -> None:
    counts = EventCounts(kept)
    plain: dict[str, int] = {}
    for events, amount in batches:
        fresh = [one for one in events if one.identity not in plain]
        for source, numbers in by_source(events).items():
            news = [one for one in fresh if (one.publisher, one.incarnation) == source]
            assert counts.has_none(source, numbers) == (len(news) == len(numbers))
        counts.add(events, amount)
        for ordered in by_source(events).items():
            for one in events:
                if (one.publisher, one.incarnation) == ordered[0]:
                    plain[one.identity] = plain.get(one.identity, 0) + amount
            while len(plain) > kept:
                del plain[next(iter(plain))]
        assert len(counts) == len(plain)
        assert {e.identity: counts.of(e) for e in EVENTS if e in counts} == plain
    assert all(counts.of(one) == 0 for one in EVENTS if one not in counts)


def test_events_are_sorted_by_their_source() -> None:
    mixed = [EVENTS[0], EVENTS[5], EVENTS[1], EVENTS[9]]
    assert by_source(mixed) == {("p", 1): [0, 1], ("p", 2): [1], ("q", 1): [1]}
    assert by_source(EVENTS[:3]) == {("p", 1): [0, 1, 2]}
    assert by_source([]) == {}


@given(batches, st.integers(1, 20))
def test_what_is_all_new_is_noted_at_once_and_else_nothing_is(
    batches: list[tuple[list[Event], int]], kept: int
) -> None:
    counts, other = EventCounts(kept), EventCounts(kept)
    for events, amount in batches:
        is_new = len(by_source(events)) == 1 and len({e.identity for e in events}) == len(events)
        is_new = is_new and not any(one in counts for one in events)
        before = [other.of(one) for one in EVENTS]
        assert other.add_new(by_source(events), amount) is is_new
        if not is_new:
            assert [other.of(one) for one in EVENTS] == before
            other.add(events, amount)
        counts.add(events, amount)
        assert [other.of(one) for one in EVENTS] == [counts.of(one) for one in EVENTS]
        assert len(other) == len(counts)
