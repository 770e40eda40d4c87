"""C6 to C9 at the host: match, pass on along the tree, or give back; and what owners order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.overlays import settings
from matching import BOTTOM, EVERYTHING, TOP, Interval, compile_selector, place
from overlay.chord.epochs import FORK
from overlay.chord.events import ClusterForked
from overlay.client import Event
from overlay.machine import ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.delivery.held_deliveries import split_by_tree
from overlay.upper_tree.host.constants import FORMER_FOR, HOP_BOUND
from overlay.upper_tree.host.orphaned_trees import ServingLeases
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Accepted,
    Assign,
    Assigned,
    Deliver,
    Entry,
    Install,
    Installed,
    Registration,
    ServingBeat,
    StillHosting,
    TreeMoved,
    TreesHosted,
    Uninstall,
    Visit,
)
from overlay.upper_tree.partition import PartitionMap
from tests.support.trees import HostNode, cluster_of, event, registration
from tests.support.world import World, one_node, peer

OWNER, PUB, S, T = peer("owner"), peer("pub"), peer("s"), peer("t")
LOW, HIGH = Interval(BOTTOM, place(10)), Interval(place(10), TOP)
COUNTING = settings(tree={"routing": "counting"})


def host(chosen: Settings | None = None, name: str = "h") -> HostNode:
    return HostNode(one_node(name), chosen or Settings()).lease()


def assign(
    node: HostNode, *intervals: Interval, version: tuple[int, int] = (1, 1), attribute: str = "x"
) -> None:
    """Serve these; all other virtual nodes of the map are at the host `other`."""
    bounds = sorted({BOTTOM, TOP, *(c for i in intervals for c in (i.lo, i.hi))})
    entries = tuple(
        Entry(Interval(lo, hi), (node.port.me if Interval(lo, hi) in intervals else peer("other"),))
        for lo, hi in itertools.pairwise(bounds)
    )
    map_ = PartitionMap(version, entries)
    known = map_.slice_for(node.port.me.id)
    node.port.hear(Assign(attribute, version, intervals, len(entries), known), OWNER)


def install(node: HostNode, *registrations: Registration) -> None:
    node.port.hear(Install(registrations[0].attribute, 1, registrations), OWNER)


def visit(
    node: HostNode, *events: Event, attributes: tuple[str, ...] = ("x",), hop: int = 1
) -> None:
    node.port.hear(Visit(PUB, hop, attributes, events), PUB)


def delivered(node: HostNode) -> list[tuple[str, list[int]]]:
    return [(to, [e.sequence for e in m.events]) for to, m in node.port.sent_to(Deliver)]


def taken(node: HostNode) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (name, sequences)
        for message in node.accepted()
        for names, sequences in message.taken
        for name in names
    ]


# --- what owners say ---


def test_installed_and_assigned_are_answered() -> None:
    node = host()
    install(node, registration("s/0", "x", "x > 1", S))
    assign(node, EVERYTHING)
    assert node.port.sent_to(Installed) == [("owner", Installed("x", ("s/0",)))]
    assert node.port.sent_to(Assigned) == [("owner", Assigned("x", (1, 1)))]


@pytest.mark.parametrize("install_first", [True, False])
def test_a_registration_matches_whether_it_comes_before_or_after_the_interval(
    install_first: bool,
) -> None:
    node = host()
    steps: list[Callable[[], None]] = [
        lambda: install(node, registration("s/0", "x", "x > 1", S)),
        lambda: assign(node, EVERYTHING),
    ]
    for step in steps if install_first else reversed(steps):
        step()
    visit(node, event(1, x=5), event(2, x=1))
    assert delivered(node) == [("s", [1])]
    assert taken(node) == [("x", (1, 2))]


def test_a_host_asks_a_fork_again_when_the_leases_of_who_led_beside_it_end() -> None:
    node = host()
    fork = cluster_of("fork", version=(FORK, 0))

    def asked() -> list[str]:
        return [to for to, _ in node.port.sent_to(StillHosting)]

    node.port.hear(ClusterForked(fork))
    assert asked() == [], "it serves nothing of that arc"
    assign(node, EVERYTHING)  # by the owner from before, who still leads
    owner, key = peer("owner"), "0" * 40
    node.hosting.assigned.leases = ServingLeases()
    for number in (1, 2):
        node.port.hear(ServingBeat(key, key, 1, number, number - 1, 30.0), owner)
    node.port.advance(21)
    assert asked() == [], "the lease stands"
    node.port.advance(20)
    assert asked() == ["fork"]
    node.port.hear(TreesHosted(fork.start, fork.key, FORK, ()), peer("fork"))
    assert not node.hosting.trees
    node.port.sent.clear()
    node.port.advance(60)
    assert asked() == []


def test_an_older_assign_is_ignored_but_answered() -> None:
    node = host()
    assign(node, EVERYTHING, version=(1, 5))
    assign(node, LOW, version=(1, 4))
    visit(node, event(1, x=50))
    assert taken(node) == [("x", (1,))]
    assert [m.version for m in node.port.take(Assigned)] == [(1, 5), (1, 4)]


def test_a_host_that_is_assigned_nothing_leaves_the_tree() -> None:
    node = host()
    install(node, registration("s/0", "x", "x > 1", S))
    assign(node, EVERYTHING)
    assert node.access_points.points("x")
    assign(node, version=(1, 2))
    assert not node.access_points.points("x")
    visit(node, event(1, x=5))
    assert node.port.sent_to(TreeMoved) == [("pub", TreeMoved(1, "x", (1,)))]
    assert delivered(node) == []
    node.port.advance(FORMER_FOR)
    assert node.hosting.trees == {}


def test_what_is_cut_away_is_passed_on_and_what_remains_is_matched() -> None:
    node = host()
    install(node, registration("s/0", "x", "x > 1", S))
    assign(node, EVERYTHING)
    assign(node, LOW, version=(1, 2))
    visit(node, event(1, x=5), event(2, x=50), event(3, x=51))
    assert delivered(node) == [("s", [1])]
    assert taken(node) == [("x", (1,))]
    ((to, onward),) = node.port.sent_to(Visit)
    assert (to, onward.hop, [e.sequence for e in onward.events]) == ("other", 2, [2, 3])
    assert onward.origin == PUB, "the answer goes to the publisher"


def test_registrations_of_intervals_that_left_are_forgotten() -> None:
    node = host()
    install(node, registration("s/0", "x", "x < 5", S), registration("s/1", "x", "x > 50", S))
    assign(node, EVERYTHING)
    assign(node, LOW, version=(1, 2))
    assert list(node.hosting.trees["x"].registrations) == ["s/0"]


def test_an_uninstalled_registration_matches_no_more() -> None:
    node = host()
    install(node, registration("s/0", "x", "x > 1", S), registration("t/0", "x", "x > 1", T))
    assign(node, EVERYTHING)
    node.port.hear(Uninstall("x", 1, ("s/0", "unknown")), OWNER)
    node.port.hear(Uninstall("nowhere", 1, ("s/0",)), OWNER)
    visit(node, event(1, x=5))
    assert delivered(node) == [("t", [1])]


def test_a_registration_installed_again_is_replaced() -> None:
    node = host()
    assign(node, EVERYTHING)
    install(node, registration("s/0", "x", "x > 1", S))
    install(node, registration("s/0", "x", "x > 9", S))
    visit(node, event(1, x=5), event(2, x=10))
    assert delivered(node) == [("s", [2])]


def test_a_registration_that_does_not_compile_is_an_error() -> None:
    node = host()
    with pytest.raises(ProtocolError, match="compile"):
        install(node, Registration("s/0", "x", S, "x >", EVERYTHING))


def test_an_event_without_the_trees_attribute_is_an_error() -> None:
    node = host()
    assign(node, EVERYTHING)
    with pytest.raises(ProtocolError):
        visit(node, event(1, y=5))


# --- events ---


def test_events_for_one_node_go_together_and_each_node_gets_its_own() -> None:
    node = host()
    assign(node, EVERYTHING)
    install(
        node,
        registration("s/0", "x", "x > 1", S),
        registration("s/1", "x", "x > 2", S),
        registration("t/0", "x", "x > 7", T),
    )
    visit(node, event(1, x=5), event(2, x=8), event(3, x=0))
    assert delivered(node) == [("s", [1, 2]), ("t", [2])]


def test_the_publisher_learns_the_place_of_what_was_taken() -> None:
    node = host()
    assign(node, LOW, version=(3, 4))
    visit(node, event(1, x=5))
    ((to, accepted),) = node.port.sent_to(Accepted)
    assert to == "pub"
    (location,) = accepted.locations
    assert (location.attribute, location.version, location.interval) == ("x", (3, 4), LOW)
    assert location.hosts == (node.port.me,)


def test_a_host_that_is_not_in_the_tree_gives_all_back() -> None:
    node = host()
    visit(node, event(1, x=5, y=1), event(2, x=6, y=1), attributes=("x", "y"))
    assert node.port.sent_to(TreeMoved) == [
        ("pub", TreeMoved(1, "x", (1, 2))),
        ("pub", TreeMoved(1, "y", (1, 2))),
    ]
    assert node.port.counts["visits_given_back"] == 4


def test_a_host_that_waits_for_its_interval_gives_back() -> None:
    node = host()
    install(node, registration("s/0", "x", "x > 1", S))
    visit(node, event(1, x=5))
    assert node.port.take(TreeMoved) == [TreeMoved(1, "x", (1,))]
    assert delivered(node) == []


def test_an_event_that_is_forwarded_in_a_loop_is_given_back() -> None:
    node = host()
    assign(node, LOW)
    visit(node, event(1, x=50), hop=HOP_BOUND + 1)
    assert node.port.take(TreeMoved) == [TreeMoved(1, "x", (1,))]
    assert node.port.take(Visit) == []


def test_one_visit_serves_several_trees_and_a_node_gets_the_event_once() -> None:
    """C9: a node that is registered in two trees at one host."""
    node = host()
    for attribute in ("x", "y"):
        assign(node, EVERYTHING, attribute=attribute)
        install(node, registration(f"s/{attribute}", attribute, f"{attribute} > 1", S))
    visit(node, event(1, x=5, y=5), attributes=("x", "y"))
    assert delivered(node) == [("s", [1])]
    assert taken(node) == [("x", (1,)), ("y", (1,))]


def test_every_event_visits_the_tree_of_conjunctions_without_a_pivot() -> None:
    node = host()
    assign(node, EVERYTHING, attribute=EVENT_TREE)
    install(node, Registration("s/0", EVENT_TREE, S, "y IS NULL", EVERYTHING))
    visit(node, event(1, x=5), event(2, y=5), event(3), attributes=(EVENT_TREE,))
    assert delivered(node) == [("s", [1, 3])]
    assert taken(node) == [(EVENT_TREE, (1, 2, 3))]


def test_the_whole_conjunction_is_matched_at_the_pivot() -> None:
    node = host()
    assign(node, EVERYTHING)
    install(node, registration("s/0", "x", "x = 5 AND y LIKE 'a%' AND z IS NULL", S))
    visit(node, event(1, x=5, y="ab"), event(2, x=5, y="b"), event(3, x=5, y="ab", z=1))
    assert delivered(node) == [("s", [1])]


def test_counting_names_the_registrations_and_sends_once_per_tree() -> None:
    """C8: the node counts, so each attribute's message has to come."""
    node = host(COUNTING)
    for attribute in ("x", "y"):
        assign(node, EVERYTHING, attribute=attribute)
        made = registration("s/0", attribute, "x > 1 AND y > 1", S, counting=True)
        install(node, made)
    visit(node, event(1, x=5, y=5), event(2, x=5, y=0), attributes=("x", "y"))
    sent = [(m.attribute, [e.sequence for e in m.events], m.registrations)
            for whole in node.port.take(Deliver) for m in split_by_tree(whole)]  # fmt: skip
    assert sent == [("x", [1, 2], (("s/0",), ("s/0",))), ("y", [1], (("s/0",),))]


