"""C6: trees grow with the load that their hosts report, over the nodes of the whole overlay."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from harness.overlays import settings
from matching import place
from overlay.chord.events import RoleChanged
from overlay.links.events import LinkDown
from overlay.machine import Peer
from overlay.upper_tree import host_load as machines_module
from overlay.upper_tree.host_load import Machines
from overlay.upper_tree.messages import AskToHost, HostAnswer, StopsHosting
from overlay.upper_tree.owner import host_pool as host_pool_module
from overlay.upper_tree.owner.constants import (
    BUSY,
    CONFIRM_WITHIN,
    GROWN,
    MERGED_BUSY,
    POOL_KEPT,
    RELIEF_LEAST,
    RELIEF_MOST,
    RELIEF_SOON,
    TARGET,
)
from overlay.upper_tree.owner.placement import Relief
from tests.support.demand import Demand
from tests.support.trees import HostNode, OwnerNode, Rig, event, served
from tests.support.world import peer

ROOMY = settings(tree={"lease": 10_000.0})
SELECTORS = [f"x BETWEEN {n * 10} AND {n * 10 + 12}" for n in range(10)]


def _host_beside(owner: OwnerNode) -> HostNode:
    """The host's machine at the owner's node."""
    node = HostNode.__new__(HostNode)
    node.port, node.hosting = owner.port, owner.hosting
    return node


class Grown(Rig):
    """A tree x with registrations over 0 to 100, on brokers, with idle nodes beside."""

    def __init__(
        self, brokers: int = 3, idle: int = 0, chosen: Any = ROOMY, replicas: int = 1
    ) -> None:
        names = [f"h{n}" for n in range(brokers)]
        super().__init__(*names, chosen=chosen, replicas=replicas)
        self.brokers = names
        for n in range(idle):
            self.hosts[f"i{n}"] = HostNode(self.net.node(f"i{n}"), self.settings)
        self.owner.clusters.idle = tuple(peer(f"i{n}") for n in range(idle))
        self.hosts["p"] = _host_beside(self.owner)
        self.demand = Demand()
        self.demand.put_on(self.hosts)
        self.register(*SELECTORS)
        self.settle(2.0)

    def ask(self, total: float, seconds: float = 15.0) -> None:
        """Events ask for so much of a host's time, for so long."""
        self.demand.total = total
        self.settle(seconds)

    @property
    def entries(self) -> list[Any]:
        return list(self.owner.owner.trees["x"].tree.map.entries)

    @property
    def used(self) -> list[str]:
        """The hosts that the map names."""
        return sorted(self.owner.owner.trees["x"].tree.map.hosts())

    @property
    def reasons(self) -> list[str]:
        return [fields["reason"] for fields in self.owner.port.traced("map")]

    def check_covered(self) -> None:
        """Some host serves each value, under a lease."""
        for value in range(0, 112, 3):
            assert self.serving(value), f"no host serves {value}"

    def check_served(self) -> None:
        """Each value is matched, with all of its registrations, exactly where the map says."""
        for value in range(0, 112, 3):
            expected = sorted(f"s/{n}" for n in range(10) if n * 10 <= value <= n * 10 + 12)
            (entry,) = [e for e in self.entries if e.interval.contains(value)]
            assert sorted(self.serving(value)) == sorted(host.id for host in entry.hosts)
            for host in entry.hosts:
                found = served(self.hosts[host.id], event(1, x=value))
                assert found is not None
                assert sorted(found) == expected


# --- cutting and merging ---


def test_a_busy_virtual_node_is_cut_where_its_load_has_its_parts() -> None:
    rig = Grown(brokers=4)
    rig.demand.values = [float(value) for value in range(80, 100)]  # few registrations, all events
    rig.ask(1.6)
    assert len(rig.entries) >= 3
    shares = [
        sum(1 for value in rig.demand.values if entry.interval.contains(value)) / 20
        for entry in rig.entries
    ]
    assert max(shares) <= 0.4
    assert rig.demand.most(rig.hosts) <= BUSY
    assert "busy" in rig.reasons
    rig.check_served()


