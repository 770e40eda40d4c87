"""P1: the state follows from the log, and what leaves a cluster takes its state along."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching import EVERYTHING, Interval, place
from overlay.chord.events import (
    ArcGone,
    ArcKept,
    ArcLeaving,
    EntryReceived,
    FollowerSnapshotWanted,
    LogReset,
    RoleChanged,
)
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.machine import Peer
from overlay.settings import Settings
from overlay.upper_tree.messages import AskCached, AskTree, Entry, Installed, Register, TreeAnswer
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.tree_log import (
    CacheHoldersChanged,
    ClusterState,
    MapChanged,
    Operation,
    RegistrationAdded,
    RegistrationsRemoved,
    TreeRemoved,
    decode,
    encode,
)
from tests.support.trees import KEY, OwnerNode, cluster_of, registration
from tests.support.world import one_node, peer

ATTRIBUTES = ["x", "y", "z"]
ENTRIES = (
    (Entry(EVERYTHING, (peer("h1"),)),),
    (
        Entry(Interval(EVERYTHING.lo, place(5)), (peer("h1"),)),
        Entry(Interval(place(5), EVERYTHING.hi), (peer("h2"),)),
    ),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Operation]:
    """A log that a primary could write: trees are planted before they are used."""
    log: list[Operation] = []
    planted: dict[str, None] = {}
    for number in range(draw(st.integers(0, 30))):
        attribute = draw(st.sampled_from(ATTRIBUTES))
        kind = draw(st.sampled_from(["map", "add", "add", "end", "uproot", "held"]))
        id_ = f"s/{draw(st.integers(0, 5))}"
        if kind == "held":
            some = tuple(peer(f"pub{draw(st.integers(0, 3))}") for _ in range(2))
            log.append(
                CacheHoldersChanged(some, (f"pub{draw(st.integers(0, 3))}",), draw(st.booleans()))
            )
        elif kind == "map" or attribute not in planted:
            log.append(MapChanged(attribute, (1, number), draw(st.sampled_from(ENTRIES))))
            planted[attribute] = None
        elif kind == "add":
            made = registration(id_, attribute, f"{attribute} > {number}", peer("s"))
            log.append(RegistrationAdded(attribute, made, draw(st.integers(1, 3))))
        elif kind == "end":
            log.append(RegistrationsRemoved(attribute, (id_, "s/9")))
        else:
            log.append(TreeRemoved(attribute))
            del planted[attribute]
    return log


def content(state: ClusterState) -> dict[str, object]:
    """All that a state says, by value."""
    return {
        attribute: (tree.map.version, tree.map.entries, tree.registrations, tree.incarnations)
        for attribute, tree in state.trees.items()
    }


def cache_holders(state: ClusterState) -> tuple[dict[str, Peer], bool]:
    return state.cache_holders, state.has_unknown_holders


def replayed(log: list[Operation]) -> ClusterState:
    state = ClusterState()
    for operation in log:
        state.apply(decode(encode(operation)))
        versions = [tree.map.version for tree in state.trees.values()]
        assert state.highest() == max(versions, default=(0, 0))
    return state


@given(logs())
def test_the_same_log_makes_the_same_state(log: list[Operation]) -> None:
    state = ClusterState()
    for operation in log:
        state.apply(operation)
    assert content(replayed(log)) == content(state)
    assert cache_holders(replayed(log)) == cache_holders(state)


@given(logs())
def test_a_state_repeated_is_the_same_state(log: list[Operation]) -> None:
    state = replayed(log)
    again = replayed(list(state.operations()))
    assert content(again) == content(state)
    assert cache_holders(again) == cache_holders(state)
    assert again.highest() == state.highest()


@given(logs(), st.sampled_from(ATTRIBUTES))
def test_a_part_of_the_state_is_reported_without_the_rest(
    log: list[Operation], wanted: str
) -> None:
    state = replayed(log)
    part = replayed(list(state.operations(lambda key: key == attribute_key(wanted))))
    assert content(part) == {name: what for name, what in content(state).items() if name == wanted}
    assert cache_holders(part) == cache_holders(state), (
        "of which trees it holds answers is not known"
    )


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(msgspec.msgpack.encode(["Nonsense", "x"]))


# --- the state at primary, standby and new owner ---


def primary(*attributes: str) -> OwnerNode:
    """A primary that hosts its own trees, with one registration in each."""
    node = OwnerNode(one_node("p"), Settings(), cluster_of("p"))
    for attribute in attributes:
        made = registration(f"s/{attribute}", attribute, f"{attribute} > 1", peer("s"))
        node.port.hear(Register(1, (made,)), peer("s"))
    node.clusters.commit()
    return node


def standby(entries: list[bytes], cluster: Cluster | None = None) -> OwnerNode:
    """A node that is no primary yet and hears copies."""
    node = OwnerNode(one_node("q"), Settings(), cluster or cluster_of("p"), primary=False)
    node.port.hear(RoleChanged(node.clusters.cluster, "standby"))
    for index, entry in enumerate(entries):
        node.port.hear(EntryReceived(KEY, index, entry))
    return node


def test_a_standby_holds_the_same_state_by_the_log_as_by_a_copy() -> None:
    node = primary("x", "y")
    node.port.hear(FollowerSnapshotWanted(KEY))
    assert node.clusters.copied is not None
    by_log, by_copy = standby(node.clusters.log), standby(node.clusters.copied)
    assert content(by_log.owner.state) == content(by_copy.owner.state) == content(node.owner.state)
    assert by_log.owner.trees == {}, "only the primary decides"


def test_a_new_copy_replaces_the_old_one() -> None:
    node = standby(primary("x").clusters.log)
    node.port.hear(LogReset(KEY))
    for entry in primary("y").clusters.log:
        node.port.hear(EntryReceived(KEY, 0, entry))
    assert list(node.owner.state.trees) == ["y"]


def test_a_standby_that_becomes_primary_answers_from_the_copy() -> None:
    node = standby(primary("x").clusters.log)
    node.clusters.cluster = cluster_of("q", version=(2, 1))
    node.port.hear(RoleChanged(node.clusters.cluster, "primary"))
    node.port.hear(AskTree(("x",)), peer("pub"))
    node.clusters.commit()
    (answer,) = node.port.take(TreeAnswer)
    assert [location.hosts[0].id for location in answer.entries] == ["p"]
    assert node.owner.next_version() > node.owner.state.highest()
    assert node.owner.next_version()[0] == 2, "a new primary's versions outrank all older ones"


def test_a_node_without_a_role_forgets_everything() -> None:
    node = primary("x")
    node.clusters.cluster = None
    node.port.hear(RoleChanged(None, "none"))
    assert node.owner.state.trees == {}
    assert node.owner.trees == {}
    assert node.port.watched["hosts"] == ()


def arc_of(attribute: str) -> Cluster:
    """An arc with one attribute in it."""
    key = attribute_key(attribute)
    start = f"{int(key, 16) - 1:040x}"
    return Cluster("ring", key, start, (2, 1), peer("new_owner"))


def test_an_arc_takes_its_trees_along_and_no_others() -> None:
    node = primary("x", "y")
    node.clusters.giving_away = arc_of("x")
    node.port.hear(ArcLeaving(arc_of("x")))
    assert node.clusters.transferred is not None
    new_owner = standby(node.clusters.transferred)
    assert content(new_owner.owner.state) == {"x": content(node.owner.state)["x"]}
    node.port.hear(ArcGone(arc_of("x")))
    assert list(node.owner.trees) == list(node.owner.state.trees) == ["y"]


def test_an_arc_waits_for_what_is_under_way_in_it() -> None:
    node = OwnerNode(one_node("p"), Settings(), cluster_of("p", "h"))
    made = registration("s/0", "x", "x > 1", peer("s"))
    node.port.hear(Register(1, (made,)), peer("s"))
    node.port.hear(ArcLeaving(arc_of("x")))
    node.clusters.commit()
    assert node.clusters.transferred is None, "the host has not installed it yet"
    node.port.hear(Installed("x", ("s/0",)), peer("h"))
    assert node.clusters.transferred is not None


def test_an_arc_of_many_trees_looks_at_each_a_few_times() -> None:
    """Each tree that settles asks whether the arc may go: looking at all of them then took 0.1 s
    with 800 trees."""
    node = OwnerNode(one_node("p"), Settings(), cluster_of("p", "h"))
    names = [f"a{number}" for number in range(60)]
    many = tuple(registration(f"s/{name}", name, f"{name} > 1", peer("s")) for name in names)
    node.port.hear(Register(1, many), peer("s"))
    node.port.advance(1.0)
    node.clusters.commit()
    cluster = node.clusters.cluster
    assert cluster is not None
    looked = Counter[str]()
    has_serving_stale = node.owner.hosts.has_serving_stale

    def look(owned: OwnedTree) -> bool:
        looked[owned.attribute] += 1
        return has_serving_stale(owned)

    node.owner.hosts.has_serving_stale = look  # type: ignore[method-assign]
    node.port.hear(ArcLeaving(cluster))
    for name in names:
        assert node.clusters.transferred is None
        node.port.hear(Installed(name, (f"s/{name}",)), peer("h"))
    assert node.clusters.transferred is not None
    assert max(looked.values()) <= 6


def test_an_arc_does_not_wait_for_other_trees() -> None:
    node = OwnerNode(one_node("p"), Settings(), cluster_of("p", "h"))
    node.port.hear(Register(1, (registration("s/0", "y", "y > 1", peer("s")),)), peer("s"))
    node.port.hear(ArcLeaving(arc_of("x")))
    assert [decode(entry) for entry in node.clusters.transferred or ()] == [
        CacheHoldersChanged((peer("p"),))
    ]


def test_an_arc_that_stays_is_not_transferred_later() -> None:
    node = OwnerNode(one_node("p"), Settings(), cluster_of("p", "h"))
    node.port.hear(Register(1, (registration("s/0", "x", "x > 1", peer("s")),)), peer("s"))
    node.port.hear(ArcLeaving(arc_of("x")))
    node.port.hear(ArcKept(arc_of("x")))
    node.clusters.commit()
    node.port.hear(Installed("x", ("s/0",)), peer("h"))
    assert node.clusters.transferred is None


def test_who_holds_an_absence_goes_along_with_the_arc() -> None:
    """C5: the new owner has to ask what the old owner said, to others and to itself."""
    node = primary("y")
    node.port.hear(AskTree(("x",)), peer("pub"))
    node.clusters.commit()
    node.port.hear(ArcLeaving(arc_of("x")))
    assert node.clusters.transferred is not None
    new_owner = standby(node.clusters.transferred)
    new_owner.clusters.cluster = cluster_of("q", version=(2, 1))
    new_owner.port.hear(RoleChanged(new_owner.clusters.cluster, "primary"))
    assert [to for to, _ in new_owner.port.sent_to(AskCached)] == ["pub", "p"]


def test_a_leaving_primary_gives_its_standby_only_what_is_in_no_log() -> None:
    node = primary("x")
    node.port.hear(AskTree(("y",)), peer("pub"))
    node.clusters.commit()
    assert node.clusters.cluster is not None
    node.port.hear(ArcLeaving(node.clusters.cluster))
    assert node.clusters.transferred is not None
    assert [decode(entry) for entry in node.clusters.transferred] == [
        CacheHoldersChanged((peer("p"),))
    ]


def test_a_map_that_changes_keeps_the_trees_registrations() -> None:
    state = ClusterState()
    kept = registration("s/0", "x", "x > 1", peer("s"))
    state.apply(MapChanged("x", (1, 1), ENTRIES[0]))
    state.apply(RegistrationAdded("x", kept, 1))
    state.apply(MapChanged("x", (1, 2), ENTRIES[1]))
    assert state.trees["x"].map.version == (1, 2)
    assert state.trees["x"].registrations == {"s/0": kept}
