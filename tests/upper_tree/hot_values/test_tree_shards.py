"""C6: a hot value becomes a virtual node of its own, with shards where its events take long."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harness.overlays import settings
from matching import Interval, place
from overlay.links.events import LinkDown
from overlay.settings import Settings
from overlay.upper_tree.messages import Entry, Register, Unregister
from overlay.upper_tree.owner.constants import SHARD_SECONDS, SLOW, TARGET
from overlay.upper_tree.shards import lies_in, shard_cuts
from tests.support.demand import Demand
from tests.support.trees import HostNode, Rig, registration
from tests.support.world import peer

ROOMY = settings(tree={"lease": 10_000.0})
VALUE = 7
COUNT = 60


class Hot(Rig):
    """A tree x with registrations of many nodes for one value, and of one for others."""

    def __init__(
        self, brokers: int = 8, chosen: Settings = ROOMY, replicas: int = 1, idle: int = 0
    ) -> None:
        """`idle`: nodes beside the cluster that host if they are asked."""
        names = [f"h{n}" for n in range(brokers)]
        super().__init__(*names, chosen=chosen, replicas=replicas)
        for n in range(idle):
            self.hosts[f"i{n}"] = HostNode(self.net.node(f"i{n}"), self.settings)
        self.owner.clusters.idle = tuple(peer(f"i{n}") for n in range(idle))
        self.demand = Demand(values=[float(VALUE)])
        self.demand.put_on(self.hosts)
        self.made = [registration("s/0", "x", "x >= 0 AND x < 100", peer("s"))]
        self.subscribe(COUNT)

    def subscribe(self, count: int) -> None:
        """So many more nodes register for the value."""
        first = len(self.made)
        self.made += [
            registration(f"n{n}/0", "x", f"x = {VALUE}", peer(f"n{n}"))
            for n in range(first, first + count)
        ]
        for one in self.made[first - 1 if first == 1 else first :]:
            if one.subscriber.id not in self.net.nodes:
                self.net.node(one.subscriber.id)
            self.owner.port.hear(Register(1, (one,)), one.subscriber)
        self.owner.clusters.commit()
        self.net.flush()
        self.settle(2.0)

    def ask(self, total: float, each: float, seconds: float = 20.0) -> None:
        """Events ask for so much of a host's time, `each` of them for so many seconds."""
        self.demand.total, self.demand.seconds = total, each
        self.settle(seconds)

    @property
    def entries(self) -> list[Entry]:
        return list(self.owner.owner.trees["x"].tree.map.entries)

    @property
    def shards(self) -> list[Entry]:
        return [e for e in self.entries if e.interval.is_shard()]

    @property
    def reasons(self) -> list[str]:
        return [fields["reason"] for fields in self.owner.port.traced("map")]

    def check_installed(self) -> None:
        """Each host has just the registrations of its virtual nodes, and serves these."""
        for name, node in self.hosts.items():
            tree = node.hosting.trees.get("x")
            mine = self.owner.owner.trees["x"].tree.map.hosted_by(name)
            if tree is None or not tree.served.intervals:
                assert not mine
                continue
            assert tree.served.intervals == mine
            wanted = [each.id for each in self.made if any(lies_in(each, one) for one in mine)]
            assert sorted(tree.registrations) == sorted(wanted)
            assert all(map(tree.finds, wanted))


def test_a_hot_value_whose_events_take_long_is_cut_into_shards_on_hosts_of_their_own() -> None:
    rig = Hot()
    rig.ask(1.6, 0.06)
    assert len(rig.shards) >= 0.06 / SHARD_SECONDS
    assert "slow" in rig.reasons
    hosts = [entry.hosts[0].id for entry in rig.shards]
    assert len(set(hosts)) == len(hosts), "an event is matched by all of them at the same time"
    owned = rig.owner.owner.trees["x"]
    sizes = owned.size.counts(owned.tree.map)
    assert max(sizes) <= 2 * min(size for size in sizes if size > 1)
    rig.check_installed()


def test_other_nodes_are_asked_to_host_shards_though_no_host_is_busy() -> None:
    rig = Hot(brokers=2, idle=8)
    rig.ask(0.4, 0.09, 30.0)
    assert len(rig.shards) >= 6
    hosts = [entry.hosts[0].id for entry in rig.shards]
    assert len(set(hosts)) == len(hosts)
    before = rig.owner.owner.trees["x"].tree.map.version
    rig.ask(0.4, 0.09, 60.0)
    assert rig.owner.owner.trees["x"].tree.map.version == before, rig.reasons
    rig.check_installed()


def test_a_hot_value_with_many_cheap_events_is_replicated() -> None:
    rig = Hot()
    rig.ask(2.4, SLOW / 2)
    assert rig.shards == []
    (hot,) = [e for e in rig.entries if e.interval.contains(VALUE)]
    assert len(hot.hosts) >= 2.4 / TARGET - 1
    assert rig.demand.most(rig.hosts) <= 0.7
    rig.check_installed()


