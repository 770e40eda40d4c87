"""What CBDLO says of attribute trees and of CDM, its counting match, claim by claim.

Zheng and Sun, *A Publishing/Subscription System Based on the Hybrid Two-Layer Topology*, Software
Engineering and Applications 7 (2018), sections 2, 4 and 5. Each test quotes what it tests in the
docstring (translated). All run in counting routing, which is the paper's. Where this project
differs the test says so; the reasons are in docs/design/attribute-trees.md and
docs/design/delivery.md.
"""

from __future__ import annotations

import itertools
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canopy.sim.scenario.scenario import Scenario
from harness.overlays import run_green, settings
from matching import BOTTOM, EVERYTHING, TOP, Interval, compile_selector, place
from overlay.machine import Peer
from overlay.upper_tree.messages import Accepted, Assign, Deliver, Entry, Install, TreeMoved, Visit
from overlay.upper_tree.partition import PartitionMap, best_cut, tree_path
from tests.support.trees import HostNode, event, registration
from tests.support.world import World, peer
from tests.upper_tree.publisher.test_tree_finder import Seeker
from tests.upper_tree.publisher.test_tree_publisher import Rig as Publisher
from tests.upper_tree.subscriber.test_tree_receiver import Rig as Subscriber

COUNTING = settings(tree={"routing": "counting"})
OWNER, S, T = peer("owner"), peer("s"), peer("t")
NAMES = ("h0", "h1", "h2")
BOUNDS = st.lists(st.integers(-50, 50), min_size=1, max_size=40, unique=True)


def map_of(cuts: list[int], hosts: list[Peer]) -> PartitionMap:
    """One virtual node more than cuts, given to the hosts by turns."""
    bounds = [BOTTOM, *(place(cut) for cut in sorted(cuts)), TOP]
    return PartitionMap(
        (1, 1),
        tuple(
            Entry(Interval(lo, hi), (hosts[number % len(hosts)],))
            for number, (lo, hi) in enumerate(itertools.pairwise(bounds))
        ),
    )


def serve(node: HostNode, map_: PartitionMap, attribute: str = "x") -> None:
    """The host is assigned its virtual nodes of the map, and knows only its slice of it."""
    me = node.port.me.id
    node.port.hear(
        Assign(attribute, (1, 1), map_.hosted_by(me), len(map_.entries), map_.slice_for(me)), OWNER
    )


def install(node: HostNode, id_: str, selector: str, subscriber: Peer, attribute: str) -> None:
    """The subscriber's constraint on this attribute."""
    made = registration(id_, attribute, selector, subscriber, counting=True)
    node.port.hear(Install(attribute, 1, (made,)), OWNER)


class Trees:
    """Three hosts of the tree of x, which is cut into virtual nodes."""

    def __init__(self, cuts: list[int]) -> None:
        self.net = World()
        self.hosts = {name: HostNode(self.net.node(name), COUNTING).lease() for name in NAMES}
        self.map = map_of(cuts, [node.port.me for node in self.hosts.values()])
        for node in self.hosts.values():
            serve(node, self.map)

    def host_of(self, value: int) -> str:
        return self.map.entries[self.map.find(place(value))].hosts[0].id

    def visit(self, entrance: str, value: int) -> list[int]:
        """An event enters at this host. The hops of all visits that follow."""
        message = Visit(peer("pub"), 1, ("x",), (event(1, x=value),))
        self.hosts[entrance].port.hear(message, peer("pub"))
        hops = [1]
        while self.net.busy():
            link = self.net.busy()[0]
            hops += [m.hop for m in self.net.links[link] if isinstance(m, Visit)]
            self.net.deliver(link)
        return hops

    def matched_at(self) -> list[str]:
        return [name for name, node in self.hosts.items() if node.port.take(Accepted)]


# --- section 2: the attribute tree ---


