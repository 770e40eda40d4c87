"""The timeliness bench: what its publishers know, and how its rows are put together."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.simulator.timeliness import (
    FREE,
    NEAR,
    OLD,
    ExactLoads,
    LoadsInTurn,
    OldLoads,
    TurnLoads,
    compared,
    joined,
)
from overlay.machine import Peer
from overlay.upper_tree.host_load import HostLoad

HOSTS = [Peer(name, f"{name}:1") for name in ("a", "b", "c")]


def test_who_knows_the_loads_takes_the_host_with_the_least_to_match() -> None:
    under_way: Counter[str] = Counter()
    names = {host.id: f"host {host.id}" for host in HOSTS}
    one, other = (ExactLoads(under_way, names) for _ in range(2))
    chosen = []
    for publisher in (one, other, one):
        host = publisher.best(HOSTS, 0.0)
        publisher.sent(host.id, 2, 0.0)
        chosen.append(host.id)
    assert chosen == ["a", "b", "c"]
    under_way["host b"] -= 1
    assert one.best(HOSTS, 0.0).id == "b"


def test_who_knows_nothing_takes_the_hosts_in_turn() -> None:
    loads = TurnLoads()
    chosen = []
    for _ in range(4):
        host = loads.best(HOSTS, 0.0)
        assert loads.best(HOSTS, 0.0) == host, "asked again for the same event"
        loads.sent(host.id, 1, 0.0)
        chosen.append(host.id)
    assert chosen == ["a", "b", "c", "a"]


def test_hosts_that_are_predicted_to_be_alike_get_the_events_in_turn() -> None:
    free, near = LoadsInTurn(FREE), LoadsInTurn(NEAR)
    for loads in (free, near):
        for host, waiting in zip(HOSTS, (NEAR + 6, 6, 5), strict=True):
            loads.reported(host.id, HostLoad(10.0, 10.0, waiting), 0.0)
    chosen: list[tuple[str, str]] = []
    for _ in range(3):
        hosts = [loads.best(HOSTS, 0.0) for loads in (free, near)]
        chosen.append((hosts[0].id, hosts[1].id))
        near.sent(hosts[1].id, 1, 0.0)
    assert chosen == [("c", "b"), ("c", "c"), ("c", "b")]
    free.reported("a", None, 0.0)
    free.reported("b", None, 0.0)
    assert free.best(HOSTS, 0.0).id == "a"
    free.sent("c", 1, 0.0)
    assert free.best(HOSTS, 0.0).id == "b"


def test_old_loads_are_those_of_a_while_ago() -> None:
    under_way: Counter[str] = Counter({"a": 1})
    loads = OldLoads(under_way, {host.id: host.id for host in HOSTS})
    loads.update(1.0)
    under_way["b"] = 2
    loads.update(1.0 + OLD / 2)
    assert loads.best(HOSTS, 1.0).id == "b", "what came since is not known"
    loads.update(1.0 + 2 * OLD)
    assert loads.best(HOSTS, 1.0).id == "c"


def test_modes_of_a_point_are_one_row_and_runs_are_compared() -> None:
    def piece(seed: int, mode: str, mean: float) -> dict[str, object]:
        values = {"mean_ms": mean, "urgency_ms": mean, "p99_ms": mean, "busiest": 0.5}
        about = {"figure": 9, "x": 4000, "events": 10, "knows": "exact", "seed": seed, "nudge": 0}
        return {**about, "cpu_s": 1.0, mode: values}

    pieces = [piece(1, "choice", 4.0), piece(2, "choice", 6.0)]
    pieces += [piece(1, "both", 3.0), piece(2, "both", 6.5)]
    rows = joined(pieces)
    assert [row["cpu_s"] for row in rows] == [2.0, 2.0]
    (found,) = compared(rows)
    assert found["runs"] == 2
    assert found["difference_ms"] == pytest.approx(-0.25)
    assert found["error_ms"] == pytest.approx(0.75)
    assert found["worse"] == 1
    assert found["choice"]["spread_ms"] == pytest.approx(2**0.5, abs=1e-4)
    assert not list(compared(rows[:1]))
