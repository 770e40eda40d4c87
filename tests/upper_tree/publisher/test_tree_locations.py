"""C5, C7: what a publisher remembers of trees is a hint, bounded, and ends when it is recalled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from matching import BOTTOM, EVERYTHING, TOP, Interval, place
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.upper_tree.messages import Location
from overlay.upper_tree.partition import ranked
from overlay.upper_tree.publisher.location_cache import ENTRY_POINTS, FENCES_MOST, LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from tests.support.world import peer


def located(host: str, low: int, high: int, version: int = 1, attribute: str = "x") -> Location:
    return Location(attribute, (1, version), Interval(place(low), place(high)), (peer(host),))


def host(known: LocationCache, value: int, attribute: str = "x") -> str | None:
    found = known.host_for(attribute, place(value))
    return None if found is None else found.id


def test_the_virtual_node_that_holds_the_value_comes_before_any_other_way_in() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    assert host(known, 5) is None
    known.learn_entry("x", peer("entry"))
    assert host(known, 5) == "entry"
    known.learn(located("h", 0, 10))
    assert host(known, 5) == "h"
    assert host(known, 10) == "entry", "the interval is half-open"
    assert known.knows("x")
    assert not known.knows("y")


def test_without_an_entry_any_virtual_node_is_a_way_in() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.learn(located("h", 0, 10))
    assert host(known, 99) == "h"


def test_entries_are_chosen_as_replicas_are_and_the_newest_are_kept() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    for number in range(ENTRY_POINTS + 2):
        known.learn_entry("x", peer(f"e{number}"))
    kept = [peer(f"e{number}") for number in range(2, ENTRY_POINTS + 2)]
    used = []
    while (entry := host(known, 1)) is not None:
        used.append(entry)
        known.forget("x", entry)
    assert used == [each.id for each in ranked("me", kept)]


def test_an_event_enters_trees_of_the_same_hosts_at_one_of_them() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    for attribute, order in (("x", "abc"), ("y", "cab")):
        for name in order:
            known.learn_entry(attribute, peer(name))
    assert host(known, 1, "x") == host(known, 1, "y")


def test_a_silent_entry_is_passed_over_while_another_is_known() -> None:
    replicas = ReplicaSelector("me", 3.0)
    known = LocationCache(10, replicas)
    for name in "ab":
        known.learn_entry("x", peer(name))
    first = host(known, 1)
    assert first is not None
    replicas.suspect_silent(first, 10.0)
    assert host(known, 1) == ("b" if first == "a" else "a")


def test_a_newer_map_replaces_what_it_overlaps_and_an_older_one_nothing() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.learn(located("old", 0, 10, version=1))
    known.learn(located("far", 20, 30, version=1))
    known.learn(located("new", 5, 15, version=2))
    assert [host(known, v) for v in (6, 12, 25)] == ["new", "new", "far"]
    assert host(known, 2) != "old", "what was cut is known no more"
    known.learn(located("old", 0, 10, version=1))
    assert host(known, 6) == "new"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(1, 5)), max_size=30))
def test_located_virtual_nodes_never_overlap(learnt: list[tuple[int, int, int]]) -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    for low, width, version in learnt:
        known.learn(located("h", low, low + width, version))
    intervals = [location.interval for location in known._trees["x"].located] if learnt else []
    for number, interval in enumerate(intervals):
        assert not any(interval.overlaps(other) for other in intervals[:number])


def test_a_node_that_is_gone_is_forgotten_everywhere() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.learn(located("h", 0, 10))
    known.learn(located("h", 0, 10, attribute="y"))
    known.learn_entry("y", peer("h"))
    known.learn_entry("y", peer("other"))
    known.forget_node("h")
    assert host(known, 5) is None
    assert host(known, 5, "y") == "other"


def test_the_tree_that_was_not_used_for_longest_goes_first() -> None:
    known = LocationCache(2, ReplicaSelector("me", 3.0))
    known.learn_entry("a", peer("h"))
    known.learn_entry("b", peer("h"))
    assert host(known, 1, "a") == "h"  # used
    known.learn_entry("c", peer("h"))
    assert [known.knows(name) for name in "abc"] == [True, False, True]


def test_a_tree_that_an_event_waits_for_stays() -> None:
    known = LocationCache(2, ReplicaSelector("me", 3.0))
    for name in "abc":
        known.hold(name)
        known.learn_entry(name, peer("h"))
    known.learn_entry("d", peer("h"))
    known.learn_entry("e", peer("h"))
    assert [known.knows(name) for name in "abcde"] == [True, True, True, False, True]
    for name in "abc":
        known.release(name)
    known.trim()
    assert [known.knows(name) for name in "abcde"] == [False, False, True, False, True]


def test_virtual_nodes_per_tree_are_bounded() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0), per_tree=4)
    for number in range(8):
        known.learn(located(f"h{number}", number, number + 1))
    assert [host(known, n) for n in range(4, 8)] == ["h4", "h5", "h6", "h7"]
    assert len(known._trees["x"].located) == 4


# --- absence of subscribers ---


def test_absence_is_trusted_for_its_term_and_remembered_beyond() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.learn(Location("x", (1, 1), EVERYTHING, (peer("h"),)))
    assert known.learn_absent("x", until=20.0, epoch=1, now=10.0)
    assert host(known, 5) is None, "there is no tree"
    assert known.is_absent("x", 19.9)
    assert not known.is_absent("x", 20.0)
    assert known.was_absent("x"), "worth no walk"


def test_a_tree_that_is_met_ends_its_absence() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.learn_absent("x", until=20.0, epoch=1, now=10.0)
    known.learn_entry("x", peer("h"))
    assert not known.is_absent("x", 11.0)
    assert not known.was_absent("x")


def test_a_recall_ends_an_absence_and_makes_an_older_answer_doubtful() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.learn_absent("x", until=20.0, epoch=1, now=10.0)
    known.invalidate("x", 2, until=21.0)
    assert not known.is_absent("x", 11.0)
    assert not known.learn_absent("x", until=21.0, epoch=1, now=11.0), (
        "may be older than the recall"
    )
    assert not known.is_absent("x", 11.0)
    assert known.learn_absent("x", until=22.0, epoch=2, now=12.0), "it knows what it recalled"
    assert known.is_absent("x", 12.0)


def test_the_doubt_ends() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.invalidate("x", 2, until=21.0)
    assert known.learn_absent("x", until=31.0, epoch=1, now=21.0)


def test_a_former_owners_answer_about_an_arc_is_doubted_for_a_term() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    key = attribute_key("x")
    arc = Cluster("ring", key, f"{int(key, 16) - 1:040x}", (2, 0), peer("new"))
    assert known.fence(arc, until=20.0, now=10.0)
    assert not known.learn_absent("x", until=19.0, epoch=1, now=11.0)
    assert known.learn_absent("y", until=19.0, epoch=1, now=11.0), "of another arc"
    assert known.learn_absent("x", until=19.0, epoch=2, now=11.0)
    assert known.learn_absent("x", until=30.0, epoch=1, now=20.0), "by now its word is over"


def test_where_there_is_no_room_to_doubt_the_new_owner_hears_of_it() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    arcs = [
        Cluster("ring", f"{n + 1:040x}", f"{n:040x}", (2, 0), peer("new"))
        for n in range(FENCES_MOST + 1)
    ]
    assert all(known.fence(arc, until=20.0, now=10.0) for arc in arcs[:-1])
    assert not known.fence(arcs[-1], until=20.0, now=10.0)
    assert known.fence(arcs[0], until=25.0, now=15.0), "it is known"
    assert known.fence(arcs[-1], until=31.0, now=21.0), "the others are over"


def test_absent_attributes_are_bounded() -> None:
    known = LocationCache(2, ReplicaSelector("me", 3.0))
    for name in "abc":
        known.learn_absent(name, until=20.0, epoch=1, now=10.0)
    assert [known.was_absent(name) for name in "abc"] == [False, True, True]


def test_the_whole_space_has_a_place_at_both_ends() -> None:
    known = LocationCache(10, ReplicaSelector("me", 3.0))
    known.learn(Location("x", (1, 1), Interval(BOTTOM, place(5)), (peer("low"),)))
    known.learn(Location("x", (1, 1), Interval(place(5), TOP), (peer("high"),)))
    assert known.host_for("x", place(False)) == peer("low")
    assert known.host_for("x", place("zzz")) == peer("high")
