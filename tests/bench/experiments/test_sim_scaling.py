"""C6: more hosts do more, a burst is followed, and nothing is lost: the experiment in small."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from click.testing import CliRunner

from bench.experiments.__main__ import experiments
from bench.experiments.frame import no_progress
from bench.experiments.scaling import Burst, Scale, ScalingPlan, ScalingPoint, Stage, p99_ms, trials
from canopy.sim.world.processor import Processor

SLOW = Processor(per_input=0.002, per_match=0.004, per_further=0.0004, per_recipient=0.002)
SMALL = ScalingPlan(
    hosts=(1, 4),
    loads=("one",),
    parts=12,
    publishers=4,
    subscribers=4,
    shares=(0.7,),
    one_host=(0.4, 0.5),
    settle=8.0,
    measured=1.0,
    measured_events=100,
    burst_hosts=6,
    burst_base=0.15,
    burst_factor=12.0,
    burst_seconds=9.0,
    after_burst=45.0,
    processor=SLOW,
)


@cache
def small() -> list[ScalingPoint | Burst]:
    return list(trials(SMALL, no_progress))


def test_four_hosts_do_at_least_seven_tenths_of_four_times_as_much() -> None:
    one, four, _ = small()
    assert isinstance(one, ScalingPoint)
    assert isinstance(four, ScalingPoint)
    assert (one.hosts, four.hosts) == (1, 4)
    assert one.events_per_second > 0
    assert four.linear >= 0.7
    assert four.used == 4
    assert four.virtual_nodes > 1
    assert 0 < four.p99_ms <= SMALL.p99_ms


def test_a_burst_is_followed_within_five_seconds_and_loses_nothing() -> None:
    *_, burst = small()
    assert isinstance(burst, Burst)
    assert burst.delivered == burst.expected > 0
    assert 0 <= burst.in_time_after_s <= 5.0
    before, during, after = burst.virtual_nodes
    assert before == after == 1
    assert during > 1
    assert burst.used[1] == SMALL.burst_hosts
    assert burst.last_change_s < SMALL.after_burst - 10, "maps have settled"


def test_the_load_with_many_attributes_is_drawn_by_its_law() -> None:
    stage = Stage(SMALL, "zipf", 1)
    events = [stage.event() for _ in range(500)]
    assert all(len(event) == SMALL.per_event for event in events)
    first = sum(1 for event in events if "a0" in event)
    last = sum(1 for event in events if "a99" in event)
    assert first > 5 * last


def test_what_is_missing_counts_as_late() -> None:
    assert p99_ms([0.001] * 99, 100) == 1.0
    assert p99_ms([0.001] * 98, 100) == -1.0
    assert p99_ms([], 0) == -1.0


def test_rates_are_tried_from_the_middle_until_the_verdict_changes() -> None:
    run = Scale(SMALL, no_progress)
    tried: list[float] = []

    def verdicts(limit: float) -> list[float]:
        tried.clear()
        run._try = lambda stage, rate, what: tried.append(rate) or rate  # type: ignore
        run._is_in_time = lambda measured: measured <= limit  # type: ignore
        run._search(None, [1, 2, 3, 4, 5, 6], "")  # type: ignore[arg-type]
        return list(tried)

    assert verdicts(4.5) == [4, 5]
    assert verdicts(2.5) == [4, 3, 2]
    assert verdicts(9) == [4, 5, 6]
    assert verdicts(0) == [4, 3, 2, 1]


def test_the_command_writes_json_and_a_picture(tmp_path: Path) -> None:
    options = ["hosts=[1]", "loads=[one]", "burst_hosts=0", "parts=4", "publishers=2"]
    options += ["subscribers=2", "one_host=[0.3]", "settle=1", "calm=0.5", "measured=0.5"]
    arguments = ["scaling", "--quiet", "--out", str(tmp_path)]
    for option in options:
        arguments += ["--set", option]
    done = CliRunner().invoke(experiments, arguments)
    assert done.exit_code == 0, done.output
    assert "| one | 1 |" in done.output
    (point,) = json.loads((tmp_path / "scaling.json").read_text())
    assert point["hosts"] == 1
    assert (tmp_path / "scaling.svg").read_bytes().startswith(b"<?xml")
