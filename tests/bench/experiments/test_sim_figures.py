"""The figures: what is written, that a seed repeats it, and the shapes that the paper describes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from bench.baselines.simple import Forwarding, Simple
from bench.baselines.tera import Tera
from bench.experiments.__main__ import experiments
from bench.experiments.figures.model import Figure, FigurePlan
from bench.experiments.figures.paper import PLANS, make
from bench.experiments.figures.points import forwarding, simple
from bench.experiments.figures.sharing import SharingCodec
from bench.experiments.routing_model.random_graph import LowerLayer
from canopy.sim.scenario.range_load import LoadShape
from canopy.wire.transport.codec import WireCodec
from matching import EVERYTHING
from overlay.machine import Peer
from overlay.settings import ViewSettings, WalkSettings
from overlay.upper_tree.compiled_selectors import compiled
from overlay.upper_tree.messages import Install, Registration


def made(number: int, seed: int = 1, **changes: Any) -> Figure:
    plan = msgspec.structs.replace(PLANS[number], seed=seed, **changes)
    return make(number, plan, WireCodec())


def curve(figure: Figure, name: str) -> list[float]:
    (series,) = [s for s in figure.series if s.name == name]
    return [y for y in series.y if y is not None]


DENSE = LoadShape(attributes=60, kinds=15)
"""Many matches per event, so that few events say much."""


def dense(number: int, **changes: Any) -> Figure:
    """A fifth of the paper's size."""
    return made(number, **{"nodes": 600, "load": DENSE, "access_points": 12, **changes})


def test_simple_floods_the_whole_overlay_and_misses_nobody() -> None:
    cost = simple(FigurePlan(x=(), subscriptions=500, events=5), "1")
    assert cost.messages == 5 * 3_000 * 10  # every node has it, and hands it to its whole view
    assert cost.delivered == cost.expected > 0


def test_what_is_forwarded_at_random_meets_more_wishes_with_more_subscriptions() -> None:
    few, many = (
        forwarding(FigurePlan(x=(), subscriptions=count, events=40), "1") for count in (500, 3_000)
    )
    assert few.messages == many.messages == 40 * 10
    assert few.wanted <= many.wanted <= 40
    assert few.met / few.wanted < 0.5 * many.met / many.wanted


def test_figure_5_cbdlo_costs_far_less_whatever_the_number_of_subscriptions() -> None:
    figure = dense(5, x=(400, 2_000), events=30)
    simple_, ours = curve(figure, "Simple"), curve(figure, "CBDLO (CRAWL)")
    assert all(4 * y < theirs for y, theirs in zip(ours, simple_, strict=True))
    assert max(ours) < 2 * min(ours)


def test_figure_6_more_hops_help_cbdlo_at_first_and_a_flood_never() -> None:
    figure = dense(6, x=(2, 10, 30), events=40)
    simple_, ours = curve(figure, "Simple"), curve(figure, "CBDLO (CRAWL)")
    assert simple_[0] < simple_[1] == simple_[2]  # the last hops reach nobody new
    assert ours[0] > 1.5 * ours[1]
    assert ours[1] > 0.7 * ours[2]


def test_figure_7_counts_what_delivers_on_both_sides() -> None:
    figure = made(7, x=(100, 3_000), events=20)
    tera, ours = curve(figure, "TERA"), curve(figure, "CBDLO")
    searching = curve(figure, "CBDLO without the messages of the node lists")
    assert tera[1] > 5 * tera[0]
    assert ours[1] > 5 * ours[0]  # a node list grows with the subscriptions, as a topic does
    assert searching[1] < 3 * searching[0]  # walks and trees hardly
    (curve_,) = [series for series in figure.series if series.name == "CBDLO"]
    lists = [value or 0.0 for value in curve_.facts["lists"]]
    assert [y - few for y, few in zip(ours, searching, strict=True)] == pytest.approx(
        [each / 20 for each in lists]
    )


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
        curve(figure, "CBDLO"), rel=0.4
    )


def rows_of(*words: str) -> dict[tuple[int, int], dict[str, Any]]:
    """What a run of whole nodes in one world prints, by figure and x, without what it took."""
    command = [
        sys.executable,
        "-m",
        "bench.simulator.figures",
        "--nodes=12",
        "--one-load",
        "--json",
    ]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
    took = ("cpu_s", "shared_cpu_s", "peak_bytes")
    return {
        (row["figure"], row["x"]): {k: v for k, v in row.items() if k not in took}
        for row in json.loads(done.stdout)
    }


def test_points_that_share_a_world_have_the_rows_that_they_have_alone() -> None:
    shared = rows_of("5", "6", "--x=2", "--x=8")
    assert set(shared) == {(5, 2), (5, 8), (6, 2), (6, 8)}  # by subscriptions and by hops
    assert shared[6, 2]["walk"] < shared[6, 8]["walk"]
    for figure, x in ((5, 8), (6, 2)):  # after others with fewer subscriptions, and beside others
        assert rows_of(str(figure), f"--x={x}") == {(figure, x): shared[figure, x]}


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


def test_the_command_writes_json_and_picture_and_repeats_itself(tmp_path: Path) -> None:
    def run(name: str, *more: str) -> tuple[bytes, bytes]:
        sets = [f"--set={s}" for s in ("x=[50,100]", "nodes=100", "events=5", "load.attributes=30")]
        out = tmp_path / name
        done = CliRunner().invoke(
            experiments, ["figure-5", "--out", str(out), "--quiet", *sets, *more]
        )
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
    assert [len(series["y"]) for series in facts["series"]] == [2, 2, 2, 2]
    assert b"</svg>" in picture


@pytest.mark.parametrize("change", ["nodse=1", "nodes=many", "load.kind=3", "x"])
def test_a_parameter_that_is_none_is_refused(change: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(experiments, ["figure-5", "--out", str(tmp_path), "--set", change])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def graph(nodes: int, view: int) -> LowerLayer:
    settings = ViewSettings(size=view)
    return LowerLayer("1", nodes, [], lambda a, r: None, {}, settings, WalkSettings())


def test_a_flood_ends_at_its_hop_limit() -> None:
    chain = {0: [1], 1: [2], 2: [3], 3: []}
    assert Simple(chain.__getitem__).publish(0, 2) == ({0, 1, 2}, 2)
    assert Simple(chain.__getitem__).publish(0, 9) == ({0, 1, 2, 3}, 3)
    assert Forwarding(chain.__getitem__, Random(1)).publish(0, 9) == ({0, 1, 2, 3}, 3)


def test_a_source_that_matches_itself_counts() -> None:
    cost = simple(FigurePlan(x=(), nodes=1, subscriptions=3, events=20), "1")
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