def test_shards_have_replicas_where_many_events_come_that_take_long() -> None:
    rig = Hot(brokers=16)
    rig.ask(6.0, 0.05, 30.0)
    assert len(rig.shards) >= 4
    assert max(len(entry.hosts) for entry in rig.shards) >= 2
    assert rig.demand.most(rig.hosts) <= 0.8
    rig.check_installed()


@pytest.mark.parametrize("total", [0.3, 0.72, 1.1, 2.0, 5.0])
@pytest.mark.parametrize("each", [0.01, 0.029, 0.031, 0.1])
def test_a_steady_load_of_one_value_changes_no_map_after_a_while(total: float, each: float) -> None:
    rig = Hot()
    rig.ask(total, each, 40.0)
    before = rig.owner.owner.trees["x"].tree.map.version
    rig.ask(total, each, 40.0)
    assert rig.owner.owner.trees["x"].tree.map.version == before, rig.reasons
    rig.check_installed()


def test_shards_are_merged_when_no_events_come() -> None:
    rig = Hot()
    rig.ask(1.6, 0.06)
    assert rig.shards
    rig.ask(0.0, 0.0, 60.0)
    assert len(rig.entries) == 1
    assert rig.reasons[-1] in ("idle", "moved")
    rig.check_installed()


def test_a_value_with_more_registrations_than_one_host_has_room_for_is_cut_into_shards() -> None:
    rig = Hot(chosen=settings(tree={"lease": 10_000.0, "split_at": 20, "host_entries": 30}))
    rig.settle(20.0)
    assert "full" in rig.reasons
    owned = rig.owner.owner.trees["x"]
    sizes = owned.size.counts(owned.tree.map)
    assert max(sizes) <= 20
    assert len({entry.hosts[0].id for entry in rig.shards}) > 1
    rig.check_installed()
    gone = tuple(rig.made[5:])
    del rig.made[5:]
    for one in gone:
        rig.owner.port.hear(Unregister("x", (one.id,)), one.subscriber)
    rig.settle(20.0)
    assert rig.shards == []
    rig.check_installed()


def test_a_registration_of_a_hot_value_goes_to_the_hosts_of_its_shard_alone() -> None:
    rig = Hot()
    rig.ask(1.6, 0.06)
    before = {name: len(node.hosting.trees["x"].registrations) for name, node in rig.hosts.items()
              if "x" in node.hosting.trees}  # fmt: skip
    rig.subscribe(5)
    after = {name: len(rig.hosts[name].hosting.trees["x"].registrations) for name in before}
    assert sum(after.values()) - sum(before.values()) == 5
    rig.check_installed()


def test_a_registration_that_comes_while_shards_move_is_acknowledged_when_both_hosts_have_it() -> (
    None
):
    """I7: the hosts of the present map and those of the coming one."""
    rig = Hot()
    rig.demand.total, rig.demand.seconds = 1.6, 0.06
    for _ in range(400):
        rig.net.run(0.05)
        rig.owner.clusters.commit()
        owned = rig.owner.owner.trees["x"]
        if owned.next_map is not None and any(
            entry.interval.is_shard() for entry in owned.next_map.entries
        ):
            break
        rig.net.flush()
    assert owned.next_map is not None, "the map is being changed"
    late = registration("late/0", "x", f"x = {VALUE}", peer("late"))
    wanted = set(owned.hosts_for(late))
    coming = {host.id for entry in owned.next_map.serving(late) for host in entry.hosts}
    assert coming <= wanted
    rig.made.append(late)
    rig.net.node("late")
    rig.owner.port.hear(Register(1, (late,)), late.subscriber)
    rig.settle(10.0)
    rig.check_installed()


def test_a_shard_whose_host_is_lost_gets_another() -> None:
    rig = Hot()
    rig.ask(1.6, 0.06)
    lost = rig.shards[0].hosts[0]
    left = [name for name in rig.hosts if name != lost.id]
    rig.owner.port.hear(LinkDown(lost, "gone", False))
    del rig.hosts[lost.id]
    rig.members(*left)
    rig.settle(20.0)
    assert lost.id not in rig.owner.owner.trees["x"].tree.map.hosts()
    rig.check_installed()


def test_registrations_of_one_node_lie_together_and_are_divided_when_they_are_most() -> None:
    mine = [registration(f"a/{n}", "x", "x = 1", peer("a")) for n in range(50)]
    others = [registration(f"b{n}/0", "x", "x = 1", peer(f"b{n}")) for n in range(10)]

    value = Interval(place(1), (1, 1, 1))
    ends = [value.lo, *(at for at, _ in shard_cuts(value, [*mine, *others], 4)), value.hi]
    shards = [Interval(lo, hi) for lo, hi in pairwise(ends)]
    assert len(shards) == 4
    sizes = [sum(lies_in(one, shard) for one in (*mine, *others)) for shard in shards]
    assert sizes == [15, 15, 15, 15]
    few = [registration(f"c/{n}", "x", "x = 1", peer("c")) for n in range(3)]
    assert sum(any(lies_in(one, shard) for one in few) for shard in shards) == 1
