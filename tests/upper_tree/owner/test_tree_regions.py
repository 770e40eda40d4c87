"""M1: trees have a host in each region where much of the interest is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.overlays import settings
from matching import EVERYTHING
from overlay.machine import Peer
from overlay.settings import Settings
from overlay.upper_tree.host.host_offers import HostOffers
from overlay.upper_tree.host_load import Machines
from overlay.upper_tree.messages import AskToHost, Entry, HostAnswer
from overlay.upper_tree.owner.constants import PLAN_PERIOD, REGION_SHARE, REGIONS_MOST
from overlay.upper_tree.owner.host_pool import HostPool
from overlay.upper_tree.owner.host_selector import PlacedNode, WantedRegions
from overlay.upper_tree.owner.placement import HostUse, Placement, plan_placement
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.partition import PartitionMap
from tests.support.trees import FakeClusters, HostNode, cluster_of, registration
from tests.support.world import WorldNode, one_node
from tests.upper_tree.host.test_tree_hosting import assign, install


def at(name: str, region: str = "") -> Peer:
    return Peer(name, f"{name}:1", region)


# --- which regions ---


def test_regions_with_a_share_of_the_registrations_are_wanted_that_of_most_first() -> None:
    wanted = WantedRegions()
    assert wanted.update({"eu": 30, "us": 60, "as": 4, "": 6}) == ("us", "eu")
    assert wanted.update({}) == ()
    assert wanted.update({"": 100}) == ()


def test_a_region_that_is_wanted_stays_so_for_a_while() -> None:
    wanted = WantedRegions()
    few = int(100 * REGION_SHARE)
    for count, is_wanted in ((few - 1, False), (few, True), (few // 2 + 1, True), (1, False)):
        assert ("eu" in wanted.update({"eu": count, "us": 100 - count})) is is_wanted


def test_wanted_regions_are_bounded() -> None:
    interest = {f"r{n}": 10 + n for n in range(REGIONS_MOST + 4)}
    assert len(WantedRegions().update(interest)) == REGIONS_MOST


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["", "eu", "us"]), st.booleans()), max_size=30
    )
)
def test_interest_is_that_of_the_registrations_there(
    changes: list[tuple[int, str, bool]],
) -> None:
    tree = Tree("x", PartitionMap((1, 1), (Entry(EVERYTHING, (at("h"),)),)))
    for number, region, is_added in changes:
        if is_added:
            tree.add(registration(f"s/{number}", "x", "x > 0", at("s", region)), 1)
        else:
            tree.remove((f"s/{number}",))
        there = [each.subscriber.region for each in tree.registrations.values()]
        assert +tree.interest == {region: there.count(region) for region in there}
        assert tree.incarnations.keys() == tree.registrations.keys()


# --- which hosts ---


def trees(count: int, *hosts: str, size: int = 10) -> list[PlacedNode]:
    return [PlacedNode(f"t{n}", EVERYTHING, hosts, size) for n in range(count)]


def placed(
    nodes: list[PlacedNode], hosts: Sequence[Peer], regions: tuple[str, ...], replicas: int = 1
) -> list[list[str]]:
    plan = plan_placement(nodes, {}, hosts, 100, replicas, HostUse(regions=regions))
    return [[host.id for host in plan.hosts[node.attribute, EVERYTHING]] for node in nodes]


HOSTS = [at("u1", "us"), at("u2", "us"), at("e1", "eu"), at("n1")]


def test_each_tree_has_a_host_in_each_wanted_region_that_has_one() -> None:
    ((*found,),) = placed(trees(1, "u1"), HOSTS, ("eu", "us", "as"))
    assert sorted(found) == ["e1", "u1"]


def test_a_host_in_a_region_that_has_the_tree_keeps_it() -> None:
    ((*found,),) = placed(trees(1, "u2", "e1"), HOSTS, ("us", "eu"))
    assert sorted(found) == ["e1", "u2"]


def test_hosts_outside_of_the_wanted_regions_come_last() -> None:
    assert placed(trees(1, "n1"), HOSTS, ("eu",)) == [["e1"]]
    ((*found,),) = placed(trees(1, "n1"), HOSTS, ("eu",), replicas=2)
    assert sorted(found) == ["e1", "n1"], "rather than have one replica only"
    assert placed(trees(1, "n1"), HOSTS, ("as",)) == [["n1"]], "no other is there"


def test_without_regions_plans_are_what_they_were() -> None:
    assert placed(trees(3, "u2"), HOSTS, ()) == [["u2"]] * 3


def test_where_there_is_no_room_in_a_region_its_publishers_visit_another_one() -> None:
    found = placed(trees(4, "u1", size=60), HOSTS, ("us", "eu"))
    assert all(hosts for hosts in found)
    assert sum("e1" in hosts for hosts in found) == 1


def test_a_plan_is_made_again_when_other_regions_are_wanted_and_not_before() -> None:
    placement, nodes, now = Placement(100), trees(1, "u1"), 0.0
    made = [
        placement.update(nodes, {}, HOSTS, now := now + PLAN_PERIOD, HostUse(regions=regions))
        for regions in (("us",), ("us",), ("us", "eu"), ("us", "eu"))
    ]
    assert made[0] is made[1] is not made[2]
    assert made[2] is made[3]


# --- who is asked to be one ---


class Looked:
    """An owner of a cluster of p and b, both in `us`."""

    def __init__(self, *idle: Peer) -> None:
        self.port: WorldNode = one_node("p")
        self.clusters: Any = FakeClusters(self.port, cluster_of("p", "b"))
        self.clusters.idle = idle
        self.pool = HostPool(self.port, self.clusters, self, Machines())
        self.port.add(self.pool)

    def rebalance_soon(self, delay: float = 0.0) -> None:
        """The pool has changed."""

    def asked(self) -> list[tuple[str, str]]:
        return [(to, message.region) for to, message in self.port.sent_to(AskToHost)]

    def answers(self, sender: Peer, *others: Peer, willing: bool = True) -> None:
        cluster = self.clusters.cluster
        self.port.hear(HostAnswer(cluster.key, willing, others), sender)

    @property
    def hosts(self) -> list[str]:
        return [host.id for host in self.pool.hosts()]


def test_one_node_in_each_region_without_a_host_is_asked_a_subscriber_first() -> None:
    owner = Looked(at("idle", "eu"), at("far", "as"))
    owner.pool.cover(("us", "eu"), ("eu",), [at("s1", "eu"), at("s2", "eu")])
    owner.pool.cover(("us", "eu"), ("eu",), [at("s1", "eu"), at("s2", "eu")])
    assert owner.asked() == [("s1", "eu")], "one, as long as it may answer"
    owner.answers(at("s1", "eu"))
    assert owner.hosts == ["s1"]


def test_a_node_that_refuses_names_others_and_these_are_asked_in_its_place() -> None:
    owner = Looked()
    owner.pool.cover(("eu",), ("eu",), [at("s1", "eu")])
    owner.answers(at("s1", "eu"), at("u", "us"), at("e", "eu"), willing=False)
    owner.port.advance(1.5)
    owner.port.take(AskToHost)
    owner.pool.cover(("eu",), ("eu",), [at("s1", "eu")])
    assert owner.asked() == [("e", "eu")]


def test_a_host_is_given_up_when_its_region_is_not_wanted_any_more() -> None:
    owner = Looked()
    owner.pool.cover(("eu",), ("eu",), [at("s1", "eu")])
    owner.answers(at("s1", "eu"))
    owner.pool.cover(("eu",), (), [])
    assert owner.hosts == ["s1"]
    owner.pool.cover((), (), [])
    assert owner.hosts == []


def test_what_a_load_needs_is_kept_beside() -> None:
    owner = Looked(at("i1"), at("i2"))
    owner.pool.grow(2, [])
    owner.answers(at("i1"))
    owner.answers(at("i2"))
    owner.pool.cover(("eu",), ("eu",), [at("s1", "eu")])
    owner.answers(at("s1", "eu"))
    assert owner.hosts == ["i1", "i2", "s1"]
    for _ in range(3):
        owner.port.advance(20.0)
        owner.pool.settle(0)
        owner.pool.cover(("eu",), (), [])
    assert owner.hosts == ["s1"]


def test_a_hosts_load_is_the_scarcer_of_time_and_room() -> None:
    """M2: what gossip says of it."""
    node = HostNode(one_node("h"), settings(tree={"host_entries": 10}))
    assert node.hosting.load == 0
    assign(node, EVERYTHING)
    for number in range(4):
        install(node, registration(f"s/{number}", "x", "x > 0", at("s")))
    assert node.hosting.load == 40
    node.hosting.assigned.loads.busy = 0.7
    assert node.hosting.load == 70
    node.hosting.assigned.loads.busy = 3.0
    assert node.hosting.load == 100


def test_a_node_that_is_asked_for_a_region_names_those_near_it_first() -> None:
    """M2: every node can answer a redirect."""
    port = one_node("me")
    node = HostNode(port, Settings())
    others = (at("a", "us"), at("b", "eu/fr"), at("c", "eu/de"))
    node.offers._idle_peers = lambda: others
    for region, first in (("eu/de", ["c", "b", "a"]), ("", ["a", "b", "c"])):
        port.hear(AskToHost("0" * 40, "ring", region), at("p"))
        (answer,) = port.take(HostAnswer)
        assert [peer.id for peer in answer.others] == first
    assert isinstance(node.offers, HostOffers)
