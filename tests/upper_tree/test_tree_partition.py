"""C6, C7: the partition map, and the midpoint tree that follows from it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import ceil, log2, log10
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching import BOTTOM, EVERYTHING, TOP, Cut, Interval, place
from overlay.machine import Peer
from overlay.upper_tree.messages import Entry, Registration
from overlay.upper_tree.partition import (
    PartitionMap,
    Slice,
    best_cut,
    describe,
    overlap_count,
    short_cut,
    tree_children,
    tree_path,
)

VALUES = st.one_of(
    st.booleans(), st.integers(-50, 50), st.floats(-50, 50, allow_nan=False), st.text(max_size=3)
)
CUTS = st.builds(lambda v, side: (*place(v)[:2], side), VALUES, st.integers(0, 1))


def peer(number: int) -> Peer:
    return Peer(f"n{number}", f"host:{number}")


def map_of(cuts: list[Cut], hosts: int) -> PartitionMap:
    inner = sorted({cut for cut in cuts if BOTTOM < cut < TOP})
    bounds = [BOTTOM, *inner, TOP]
    entries = tuple(
        Entry(Interval(lo, hi), (peer(number % hosts),))
        for number, (lo, hi) in enumerate(itertools.pairwise(bounds))
    )
    return PartitionMap((1, 1), entries)


@given(st.integers(1, 200))
def test_the_midpoint_tree_has_one_root_reaches_every_node_and_is_balanced(size: int) -> None:
    roots = {next(tree_path(size, index)) for index in range(size)}
    assert len(roots) == 1
    height = ceil(log2(size + 1))
    children: dict[int, int] = {}
    for index in range(size):
        path = list(tree_path(size, index))
        assert path[-1] == index
        assert len(path) <= height
        for parent, child in itertools.pairwise(path):
            assert child in tree_children(size, parent)
            assert children.setdefault(child, parent) == parent
    assert len(children) == size - 1


@given(st.lists(CUTS, max_size=40), VALUES, st.integers(1, 5))
def test_every_value_lies_in_exactly_one_virtual_node(
    cuts: list[Cut], value: bool | int | float | str, hosts: int
) -> None:
    map_ = map_of(cuts, hosts)
    holding = [i for i, entry in enumerate(map_.entries) if entry.interval.contains(value)]
    assert holding == [map_.find(place(value))]


@given(st.lists(CUTS, max_size=60), VALUES, st.integers(1, 8), st.integers(0, 7))
def test_an_event_reaches_its_virtual_node_within_the_height_of_the_tree(
    cuts: list[Cut], value: bool | int | float | str, hosts: int, start: int
) -> None:
    """C7: from any member, with slices only, in at most the tree's height."""
    map_ = map_of(cuts, hosts)
    members = list(map_.hosts().values())
    at = members[start % len(members)]
    spot = place(value)
    for _ in range(ceil(log2(len(map_.entries) + 1)) + 1):
        entry = Slice(len(map_.entries), dict(map_.slice_for(at.id))).route(spot)
        assert entry is not None
        if entry.interval.contains(value):
            break
        assert entry.hosts[0].id != at.id, "a host must know the way on from its own virtual nodes"
        at = entry.hosts[0]
    else:
        pytest.fail("more hops than the tree is high")


@given(st.lists(CUTS, min_size=1, max_size=20), st.data())
def test_changes_keep_the_map_total_and_disjoint(cuts: list[Cut], data: st.DataObject) -> None:
    map_ = PartitionMap.single((1, 1), (peer(0),))
    for number, cut in enumerate(cuts):
        version = (1, number + 2)
        index = map_.find(cut)
        interval = map_.entries[index].interval
        if interval.lo < cut < interval.hi:
            map_ = map_.split(version, index, cut, (peer(number % 3), peer(8)))
        elif len(map_.entries) > 1 and data.draw(st.booleans()):
            map_ = map_.merged(version, [data.draw(st.integers(0, len(map_.entries) - 2))])
        else:
            map_ = map_.moved(version, [(peer(7),)] * len(map_.entries))
        assert map_.version == version
        assert map_.entries[0].interval.lo == BOTTOM
        assert map_.entries[-1].interval.hi == TOP  # adjacency is asserted by the map itself


