"""The figures: what is written, that a seed repeats it, and the shapes that the paper describes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from bench.baselines.simple import Forwarding, Simple
from bench.baselines.tera import Tera
from bench.experiments.__main__ import main
from bench.experiments.figures.curves import row_of
from bench.experiments.figures.experiment import FIGURES, measure
from bench.experiments.figures.plan import (
    PLANS,
    VARY,
    FigurePlan,
    FiguresPlan,
    Point,
    kept_rows,
    points,
)
from bench.experiments.figures.points import forwarding, simple
from bench.experiments.figures.sharing import SharingCodec
from bench.experiments.routing_model.random_graph import LowerLayer
from canopy.sim.scenario.range_load import LoadShape
from matching import EVERYTHING
from overlay.machine import Peer
from overlay.settings import ViewSettings, WalkSettings
from overlay.upper_tree.compiled_selectors import compiled
from overlay.upper_tree.messages import Install, Registration


def made(number: int, *xs: int, **changes: Any) -> list[dict[str, Any]]:
    """The rows of a figure's points."""
    plan = msgspec.structs.replace(PLANS[number], **changes)
    return [row_of(Point(number, x, VARY[number](plan, x))) for x in xs]


DENSE = LoadShape(attributes=60, kinds=15)
"""Many matches per event, so that few events say much."""


def dense(number: int, *xs: int, **changes: Any) -> list[dict[str, Any]]:
    """A fifth of the paper's size."""
    return made(number, *xs, **{"nodes": 600, "load": DENSE, "access_points": 12, **changes})


def test_simple_floods_the_whole_overlay_and_misses_nobody() -> None:
    cost = simple(FigurePlan(subscriptions=500, events=5), "1")
    assert cost.messages == 5 * 3_000 * 10  # every node has it, and hands it to its whole view
    assert cost.delivered == cost.expected > 0


def test_what_is_forwarded_at_random_meets_more_wishes_with_more_subscriptions() -> None:
    few, many = (
        forwarding(FigurePlan(subscriptions=count, events=40), "1") for count in (500, 3_000)
    )
    assert few.messages == many.messages == 40 * 10
    assert few.wanted <= many.wanted <= 40
    assert few.met / few.wanted < 0.5 * many.met / many.wanted


def test_figure_5_cbdlo_costs_far_less_whatever_the_number_of_subscriptions() -> None:
    few, many = dense(5, 400, 2_000, events=30)
    assert all(4 * row["cbdlo"] < row["simple"] for row in (few, many))
    assert 0.5 < few["cbdlo"] / many["cbdlo"] < 2


def test_figure_6_more_hops_help_cbdlo_at_first_and_a_flood_never() -> None:
    two, ten, thirty = dense(6, 2, 10, 30, events=40)
    assert two["simple"] < ten["simple"] == thirty["simple"]  # the last hops reach nobody new
    assert two["cbdlo"] > 1.5 * ten["cbdlo"]
    assert ten["cbdlo"] > 0.7 * thirty["cbdlo"]


def test_figure_7_counts_what_delivers_on_both_sides() -> None:
    few, many = made(7, 100, 3_000, events=20)
    assert many["tera"] > 5 * few["tera"]
    assert many["cbdlo"] > 5 * few["cbdlo"]  # a node list grows as a topic does
    assert many["without_lists"] < 3 * few["without_lists"]  # walks and trees hardly
    for row in (few, many):
        assert row["cbdlo"] - row["without_lists"] == pytest.approx(row["lists"] / 20)


def test_figures_8_and_9_simple_grows_with_subscriptions_and_cbdlo_does_not() -> None:
    few, many = dense(8, 300, 3_000, events=30)
    assert many["simple"] == pytest.approx(10 * few["simple"], rel=0.3)
    assert many["cbdlo"] < few["cbdlo"]
    few, many = made(9, 60, 120, events=20, subscriptions=800)
    assert many["simple"] == pytest.approx(few["simple"], rel=0.3)