@given(BOUNDS, st.integers(-60, 60))
def test_the_value_space_is_cut_into_adjacent_disjoint_virtual_nodes(
    cuts: list[int], value: int
) -> None:
    """Section 2: "CBDLO cuts the whole value space of an attribute into adjacent, disjoint
    subspaces; each corresponds to a virtual node, and all virtual nodes are mapped to real
    nodes." """
    entries, spot = map_of(cuts, [S, T]).entries, place(value)
    assert sum(entry.interval.lo <= spot < entry.interval.hi for entry in entries) == 1
    assert (entries[0].interval.lo, entries[-1].interval.hi) == (BOTTOM, TOP)
    assert all(left.interval.hi == right.interval.lo for left, right in itertools.pairwise(entries))
    assert all(entry.hosts for entry in entries)


@given(st.integers(1, 400))
def test_the_trees_height_is_the_logarithm_of_its_virtual_nodes(count: int) -> None:
    """Section 5.2: "since the attribute topology is a balanced binary tree, its height is
    h = log2 N, N being the number of its virtual nodes." """
    paths = [len(list(tree_path(count, index))) for index in range(count)]
    assert max(paths) == ceil(log2(count + 1))


@given(BOUNDS)
def test_subscriptions_cut_an_attribute_into_no_more_than_two_virtual_nodes_more(
    starts: list[int],
) -> None:
    """Section 5.2: "the number of virtual nodes is at most the number of parts into which the
    subscriptions cut the value space, max(VN) = subscriptions + 2." So it is where each
    subscription has one end there, as the paper counts. Here a virtual node is cut only when it is
    too large (`tree.split_at`), so there are mostly far fewer; the test cuts wherever it can."""
    wanted = [compile_selector(f"x >= {start}").conjunctions[0] for start in starts]
    intervals = [dict(one.pivots())["x"] for one in wanted]
    todo, count = [EVERYTHING], 0
    while todo:
        whole = todo.pop()
        inside = [one for one in intervals if one.overlaps(whole)]
        cut = best_cut(whole, inside)
        if cut is None:
            count += 1
        else:
            todo += [Interval(whole.lo, cut), Interval(cut, whole.hi)]
    assert count <= len(starts) + 2


# --- section 4: CDM ---


def test_every_attribute_is_matched_in_its_own_tree_and_all_in_parallel() -> None:
    """Section 4: "CDM matches the attributes of the data in parallel on the distributed balanced
    binary trees of the upper layer." """
    publisher = Publisher(COUNTING)
    publisher.know("x", "h")
    publisher.know("y", "h")
    publisher.know("z", "other")
    publisher.publish({"x": 1, "y": 2, "z": 3})
    assert publisher.visits() == [("h", ("x",), [1]), ("h", ("y",), [1]), ("other", ("z",), [1])]


def test_the_entrance_finds_the_virtual_node_among_its_own() -> None:
    """Section 4, first conversion: "the entry node looks in its list of virtual nodes for all that
    are assigned to it, and finds the one that matches the data's attribute." """
    trees = Trees([0, 10, 20, 30, 40])  # h0 serves below 0, and 20 to 30
    for value in (-5, 25):
        assert trees.visit("h0", value) == [1]
        assert trees.matched_at() == ["h0"]


def test_the_matching_virtual_node_sends_the_event_to_all_nodes_of_its_list() -> None:
    """Section 4, second conversion: "when the virtual node that matches the value is found, the
    data is sent to all real nodes in the node list that is stored there." Here the list has
    registrations, and only the nodes whose constraint holds for the value get the event."""
    trees = Trees([10])
    node = trees.hosts["h0"]
    install(node, "s/0", "x < 5", S, "x")
    install(node, "t/0", "x < 9", T, "x")
    for value, wanted in ((3, ["s", "t"]), (7, ["t"]), (9, [])):
        trees.visit("h0", value)
        assert [to for to, _ in node.port.sent_to(Deliver)] == wanted