def test_nothing_is_cut_while_no_host_is_busy() -> None:
    rig = Grown(brokers=4)
    rig.ask(BUSY - 0.1)
    assert len(rig.entries) == 1
    assert rig.reasons == ["created"]


def test_nothing_is_cut_where_no_other_host_could_take_a_part() -> None:
    rig = Grown(brokers=0)
    rig.ask(3.0)
    assert rig.owner.owner.hosts.loads.busy_hosts() == ["p"]
    assert len(rig.entries) == 1


@pytest.mark.parametrize("total", [0.3, 0.72, 1.1, 2.0, 3.4, 8.0, 30.0])
def test_a_steady_load_changes_no_map_after_a_while(total: float) -> None:
    rig = Grown(brokers=3, idle=9)
    rig.ask(total, 30.0)
    before = rig.owner.owner.trees["x"].tree.map.version
    hosts = rig.used
    rig.ask(total, 60.0)
    assert rig.owner.owner.trees["x"].tree.map.version == before, rig.reasons
    assert rig.used == hosts
    rig.check_served()


def test_a_load_that_varies_by_a_fifth_changes_no_map() -> None:
    rig = Grown(brokers=3, idle=9)
    rig.ask(3.0, 30.0)
    before = rig.owner.owner.trees["x"].tree.map.version
    for number in range(40):
        rig.ask(3.0 * (1.2 if number % 2 else 0.8), 1.5)
    assert rig.owner.owner.trees["x"].tree.map.version == before, rig.reasons


def test_what_has_become_idle_is_merged_and_hosts_are_given_up() -> None:
    rig = Grown(brokers=3, idle=6)
    rig.ask(4.0)
    assert len(rig.entries) > 3
    assert len(rig.used) > 3
    rig.ask(MERGED_BUSY / 2, POOL_KEPT * 3)
    assert len(rig.entries) == 1
    assert rig.used == [host for host in rig.used if host in rig.brokers]
    assert "idle" in rig.reasons
    assert rig.owner.owner.pool.hosts() == []
    rig.check_served()


def test_a_new_primary_changes_nothing_before_hosts_have_reported() -> None:
    rig = Grown(brokers=4)
    rig.ask(1.6)
    parts, reasons = len(rig.entries), rig.reasons
    rig.owner.owner.hosts.begin(list(rig.owner.owner.state.hosts()))  # as one that was elected
    rig.owner.owner.rebalance_soon(0.0)
    rig.net.run(0.01)
    rig.settle(15.0)
    assert parts > 1
    assert rig.reasons == reasons


# --- hot values ---


def test_a_hot_value_is_a_virtual_node_of_its_own_with_as_many_hosts_as_it_needs() -> None:
    rig = Grown(brokers=3, idle=9)
    rig.demand.values = [*([55.0] * 80), *(float(value) for value in range(20))]
    rig.ask(4.0, 25.0)
    (hot,) = [entry for entry in rig.entries if entry.interval.contains(55.0)]
    assert (hot.interval.lo, hot.interval.hi) == (place(55.0), (1, 55.0, 1))
    assert len(hot.hosts) >= 0.8 * 4.0 / BUSY
    assert rig.demand.most(rig.hosts) <= BUSY
    rig.check_served()


# --- hosts from the overlay ---


def test_idle_nodes_host_what_members_cannot() -> None:
    rig = Grown(brokers=3, idle=9)
    rig.ask(4.0)
    assert len(rig.used) >= 4.0 / BUSY
    assert set(rig.brokers) <= set(rig.used)
    assert rig.demand.most(rig.hosts) <= BUSY
    rig.check_served()


def test_no_other_node_is_asked_where_members_have_time() -> None:
    rig = Grown(brokers=4, idle=4)
    rig.ask(1.4)
    assert rig.owner.port.take(AskToHost) == []
    assert set(rig.used) <= set(rig.brokers)


