"""The routing model: everything arrives, within bounds, and the styles differ as said."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from canopy.cli.sim.command import sim
from canopy.sim.experiments.routing_model.brute_force_match import Audience
from canopy.sim.experiments.routing_model.host_assignment import Fleet, likely_work, replicas_for
from canopy.sim.experiments.routing_model.measure import COUNTING, RoutingPlan, measure
from canopy.sim.experiments.routing_model.pivot_placement import (
    STYLES,
    Coarseness,
    Placing,
    conjunction_of,
)
from canopy.sim.experiments.routing_model.report import RoutingReport, StyleReport, percentile
from canopy.sim.scenario.range_load import LoadShape, RangeLoad, attribute_name
from canopy.sim.scenario.range_width import fitted
from matching import Index, Predicate
from overlay.upper_tree.summary import Summary

ALONE = LoadShape(attributes=60, kinds=0)
OF_KINDS = LoadShape(attributes=60, kinds=30)
PROPOSED = STYLES[-1].name


def plan(**changes: Any) -> RoutingPlan:
    small: dict[str, Any] = {
        "nodes": 400,
        "subscriptions": 900,
        "events": 120,
        "baseline_events": 60,
        "counting_events": 10,
        "warmup": 60,
        "entries": 120,
        "load": OF_KINDS,
    }
    return RoutingPlan(**{**small, **changes})


def proposed(report: RoutingReport) -> StyleReport:
    return report.styles[-1]


@pytest.mark.parametrize("shape", [ALONE, OF_KINDS, LoadShape(attributes=20, kinds=0, width=0.3)])
def test_the_audience_is_what_the_products_index_says(shape: LoadShape) -> None:
    load = RangeLoad(Random(1), shape, 50)
    subscriptions = [load.subscription(number) for number in range(400)]
    audience = Audience(subscriptions, shape.attributes)
    index: Index[int] = Index()
    for one in subscriptions:
        index.add(one.number, Predicate.of(conjunction_of(one)))
    found = 0
    for _ in range(100):
        event = load.event()
        named = {attribute_name(name): value for name, value in event.items()}
        matching = audience.matching(event)
        assert matching == sorted(index.match(named))
        found += len(matching)
    assert found > 20


@pytest.mark.parametrize("shape", [ALONE, OF_KINDS])
def test_every_style_delivers_everything_within_the_bounds(shape: LoadShape) -> None:
    report = measure(plan(load=shape), 1)
    assert [style.name for style in report.styles] == [COUNTING, *(s.name for s in STYLES)]
    for style in report.styles[1:]:
        assert style.delivered == style.expected > 0, style.name
        assert style.without_fallback == 1.0
        assert style.most_copies <= 16
        assert style.hops_p50 <= 3
        assert style.hops_p99 <= 4
        assert style.entries is not None
        assert style.entries.max <= 120
        assert style.per_s_log_s <= 1
        assert style.messages >= style.lower_bound - style.events  # hosts may be interested


@pytest.mark.parametrize("shape", [ALONE, OF_KINDS])
def test_what_is_proposed_is_far_below_a_cover_by_popular_attributes(shape: LoadShape) -> None:
    visits = {s.name: s.visits_per_event for s in measure(plan(load=shape), 2).styles}
    assert visits["least, shared hosts"] < 0.6 * visits["+ shared hosts"]
    assert visits["least, shared hosts"] < 0.8 * visits["least traffic, own hosts"]
    assert visits[PROPOSED] < visits["least, shared hosts"]
    assert measure(plan(load=shape), 2).styles[0].ratio > 15  # counting


def test_at_the_named_size_it_is_within_a_tenth_of_the_bound() -> None:
    style = proposed(measure(RoutingPlan(events=300, styles=(PROPOSED,)), 3))
    assert style.ratio <= 1.10
    assert style.entries is not None
    assert style.entries.max <= 1_000
    assert style.delivered == style.expected


@pytest.mark.parametrize("replicas", [1, 2, 6])
def test_with_a_fifth_dead_the_fallback_brings_the_rest(replicas: int) -> None:
    plan_ = plan(fail=0.2, replicas=replicas, styles=(PROPOSED,), host_load=1_000.0)
    report = measure(plan_, 1)
    style = proposed(report)
    assert report.dead == 80
    assert style.delivered == style.expected > 300
    assert style.retries_per_event > 0
    if replicas == 1:
        assert style.without_fallback < 0.95
        assert style.fallback_messages > 0
        assert style.replanted > 0
    if replicas == 6:
        assert style.without_fallback >= 0.9999


def test_a_summary_that_hides_something_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Summary.admits

    def lying(summary: Summary, attributes: Any) -> bool:
        return honest(Summary(summary.boxes[1:]), attributes)

    monkeypatch.setattr(Summary, "admits", lying)
    style = proposed(measure(plan(styles=(PROPOSED,)), 1))
    assert style.delivered < style.expected


def test_a_seed_repeats_its_report() -> None:
    again = plan(load=ALONE, fail=0.2, styles=(PROPOSED,))
    first = measure(again, 5)
    assert first == measure(again, 5)
    assert first != measure(again, 6)


@pytest.mark.parametrize("kinds", [0, 40])
@pytest.mark.parametrize("matching", [3.0, 12.0])
def test_the_width_is_fitted_to_the_wanted_matches(kinds: int, matching: float) -> None:
    shape = LoadShape(attributes=50, mean=5, kinds=kinds)
    fit = fitted(shape, 2_000, 400, matching, "1")
    assert fit.width < 1
    load = RangeLoad(Random("1"), fit, 400)
    audience = Audience([load.subscription(number) for number in range(2_000)], 50)
    found = [audience.matching(load.event()) for _ in range(1_000)]
    nodes = [len({audience.subscriptions[n].node for n in each}) for each in found]
    assert sum(nodes) / len(nodes) == pytest.approx(matching, rel=0.25)


def test_a_width_of_one_where_even_that_is_too_few() -> None:
    assert fitted(ALONE, 10, 10, 9.0, "x").width == 1.0


def test_hot_runs_get_more_replicas_within_the_bound() -> None:
    assert replicas_for([100, 1, 0], [10, 10, 10], 2, 10.0, 10_000) == [10, 2, 2]
    tight = replicas_for([100, 1, 0], [10, 10, 10], 2, 10.0, 90)
    assert sum(10 * n for n in tight) <= 90
    assert tight[0] == 5
    assert replicas_for([100, 1], [10, 10], 2, 10.0, 1) == [2, 2]
    assert replicas_for([0, 0], [10, 10], 3, 10.0, 1_000) == [3, 3]


def test_a_run_that_the_sample_hardly_met_is_not_taken_for_idle() -> None:
    assert likely_work([], 17) == 17
    assert likely_work([1] * 400, 17) == pytest.approx(400 + 26.2, abs=0.1)
    assert likely_work([17] * 4, 17) == pytest.approx(68 + 38, abs=0.1)
    # A hundred events show one of each of a hundred kinds: some not at all, some three times.
    shape = LoadShape(attributes=60, kinds=100)
    known = {"warmup": 100, "replicas": 1, "host_load": 0.5, "styles": (PROPOSED,)}
    report = measure(plan(load=shape, subscriptions=2_000, events=1_500, entries=40, **known), 1)
    hosting = proposed(report).hosting
    assert hosting is not None
    assert hosting.max_over_mean < 7  # 11 if what the sample shows is taken as it is


def test_no_node_sends_more_than_the_fan_out_also_where_many_are_dead() -> None:
    wide = plan(fail=0.2, matching=120.0, styles=(PROPOSED,))
    style = proposed(measure(wide, 1))
    assert style.delivered == style.expected > 2_000
    assert style.most_copies <= 16
    assert style.hops_p99 <= 4


def test_a_publisher_with_many_hosts_to_visit_sends_no_more_either() -> None:
    own = plan(load=ALONE, fail=0.3, entries=15, styles=("least traffic, own hosts",))
    style = proposed(measure(own, 1))
    assert style.delivered == style.expected
    assert style.visits_per_event > 6
    assert style.most_copies <= 16  # 27 if it tries all by itself


def test_replicas_are_on_different_nodes_and_publishers_spread() -> None:
    fleet = Fleet([4, 3], [10, 20], 7, Random(1))
    assert len({*fleet.hosts[0], *fleet.hosts[1]}) == 7
    tried = [list(fleet.choices(0, publisher, 4)) for publisher in range(400)]
    assert all(sorted(each) == sorted(fleet.hosts[0]) for each in tried)
    first = Counter(each[0] for each in tried)
    assert min(first.values()) > 60
    second = Counter(each[1] for each in tried if each[0] == fleet.hosts[0][0])
    assert min(second[host] for host in fleet.hosts[0][1:]) > 20  # not one neighbour alone
    assert list(fleet.choices(0, 7, 2)) == tried[7][:2]
    assert sorted(fleet.entries().values()) == [10, 10, 10, 10, 20, 20, 20]


def test_coarse_summaries_cost_visits_and_cover_new_subscriptions() -> None:
    fine, coarse = (
        proposed(measure(plan(summary=Coarseness(64, each, 0.1), styles=(PROPOSED,)), 1))
        for each in (1, 16)
    )
    assert fine.visits_per_event < coarse.visits_per_event
    assert fine.summary_bytes > 4 * coarse.summary_bytes
    assert fine.upkeep is not None
    assert coarse.upkeep is not None
    assert fine.upkeep.covered is not None
    assert coarse.upkeep.covered is not None
    assert fine.upkeep.covered < 0.5 < coarse.upkeep.covered


def test_a_tree_too_large_is_cut_by_value_where_ranges_are_narrow() -> None:
    shape = LoadShape(attributes=2, mean=1.2, kinds=0, width=0.05)
    load = RangeLoad(Random(1), shape, 50)
    subscriptions = [load.subscription(number) for number in range(600)]
    conjunctions = [conjunction_of(one) for one in subscriptions]
    placing = Placing(STYLES[-1], conjunctions, 100, Coarseness())
    assert all(len(cell) == 1 for tree in placing.trees.values() for cell in tree.cells)
    assert max(len(part.members) for part in placing.parts) <= 100
    for _ in range(200):
        event = load.event()
        for one in subscriptions:
            if one.matches(event):
                assert one.number in placing.parts[placing.part_for(one.number, event)].members


def test_percentiles() -> None:
    assert percentile(Counter({1: 50, 2: 49, 9: 1}), 0.5) == 1
    assert percentile(Counter({1: 50, 2: 49, 9: 1}), 0.99) == 2
    assert percentile(Counter({1: 50, 2: 48, 9: 2}), 0.99) == 9
    assert percentile(Counter(), 0.99) == 0


def test_the_command_prints_json_and_draws(tmp_path: Path) -> None:
    arguments = ["--nodes", "200", "--events", "30", "--kinds", "20", "--fail", "0.1", "--quiet"]
    result = CliRunner().invoke(
        sim, ["routing", *arguments, "--json", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts == json.loads((tmp_path / "routing.json").read_bytes())
    assert facts["parameters"]["nodes"] == facts["parameters"]["subscriptions"] == 200
    assert (tmp_path / "routing.svg").read_text(encoding="utf-8").count("<svg") == 1
    assert msgspec.convert(facts, RoutingReport).dead == 20


def test_the_command_says_what_it_cannot_do() -> None:
    for arguments in (["--style", "no such"], ["--attributes", "3", "--predicates", "5"]):
        assert CliRunner().invoke(sim, ["routing", *arguments, "--quiet"]).exit_code == 2


def test_the_command_prints_a_table() -> None:
    arguments = ["--nodes", "100", "--events", "20", "--kinds", "9", "--style", PROPOSED]
    result = CliRunner().invoke(sim, ["routing", *arguments], catch_exceptions=False)
    assert "times the" in result.stdout
    assert "publishing" in result.stderr
