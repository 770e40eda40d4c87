"""C6, C9: which host serves what, how many members that takes, and registrations sent elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.overlays import settings
from matching import EVERYTHING, Interval
from overlay.machine import NodeId, Peer
from overlay.upper_tree.messages import BetterPivots, Register, Registered
from overlay.upper_tree.owner.constants import FILL, PLAN_PERIOD
from overlay.upper_tree.owner.host_selector import PlacedNode, fair_share
from overlay.upper_tree.owner.placement import HostUse, Placement, Plan, plan_placement
from overlay.upper_tree.pivots import Popularity, better_pivot
from overlay.upper_tree.summary import box_of
from tests.support.trees import Rig, S, registration
from tests.support.world import peer

HOSTS = [peer(name) for name in "abc"]


def parts(*sizes: int, host: str = "a") -> list[PlacedNode]:
    """Trees t0, t1 … of so many registrations, all at one host."""
    return [PlacedNode(f"t{n}", EVERYTHING, (host,), size) for n, size in enumerate(sizes)]


def popular(count: int) -> dict[str, int]:
    """t0 is the most popular."""
    return {f"t{n}": 100 - n for n in range(count)}


def hosts_of(found: dict[tuple[str, object], tuple[Peer, ...]]) -> dict[str, NodeId]:
    return {attribute: hosts[0].id for (attribute, _), hosts in found.items()}


def test_few_registrations_share_one_host() -> None:
    plan = plan_placement(parts(10, 10, 10), popular(3), HOSTS, 100)
    assert hosts_of(plan.hosts) == {"t0": "a", "t1": "a", "t2": "a"}
    assert plan.wanted == 1


def test_trees_that_are_popular_together_are_on_one_host() -> None:
    plan = plan_placement(parts(30, 30, 30, 30), popular(4), HOSTS, 100)
    found = hosts_of(plan.hosts)
    assert found["t0"] == found["t1"] != found["t2"] == found["t3"]


def test_a_run_goes_where_most_of_it_is() -> None:
    there = [*parts(30, 30, host="a"), *(p._replace(attribute=f"u{n}", hosts=("c",))
             for n, p in enumerate(parts(30, 30)))]  # fmt: skip
    known = {"u0": 9, "u1": 8, "t0": 2, "t1": 1}
    found = hosts_of(plan_placement(there, known, HOSTS, 100).hosts)
    assert found == {"t0": "a", "t1": "a", "u0": "c", "u1": "c"}


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 3))
def test_every_part_has_a_host_and_rooms_are_kept_where_hosts_suffice(
    sizes: list[int], count: int
) -> None:
    found = plan_placement(parts(*sizes), popular(len(sizes)), HOSTS[:count], 100)
    hosts = hosts_of(found.hosts)
    assert sorted(hosts) == sorted(f"t{n}" for n in range(len(sizes)))
    if found.wanted <= count:
        for host in "abc":
            load = sum(size for n, size in enumerate(sizes) if hosts[f"t{n}"] == host)
            assert load <= 100 * FILL or load == max(sizes)


def test_a_plan_stands_until_a_host_is_overfull_or_another() -> None:
    placement = Placement(100)
    first = placement.update(parts(30, 30), popular(2), HOSTS, 0.0)
    assert placement.update(parts(45, 45), popular(2), HOSTS, 1.0) is first, "it fits"
    assert placement.update(parts(60, 60), popular(2), HOSTS, 2.0) is first, "too soon"
    second = placement.update(parts(60, 60), popular(2), HOSTS, PLAN_PERIOD)
    assert len(set(hosts_of(second.hosts).values())) == 2
    third = placement.update(parts(60, 60), popular(2), HOSTS[:1], PLAN_PERIOD + 0.1)
    assert third.wanted == 2
    assert set(hosts_of(third.hosts).values()) == {"a"}


def test_hosts_that_are_nearly_empty_are_given_up() -> None:
    placement = Placement(100)
    spread = [
        part._replace(hosts=(host,)) for part, host in zip(parts(5, 5, 5), "abc", strict=True)
    ]
    placement.update(spread, popular(3), HOSTS, 0.0)
    found = placement.update(spread, popular(3), HOSTS, PLAN_PERIOD)
    assert len(set(hosts_of(found.hosts).values())) == 1


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(1, 7), st.integers(1, 3))
def test_replicas_are_on_different_hosts_within_their_rooms(
    sizes: list[int], count: int, replicas: int
) -> None:
    hosts = [peer(name) for name in "abcdefg"[:count]]
    found = plan_placement(parts(*sizes), popular(len(sizes)), hosts, 100, replicas).hosts
    assert len(found) == len(sizes)
    run_of = hosts_of(plan_placement(parts(*sizes), popular(len(sizes)), hosts, 100).hosts)
    load: dict[NodeId, int] = {}
    runs: dict[NodeId, dict[NodeId, None]] = {}
    for (attribute, _), chosen in found.items():
        assert 1 <= len(chosen) == len({host.id for host in chosen}) <= replicas
        for host in chosen:
            load[host.id] = load.get(host.id, 0) + sizes[int(attribute[1:])]
            runs.setdefault(host.id, {})[run_of[attribute]] = None
    assert all(many <= 100 or len(runs[host]) == 1 for host, many in load.items())


def test_each_run_has_its_own_hosts_where_there_are_enough() -> None:
    hosts = [peer(name) for name in "abcdef"]
    found = plan_placement(parts(60, 60), popular(2), hosts, 100, 3)
    groups = [{host.id for host in chosen} for chosen in found.hosts.values()]
    assert [len(group) for group in groups] == [3, 3]
    assert not groups[0] & groups[1]
    assert found.wanted == 6


# --- by load ---

MANY = [peer(f"n{number:02}") for number in range(24)]


def asked(*shares: float, alone: bool = True, host: str = "n00") -> list[PlacedNode]:
    """Trees t0, t1 … of one registration that ask for so much of a host's time, all at one host."""
    return [
        PlacedNode(f"t{n}", EVERYTHING, (host,), 1, share, share if alone else 0.0)
        for n, share in enumerate(shares)
    ]


