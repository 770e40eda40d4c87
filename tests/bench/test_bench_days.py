"""Simulated days: what goes wrong is drawn from a seed, and what nodes hold is counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from bench.endurance import days
from canopy.sim.scenario.scenario import Scenario, check_nodes


@pytest.mark.parametrize("nodes", [5, 100])
def test_faults_name_nodes_that_are_there(nodes: int) -> None:
    drawn = days.Troubles(Random(1), nodes, 20_000.0, 60.0)
    scenario = Scenario(nodes=nodes, faults=tuple(drawn.faults))
    check_nodes(scenario)
    assert set(drawn.counted) >= set(days.KINDS)
    assert drawn.counted["majority"] == (5 if nodes > 50 else 0)
    joined = sum(fault.do == "join" for fault in scenario.faults)
    back = scenario.faults[-1].nodes
    assert len(back) == nodes  # as many are gone for good as have joined
    assert max(back) < nodes + joined


class Holder:
    """An object as the product has them."""

    __module__ = "overlay.holder"

    def __init__(self, **fields: object) -> None:
        self.__dict__ |= fields


class Store(Holder):
    """Another one, to which several refer."""

    __module__ = "streams.store"


def test_what_is_held_is_counted_once_and_by_its_own_field() -> None:
    text, other = bytearray(5_000), {"x": bytearray(100_000)}

    def held_by(item: bytearray) -> Callable[[], int]:
        return lambda: len(item)

    shared = Store(rows={1: bytearray(20_000)}, other=other)
    near = Holder(early=[shared], a=[text, other], c=held_by(bytearray(7_000)))
    found = days.held_bytes([near, Holder(shared=shared, again={"b": text})], [other])
    assert 20_000 < found["Store.rows"] < 21_000
    assert 5_000 < found["Holder.a"] < 6_000
    assert 7_000 < found["Holder.c"] < 8_000
    assert sum(found.values()) < 34_000
    assert found == days.held_bytes([near, Holder(again={"b": text})], [other])


def test_growth_is_of_the_last_third_over_the_one_before() -> None:
    assert days.growth([900.0, 5.0, 100.0, 100.0, 110.0, 110.0]) == 10.0
    looks = [days.Look(hour, 0, 0, 0, 0, Counter(a=size)) for hour, size in enumerate((9, 1, 4))]
    assert days.grown(looks) == {"a": 3}


def test_an_overlay_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    options = "--nodes 3 --minutes 0.3 --trouble 8 --subscriptions 8 --rate 2 --keys --stream"
    assert days.main([*options.split(), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["violations"], row["rows_lost"]) == (0, 0)
    assert row["delivered"] >= row["expected"] > 0
    assert row["rows"] > 0
    assert len(row["bytes_per_node"]) == days.LOOKS
    assert row["trace_files"][1] == 0
