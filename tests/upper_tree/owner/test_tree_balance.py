"""C6: virtual nodes are split, merged and uprooted by load, and a cluster asks to be split."""

from __future__ import annotations

import pytest

from harness.overlays import settings
from matching import EVERYTHING, Interval, place
from overlay.chord.events import RoleChanged
from overlay.chord.keys import attribute_key
from overlay.settings import Settings
from overlay.upper_tree.host_load import ServedLoad, VirtualNodeLoad
from overlay.upper_tree.messages import Register, Unregister
from overlay.upper_tree.owner import rebalance as balance
from overlay.upper_tree.owner.constants import SPLIT_AFTER
from overlay.upper_tree.owner.tree_log import TreeRemoved, decode
from tests.support.trees import Rig, S, cluster_of, event, registration, served


def ranges(count: int) -> list[str]:
    return [f"x BETWEEN {n * 10} AND {n * 10 + 5}" for n in range(count)]


def test_a_virtual_node_over_the_threshold_is_cut_and_spread() -> None:
    rig = Rig("h1", "h2")
    rig.register(*ranges(4))
    rig.settle()
    assert rig.spread == ["h1"]
    rig.register(*ranges(9)[4:], first=4)
    rig.settle()
    assert sorted(set(rig.spread)) == ["h1", "h2"]
    counts = [
        sum(r.interval.overlaps(e.interval) for r in tree.registrations.values())
        for tree in [rig.owner.owner.trees["x"].tree]
        for e in tree.map.entries
    ]
    assert max(counts) <= 4
    for number in range(9):
        (host,) = rig.serving(number * 10)
        assert served(rig.hosts[host], event(1, x=number * 10)) == [f"s/{number}"]


def test_registrations_that_all_lie_over_each_other_are_not_cut() -> None:
    rig = Rig("h1", "h2")
    rig.register(*["x > 7"] * 9)
    rig.settle()
    assert rig.spread == ["h1"]


def test_registrations_are_counted_again_only_if_some_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    def best_cut(interval: Interval, intervals: list[Interval]) -> None:
        looks.append(len(intervals))

    monkeypatch.setattr(balance, "best_cut", best_cut)
    rig = Rig("h1", "h2")
    rig.register(*["x > 7"] * 9)
    rig.settle()
    seen = len(looks)
    assert seen >= 1
    rig.settle(10.0)
    assert len(looks) == seen
    rig.register("x > 7", first=9)
    rig.settle()
    assert looks[seen:] == [10]


def test_neighbours_that_have_little_are_merged_again() -> None:
    rig = Rig("h1", "h2", chosen=settings(tree={"split_at": 5}))
    rig.register(*ranges(9))
    rig.settle()
    assert len(rig.spread) >= 2
    rig.owner.port.hear(Unregister("x", tuple(f"s/{n}" for n in range(1, 9))), S)
    rig.settle()
    assert len(rig.spread) == 1
    (host,) = rig.serving(3)
    assert served(rig.hosts[host], event(1, x=3)) == ["s/0"]


def test_a_tree_without_registrations_is_removed_after_a_while() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    rig.settle(4.0)
    assert "x" in rig.owner.owner.trees, "a subscriber may come back"
    rig.settle(4.0)
    assert rig.owner.owner.trees == {}
    assert rig.hosts["h1"].hosting.trees == {}
    assert isinstance(decode(rig.owner.clusters.log[-1]), TreeRemoved)
    assert rig.owner.port.watched["hosts"] == ()


def test_a_tree_that_is_used_again_in_time_stays() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    rig.settle(3.0)
    rig.register("x > 2", first=1)
    rig.settle(10.0)
    assert rig.spread == ["h1"]


# --- the cluster as a whole ---