def share_by_host(
    nodes: list[PlacedNode], found: dict[tuple[str, Interval], tuple[Peer, ...]]
) -> dict[NodeId, float]:
    """What each host is asked for, if replicas share their virtual node's load evenly."""
    load: dict[NodeId, float] = {}
    for node in nodes:
        hosts = found[node.attribute, node.interval]
        for host in hosts:
            load[host.id] = load.get(host.id, 0.0) + node.busy / len(hosts)
    return load


@given(st.lists(st.floats(0.01, 0.5), min_size=1, max_size=20), st.integers(1, 3))
def test_busy_trees_are_spread_so_that_no_host_is_asked_for_much_more_than_its_share(
    shares: list[float], replicas: int
) -> None:
    nodes = asked(*shares)
    found = plan_placement(nodes, popular(len(nodes)), MANY, 1_000, replicas)
    fair = fair_share(nodes, len(MANY))
    assert max(share_by_host(nodes, found.hosts).values()) <= 2 * fair


def test_trees_that_events_visit_together_stay_together_with_as_many_replicas_as_they_need() -> (
    None
):
    nodes = asked(*[0.6] * 5, alone=False)
    found = plan_placement(nodes, popular(5), MANY, 1_000, 3).hosts
    (hosts,) = set(found.values())
    assert len(hosts) == 6
    assert max(share_by_host(nodes, found).values()) == pytest.approx(0.5)


def test_a_value_that_many_events_have_gets_replicas() -> None:
    found = plan_placement(asked(4.0, 0.1), popular(2), MANY, 1_000, 1).hosts
    assert len(found["t0", EVERYTHING]) == 8
    assert len(found["t1", EVERYTHING]) == 1


def test_where_hosts_are_few_each_takes_its_share_of_all() -> None:
    nodes = asked(*[0.5] * 12)
    found = plan_placement(nodes, popular(12), MANY[:4], 1_000, 1).hosts
    load = share_by_host(nodes, found)
    assert len(load) == 4
    assert max(load.values()) <= 2.0


def test_a_host_that_is_asked_for_much_elsewhere_is_given_less() -> None:
    nodes = asked(0.4, 0.4)
    use = HostUse({"n00": 0.9}, ("n00",))
    found = plan_placement(nodes, popular(2), MANY[:3], 1_000, 1, use).hosts
    assert {host.id for hosts in found.values() for host in hosts} == {"n01", "n02"}


def test_a_plan_for_a_load_stands_while_the_load_does() -> None:
    placement = Placement(1_000)
    nodes = asked(0.45, 0.45, 0.45)
    first = placement.update(nodes, popular(3), MANY, 0.0)
    again = [n._replace(hosts=tuple(h.id for h in first.hosts[n.attribute, EVERYTHING]))
             for n in nodes]  # fmt: skip
    assert placement.update(again, popular(3), MANY, 1.0) is first, "no host is busy"
    made: list[Plan] = [first]
    for second in range(2, 120):  # the same load keeps a host busy however it is placed
        use = HostUse({}, ("n00",))
        plan = placement.update(again, popular(3), MANY, float(second), use)
        if plan is not made[-1]:
            assert plan.hosts == made[-1].hosts, "nothing moves"
            made.append(plan)
    assert len(made) < 10, "plans that do not help are made less and less often"