def test_messages_are_counted_from_the_publisher() -> None:
    node = host()
    assign(node, EVERYTHING)
    install(
        node, registration("s/0", "x", "x > 1", S), registration("h/0", "x", "x > 1", peer("h"))
    )
    visit(node, event(1, x=5), hop=3)
    assert [(to, m.hop) for to, m in node.port.sent_to(Deliver)] == [("s", 4), ("h", 3)]


# --- the whole tree ---

CUTS = st.lists(st.integers(-50, 50), min_size=1, max_size=30, unique=True)


@given(CUTS, st.integers(1, 6), st.lists(st.integers(-60, 60), min_size=1, max_size=10), st.data())
def test_from_any_host_an_event_reaches_the_matching_virtual_node_in_the_trees_height(
    cuts: list[int], count: int, values: list[int], data: st.DataObject
) -> None:
    """C7, with real hosts that know only their slices."""
    net = World()
    hosts = [HostNode(net.node(f"h{n}"), Settings()).lease() for n in range(count)]
    bounds = [BOTTOM, *(place(cut) for cut in sorted(cuts)), TOP]
    owners = [data.draw(st.integers(0, count - 1)) for _ in bounds[1:]]
    entries = tuple(
        Entry(Interval(lo, hi), (peer(f"h{owner}"),))
        for (lo, hi), owner in zip(itertools.pairwise(bounds), owners, strict=True)
    )
    map_ = PartitionMap((1, 1), entries)
    made = registration("s/0", "x", "x BETWEEN -20 AND 20", S)
    for node in hosts:
        name = node.port.me.id
        install(node, made)
        known = map_.slice_for(name)
        message = Assign("x", (1, 1), map_.hosted_by(name), len(entries), known)
        node.port.hear(message, OWNER)
    net.node("pub")
    net.node("s")
    members = [
        node for node in hosts if any(t.served.intervals for t in node.hosting.trees.values())
    ]
    start = data.draw(st.sampled_from(members))
    visit(start, *(event(number, x=value) for number, value in enumerate(values)))
    hops = [0]
    while net.busy():
        link = net.busy()[0]
        hops += [m.hop for m in net.links[link] if isinstance(m, Visit)]
        net.deliver(link)
    assert max(hops) <= ceil(log2(len(entries) + 1))
    accepted = [
        sequence
        for node in hosts
        for message in node.accepted()
        for _, sequences in message.taken
        for sequence in sequences
    ]
    assert sorted(accepted) == list(range(len(values))), "each is taken once"
    shown = [e.sequence for node in hosts for m in node.port.take(Deliver) for e in m.events]
    wanted = compile_selector("x BETWEEN -20 AND 20")
    expected = [n for n, value in enumerate(values) if wanted.matches({"x": value})]
    assert sorted(shown) == expected