@given(BOUNDS.filter(lambda cuts: len(cuts) > 1), st.integers(-60, 60), st.sampled_from(NAMES))
def test_matching_is_passing_on_along_the_binary_tree(
    cuts: list[int], value: int, entrance: str
) -> None:
    """Section 4: "the matching is a process of passing on along the binary tree", so (5.3) "the
    cost of the second stage is fixed: it is the height of the tree." """
    trees = Trees(cuts)
    hops = trees.visit(entrance, value)
    assert trees.matched_at() == [trees.host_of(value)]
    assert max(hops) <= 1 + ceil(log2(len(cuts) + 2))


@pytest.mark.parametrize("order", list(itertools.permutations("xyz")))
def test_the_subscriber_counts_the_attributes_that_match(order: tuple[str, ...]) -> None:
    """Section 4: "the subscribing node counts the attributes that match, and accepts the data when
    their number reaches that of the subscription's attributes." So (5.4) the slowest attribute
    decides."""
    node = Subscriber(COUNTING)
    node.subscribe("a", "x = 1 AND y = 2 AND z = 3")
    one = event(1, x=1, y=2, z=3)
    shown = [node.deliver(one, attribute=attribute, counted=(("a/0",),)) for attribute in order]
    assert shown == [[], [], [("a", 1)]]


def test_an_attribute_that_matches_twice_counts_once() -> None:
    """Beyond section 4: the paper counts messages, which a repeated visit would spoil; here the
    node keeps the set of attributes that matched."""
    node = Subscriber(COUNTING)
    node.subscribe("a", "x = 1 AND y = 2")
    one = event(1, x=1, y=2)
    assert [node.deliver(one, attribute="x", counted=(("a/0",),)) for _ in range(3)] == [[]] * 3
    assert node.deliver(one, attribute="y", counted=(("a/0",),)) == [("a", 1)]


def test_attributes_of_different_subscriptions_are_not_counted_together() -> None:
    """Section 4: "… reaches that of the subscription's": each counts for itself."""
    node = Subscriber(COUNTING)
    node.subscribe("a", "x = 1 AND y = 2")
    node.subscribe("b", "x = 1 AND z = 3")
    one = event(1, x=1, y=0, z=3)
    assert node.deliver(one, attribute="x", counted=(("a/0", "b/0"),)) == []
    assert node.deliver(one, attribute="z", counted=(("b/0",),)) == [("b", 1)]


def test_an_entrance_without_the_tree_starts_a_new_walk_of_half_the_hops() -> None:
    """Section 4: "if it is not found, the subscriber may have left, and the walk in the lower
    topology has to be started again. To keep out of an endless loop, each such walk halves the
    maximum of hops." Here after four such answers the ring is asked instead (C10)."""
    publisher = Publisher(COUNTING)
    publisher.know("x", "gone")
    publisher.publish({"x": 1})
    publisher.finder.requested.clear()
    publisher.port.hear(TreeMoved(7, "x", (1,)), peer("gone"))
    assert publisher.finder.requested == [(("x",), True)]
    seeker = Seeker(COUNTING)
    seeker.finder.seek(["x"], stale=True)
    assert seeker.walker.walks == [(("x",), COUNTING.walk.hops // 2)]


# --- section 5: what comes of it ---


def test_values_of_different_ranges_are_matched_on_different_nodes() -> None:
    """Section 5.4: "by cutting the value space of an attribute into adjacent, disjoint subspaces,
    attribute values of different ranges are matched in different subspaces." """
    trees = Trees([10, 20])
    matched = []
    for value in (5, 15, 25):
        trees.visit("h0", value)
        matched += trees.matched_at()
    assert matched == ["h0", "h1", "h2"]


def test_all_nodes_that_want_the_data_get_it_and_no_others() -> None:
    """Section 5.3: "CBDLO delivers the data accurately to all nodes that want it." """
    result = run_green(Scenario(nodes=10, seed=7, settings=COUNTING, events=100, subscriptions=40))
    assert result.delivered == result.expected > 100