@given(st.lists(st.tuples(CUTS, CUTS), min_size=1, max_size=30))
def test_a_cut_spreads_the_registrations_or_there_is_none(pairs: list[tuple[Cut, Cut]]) -> None:
    intervals = [Interval(min(a, b), max(a, b)) for a, b in pairs if a != b]
    if not intervals:
        return
    cut = best_cut(EVERYTHING, intervals)
    if cut is not None:
        left = overlap_count(Interval(BOTTOM, cut), intervals)
        right = overlap_count(Interval(cut, TOP), intervals)
        assert max(left, right) < len(intervals)


def test_a_hot_value_is_not_cut() -> None:
    same = [Interval(place("hot"), (2, "hot", 1))] * 10
    assert best_cut(Interval(place("hot"), (2, "hot", 1)), same) is None


def test_bounds_are_reported_in_words() -> None:
    assert describe(BOTTOM) == "-∞"
    assert describe(TOP) == "+∞"
    assert describe(place(3)) == "3"
    assert describe(place("a")) == "'a'"


# --- short cuts ---

NUMBERS = st.one_of(
    st.floats(-1e12, 1e12), st.integers(-(10**15), 10**15), st.floats(0.0, 1.0), st.integers(-9, 9)
)


@given(st.one_of(st.tuples(NUMBERS, NUMBERS), st.tuples(st.text(), st.text())))
def test_a_short_cut_lies_between_its_values(values: tuple[Any, Any]) -> None:
    below, above = sorted(map(place, values))
    if below < above:
        cut = short_cut(below, above)
        assert below < cut <= above
        assert cut[2] == 0


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_short_cut_has_no_more_digits_than_tell_its_values_apart(one: float, two: float) -> None:
    low, high = sorted((one, two))
    if high - low > 1e-9:
        value = short_cut(place(low), place(high))[1]
        digits = next(n for n in range(12) if round(value, n) == value)
        assert digits <= max(0, ceil(-log10(high - low)))


@pytest.mark.parametrize(
    ("below", "above", "cut"),
    [
        (0.4871234, 0.5129187, 0.5),
        (0.51293, 0.513021, 0.513),
        (-0.3, 0.2, 0),
        (-7.36, -7.11, -7.2),
        (1234, 1391, 1300),
        (3, 4, 4),
        (99.7, 1204.5, 1000),
        ("apple", "apricot", "apr"),
        ("app", "apple", "appl"),
        (False, True, True),
        (7, "a", "a"),
        (1.0, 1.0000000000000002, 1.0000000000000002),
    ],
)
def test_short_cuts_are_round(below: Any, above: Any, cut: Any) -> None:
    assert short_cut(place(below), place(above)) == place(cut)


@given(cuts=st.lists(CUTS, max_size=4), ends=st.tuples(CUTS, CUTS))
def test_the_hosts_of_a_registration_serve_the_virtual_nodes_in_which_it_lies(
    cuts: list[Cut], ends: tuple[Cut, Cut]
) -> None:
    map_ = map_of(cuts, 9)
    wanted = Interval(*ends)  # without any value if its ends are the wrong way round
    serving = [
        entry.hosts[0].id
        for entry in map_.entries
        if max(entry.interval.lo, wanted.lo) < min(entry.interval.hi, wanted.hi)
    ]
    one = Registration("s/0", "x", peer(10), "x > 1", wanted)
    assert list(map_.hosts_of(one)) == serving


class Passes(tuple[Entry, ...]):
    """Entries that count how often somebody goes through all of them."""

    count = 0

    def __iter__(self) -> Iterator[Entry]:
        self.count += 1
        return super().__iter__()


def test_the_virtual_nodes_of_all_hosts_are_found_in_one_pass() -> None:
    """A pass for each host would be as many steps as hosts times virtual nodes."""
    entries = Passes(map_of([place(number) for number in range(40)], 8).entries)
    map_ = PartitionMap((1, 1), entries)
    entries.count = 0
    found = [map_.hosted_by(host) for host in map_.hosts()]
    assert all(map_.slice_for(host) for host in map_.hosts())
    assert entries.count == 1
    assert sum(map(len, found)) == sum(len(entry.hosts) for entry in map_.entries)


def test_the_hosts_of_a_registration_are_found_without_a_pass() -> None:
    """They are looked for at each answer of a host."""
    entries = Passes(map_of([place(number) for number in range(40)], 8).entries)
    map_ = PartitionMap((1, 1), entries)
    entries.count = 0
    wanted = Registration("s/0", "x", peer(10), "x = 1", Interval(place(7), place(9)))
    assert [entry.interval.lo for entry in map_.serving(wanted)] == [place(7), place(8)]
    assert len(map_.hosts_of(wanted)) == 2
    assert entries.count == 0
