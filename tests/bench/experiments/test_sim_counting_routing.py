"""The routing model decides as the product does, and delivers what brute force says."""

from __future__ import annotations

from random import Random

import pytest

from bench.experiments.routing_model.counting_routing import EventCost, ModelOverlay, effective
from canopy.sim.scenario.range_load import LoadShape, RangeLoad, appearance
from overlay.settings import ViewSettings, WalkSettings
from tests.support.examples import seeds

EVERYTHING_KNOWN = ViewSettings(size=10, access_points=1_000)
SMALL = LoadShape(attributes=40, kinds=12, width=0.8)


def overlay(seed: int, nodes: int = 60, subscriptions: int = 120) -> ModelOverlay:
    return ModelOverlay(str(seed), nodes, subscriptions, SMALL, EVERYTHING_KNOWN, WalkSettings())


@pytest.mark.parametrize("seed", seeds(4))
def test_with_every_tree_known_exactly_what_matches_is_accepted(seed: int) -> None:
    there = overlay(seed)
    cost = EventCost()
    for number in range(40):
        event = there.load.event()
        accepted = there.publish(number % 60, event, cost)
        assert sorted(accepted) == [s.number for s in there.subscriptions if s.matches(event)]
    assert cost.expected == cost.delivered > 40
    assert cost.found == cost.attributes - unplanted(there, cost)


def unplanted(there: ModelOverlay, cost: EventCost) -> int:
    assert len(there.trees) == SMALL.attributes
    return cost.attributes - cost.found


def test_a_hop_limit_too_small_loses_and_costs_nothing_more() -> None:
    view = ViewSettings(size=10, access_points=1)
    there = ModelOverlay("1", 200, 60, SMALL, view, WalkSettings(hops=2))
    cost = there.run(50)
    assert 0 < cost.found < cost.attributes
    assert cost.delivered < cost.expected
    assert cost.walk <= 2 * cost.attributes + cost.found


def test_the_way_through_a_tree_is_at_most_its_height_from_the_root_on() -> None:
    there = overlay(2)
    rng = Random(1)
    for tree in there.trees.values():
        for _ in range(30):
            value = rng.randrange(1_000_000)
            hops, host = tree.route(tree.entry(rng), value)
            assert hops <= tree.size.bit_length()
            place = tree.map.find((1, value, 0))
            assert tree.map.entries[place].hosts[0].id == f"n{host}"
            assert tree.interested(value) == [
                s
                for s in tree.subscriptions
                if s.ranges[tree.attribute][0] <= value <= s.ranges[tree.attribute][1]
            ]


def test_attributes_appear_by_the_law_and_all_of_them_do() -> None:
    shape = LoadShape(attributes=100, kinds=4_000)
    law = appearance(shape)
    assert sum(law) == pytest.approx(8)
    assert law[0] == pytest.approx(0.98, abs=0.01)  # the paper's numbers fit each other
    kinds = RangeLoad(Random(1), shape, 10).kinds
    for number in (0, 1, 9, 49, 99):
        share = sum(number in kind for kind in kinds) / len(kinds)
        assert share == pytest.approx(law[number], rel=0.25)
    assert {name for kind in RangeLoad(Random(1), LoadShape(), 10).kinds for name in kind} == set(
        range(486)
    )


def test_hits_within_ten_hops_are_the_papers_nine_in_ten() -> None:
    """Table of 100, 486 attributes: 1 - (1 - 100/486)^11 where no node hosts its own."""
    there = ModelOverlay(
        "1", 20_000, 600, LoadShape(), ViewSettings(size=10, access_points=100), WalkSettings()
    )
    cost = there.run(60)
    assert 0.88 < cost.found / cost.attributes < 0.97
    assert cost.blocked == 0  # practically never on random views


def test_effective_cost_of_the_papers_first_point() -> None:
    assert effective(68_605, 68, 408) == pytest.approx(411_630)
    assert effective(10, 0, 5) is None