def test_subscribers_of_the_busy_tree_are_asked_first() -> None:
    rig = Grown(brokers=3, idle=4)
    rig.subscriber.ignore(AskToHost)
    rig.ask(2.2, 3.0)
    asked = rig.owner.port.sent_to(AskToHost)
    assert asked[0][0] == "s"


def test_nodes_that_others_name_are_asked_as_well() -> None:
    rig = Grown(brokers=3, idle=5)
    rig.owner.clusters.idle = (peer("i0"),)
    near = tuple(peer(f"i{n}") for n in range(1, 5))
    rig.hosts["i0"].offers._idle_peers = lambda: near
    rig.ask(4.0)
    assert set(rig.used) >= {"i1", "i2", "i3", "i4"}


@pytest.mark.parametrize("why", ["it leaves", "it may not serve", "it is busy"])
def test_a_node_refuses_that_has_no_time_or_leaves(why: str) -> None:
    chosen = settings(cluster={"serve": why != "it may not serve"}, tree={"lease": 10_000.0})
    rig = Grown(brokers=1, idle=1, chosen=chosen)
    node = rig.hosts["i0"]
    if why == "it leaves":
        node.offers.leave()
    elif why == "it is busy":
        node.hosting.assigned.loads.busy = TARGET
    node.port.hear(AskToHost("key", ""), peer("p"))
    assert [answer.willing for answer in node.port.take(HostAnswer)] == [False]