@pytest.mark.parametrize(
    ("chosen", "asked"),
    [
        (settings(cluster={"split_trees": 4}), False),
        (settings(cluster={"split_trees": 3}), True),
        (settings(cluster={"split_registrations": 3}), True),
    ],
)
def test_a_cluster_with_too_much_asks_for_a_split_in_the_middle_of_its_trees(
    chosen: Settings, asked: bool
) -> None:
    rig = Rig("h1", chosen=chosen)
    names = ["a", "b", "c", "d"]
    for name in names:
        made = registration(f"s/{name}", name, f"{name} > 1", S)
        rig.owner.port.hear(Register(1, (made,)), S)
    rig.settle(1.0)
    assert bool(rig.owner.clusters.split_at) is asked
    if asked:
        cluster = rig.owner.clusters.cluster
        assert cluster is not None

        def clockwise(key: str) -> tuple[bool, str]:
            return (key <= cluster.start, key)

        in_order = sorted((attribute_key(name) for name in names), key=clockwise)
        assert rig.owner.clusters.split_at[0] == in_order[1], "two trees go, two stay"


def clockwise_from(rig: Rig, names: list[str]) -> list[str]:
    """The trees in the order of the ring, from the beginning of the cluster's arc."""
    cluster = rig.owner.clusters.cluster
    assert cluster is not None
    start = cluster.start
    return sorted(names, key=lambda name: (attribute_key(name) <= start, attribute_key(name)))


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ((0.9, 0.9, 0.9, 0.9), 2),
        ((3.0, 1.0, 1.0, 1.0), 1),
        ((1.0, 1.0, 1.0, 3.0), 3),
        ((8.0, 0.5, 0.5, 0.5), None),
        ((0.4, 0.4, 0.4, 0.4), None),
    ],
)
def test_a_cluster_that_is_busy_for_long_asks_for_a_split_in_the_middle_of_its_load(
    asked: tuple[float, ...], first: int | None
) -> None:
    rig = Rig("h1", chosen=settings(cluster={"split_load": 3.0}, tree={"lease": 1_000.0}))
    names = clockwise_from(rig, ["a", "b", "c", "d"])
    for name in names:
        made = registration(f"s/{name}", name, f"{name} > 1", S)
        rig.owner.port.hear(Register(1, (made,)), S)
    rig.settle(1.0)
    loads = [
        VirtualNodeLoad(name, EVERYTHING, load, 0.0, (place(5),))  # nothing to be cut
        for name, load in zip(names, asked, strict=True)
    ]
    busy = ServedLoad(sum(asked), tuple(loads))
    hosting = rig.hosts["h1"].hosting
    hosting.assigned.loads.report = lambda owned: busy  # type: ignore[method-assign]
    rig.settle(SPLIT_AFTER - 2.0)
    assert rig.owner.clusters.split_at == [], "a burst may be over soon"
    rig.settle(6.0)
    middles = {None} if first is None else {attribute_key(names[first - 1])}
    assert set(rig.owner.clusters.split_at or [None]) == middles


def test_a_burst_splits_no_cluster() -> None:
    rig = Rig("h1", chosen=settings(cluster={"split_load": 1.0}, tree={"lease": 1_000.0}))
    for name in ("a", "b"):
        made = registration(f"s/{name}", name, f"{name} > 1", S)
        rig.owner.port.hear(Register(1, (made,)), S)
    rig.settle(1.0)
    each = [VirtualNodeLoad(name, EVERYTHING, 1.0, 0.0, (place(5),)) for name in ("a", "b")]
    hosting = rig.hosts["h1"].hosting
    for load in (ServedLoad(2.0, tuple(each)), None, ServedLoad(2.0, tuple(each)), None):
        hosting.assigned.loads.report = lambda owned, load=load: load  # type: ignore[method-assign]
        rig.settle(SPLIT_AFTER - 4.0 if load else 8.0)
    assert rig.owner.clusters.split_at == []


def test_a_node_that_leads_no_more_changes_nothing() -> None:
    rig = Rig("h1", "h2")
    rig.register(*ranges(9))
    rig.owner.clusters.cluster = cluster_of("q", "h1", "h2", version=(2, 1))
    rig.owner.port.hear(RoleChanged(rig.owner.clusters.cluster, "none"))
    before = len(rig.owner.clusters.log)
    rig.settle()
    assert len(rig.owner.clusters.log) == before
