"""When all registrations of a tree are looked at again, and whether hosts have one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from random import Random

import pytest

from matching import BOTTOM, TOP, Interval, place
from overlay.machine import NodeId, Peer
from overlay.upper_tree.messages import Entry, Registration
from overlay.upper_tree.owner.constants import SCAN_PERIOD, SCAN_SHARE
from overlay.upper_tree.owner.owned_tree import HostLoads, OwnedTree, ScanThrottle
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.pivots import Popularity
from tests.support.trees import registration
from tests.support.world import peer


def test_a_look_is_due_where_something_changed_and_not_for_every_little_thing() -> None:
    first, second = (PartitionMap.single((1, n), (peer("h"),)) for n in (1, 2))
    scan = ScanThrottle()
    assert scan.is_due(first, 0, 0, 0.0), "never looked"
    scan.done(first, 1000, 5.0)
    assert not scan.is_due(first, 1000, 900, 100.0), "nothing has changed"
    assert scan.is_due(second, 1000, 900, 5.0), "another map"
    assert not scan.is_due(first, 1001, 900, 5.0)
    assert scan.is_due(first, 1001, 900, 5.0 + SCAN_PERIOD), "something has, a while ago"
    assert scan.is_due(first, 1000 + 900 // SCAN_SHARE + 1, 900, 5.0), "many have"
    assert scan.is_due(first, 1001, SCAN_SHARE, 5.0), "few are not many to look at"


def at_hosts(number: int, hosts: list[Peer]) -> PartitionMap:
    """A virtual node at each of them."""
    bounds = [BOTTOM, *(place(n) for n in range(1, len(hosts))), TOP]
    each = zip(pairwise(bounds), hosts, strict=True)
    return PartitionMap(
        (1, number), tuple(Entry(Interval(lo, hi), (host,)) for (lo, hi), host in each)
    )


def test_a_registration_is_installed_when_its_last_host_has_answered() -> None:
    """Whichever that is, if the map changes meanwhile, and if a host has to answer again."""
    rng = Random(1)
    hosts = [peer(f"h{number}") for number in range(8)]
    owned = OwnedTree(Tree("x", at_hosts(1, hosts[:5])), Popularity(), HostLoads())
    pending = owned.register(registration("s/0", "x", "x > 2", peer("s")), 1)
    over: set[NodeId] = set()
    installed = []
    for _ in range(1_000):
        chance = rng.random()
        if chance < 0.7:
            owned.host_installed(rng.choice(hosts).id, ["s/0"])
        elif chance < 0.8:
            over ^= {rng.choice(hosts).id}
        elif chance < 0.9:
            owned.mark_stale(rng.choice(hosts))
        elif owned.next_map is None:
            owned.begin_change(at_hosts(2, rng.sample(hosts, 5)), "moved")
        else:
            owned.abandon_change()
        wanted = owned.hosts_for(pending.registration)
        expected = all(host in pending.installed or host in over for host in wanted)
        assert owned.is_installed(pending, over.__contains__) is expected
        installed.append(expected)
    assert installed.count(True) > 50


def test_the_hosts_of_a_registration_are_not_gone_through_at_each_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = [peer(f"h{number}") for number in range(64)]
    owned = OwnedTree(Tree("x", at_hosts(1, hosts)), Popularity(), HostLoads())
    pending = owned.register(registration("s/0", "x", "x > -1", peer("s")), 1)
    looked, hosts_for = list[str](), owned.hosts_for

    def counted(one: Registration) -> Mapping[NodeId, Peer]:
        looked.append(one.id)
        return hosts_for(one)

    monkeypatch.setattr(owned, "hosts_for", counted)
    for host in Random(1).sample(hosts, len(hosts)):
        assert not owned.is_installed(pending, lambda node: False)
        owned.host_installed(host.id, ["s/0"])
    assert owned.is_installed(pending, lambda node: False)
    assert len(looked) < 16
