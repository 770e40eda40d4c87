"""The figures: what is written, that a seed repeats it, and the shapes that the paper describes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from bench.baselines.simple import Simple
from bench.baselines.tera import Tera
from canopy.cli.sim.command import sim
from canopy.cli.sim.figure import PaperBaselines
from canopy.sim.experiments.figures.model import Figure, FigurePlan
from canopy.sim.experiments.figures.paper import PLANS, make
from canopy.sim.experiments.figures.points import simple
from canopy.sim.experiments.routing_model.counting_routing import effective
from canopy.sim.experiments.routing_model.random_graph import LowerLayer
from canopy.sim.scenario.range_load import LoadShape
from canopy.wire.transport.codec import WireCodec
from overlay.settings import ViewSettings, WalkSettings


def made(number: int, seed: int = 1, **changes: Any) -> Figure:
    plan = msgspec.structs.replace(PLANS[number], **changes)
    return make(number, seed, PaperBaselines(), WireCodec(), plan)


def curve(figure: Figure, name: str) -> list[float]:
    (series,) = [s for s in figure.series if s.name == name]
    return [y for y in series.y if y is not None]


DENSE = LoadShape(attributes=60, kinds=15)
"""Many matches per event, so that few events say much."""


def dense(number: int, **changes: Any) -> Figure:
    """A fifth of the paper's size, with the same shares: walkers see one node in six."""
    return made(
        number, **{"nodes": 600, "walkers": 11, "load": DENSE, "access_points": 12, **changes}
    )


def test_figure_5_simple_costs_what_the_paper_says() -> None:
    cost = simple(FigurePlan(x=(), subscriptions=3_000), "1", PaperBaselines())
    assert cost.messages == 125 * 550
    per_match = effective(cost.messages, cost.delivered, cost.expected)
    assert per_match == pytest.approx(411_630, rel=0.2)


def test_figure_5_cbdlo_costs_far_less_whatever_the_number_of_subscriptions() -> None:
    figure = dense(5, x=(400, 2_000), events=30)
    simple_, ours = curve(figure, "Simple"), curve(figure, "CBDLO (CRAWL)")
    assert all(4 * y < theirs for y, theirs in zip(ours, simple_, strict=True))
    assert max(ours) < 2 * min(ours)


def test_figure_6_more_hops_help_at_first() -> None:
    figure = dense(6, x=(2, 10, 30), events=40)
    simple_, ours = curve(figure, "Simple"), curve(figure, "CBDLO (CRAWL)")
    assert simple_[0] > 1.2 * simple_[1]
    assert simple_[2] > 0.9 * simple_[1]
    assert ours[0] > 1.5 * ours[1]
    assert ours[1] > 0.7 * ours[2]


def test_figure_7_tera_grows_with_the_overlay_and_cbdlo_hardly() -> None:
    figure = made(7, x=(100, 3_000), events=20)
    tera, ours = curve(figure, "TERA"), curve(figure, "CBDLO")
    assert tera[0] < ours[0]  # few nodes: its broadcast is cheap, and it has one walk only
    assert tera[1] > 2 * ours[1]
    assert ours[1] < 3 * ours[0]


def test_figures_8_and_9_simple_grows_with_subscriptions_and_cbdlo_does_not() -> None:
    eight = dense(8, x=(300, 3_000), events=30)
    simple_, ours = curve(eight, "Simple, times 0.1"), curve(eight, "CBDLO, times 1/8")
    assert simple_[1] == pytest.approx(10 * simple_[0], rel=0.3)
    assert ours[1] < ours[0]
    nine = made(9, x=(60, 120), events=20, subscriptions=800)
    simple_ = curve(nine, "Simple, times 0.1")
    assert simple_[1] == pytest.approx(simple_[0], rel=0.3)


def test_whole_nodes_find_trees_at_subscribers_by_learnt_access_points() -> None:
    load = LoadShape(attributes=20, kinds=4)
    figure = made(
        7, x=(12,), full_nodes=True, events=12, access_points=5, hops=4, gossip=20.0, load=load
    )
    (ours,) = [series for series in figure.series if series.name == "CBDLO"]
    facts = {name: values[0] or 0.0 for name, values in ours.facts.items()}
    assert facts["at_subscribers"] == 1.0
    assert facts["known"] == 5
    assert 0 < facts["delivered"] <= facts["shown"] == facts["expected"]
    assert facts["asked"] > 0
    assert facts["walk"] > facts["tree"] > 0
    assert facts["hit_rate"] == pytest.approx(facts["model_hit_rate"], abs=0.15)
    assert curve(figure, "CBDLO in the routing model") == pytest.approx(
        curve(figure, "CBDLO"), rel=0.3
    )


def test_the_command_writes_json_and_picture_and_repeats_itself(tmp_path: Path) -> None:
    def run(name: str, *more: str) -> tuple[bytes, bytes]:
        sets = [f"--set={s}" for s in ("x=[50,100]", "nodes=100", "events=5", "load.attributes=30")]
        out = tmp_path / name
        done = CliRunner().invoke(sim, ["figure", "5", "--out", str(out), "--quiet", *sets, *more])
        assert done.exit_code == 0, done.output
        return (out / "figure-5.json").read_bytes(), (out / "figure-5.svg").read_bytes()

    text, picture = run("a")
    assert run("b") == (text, picture)
    assert run("c", "--seed", "2")[0] != text
    facts = json.loads(text)
    assert facts["x"] == [50, 100]
    assert facts["seed"] == 1
    assert facts["parameters"]["nodes"] == 100
    assert facts["parameters"]["load"]["attributes"] == 30
    assert [len(series["y"]) for series in facts["series"]] == [2, 2, 2]
    assert b"</svg>" in picture


@pytest.mark.parametrize("change", ["nodse=1", "nodes=many", "load.kind=3", "x"])
def test_a_parameter_that_is_none_is_refused(change: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(sim, ["figure", "5", "--out", str(tmp_path), "--set", change])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def graph(nodes: int, view: int) -> LowerLayer:
    settings = ViewSettings(size=view)
    return LowerLayer("1", nodes, [], lambda a, r: None, {}, settings, WalkSettings())


def test_simple_sees_one_node_in_six() -> None:
    wanderer = Simple(graph(3_000, 10).neighbours, Random(1))
    seen, messages = zip(*(wanderer.publish(n, 10) for n in range(20)), strict=True)
    assert set(messages) == {550}
    assert sum(map(len, seen)) / 20 / 3_000 == pytest.approx(
        1 / 6, rel=0.15
    )  # walkers meet near the source


def test_a_source_that_matches_itself_counts() -> None:
    cost = simple(FigurePlan(x=(), nodes=1, subscriptions=3, events=20), "1", PaperBaselines())
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