def test_hosts_with_hardly_any_requests_are_given_up() -> None:
    placement = Placement(1_000)
    nodes = [node._replace(hosts=(host.id,)) for node, host in
             zip(asked(*[0.45] * 12), MANY, strict=False)]  # fmt: skip
    first = placement.update(nodes, popular(12), MANY, 0.0)
    assert len({host.id for hosts in first.hosts.values() for host in hosts}) == 12
    idle = [node._replace(busy=0.01, alone=0.01) for node in nodes]
    found = placement.update(idle, popular(12), MANY, PLAN_PERIOD)
    assert len({host.id for hosts in found.hosts.values() for host in hosts}) == 1


# --- in the machines ---

TIGHT = settings(tree={"host_entries": 8, "split_at": 8})


def register(rig: Rig, tree: str, count: int) -> None:
    made = tuple(registration(f"{tree}/{n}", tree, f"{tree} > {n}", S) for n in range(count))
    rig.owner.port.hear(Register(1, made), S)
    rig.owner.clusters.commit()
    rig.net.flush()


def load(rig: Rig) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in rig.owner.owner.selector.virtual_nodes():
        for host in part.hosts:
            found[host] = found.get(host, 0) + part.registrations
    return found


def test_trees_share_a_host_and_move_when_it_is_full() -> None:
    rig = Rig("h1", "h2", "h3", chosen=TIGHT)
    for tree in ("u", "v", "w"):
        register(rig, tree, 2)
    rig.settle()
    assert load(rig) == {"h1": 6}
    for tree in ("x", "y", "z"):
        register(rig, tree, 2)
    rig.settle(10)
    assert sum(load(rig).values()) == 12
    assert max(load(rig).values()) <= 8


def test_every_tree_has_as_many_replicas_as_hosts_and_rooms_allow() -> None:
    rig = Rig("h1", "h2", "h3", chosen=TIGHT, replicas=2)
    register(rig, "u", 6)
    rig.settle()
    assert sorted(load(rig).values()) == [6, 6]
    for tree in ("v", "w"):
        register(rig, tree, 6)
    rig.settle(10)
    assert load(rig) == {"h1": 6, "h2": 6, "h3": 6}, "there is room for one replica of each"


def test_a_cluster_asks_for_the_members_that_its_load_needs() -> None:
    rig = Rig("h1", chosen=TIGHT)
    for tree in ("u", "v", "w", "x", "y"):
        register(rig, tree, 5)
    rig.settle(10)
    assert rig.owner.clusters.wanted == 5 + 2


def test_who_subscribes_most_is_asked_to_host_first() -> None:
    rig = Rig("h1", chosen=TIGHT)
    for name, count in (("s", 2), ("t", 7)):
        made = [
            registration(f"{name}/{n}", f"x{n}", f"x{n} > {n}", peer(name)) for n in range(count)
        ]
        rig.owner.port.hear(Register(1, tuple(made)), peer(name))
    rig.owner.clusters.commit()
    rig.settle()
    assert rig.owner.clusters.wanted > 2
    assert rig.owner.clusters.preferred == ["t", "s"]


# --- pivots ---


def test_a_pivot_is_better_only_if_it_has_far_less_traffic() -> None:
    from matching import compile_selector

    (conjunction,) = compile_selector("x > 1 AND y > 1").conjunctions
    box = box_of(conjunction)
    assert better_pivot("x", box, {"x": 9, "y": 1}) == "y"
    assert better_pivot("x", box, {"x": 3, "y": 1}) is None
    assert better_pivot("y", box, {"x": 9, "y": 1}) is None


def test_popularity_counts_what_is_registered() -> None:
    from matching import compile_selector

    boxes = [box_of(c) for c in compile_selector("x > 1 AND y > 1 OR x < 0").conjunctions]
    known = Popularity()
    known.add(boxes)
    assert known == {"x": 2, "y": 1}
    known.remove(boxes[:1])
    known.remove(boxes[1:])
    assert known == {}


@pytest.mark.parametrize("final", [False, True])
def test_an_owner_sends_a_registration_to_a_better_pivot_once(final: bool) -> None:
    rig = Rig("h1")
    register(rig, "x", 6)
    made = registration("s/9", "x", "x > 1 AND y > 1", S)
    rig.subscriber.sent.clear()
    rig.owner.port.hear(Register(1, (made,), final), S)
    rig.owner.clusters.commit()
    sent = [message for to, message in rig.owner.port.sent if to == S]
    if final:
        assert rig.owner.owner.trees.popularity == {"x": 7, "y": 1}
        assert not any(isinstance(message, BetterPivots) for message in sent)
    else:
        assert BetterPivots((("s/9", "x", "y"),), (("x", 6), ("y", 0))) in sent
        assert "s/9" not in rig.owner.owner.trees["x"].tree.registrations
        rig.owner.port.hear(Register(1, (made,), True), S)
        rig.net.flush()
        rig.owner.clusters.commit()
        answers = [m for to, m in rig.owner.port.sent if to == S and isinstance(m, Registered)]
        assert answers[-1].ids == ("s/9",)
