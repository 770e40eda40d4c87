"""`canopy sim soak`: random scenarios, seed after seed, until one fails.

Stops at the first seed that fails, prints the violations, shrinks the scenario, and prints the
command that repeats that seed. Progress goes to standard error: seeds per hour, and their virtual
time.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.connect import json_option, quiet_option
from canopy.cli.constants import REPORT_INTERVAL
from canopy.cli.sim.shrink import report_failure, save_option, shrink_option

if TYPE_CHECKING:
    from canopy.sim.scenario.verdict import Verdict


class SoakTotals:
    """The totals of a soak: seeds, virtual time, events, deliveries, failing seeds."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.cpu_began = time.process_time()
        self.shown_at = self.began
        self.seeds = 0
        self.simulated_s = 0.0
        self.events = 0
        self.deliveries = 0
        self.bad: list[int] = []

    def add(self, verdict: Verdict) -> None:
        """Add the verdict of one seed."""
        self.seeds += 1
        self.simulated_s += verdict.simulated_s
        if verdict.result is not None:
            self.events += verdict.result.published
            self.deliveries += verdict.result.delivered
        if not verdict.green:
            self.bad.append(verdict.seed)

    def facts(self) -> dict[str, Any]:
        """The totals as the JSON object of `--json`."""
        spent = time.monotonic() - self.began
        cpu = time.process_time() - self.cpu_began
        return {
            "seeds": self.seeds,
            "seconds": round(spent, 1),
            "cpu_s": round(cpu, 1),
            "seeds_per_cpu_hour": round(self.seeds * 3600 / cpu) if cpu else 0,
            "seeds_per_hour": round(self.seeds * 3600 / spent) if spent else 0,
            "simulated_hours": round(self.simulated_s / 3600, 3),
            "published": self.events,
            "delivered": self.deliveries,
            "bad": self.bad,
        }

    def __str__(self) -> str:
        facts = self.facts()
        return (
            f"{facts['seeds']} seeds ({facts['seeds_per_hour']} an hour), "
            f"{facts['simulated_hours']:.2f} h of virtual time, "
            f"{facts['delivered']} deliveries, {len(self.bad)} bad"
        )


@click.command(short_help="Run random scenarios with faults, seed after seed.")
@click.option("--seed", "first", type=int, default=1, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1), help="Stop after this many seeds (never).")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Stop after this time.")
@click.option("--keep-going", is_flag=True, help="Go on after a seed that fails.")
@click.option("--keys", is_flag=True, help="Nodes have keys.")
@click.option("--show", is_flag=True, help="Print the scenario of the first seed and run nothing.")
@shrink_option
@save_option
@json_option
@quiet_option
def soak(
    first: int,
    seeds: int | None,
    minutes: float | None,
    keep_going: bool,
    keys: bool,
    show: bool,
    shrink: float,
    save: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run random scenarios with faults, seed after seed, until one fails.

    The exit code is 0 if no seed failed, else 1.

    \b
    canopy sim soak --minutes 10
    canopy sim soak --seed 4711 --seeds 1       # one seed again
    canopy sim soak --seed 4711 --show          # what that seed does
    """
    import msgspec

    from canopy.sim.soak.soak import draw_scenario, judge_seed
    from canopy.wire.transport.codec import WireCodec

    if show:
        click.echo(msgspec.yaml.encode(draw_scenario(first)).decode().rstrip())
        return
    totals = SoakTotals()
    codec = WireCodec()
    for seed in count(first) if seeds is None else range(first, first + seeds):
        verdict = judge_seed(seed, codec, keys=keys)
        totals.add(verdict)
        if not verdict.green:
            click.echo(f"seed {seed} is bad:", err=True)
            again = f"canopy sim soak --seed {seed} --seeds 1{' --keys' if keys else ''}"
            report_failure(verdict, codec, again, shrink, save)
            click.echo("", err=True)
            if not keep_going:
                break
        now = time.monotonic()
        if not quiet and now - totals.shown_at > REPORT_INTERVAL:
            totals.shown_at = now
            click.echo(f"seed {seed}: {totals}", err=True)
        if minutes is not None and now - totals.began > 60 * minutes:
            break
    if as_json:
        click.echo(msgspec.json.encode(totals.facts()).decode())
    else:
        click.echo(str(totals))
    if totals.bad:
        sys.exit(1)
