"""What CBDLO says of virtual nodes and the balanced tree, claim by claim (C5, C6, C7, C10).

Zheng and Sun, *A Publishing/Subscription System Based on the Hybrid Two-Layer Topology*, Software
Engineering and Applications 7 (2018), sections 2, 4, 5.3 and 5.4. Each test quotes what it tests in
the docstring (translated). Where this project differs the test says so; the reasons are in
docs/design/attribute-trees.md."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from matching import BOTTOM, EVERYTHING, TOP, Cut, Interval, place
from overlay.machine import Peer
from overlay.upper_tree.messages import AskTree, Entry, TreeAnswer, TreeMoved, Visit
from overlay.upper_tree.partition import PartitionMap, Slice, best_cut, tree_children, tree_path
from tests.support.trees import Rig, event
from tests.support.world import peer

SIZES = [1, 2, 3, 7, 8, 100, 1_000]


def map_of(size: int) -> PartitionMap:
    """A map of so many virtual nodes, each at a host of its own."""
    cuts: list[Cut] = [BOTTOM, *(place(number) for number in range(1, size)), TOP]
    entries = tuple(
        Entry(Interval(low, high), (Peer(f"h{number}", ""),))
        for number, (low, high) in enumerate(pairwise(cuts))
    )
    return PartitionMap((1, 1), entries)


def height(size: int) -> int:
    return math.floor(math.log2(size)) + 1


# --- section 2: the value space and its virtual nodes ---


def test_section_2_nodes_with_the_same_attribute_form_one_topology() -> None:
    """Nodes are clustered by the attributes that they subscribe to; each cluster is one attribute's
    topology. Here the subscribers of an attribute share its tree, and other nodes serve it."""
    rig = Rig("h1", "h2")
    rig.register("x > 1", "x BETWEEN 3 AND 5")
    rig.settle()
    (attribute,) = rig.owner.owner.trees
    assert attribute == "x"
    assert len(rig.owner.owner.trees["x"].tree.registrations) == 2


@pytest.mark.parametrize("size", SIZES)
def test_section_2_the_subspaces_are_adjacent_disjoint_and_cover_all_values(size: int) -> None:
    """The whole value space is cut into subspaces that are adjacent and do not overlap, each of
    which is one virtual node."""
    found = map_of(size)
    for value in (-1e9, 0, 0.5, size / 2, size, "text", True):
        inside = [entry for entry in found.entries if entry.interval.contains(value)]
        assert len(inside) == 1
        assert inside == [found.entries[found.find(place(value))]]


def test_section_2_the_cuts_follow_the_distribution_of_the_subscribed_values() -> None:
    """The value space is divided by the distribution of the values in subscriptions: where most
    are, the cut halves them, wherever that is in the value space."""
    rng = Random(1)
    dense = [Interval(place(v), place(v + 0.001)) for v in sorted(rng.random() for _ in range(90))]
    sparse = [Interval(place(v), place(v + 1)) for v in range(1_000, 1_010)]
    cut = best_cut(EVERYTHING, dense + sparse)
    assert cut is not None
    assert place(0) < cut < place(1)
    below = sum(interval.hi <= cut for interval in dense + sparse)
    assert 40 <= below <= 60


def test_section_2_virtual_nodes_are_mapped_to_real_nodes() -> None:
    """All virtual nodes are mapped to real nodes. Here these are match brokers of the owning
    cluster, and a virtual node has as many replicas as hosts allow."""
    rig = Rig("h1", "h2", replicas=2)
    rig.register(*(f"x BETWEEN {n * 10} AND {n * 10 + 5}" for n in range(9)))
    rig.settle()
    entries = rig.owner.owner.trees["x"].tree.map.entries
    assert len(entries) > 1
    assert all({host.id for host in entry.hosts} == {"h1", "h2"} for entry in entries)


@pytest.mark.parametrize("size", SIZES)
def test_section_2_the_virtual_nodes_form_a_balanced_binary_tree(size: int) -> None:
    """The virtual nodes are organised as a distributed, balanced binary tree: every one has at most
    two children, is the child of one, and is at most log2 N steps from the root."""
    children = {index: list(tree_children(size, index)) for index in range(size)}
    assert all(len(below) <= 2 for below in children.values())
    root = size // 2
    assert sorted(child for below in children.values() for child in below) == [
        index for index in range(size) if index != root
    ]
    assert max(len(list(tree_path(size, index))) for index in range(size)) == height(size)


def test_section_2_the_tree_is_distributed() -> None:
    """The tree is distributed over its nodes: a host knows its own paths from the root, and not the
    whole map."""
    found = map_of(1_000)
    known = [len(found.slice_for(f"h{number}")) for number in range(0, 1_000, 37)]
    assert max(known) <= 2 * height(1_000) + 1


# --- section 4: matching along the tree ---


@pytest.mark.parametrize("size", SIZES)
def test_section_4_an_event_travels_along_the_tree_to_the_node_of_its_value(size: int) -> None:
    """Matching is a way along the binary tree: it begins at any member and ends at the virtual node
    that contains the value, within the tree's height."""
    found = map_of(size)
    rng = Random(size)
    for _ in range(30):
        at, value = rng.randrange(size), rng.uniform(-1, size + 1)
        goal, hops = found.find(place(value)), 0
        while at != goal:
            known = dict(found.slice_for(f"h{at}"))
            entry = Slice(size, known).route(place(value))
            assert entry is not None
            at = found.entries.index(entry)
            hops += 1
        assert hops <= height(size)


