"""C6: the value space is totally ordered; an interval contains exactly what is between its ends."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import BOTTOM, EVERYTHING, NUMBERS, STRINGS, TOP, Cut, Interval, check_value, place
from matching.values import complement, intersection, is_utf8, point, prefix_interval, union
from tests.matching.matching_strategies import PATIENT

values: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3).filter(is_utf8),
)


def cut_beside(value: Any, side: int) -> Cut:
    rank, same, _ = place(value)
    return (rank, same, side)


cuts = st.one_of(
    st.sampled_from([BOTTOM, NUMBERS, STRINGS, TOP]),
    st.builds(cut_beside, values, st.integers(0, 1)),
)
intervals = st.builds(Interval, cuts, cuts)
sequences = st.lists(intervals, max_size=5).map(union)


def test_booleans_come_before_numbers_before_strings() -> None:
    ordered: list[Any] = [
        False,
        True,
        -math.inf,
        -1.5,
        -1,
        0,
        2**53,
        2**53 + 1,
        1e300,
        "",
        "A",
        "a",
        "é",
        "\uffff",
    ]
    ordered.append("\U0001f333")
    places = [BOTTOM, *(place(v) for v in ordered if v != -math.inf), TOP]
    assert places == sorted(places)
    assert BOTTOM <= place(False) < place(True) < NUMBERS < place(-1e308)
    assert place(1e308) < STRINGS <= place("") < place("\U0010ffff") < TOP


@settings(PATIENT)
@given(a=values, b=values)
def test_places_order_values_exactly_within_a_type(a: Any, b: Any) -> None:
    if isinstance(a, bool) == isinstance(b, bool) and isinstance(a, str) == isinstance(b, str):
        assert (place(a) < place(b)) == (a < b)
        assert (place(a) == place(b)) == (a == b)


@settings(PATIENT)
@given(interval=intervals, other=intervals, value=values)
def test_interval_algebra_agrees_with_membership(
    interval: Interval, other: Interval, value: Any
) -> None:
    both = interval.intersect(other)
    inside = interval.contains(value) and other.contains(value)
    assert (both is not None and both.contains(value)) == inside
    assert interval.overlaps(other) == (both is not None)
    assert EVERYTHING.contains(value)
    assert point(value).contains(value)
    assert point(value).is_point()


@settings(PATIENT)
@given(left=sequences, right=sequences, value=values)
def test_sequences_of_intervals_agree_with_membership(
    left: tuple[Interval, ...], right: tuple[Interval, ...], value: Any
) -> None:
    def holds(sequence: tuple[Interval, ...]) -> bool:
        assert all(i.lo < i.hi for i in sequence)
        assert all(a.hi < b.lo for a, b in pairwise(sequence))
        return any(interval.contains(value) for interval in sequence)

    assert holds(union(left + right)) == (holds(left) or holds(right))
    assert holds(intersection(left, right)) == (holds(left) and holds(right))
    assert holds(complement(left, EVERYTHING)) == (not holds(left))


@settings(PATIENT)
@given(prefix=st.text(max_size=3).filter(is_utf8), value=st.text(max_size=5).filter(is_utf8))
def test_prefix_interval_contains_exactly_its_strings(prefix: str, value: str) -> None:
    interval = prefix_interval(prefix)
    assert interval.contains(prefix + value)
    assert interval.contains(value) == value.startswith(prefix)


@pytest.mark.parametrize("prefix", ["\ud7ff", "a\U0010ffff", "\U0010ffff"])
def test_prefix_interval_at_the_edges_of_unicode(prefix: str) -> None:
    interval = prefix_interval(prefix)
    assert interval.contains(prefix + "\U0010ffff")
    assert not interval.contains(prefix[:-1])
    assert not interval.contains("b")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(interval), type=Interval) == interval


@settings(PATIENT)
@given(interval=intervals)
def test_intervals_survive_the_wire(interval: Interval) -> None:
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(interval), type=Interval)
    assert decoded == interval
    assert [type(part) for part in decoded.lo] == [type(part) for part in interval.lo]


@pytest.mark.parametrize("value", [True, 0, -(2**63), 2**63 - 1, 1.5, "", "a\x00", "\U0001f333"])
def test_admissible_values(value: Any) -> None:
    assert check_value(value) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "NaN"),
        (math.inf, "infinity"),
        (-math.inf, "infinity"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        ("\ud800", "surrogate"),
        (None, "NoneType"),
        ([1], "list"),
        (b"a", "bytes"),
    ],
)
def test_inadmissible_values_are_refused_with_a_reason(value: Any, reason: str) -> None:
    assert reason in (check_value(value) or "")


def test_null_lies_nowhere() -> None:
    assert not EVERYTHING.contains(None)