def test_whole_nodes_find_trees_at_subscribers_by_learnt_access_points() -> None:
    load = LoadShape(attributes=20, kinds=4)
    (row,) = made(
        *(7, 12), whole_nodes=True, events=12, access_points=5, hops=4, gossip=20.0, load=load
    )
    assert row["at_subscribers"] == 1.0
    assert row["known"] == 5
    assert 0 < row["delivered"] <= row["shown"] == row["expected"]
    assert row["asked"] > 0
    assert row["walk"] > row["tree"] > 0
    assert row["hit_rate"] == pytest.approx(row["model_hit_rate"], abs=0.15)
    assert row["model"] == pytest.approx(row["cbdlo"], rel=0.4)


def test_points_that_share_a_world_have_the_rows_that_they_have_alone(tmp_path: Path) -> None:
    plan = FiguresPlan((5, 6), 12, (2, 8), one_load=True, kept=str(tmp_path / "together"))

    def untimed(row: dict[str, Any]) -> dict[str, Any]:
        took = ("cpu_s", "shared_cpu_s", "peak_bytes")
        return {key: value for key, value in row.items() if key not in took}

    shared = {(row["figure"], row["x"]): untimed(row) for row in FIGURES.rows(plan)}
    assert set(shared) == {(5, 2), (5, 8), (6, 2), (6, 8)}  # by subscriptions and by hops
    assert shared[6, 2]["walk"] < shared[6, 8]["walk"]
    alone = tmp_path / "alone"
    for point in points(plan):
        if (point.figure, point.x) in ((5, 8), (6, 2)):  # there after, and beside others
            measure([point], alone)
    assert [untimed(row) for row in kept_rows(alone).values()] == [shared[5, 8], shared[6, 2]]
    kept = Path(plan.kept)
    kept.write_text(kept.read_text().replace('"walk":', '"went":'))
    assert all("went" in row for row in FIGURES.rows(plan)), "they are not measured again"


def test_what_many_hosts_are_sent_is_decoded_to_one_object() -> None:
    subscriber = Peer("a" * 16, "10.0.0.1:7000")
    sent = Registration("1", "a", subscriber, "a > 5", EVERYTHING)
    other = msgspec.structs.replace(sent, selector="a > 6")
    codec = SharingCodec()
    body = codec.encode([Install("a", 1, (sent,))])
    found: list[Registration] = []
    for each in (body, body, codec.encode([Install("a", 1, (other,))])):
        (message,) = codec.decode(each)
        assert isinstance(message, Install)
        found += message.registrations
    first, second, third = found
    assert first is second == sent
    assert third == other
    assert compiled(first.selector) is compiled(sent.selector)


@pytest.mark.parametrize("change", ["nodse=1", "whole_nodes=many", "figures=[4]", "x"])
def test_a_parameter_that_is_none_is_refused(change: str) -> None:
    assert main(["figures", "--set", change]) == 2


def graph(nodes: int, view: int) -> LowerLayer:
    settings = ViewSettings(size=view)
    return LowerLayer("1", nodes, [], lambda a, r: None, {}, settings, WalkSettings())


def test_a_flood_ends_at_its_hop_limit() -> None:
    chain = {0: [1], 1: [2], 2: [3], 3: []}
    assert Simple(chain.__getitem__).publish(0, 2) == ({0, 1, 2}, 2)
    assert Simple(chain.__getitem__).publish(0, 9) == ({0, 1, 2, 3}, 3)
    assert Forwarding(chain.__getitem__, Random(1)).publish(0, 9) == ({0, 1, 2, 3}, 3)


def test_a_source_that_matches_itself_counts() -> None:
    cost = simple(FigurePlan(nodes=1, subscriptions=3, events=20), "1")
    assert cost.messages == 0
    assert cost.delivered == cost.expected


def test_tera_reaches_all_subscribers_of_a_topic_or_none() -> None:
    tera = Tera(graph(2_000, 10).neighbours, 2_000, Random(1), "1")
    found = 0
    for topic in range(40):
        walk, broadcast, reached = tera.publish(topic, topic, 10)
        members = len(tera.members[topic])
        assert reached in (0, members)
        assert walk <= 11
        found += reached > 0
        if reached:
            assert members - 1 <= broadcast <= 2 * 2 * 5 * members
    assert found > 35
