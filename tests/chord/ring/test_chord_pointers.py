"""Successor lists and predecessors (P2): Zave's corrected rules, one claim per test."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overlay.chord.messages import Cluster
from overlay.chord.ring.ring_state import Pointers, between
from overlay.machine import Key, Peer

RING = 16


def at(place: int) -> Key:
    return f"{place:x}" * 40


def cluster(place: int, number: int = 0) -> Cluster:
    return Cluster("ring", at(place), at(place), (1, number), Peer(f"p{place}", ""))


def pointers(
    own: int, *successors: int, predecessor: int | None = None, length: int = 3
) -> Pointers:
    made = Pointers(length)
    before = None if predecessor is None else cluster(predecessor)
    made.begin(at(own), before, tuple(cluster(s) for s in successors))
    return made


def places(made: Pointers) -> list[int]:
    return [int(c.key[0], 16) for c in made.successors]


@given(st.integers(0, 15), st.integers(0, 15), st.integers(0, 15))
def test_between_is_strict(key: int, start: int, end: int) -> None:
    inside = [(start + i) % RING for i in range(1, (end - start) % RING or RING)]
    assert between(at(key), at(start), at(end)) == (key in inside)


def test_a_better_successor_is_adopted_with_its_own_list() -> None:
    made = pointers(0, 4, 8, 12)
    assert made.adopt(cluster(2), (cluster(5), cluster(9)))
    assert places(made) == [2, 5, 9]  # nothing of the former list is kept beside it


def test_hearsay_alone_changes_no_successor() -> None:
    made = pointers(0, 4, 8, 12)
    assert made.better_successor(cluster(2))
    assert not made.better_successor(cluster(6))
    assert not made.better_successor(None)
    assert places(made) == [4, 8, 12]


def test_a_worse_successor_is_not_adopted() -> None:
    made = pointers(0, 4, 8)
    assert not made.adopt(cluster(6), (cluster(8),))
    assert not made.adopt(cluster(0), (cluster(4),))
    assert places(made) == [4, 8]


def test_a_list_ends_where_it_comes_around() -> None:
    made = pointers(0, length=8)
    assert made.adopt(cluster(4), (cluster(8), cluster(0), cluster(4)))
    assert places(made) == [4, 8]
    assert made.adopt(cluster(4), (cluster(8), cluster(3), cluster(9)))
    assert places(made) == [4, 8]


@given(st.integers(0, 15), st.lists(st.integers(0, 15), max_size=8))
def test_a_list_is_always_clockwise_and_short_enough(own: int, heard: list[int]) -> None:
    made = pointers(own, *heard, length=4)
    gone = [(place - own) % RING for place in places(made)]
    assert gone == sorted(set(gone))
    assert 0 not in gone
    assert len(gone) <= 4


def test_a_better_predecessor_is_adopted_at_once() -> None:
    made = pointers(8, predecessor=2)
    assert made.rectify(cluster(5))
    assert made.predecessor == cluster(5)


def test_a_worse_predecessor_waits_until_the_present_one_is_found_dead() -> None:
    made = pointers(8, predecessor=5)
    assert not made.rectify(cluster(2))
    assert made.predecessor == cluster(5)
    assert made.peer_lost("p5")
    assert made.rectify(cluster(2))
    assert made.predecessor == cluster(2)


def test_the_same_predecessor_may_have_a_new_description() -> None:
    made = pointers(8, predecessor=5)
    assert made.rectify(cluster(5, 7))
    assert made.predecessor == cluster(5, 7)


def test_the_next_one_takes_the_place_of_a_dead_successor() -> None:
    made = pointers(0, 4, 8, 12)
    assert made.peer_lost("p4")
    assert places(made) == [8, 12]
    assert not made.peer_lost("p4")


def test_in_a_ring_of_two_the_predecessor_is_the_successor() -> None:
    made = pointers(0, predecessor=8)
    first = made.first()
    assert first is not None
    assert first.key == at(8)


def test_newer_descriptions_replace_older_ones_in_place() -> None:
    made = pointers(0, 4, 8, predecessor=8)
    made.refresh(cluster(8, 3))
    assert [c.version[1] for c in made.successors] == [0, 3]
    assert made.predecessor == cluster(8, 3)
