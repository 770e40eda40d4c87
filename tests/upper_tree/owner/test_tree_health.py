"""Hosts that the health file calls sub-healthy are left, as long as there are others (T6)."""

from __future__ import annotations

import pytest

from overlay.health import HealthReport, NodeHealth
from overlay.upper_tree.messages import AskToHost
from tests.support.trees import Rig
from tests.upper_tree.owner.test_tree_growth import ROOMY, Grown


def say(rig: Rig, *sick: str) -> None:
    nodes = {rig.hosts[name].port.me.id: NodeHealth(1, "disk") for name in sick}
    rig.owner.clusters.health.update(HealthReport(nodes, 600.0))


@pytest.mark.parametrize("sick", ["h0", "h1", "h2"])
def test_virtual_nodes_move_off_a_sub_healthy_host(sick: str) -> None:
    rig = Grown(brokers=3, replicas=2)
    for name in ("h0", "h1", "h2"):
        assert rig.hosts[name].port.me.id == name
    say(rig, sick)
    rig.settle(15.0)
    assert rig.used == sorted({"h0", "h1", "h2"} - {sick})
    rig.check_covered()


def test_hosts_stay_where_all_or_too_many_are_sub_healthy() -> None:
    rig = Grown(brokers=3, replicas=2)
    before = rig.used
    assert len(before) == 2
    say(rig, "h0", "h1", "h2", "p")
    rig.settle(15.0)
    assert rig.used == before
    say(rig, "h0", "h1")
    rig.settle(15.0)
    assert len(rig.used) == 2  # as many as it had, and the healthy one of them
    assert "h2" in rig.used
    rig.check_covered()


def test_a_healthy_node_is_asked_to_host_first() -> None:
    rig = Grown(brokers=1, idle=4, chosen=ROOMY)
    say(rig, "i0", "i1", "i2")
    pool = rig.owner.owner.pool
    pool.grow(1, ())
    asked = [who for who, message in rig.owner.port.sent if isinstance(message, AskToHost)]
    assert [each.id for each in asked] == ["i3"]
