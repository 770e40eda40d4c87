"""`canopy sim soak`: random scenarios, seed after seed, until something is wrong.

Stops at the first seed that is not green, says what was wrong, shrinks it to the smallest scenario
that it can find, and prints the one command that does exactly that seed again. A line of progress
now and then goes to standard error: seeds per hour, and how much virtual time they have seen.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.sim.shrink import save_option, shrink_option, tell_bad

if TYPE_CHECKING:
    from canopy.sim.scenario.examine import Verdict

TELL_EVERY = 10.0
"""Wall-clock seconds between two lines of progress."""


class Tally:
    """What a soak has done so far."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.told = self.began
        self.seeds = 0
        self.simulated_s = 0.0
        self.events = 0
        self.deliveries = 0
        self.bad: list[int] = []

    def add(self, verdict: Verdict) -> None:
        """One more seed."""
        self.seeds += 1
        self.simulated_s += verdict.simulated_s
        if verdict.result is not None:
            self.events += verdict.result.published
            self.deliveries += verdict.result.delivered
        if not verdict.green:
            self.bad.append(verdict.seed)

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        spent = time.monotonic() - self.began
        return {
            "seeds": self.seeds,
            "seconds": round(spent, 1),
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


@click.command()
@click.option("--seed", "first", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1), help="Stop after so many seeds (never).")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@click.option("--keep-going", is_flag=True, help="Go on after a bad seed.")
@click.option("--show", is_flag=True, help="Print the scenario of the first seed and do nothing.")
@shrink_option
@save_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def soak(
    first: int,
    seeds: int | None,
    minutes: float | None,
    keep_going: bool,
    show: bool,
    shrink: float,
    save: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run random scenarios with faults, seed after seed, until something is wrong.

    Exit code 0 if every seed was green, 1 if not.

    \b
    canopy sim soak --minutes 10
    canopy sim soak --seed 4711 --seeds 1       # one seed again
    canopy sim soak --seed 4711 --show          # what that seed does
    """
    import msgspec

    from canopy.sim.soak.soak import draw_scenario, examine
    from canopy.wire.transport.codec import WireCodec

    if show:
        click.echo(msgspec.yaml.encode(draw_scenario(first)).decode().rstrip())
        return
    tally = Tally()
    codec = WireCodec()
    for seed in count(first) if seeds is None else range(first, first + seeds):
        verdict = examine(seed, codec)
        tally.add(verdict)
        if not verdict.green:
            click.echo(f"seed {seed} is bad:", err=True)
            again = f"canopy sim soak --seed {seed} --seeds 1"
            tell_bad(verdict, codec, again, shrink, save)
            click.echo("", err=True)
            if not keep_going:
                break
        now = time.monotonic()
        if not quiet and now - tally.told > TELL_EVERY:
            tally.told = now
            click.echo(f"seed {seed}: {tally}", err=True)
        if minutes is not None and now - tally.began > 60 * minutes:
            break
    if as_json:
        click.echo(msgspec.json.encode(tally.facts()).decode())
    else:
        click.echo(str(tally))
    if tally.bad:
        sys.exit(1)
