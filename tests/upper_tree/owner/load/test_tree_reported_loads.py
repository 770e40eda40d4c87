"""C6: what hosts report, and where a virtual node is cut by it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching import BOTTOM, EVERYTHING, TOP, Cut, Interval, place
from overlay.upper_tree.host_load import ServedLoad, VirtualNodeLoad
from overlay.upper_tree.owner.constants import (
    ALONE_SHARE,
    BUSY,
    ESTIMATED_FOR,
    HALF_LIFE,
    REPORT_VALID,
)
from overlay.upper_tree.owner.reported_loads import ReportedLoads, cuts_by_load

LOW, HIGH = Interval(BOTTOM, place(10)), Interval(place(10), TOP)


def load_of(
    busy: float, interval: Interval = EVERYTHING, values: tuple[int, ...] = (1,), host: float = 0.0
) -> ServedLoad:
    """One virtual node of x that asks for so much, at a host that is asked for `host` in all."""
    places = tuple(map(place, values))
    return ServedLoad(host or busy, (VirtualNodeLoad("x", interval, busy, busy, places),))


# --- where to cut ---


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=80),
    st.integers(2, 9),
    st.tuples(st.integers(-5, 70), st.integers(-5, 70)),
)
def test_cuts_lie_inside_in_order_with_the_share_of_the_load_below_them(
    values: list[int], parts: int, ends: tuple[int, int]
) -> None:
    interval = Interval(place(min(ends)), place(max(ends) + 1))
    here = sorted(value for value in values if interval.contains(value))
    found = cuts_by_load(interval, [(place(value), 1.0) for value in here], parts)
    cuts = [cut for cut, _ in found]
    assert cuts == sorted(set(cuts))
    for cut, share in found:
        assert interval.lo < cut < interval.hi
        below = sum(1 for value in here if place(value) < cut)
        assert share == pytest.approx(below / len(here))


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=200), st.integers(2, 9))
def test_no_part_has_much_more_than_its_share_but_a_value_by_itself(
    values: list[int], parts: int
) -> None:
    found = cuts_by_load(EVERYTHING, [(place(v), 1.0) for v in sorted(values)], parts)
    ends = [BOTTOM, *(cut for cut, _ in found), TOP]
    for low, high in pairwise(ends):
        inside = [value for value in values if low <= place(value) < high]
        alone = len(set(inside)) <= 1
        assert alone or len(inside) <= 2 * len(values) / parts


def test_half_of_the_load_lies_on_each_side_of_one_cut() -> None:
    places = [(place(v), 3.0 if v < 25 else 1.0) for v in range(100)]
    ((cut, share),) = cuts_by_load(EVERYTHING, places, 2)
    assert share == pytest.approx(0.5, abs=0.02)
    assert cut == place(25)


def test_a_hot_value_gets_a_virtual_node_of_its_own_and_is_not_cut() -> None:
    places = sorted([(place(v), 1.0) for v in range(50)] + [(place(7), 200.0)])
    cuts = [cut for cut, _ in cuts_by_load(EVERYTHING, places, 2)]
    alone = Interval(place(7), (1, 7, 1))
    assert alone.lo in cuts
    assert alone.hi in cuts
    assert cuts_by_load(alone, [(place(7), 1.0)] * 9, 4) == []


# --- what is known ---


def test_replicas_add_up_and_a_new_report_replaces_the_last() -> None:
    loads = ReportedLoads()
    loads.reported("a", load_of(0.4), 0.0)
    loads.reported("b", load_of(0.3), 0.0)
    node = loads.node("x", EVERYTHING)
    assert node is not None
    assert node.busy(0.0) == pytest.approx(0.7)
    loads.reported("a", load_of(0.1), 0.0)
    assert node.busy(0.0) == pytest.approx(0.4)
    loads.forget("b", 0.0)
    assert node.busy(0.0) == pytest.approx(0.1)


def test_the_recent_most_falls_by_half_in_its_time() -> None:
    loads = ReportedLoads()
    loads.reported("a", load_of(0.8), 0.0)
    loads.reported("a", None, 1.0)
    busy, alone = loads.recent("x", EVERYTHING, 1.0 + HALF_LIFE)
    assert busy == alone == pytest.approx(0.8 * 0.5 ** ((1.0 + HALF_LIFE) / HALF_LIFE), rel=0.2)
    assert loads.recent("x", EVERYTHING, 1.0)[0] > busy


def test_what_was_visited_together_of_late_is_not_alone_while_it_is_apart() -> None:
    def report(alone: float) -> ServedLoad:
        return ServedLoad(0.8, (VirtualNodeLoad("x", EVERYTHING, 0.8, alone, (place(1),)),))

    loads = ReportedLoads()
    loads.reported("a", report(0.0), 0.0)
    for now in (1.0, 2.0, HALF_LIFE):  # a plan is carried out tree by tree
        loads.reported("a", report(0.8), now)
        assert loads.recent("x", EVERYTHING, now) == (pytest.approx(0.8), 0.0)
    busy, alone = loads.recent("x", EVERYTHING, 3 * HALF_LIFE)
    assert ALONE_SHARE * busy < alone < busy
    loads.reported("a", report(0.4), 4 * HALF_LIFE)
    assert loads.recent("x", EVERYTHING, 4 * HALF_LIFE)[1] == 0.0, "half of it is not alone"


def test_a_host_is_busy_by_two_reports_or_where_it_is_asked_for_more_than_it_has() -> None:
    loads = ReportedLoads()
    loads.reported("a", load_of(BUSY), 0.0)
    assert loads.busy_hosts() == [], "once may be chance"
    loads.reported("a", load_of(BUSY), 1.0)
    assert loads.busy_hosts() == ["a"]
    loads.reported("a", load_of(0.1), 2.0)
    assert loads.busy_hosts() == []
    loads.reported("a", load_of(1.5), 3.0)
    assert loads.busy_hosts() == ["a"]


def test_what_a_host_does_for_others_counts_against_it() -> None:
    loads = ReportedLoads()
    loads.reported("a", load_of(0.3, host=0.9), 0.0)
    assert loads.elsewhere("a") == pytest.approx(0.6)
    assert loads.busy("a") == 0.9


def test_parts_are_taken_to_have_their_share_until_they_are_reported() -> None:
    loads = ReportedLoads()
    loads.reported("a", load_of(1.2), 0.0)
    loads.cut("x", EVERYTHING, [(LOW, 0.25), (HIGH, 0.75)], 0.0)
    assert loads.recent("x", LOW, 0.0)[0] == pytest.approx(0.3)
    assert loads.recent("x", HIGH, 0.0)[0] == pytest.approx(0.9)
    loads.reported("b", load_of(0.2, HIGH), 0.5)
    node = loads.node("x", HIGH)
    assert node is not None
    assert node.busy(0.5) == pytest.approx(0.9), "its other hosts may not have reported yet"
    assert node.busy(ESTIMATED_FOR) == pytest.approx(0.2)


def test_hosts_that_do_not_report_any_more_are_forgotten() -> None:
    loads = ReportedLoads()
    loads.reported("a", load_of(2.0), 0.0)
    loads.expire(REPORT_VALID + 0.1)
    assert loads.busy("a") == 0.0
    loads.expire(30 * HALF_LIFE)
    assert loads.node("x", EVERYTHING) is None


def test_places_stand_for_the_load_of_their_host() -> None:
    loads = ReportedLoads()
    loads.reported("a", load_of(0.6, values=(1, 2, 3)), 0.0)
    loads.reported("b", load_of(0.1, values=(2,)), 0.0)
    node = loads.node("x", EVERYTHING)
    assert node is not None
    weights: dict[Cut, float] = {}
    for spot, weight in node.places():
        weights[spot] = weights.get(spot, 0.0) + weight
    assert weights == {
        place(1): pytest.approx(0.2),
        place(2): pytest.approx(0.3),
        place(3): pytest.approx(0.2),
    }