def test_section_4_any_member_is_an_entry_and_the_value_finds_its_virtual_node() -> None:
    """A member that an event enters at looks up its own virtual nodes, and sends the event to the
    one that contains the value, whose host has the interested nodes."""
    rig = Rig("h1", "h2")
    rig.register(*(f"x BETWEEN {n * 10} AND {n * 10 + 5}" for n in range(9)))
    rig.settle()
    (low,), (high,) = rig.serving(0), rig.serving(83)
    assert low != high
    publisher = rig.net.node("pub")
    publisher.send(peer(low), Visit(publisher.me, 1, ("x",), (event(1, x=83),)))
    rig.net.flush()
    passed_on = rig.hosts[low].port.sent_to(Visit)
    assert [(to, message.hop) for to, message in passed_on] == [(high, 2)]


def test_section_4_a_member_without_the_attribute_sends_the_event_back() -> None:
    """If the entry has no virtual node of the attribute any more, its subscriber may have left, and
    the lookup begins again. Here the publisher is answered (`TreeMoved`), and begins again
    itself."""
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.settle()
    publisher = rig.net.node("pub")
    (serving,) = rig.serving(5)
    other = "h2" if serving == "h1" else "h1"
    publisher.send(peer(other), Visit(publisher.me, 1, ("x",), (event(1, x=5),)))
    rig.net.flush()
    assert [(to, m.attribute) for to, m in rig.hosts[other].port.sent_to(TreeMoved)] == [
        ("pub", "x")
    ]


# --- section 5: what the paper leaves to chance ---


def test_section_5_3_an_event_that_no_walk_brings_into_a_tree_is_not_lost() -> None:
    """The paper measures that nine walks in ten find their topology. Here the owner of the
    attribute answers for the rest: where the tree is, or that there is none."""
    rig = Rig("h1")
    rig.register("x > 1")
    rig.settle()
    rig.net.node("pub")
    rig.owner.port.hear(AskTree(("x", "y")), peer("pub"))
    rig.owner.clusters.commit()
    (answer,) = [m for to, m in rig.owner.port.sent_to(TreeAnswer) if to == "pub"]
    assert [location.attribute for location in answer.entries] == ["x"]
    assert answer.absent == ("y",)


def test_section_5_4_matching_needs_no_more_steps_than_the_tree_is_high() -> None:
    """The matching latency is that of the tree's height; here a publisher that knows the host of a
    value needs one step."""
    rig = Rig("h1", "h2")
    rig.register(*(f"x BETWEEN {n * 10} AND {n * 10 + 5}" for n in range(9)))
    rig.settle()
    publisher = rig.net.node("pub")
    (host,) = rig.serving(40)
    publisher.send(peer(host), Visit(publisher.me, 1, ("x",), (event(1, x=40),)))
    rig.net.flush()
    assert rig.hosts[host].port.sent_to(Visit) == []