@pytest.mark.parametrize(("processors", "hosts"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_a_machine_is_asked_for_as_many_hosts_as_its_processors_carry(
    monkeypatch: pytest.MonkeyPatch, processors: int, hosts: int
) -> None:
    """One for every two processors."""
    for module in (machines_module, host_pool_module):
        monkeypatch.setattr(module, "machine_of", lambda peer: "the only one")
    rig = Grown(brokers=2, idle=12)
    for node in rig.net.nodes.values():
        node.processors = processors
    rig.owner.owner.hosts.machines.reported(peer("p"), processors)
    rig.ask(8.0)
    assert len(rig.used) == hosts
    rig.check_served()


def test_hosts_of_one_machine_count_as_its_processors_do() -> None:
    machines = Machines()
    hosts = [Peer(f"a{n}", f"a:{n}") for n in range(9)] + [peer("b")]
    assert machines.worth(hosts) == 2, "one on each: one that has not said has one processor"
    machines.reported(hosts[0], 6)
    assert machines.worth(hosts) == 3 + 1
    machines.reported(hosts[0], 64)
    assert machines.worth(hosts) == len(hosts)
    assert not machines.is_full("a", hosts)
    machines.reported(hosts[0], 1)
    assert machines.is_full("a", hosts)
    assert machines.is_full("b", hosts)
    assert not machines.is_full("c", hosts)


def test_a_load_that_nothing_relieves_is_cut_for_less_and_less_often() -> None:
    relief, acted = Relief(), []
    for step in range(3_000):
        if relief.claim(4.0, False, step / 10):
            acted.append(step / 10)
    pauses = [later - before for before, later in pairwise(acted)]
    assert pauses[0] == pytest.approx(2 * RELIEF_LEAST, abs=0.11)
    assert max(pauses) == pytest.approx(RELIEF_MOST, abs=0.11)
    assert pauses == sorted(pauses)
    assert relief.claim(4.0 * GROWN * 1.01, False, acted[-1] + RELIEF_MOST / 4 + 0.1), (
        "it has grown"
    )


def test_a_load_that_grows_is_cut_for_soon_again() -> None:
    relief = Relief()
    assert relief.claim(4.0, False, 0.0)
    assert not relief.claim(4.0 * GROWN * 1.01, False, RELIEF_SOON * 0.9)
    assert relief.claim(4.0 * GROWN * 1.01, False, RELIEF_SOON * 1.3)
    assert relief.claim(4.0, True, RELIEF_SOON * 3.9), "what was cut is to be placed"


def test_members_that_lead_host_as_well_where_there_is_no_other_node() -> None:
    rig = Grown(brokers=3)
    rig.ask(2.6)
    assert "p" in rig.used


def test_a_host_that_leaves_is_relieved_before_it_goes() -> None:
    rig = Grown(brokers=3, idle=9)
    rig.ask(4.0)
    leaving = next(host for host in rig.used if host not in rig.brokers)
    node = rig.hosts[leaving]
    assert node.offers.hosted == 0, "it does not leave"
    began = rig.net.now
    node.offers.leave()
    assert node.offers.hosted == 1
    for _ in range(40):
        rig.settle(0.2)
        rig.check_covered()
        if not node.offers.hosted:
            break
    assert node.offers.hosted == 0
    assert rig.net.now < began + 4.0, "before its lease would have ended"
    assert leaving not in rig.used
    assert not any(tree.served.intervals for tree in node.hosting.trees.values())
    rig.check_served()


def test_a_leaving_host_goes_after_a_while_whatever_its_owner_does() -> None:
    rig = Grown(brokers=3, idle=2)
    rig.ask(3.0)
    node = rig.hosts[next(host for host in rig.used if host not in rig.brokers)]
    rig.owner.port.ignore(StopsHosting)
    node.offers.leave()
    assert node.offers.hosted == 1
    rig.settle(11.0)
    assert node.offers.hosted == 0


def test_a_host_that_is_lost_is_replaced() -> None:
    rig = Grown(brokers=3, idle=9, replicas=2)
    rig.ask(4.0)
    lost = next(host for host in rig.used if host not in rig.brokers)
    del rig.hosts[lost], rig.net.nodes[lost]
    rig.net.cut("p", lost)
    rig.ask(4.0)
    assert lost not in rig.used
    rig.check_served()


def test_a_new_primary_goes_on_with_the_hosts_that_it_finds_and_drops_those_that_are_gone() -> None:
    rig = Grown(brokers=3, idle=9)
    rig.ask(4.0)
    others = [host for host in rig.used if host not in rig.brokers]
    gone = others[0]
    del rig.hosts[gone]
    rig.net.nodes[gone]._table.clear()  # it answers nothing, and its link does not break
    owner = rig.owner.owner
    cluster = rig.owner.clusters.cluster
    assert cluster is not None
    owner.pool.begin(owner.state.hosts())
    assert {host.id for host in owner.pool.hosts()} == set(others)
    rig.settle(CONFIRM_WITHIN + 0.5)
    assert {host.id for host in owner.pool.hosts()} == set(others[1:])


def test_a_node_that_leads_no_more_has_no_pool() -> None:
    rig = Grown(brokers=3, idle=9)
    rig.ask(4.0)
    assert rig.owner.owner.pool.hosts()
    rig.owner.port.hear(RoleChanged(rig.owner.clusters.cluster, "broker"))
    assert rig.owner.owner.pool.hosts() == []


def test_every_change_is_traced_with_its_reason() -> None:
    rig = Grown(brokers=3, idle=6)
    rig.ask(4.0)
    rig.ask(0.0, 60.0)
    records = rig.owner.port.traced("map")
    for before, after in pairwise(records):
        match after["reason"]:
            case "busy" | "full":
                assert after["size"] > before["size"]
            case "idle":
                assert after["size"] < before["size"]
            case reason:
                assert reason in ("moved", "restored")
                assert after["size"] == before["size"]
    assert {"busy", "moved", "idle"} <= {record["reason"] for record in records}


def test_a_lost_link_is_no_report() -> None:
    rig = Grown(brokers=3)
    rig.ask(2.0, 2.0)
    rig.owner.port.hear(LinkDown(peer("h0"), "silent", False, ()))
    assert rig.owner.owner.hosts.loads.busy("h0") == 0.0
