"""Checkers of state and traces: each is shown what it must find, and a world that is whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from canopy.sim.checks import node_state
from canopy.sim.checks.node_state import Watch, bounds, check_ring, check_routes, check_trees
from canopy.sim.checks.ownership import check_chord, chord_violations
from canopy.sim.checks.trace_rules import check_contents, check_copies, check_paths, check_walks
from canopy.sim.world.recorder import SimulatedRecord
from canopy.sim.world.world import World
from harness.overlays import acknowledged, grown, settings, wait, with_role
from matching import place
from overlay.machine import Peer


@pytest.fixture(scope="module")
def world() -> World:
    """Several clusters with trees that are cut."""
    world = grown(
        9,
        3,
        settings(tree={"split_at": 4, "host_entries": 4}, cluster={"size": 3, "split_trees": 2}),
    )
    for number in range(40):
        world.subscribe(f"n{number % 9}", f"a{number % 6} BETWEEN {number} AND {number + 9}")
    acknowledged(world)
    wait(world, lambda: len(with_role(world, "primary")) >= 2, 60, "a second cluster")
    world.run(30)
    return world


def broken(world: World) -> list[str]:
    return [v.kind for v in (*check_trees(world), *check_routes(world), *check_ring(world))]


def some_host(world: World) -> Any:
    return next(
        tree
        for name in world.names()
        for tree in world.node(name).hosting.trees.values()
        if tree.registrations and tree.served.intervals
    )


def test_a_world_at_rest_is_whole(world: World) -> None:
    assert broken(world) == []


def test_a_registration_that_a_host_lacks_is_found(world: World) -> None:
    tree = some_host(world)
    id_ = next(iter(tree.registrations))
    registration, predicate = tree.registrations[id_]
    tree.uninstall(id_)
    assert broken(world) == ["registration"]
    tree.install([(registration, predicate)])
    assert broken(world) == []


def test_a_registration_without_a_subscriber_is_found(world: World) -> None:
    node = world.node("n4")
    key = next(iter(node.registrar.registrations))
    placed = node.registrar.registrations.pop(key)
    assert broken(world) == ["registration"]
    node.registrar.registrations[key] = placed


def test_a_host_with_another_map_is_found(world: World) -> None:
    tree = some_host(world)
    version, tree.version = tree.version, (9, 9)
    assert broken(world) == ["host"]
    tree.version = version


def test_a_host_that_does_not_know_the_way_is_found(world: World) -> None:
    tree, known = next(
        (tree, tree.served.slice.known)
        for name in world.names()
        for tree in world.node(name).hosting.trees.values()
        if tree.served.intervals and tree.served.slice.size > len(tree.served.intervals)
    )
    own = {
        index: entry for index, entry in known.items() if entry.interval in tree.served.intervals
    }
    tree.served.slice.known = own
    kinds = [violation.kind for violation in check_routes(world)]
    assert set(kinds) == {"route"}
    tree.served.slice.known = known
    assert check_routes(world) == []


def test_a_lookup_that_ends_wrongly_or_in_a_loop_is_found() -> None:
    def tree(serves: bool, on: str) -> Any:
        entry = SimpleNamespace(hosts=[Peer(on, "")])
        slice_ = SimpleNamespace(route=lambda spot: entry)
        served = SimpleNamespace(serves_some=lambda spot: serves, slice=slice_)
        return SimpleNamespace(served=served)

    spot = place(3)

    trees = {
        "a": tree(False, "b"),
        "b": tree(False, "a"),
        "c": tree(True, ""),
        "d": tree(False, "c"),
    }
    assert node_state._way(trees, "a", spot, 7) == "not in 3 steps"
    assert node_state._way(trees, "c", spot, 1) == node_state._way(trees, "d", spot, 2) == ""
    trees["d"] = tree(False, "e")
    assert node_state._way(trees, "d", spot, 2) == "leads to e, who does not serve it"


def test_a_short_successor_list_is_found(world: World) -> None:
    pointers = world.node(with_role(world, "primary")[0]).ring.state.pointers
    successors, pointers.successors = pointers.successors, pointers.successors[:-1]
    predecessor, pointers.predecessor = pointers.predecessor, None
    found = check_ring(world)
    pointers.successors, pointers.predecessor = successors, predecessor
    assert {v.kind for v in found} == {"ring"}
    assert check_ring(world) == []


def test_a_second_primary_of_an_epoch_and_a_full_table_are_found(world: World) -> None:
    watch = Watch(world)
    watch.look()
    assert watch.violations == {}
    one, two = with_role(world, "primary")[:2]
    role = world.node(two).clusters.cluster_role
    cluster = role.cluster
    claimed = world.node(one).clusters.cluster
    role.cluster = msgspec.structs.replace(claimed, primary=world.node(two).me)
    watch.look()
    role.cluster = cluster
    kinds = {v.kind for v in watch.violations.values()}
    assert kinds == {"epoch", "log", "primary"}, "all that a second primary is"
    (what, size, bound), *_ = bounds(world.node("n0"))
    assert (what, bound) == ("view", 20)
    assert 0 < size <= bound
    node = world.node("n0")
    node.settings, old = msgspec.structs.replace(
        node.settings, view=msgspec.structs.replace(node.settings.view, size=1)
    ), node.settings  # fmt: skip
    watch.look()
    node.settings = old
    assert {v.kind for v in watch.violations.values()} == {*kinds, "bound"}


def test_every_bound_is_looked_at_on_every_link(world: World) -> None:
    node = world.node("n0")
    peers = [session.peer.id for session in node.links.sessions()]
    found = {what: (size, bound) for what, size, bound in bounds(node)}
    assert len(peers) > 3
    for peer in peers:
        assert f"queue to {peer}" in found
        assert f"bytes under way to {peer}" in found
    for what in ("history", "open walks", "unreachable hosts", "pending pairs", "sessions"):
        assert what in found
    assert all(size <= bound for size, bound in found.values())
    session = next(iter(node.links._sessions))
    before = session.outgoing.in_flight_bytes
    session.outgoing.in_flight_bytes = 5 << 20  # the window is 4 MiB
    over = [what for what, size, bound in bounds(node) if size > bound]
    session.outgoing.in_flight_bytes = before
    assert over == [f"bytes under way to {session.peer.id}"]


RING = {"10": ("30", "50"), "30": ("50", "70"), "50": ("70", "10"), "70": ("10", "30")}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, ()),
        ({"30": ("50",)}, ("30 lists 1 successors, not 2",)),
        ({"30": ("50", "50")}, ("30 lists 1 successors, not 2",)),
        ({"30": ("40", "60")}, ("30 has no successor that lives",)),
        ({"70": ("30", "50")}, ()),  # skips 10, but three principals are enough
        ({"30": ("70", "10"), "10": ("50", "70")}, ("2 principals are not enough",)),
        ({"30": ("10", "50")}, ("some list skips 30, 50, 70",)),  # not in the ring's order
    ],
)
def test_chords_three(changed: dict[str, tuple[str, ...]], words: tuple[str, ...]) -> None:
    found = chord_violations(RING | changed, 3 if not changed else 2)
    if not changed:
        assert [text.split(" ", 1)[1] for text in found] == ["lists 2 successors, not 3"] * 4
        found = chord_violations(RING, 2)
    assert len(found) == len(words), found
    for text, word in zip(found, words, strict=True):
        assert word in text


def test_small_rings_have_all_that_there_are() -> None:
    assert chord_violations({}, 4) == []
    assert chord_violations({"10": ()}, 4) == []
    assert chord_violations({"10": ("50",), "50": ("10",)}, 4) == []
    assert chord_violations({"10": ("50",), "50": ()}, 4) != []


def test_a_ring_in_the_world_that_skips_a_cluster_is_found(world: World) -> None:
    assert check_chord(world) == []
    name = with_role(world, "primary")[0]
    pointers = world.node(name).ring.state.pointers
    kept, pointers.successors = pointers.successors, ()
    found = check_chord(world)
    pointers.successors = kept
    assert [violation.kind for violation in found] == ["chord", "chord"]


def records(*steps: tuple[str, str, dict[str, Any]]) -> list[SimulatedRecord]:
    return [
        SimulatedRecord(float(time), node, kind, {"walk": "a.1", "attribute": "x", **fields})
        for time, (node, kind, fields) in enumerate(steps)
    ]


START = ("a", "walk_start", {"hops": 2})


def hop(node: str, peer: str) -> tuple[str, str, dict[str, Any]]:
    return (node, "walk_hop", {"hop": 1, "peer": peer})


def test_walks_that_follow_the_rules_are_green() -> None:
    steps = records(START, hop("a", "b"), hop("b", "c"), ("a", "walk_hit", {"hop": 2}))
    assert check_walks(steps, 10) == []
    steps = records(START, hop("a", "b"), hop("b", "a"))
    assert check_walks(steps, 1) == []  # a trace of one node has forgotten the first
    recovered = ("b", "walk_recovered", {"hop": 2, "peer": "a"})
    assert check_walks(records(START, hop("a", "b"), recovered, hop("a", "c")), 10) == []


def test_a_delivery_that_is_not_what_was_published_is_found() -> None:
    def steps(**said: Any) -> list[SimulatedRecord]:
        content = {"event": "a.1.1", "id": "7", "digest": 5}
        return records(("a", "publish", content), ("b", "deliver", content | said))

    assert not check_contents(steps())
    for said in ({"digest": 6}, {"id": "8"}):
        (violation,) = check_contents(steps(**said))
        assert violation.about == ("a.1.1",)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((START, hop("a", "b"), hop("b", "a")), "in its trace"),
        ((START, hop("a", "b"), hop("b", "c"), hop("c", "d")), "hop 3 of 2"),
        (
            (START, ("a", "walk_miss", {"hop": 0}), ("a", "walk_hit", {"hop": 0})),
            "ends twice",
        ),
        (
            (
                START,
                hop("a", "b"),
                ("b", "walk_recovered", {"hop": 2, "peer": "a"}),
                ("a", "walk_recovered", {"hop": 3, "peer": "b"}),
            ),
            "cannot be halved",
        ),
    ],
)
def test_walks_that_do_not_are_found(steps: tuple[Any, ...], words: str) -> None:
    (violation,) = check_walks(records(*steps), 10)
    assert words in violation.text


def map_of(size: int) -> SimulatedRecord:
    return SimulatedRecord(0.0, "o", "map", {"attribute": "x", "size": size})


VISITS = [
    SimulatedRecord(0.0, "a", "visit", {"event": "e", "attribute": "x", "hop": hop})
    for hop in (1, 2, 3)
]


@pytest.mark.parametrize(
    ("before", "since"),
    [
        ([map_of(1), map_of(2)], VISITS),
        ([map_of(2)], [map_of(1), *VISITS]),
        ([map_of(1)], [map_of(2), *VISITS, map_of(1)]),
    ],
    ids=["two levels", "two until lately", "two in between"],
)
def test_a_tree_path_within_the_height_that_the_tree_had_is_good(
    before: list[SimulatedRecord], since: list[SimulatedRecord]
) -> None:
    assert check_paths([*before, *since], len(before)) == []


def test_a_tree_path_over_the_height_is_found() -> None:
    before = [map_of(2), map_of(1)]
    (violation,) = check_paths([*before, *VISITS], len(before))
    assert "3 messages" in violation.text


def test_a_node_that_sends_too_many_copies_is_found() -> None:
    def forward(sender: str, peer: str, arrives: bool = True) -> list[SimulatedRecord]:
        sent = {"event": "e", "attribute": "x", "peer": peer, "hop": 2}
        came = {"event": "e", "attribute": "x", "peer": sender, "hop": 2}
        there = [SimulatedRecord(1.0, peer, "arrive", came)] if arrives else []
        return [SimulatedRecord(0.0, sender, "forward", sent), *there]

    match = SimulatedRecord(0.0, "h", "match", {"event": "e", "attribute": "x"})
    direct = [match, *forward("h", "a"), *forward("h", "b")]
    assert check_copies(direct, 2) == []
    (violation,) = check_copies(direct, 1)
    assert "h sent 2 copies" in violation.text
    delegated = [match, *forward("h", "a"), *forward("a", "b"), *forward("b", "c")]
    assert check_copies(delegated, 1) == []
    both = [*forward("g", "h"), match, *(r for n in range(4) for r in forward("h", f"r{n}"))]
    assert check_copies(both, 3) == [], "one more, since the event came twice"
    (violation,) = check_copies(both, 2)
    assert "h sent 4 copies" in violation.text
    visit = SimulatedRecord(
        0.0, "h", "visit", {"event": "e", "attribute": "x", "peer": "g", "hop": 1}
    )
    assert check_copies([visit, *direct], 3) == []
    (violation,) = check_copies([visit, *direct], 2)
    assert "h sent 3 copies" in violation.text
    again = [match, *forward("h", "a", arrives=False), *forward("h", "b")]
    assert check_copies(again, 1) == [], "a was not there"
    back = [match, *forward("h", "a"), *forward("a", "b", arrives=False), *forward("h", "b")]
    assert check_copies(back, 1) == [], "b was not there for a, who gave it back"


def test_the_bounds_of_a_large_world_are_looked_at_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "BOUNDS_AT_ONCE", 1)
    monkeypatch.setattr(node_state, "bounds", lambda node: [(node.name, 2, 1)])
    watch = Watch(world)
    for looks in range(1, len(world.names()) + 1):
        watch.look()
        assert len(watch.violations) == looks
