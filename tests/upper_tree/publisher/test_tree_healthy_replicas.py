"""What a node knows of other nodes' health: an order, and for a while only (T6)."""

from __future__ import annotations

import msgspec
import pytest

from overlay.health import Health, HealthReport, NodeHealth
from overlay.machine import Peer
from overlay.upper_tree.publisher.replicas import ReplicaSelector

PEERS = [Peer(name, f"{name}:1") for name in "abcd"]


class Clock:
    now = 100.0


def known(valid_for: float = 10.0, **severities: int) -> tuple[Health, Clock]:
    clock = Clock()
    health = Health(clock)
    nodes = {node: NodeHealth(each, f"reason {each}") for node, each in severities.items()}
    health.update(HealthReport(nodes, valid_for))
    return health, clock


def test_peers_are_ordered_by_severity_and_else_stay_as_they_are() -> None:
    health, _ = known(a=2, c=1)
    assert [peer.id for peer in health.healthy_first(PEERS)] == ["b", "d", "c", "a"]
    assert [peer.id for peer in health.healthiest(PEERS)] == ["b", "d"]
    assert [peer.id for peer in health.healthiest([PEERS[0], PEERS[2]])] == ["c"]
    assert health.reasons(["a", "b"]) == {"a": "reason 2"}


def test_of_all_that_are_sub_healthy_none_is_left_out() -> None:
    health, _ = known(a=1, b=1, c=1, d=1)
    assert health.healthy_first(PEERS) == PEERS
    assert list(health.healthiest(PEERS)) == PEERS


def test_a_report_ends_and_kept_choices_are_made_again() -> None:
    health, clock = known(valid_for=10.0, a=3)
    before = health.changes
    clock.now += 9.9
    assert (health.severity("a"), health.is_known, health.changes) == (3, True, before)
    clock.now += 0.2
    assert (health.severity("a"), health.is_known, health.reason("a")) == (0, False, "")
    assert health.healthy_first(PEERS) == PEERS
    assert health.changes == before + 1


def test_a_severity_that_does_not_exist_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"severity": 4, "reason": "x"}, NodeHealth)


def test_a_publisher_visits_a_healthy_replica_as_long_as_there_is_one() -> None:
    clock = Clock()
    health = Health(clock)
    replicas = ReplicaSelector("me", 3.0, health=health)
    before = replicas.choose("x", PEERS)
    changes = replicas.changes
    health.update(HealthReport({before.id: NodeHealth(1, "disk")}, 10.0))
    replicas.expire(clock.now)
    assert replicas.changes == changes + 1
    second = replicas.choose("x", PEERS)
    assert second != before
    for peer in PEERS:
        if peer != before:
            replicas.suspect_silent(peer.id, clock.now)
    assert replicas.choose("x", PEERS) == before
    clock.now += 11.0
    replicas.expire(clock.now)
    assert replicas.choose("x", PEERS) == before
