"""P6, P7: the experiment of the Phoenix paper in small: what each mode does, and its report."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from bench.experiments.__main__ import experiments
from bench.experiments.timeliness import (
    MODES,
    Latency,
    Point,
    TimelinessPlan,
    latency_of,
    series,
    weighted_latency,
)
from canopy.sim.world.processor import Processor

HEAVY = TimelinessPlan(
    rates=(4_000,),
    matching=(),
    matched=3,
    types=1,
    events=200,
    warm_up=60,
    processor=Processor(per_input=0.000_01, per_match=0.000_6, per_recipient=0.000_033),
)
"""Three hosts that can match 1,430 events a second each."""


@cache
def heavy() -> dict[str, Point]:
    """The one point of each mode."""
    plan = msgspec.structs.replace(HEAVY, seed=2)
    rows = [series(plan, 9, mode)[0] for mode in MODES]
    return {
        mode.name: msgspec.convert(row[mode.name], Point)
        for mode, row in zip(MODES, rows, strict=True)
    }


def test_every_delivery_is_made_in_every_mode() -> None:
    assert [mode.name for mode in MODES] == list(heavy())
    for point in heavy().values():
        assert point.missing == 0
        assert sum(level.deliveries for level in point.levels) == 3 * HEAVY.events
        assert sum(point.served) >= HEAVY.events


def test_both_are_better_than_each_alone_and_each_alone_than_neither() -> None:
    by_urgency = {mode: point.urgency_ms for mode, point in heavy().items()}
    assert by_urgency["both"] < 0.97 * by_urgency["choice"]
    assert by_urgency["both"] < 0.95 * by_urgency["priority"]
    assert by_urgency["choice"] < 0.8 * by_urgency["neither"]
    assert by_urgency["priority"] < 0.8 * by_urgency["neither"]


def test_priority_makes_the_urgent_wait_least_and_the_mean_is_the_same() -> None:
    found = heavy()
    alone, without = found["priority"], found["neither"]
    means = [level.mean_ms for level in alone.levels]
    assert means[0] < 0.5 * means[-1]
    assert means[0] < 0.6 * without.levels[0].mean_ms
    assert alone.mean_ms == pytest.approx(without.mean_ms, rel=0.2)


def test_choice_makes_hosts_share_the_work() -> None:
    found = heavy()
    by_hash, by_time = found["neither"].served, found["choice"].served
    assert max(by_time) < 1.3 * sum(by_time) / 3 < max(by_hash)


def test_the_99th_percentile_is_the_nearest_rank() -> None:
    found = latency_of([n / 1000 for n in range(1, 201)])
    assert (found.deliveries, found.mean_ms, found.p99_ms) == (200, 100.5, 198.0)
    assert latency_of([]) == Latency(0, 0.0, 0.0)


def test_the_mean_by_urgency_counts_level_1_five_times() -> None:
    levels = [Latency(10, 1.0, 0), *[Latency(0, 0, 0)] * 3, Latency(10, 7.0, 0)]
    assert weighted_latency(levels) == 2.0
    assert weighted_latency([Latency(0, 0, 0)] * 5) == 0


def test_the_command_writes_json_and_picture(tmp_path: Path) -> None:
    small = (
        "rates=[2000]",
        "matching=[2]",
        "matched=1",
        "types=2",
        "events=20",
        "warm_up=5",
        "publishers=1",
    )
    sets = [f"--set={each}" for each in small]
    asked = ["timeliness", "--out", str(tmp_path), "--quiet", *sets]
    done = CliRunner().invoke(experiments, asked)
    assert done.exit_code == 0, done.output
    assert "| 9 | 2,000 |" in done.output
    assert "| |" not in done.output, "all columns have values"
    rows = json.loads((tmp_path / "timeliness.json").read_bytes())
    assert [(row["figure"], row["x"], row["seed"]) for row in rows] == [(9, 2000, 1), (10, 2, 1)]
    assert all(row[mode.name]["missing"] == 0 for row in rows for mode in MODES)
    assert b"</svg>" in (tmp_path / "timeliness.svg").read_bytes()


def test_a_parameter_that_is_none_is_refused() -> None:
    done = CliRunner().invoke(experiments, ["timeliness", "--set", "processor.speed=3"])
    assert done.exit_code == 2
    assert "processor.per_match" in done.output
