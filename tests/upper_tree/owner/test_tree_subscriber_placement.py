"""C6 as the paper has it (`tree.placement: subscribers`): every subscription cuts its attribute's
value space, and who cuts it hosts what begins there."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from matching import BOTTOM, EVERYTHING, TOP, place
from overlay.machine import Peer
from overlay.upper_tree.messages import Entry
from overlay.upper_tree.owner.subscriber_placement import (
    at_subscribers,
    cuts_of,
    ended_cuts,
    new_cuts,
    wanted_hosts,
)
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.partition import PartitionMap
from tests.support.trees import registration


def at(name: str) -> Peer:
    return Peer(name, f"{name}:1")


def tree(*ranges: tuple[str, str]) -> Tree:
    """A tree of x with a registration for each (subscriber, selector), not cut yet."""
    found = Tree("x", PartitionMap((1, 1), (Entry(EVERYTHING, (at("m"),)),)))
    for number, (name, selector) in enumerate(ranges):
        found.add(registration(f"{name}/{number}", "x", selector, at(name)), 1)
    return found


def cut(found: Tree) -> Tree:
    found.map = found.map.cut((1, 2), new_cuts(found))
    return found


def placed(found: Tree, fit: str, replicas: int = 1) -> list[str]:
    hosts = at_subscribers([found], set(fit), replicas)
    return [
        "".join(host.id for host in hosts.get(("x", entry.interval), ()))
        for entry in found.map.entries
    ]


THREE = (("a", "x >= 10"), ("b", "x < 20"), ("c", "x BETWEEN 5 AND 10"))


def test_each_end_of_a_subscription_is_a_cut_and_its_subscriber_hosts_from_there_on() -> None:
    found = cut(tree(*THREE))
    starts = [entry.interval.lo for entry in found.map.entries]
    assert [starts[n] for n in (0, 2, 3, 5)] == [BOTTOM, place(5), place(10), place(20)]
    assert len(starts) == 7, "and where numbers begin, 10 itself ends, and numbers end"
    assert new_cuts(found) == {}
    assert ended_cuts(found) == []
    assert placed(found, "abc") == ["a", "b", "c", "a", "c", "b", "a"]


def test_further_replicas_are_the_subscribers_that_registered_after() -> None:
    assert placed(cut(tree(*THREE)), "abc", 2) == ["ab", "bc", "ca", "ab", "ca", "bc", "ab"]


def test_who_does_not_host_is_passed_over() -> None:
    found = cut(tree(*THREE))
    assert placed(found, "bc") == ["b", "b", "c", "b", "c", "b", "b"]
    assert placed(found, "m") == [""] * 7, "where no subscriber hosts there is no plan for the tree"


def test_cuts_of_registrations_that_ended_are_taken_back() -> None:
    found = cut(tree(*THREE))
    found.remove(("c/2",))
    joined = found.map.merged((1, 3), ended_cuts(found))
    starts = [entry.interval.lo for entry in joined.entries]
    assert [starts[n] for n in (0, 2, 3)] == [BOTTOM, place(10), place(20)]
    assert len(starts) == 5
    assert joined.entries[-1].interval.hi == TOP


def test_as_many_are_asked_to_host_as_there_are_virtual_nodes_to_be_placed() -> None:
    many = tree(*((f"s{n}", "x > 3") for n in range(50)))
    assert [peer.id for peer in wanted_hosts([many], 3)] == ["s0", "s1", "s2"]
    assert len(wanted_hosts([cut(many)], 3)) == 5


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from(["x > {}", "x <= {}", "x = {}", "x <> {}"]),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sets(st.sampled_from("abcd")),
    st.integers(1, 3),
)
def test_maps_stay_whole_and_hosts_are_subscribers(
    ranges: list[tuple[str, str, int]], fit: set[str], replicas: int
) -> None:
    found = cut(tree(*((name, form.format(value)) for name, form, value in ranges)))
    entries = found.map.entries
    assert (entries[0].interval.lo, entries[-1].interval.hi) == (BOTTOM, TOP)
    assert all(low.interval.hi == high.interval.lo for low, high in pairwise(entries))
    assert {entry.interval.lo for entry in entries[1:]} == set(cuts_of(found))
    names = {name for name, _, _ in ranges} & fit
    for (_, interval), hosts in at_subscribers([found], fit, replicas).items():
        ids = [host.id for host in hosts]
        assert len(set(ids)) == len(ids) == min(replicas, len(names))
        assert set(ids) <= names
        first = cuts_of(found).get(interval.lo)
        assert first is None or first.id not in names or ids[0] == first.id
