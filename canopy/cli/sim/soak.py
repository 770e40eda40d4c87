"""`canopy sim soak`: random scenarios, seed after seed, until one fails.

Stops at the first seed that fails, prints the violations, shrinks the scenario, and prints the
command that repeats that seed. Progress goes to standard error: seeds per hour, and their virtual
time.
"""

from __future__ import annotations

import shlex
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canopy.cli import output
from canopy.cli.connect import json_option, quiet_option
from canopy.cli.constants import REPORT_INTERVAL, SHRINK_TIME, VIOLATIONS_PRINTED
from canopy.cli.parameters import Number

if TYPE_CHECKING:
    from canopy.sim.scenario.run import Verdict
    from overlay.links.events import Codec


# The report about a failing run: violations, a smaller scenario that fails likewise, what happened
# in it, and the command that repeats the run. Used by `sim run`, `sim soak` and `sim pairs`.

shrink_option = click.option(
    "--shrink",
    type=Number(0),
    default=SHRINK_TIME,
    metavar="SECONDS",
    help="How long to look for a smaller scenario that fails in the same way.",
)
save_option = click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for that smaller scenario, for `canopy sim run`.",
)


def report_failure(
    verdict: Verdict, codec: Codec, again: str, seconds: float, save: Path | None
) -> Verdict:
    """Print the report on standard error. Returns the verdict of the smallest scenario found."""
    for violation in verdict.violations[:VIOLATIONS_PRINTED]:
        click.echo(f"{violation.kind}: {violation.text}", err=True)
    if len(verdict.violations) > VIOLATIONS_PRINTED:
        click.echo(f"… {len(verdict.violations) - VIOLATIONS_PRINTED} more", err=True)
    small = shrunk(verdict, codec, seconds)
    for story in small.stories[:1]:
        click.echo("\nwhat happened:", err=True)
        for line in story:
            click.echo(f"  {line}", err=True)
    if save is not None:
        save.write_text(as_yaml(small), encoding="utf-8")
    click.echo(f"\nagain: {again}", err=True)
    return small


def shrunk(verdict: Verdict, codec: Codec, seconds: float) -> Verdict:
    """Find and print the smallest scenario that fails in the same way, for at most `seconds`."""
    from canopy.sim.soak.shrink import Shrinker

    if not seconds:
        return verdict
    until = time.monotonic() + seconds
    shrinker = Shrinker(verdict, codec, lambda: time.monotonic() < until)
    if sys.stderr.isatty():
        click.echo(f"looking for a smaller scenario, {seconds:g} s at most …", err=True)
    small = shrinker.shrink()
    click.echo(
        f"\nthe smallest scenario found in {shrinker.runs} runs that fails likewise:", err=True
    )
    for line in as_yaml(small).splitlines():
        click.echo(f"  {line}", err=True)
    return small


def as_yaml(verdict: Verdict) -> str:
    """Return the verdict's scenario as YAML for `canopy sim run`, one line per entry."""
    import json

    from canopy.sim.soak.shrink import non_defaults

    lines = []
    for name, value in non_defaults(verdict.scenario).items():
        if isinstance(value, list):
            lines.append(f"{name}:")
            lines += [f"  - {json.dumps(item, ensure_ascii=False)}" for item in value]
        else:
            lines.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


class SoakTotals:
    """The totals of a soak: seeds, faults, virtual time, events, deliveries, failing seeds."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.cpu_began = time.process_time()
        self.shown_at = self.began
        self.seeds = 0
        self.faults = 0
        self.simulated_s = 0.0
        self.events = 0
        self.deliveries = 0
        self.bad: list[int] = []

    def add(self, verdict: Verdict) -> None:
        """Add the verdict of one seed."""
        self.seeds += 1
        self.faults += verdict.scenario.fault_count
        self.simulated_s += verdict.simulated_s
        if verdict.result is not None:
            self.events += verdict.result.published
            self.deliveries += verdict.result.delivered
        if not verdict.green:
            self.bad.append(verdict.seed)

    def facts(self) -> dict[str, Any]:
        """Return the totals as the JSON object of `--json`."""
        spent = time.monotonic() - self.began
        cpu = time.process_time() - self.cpu_began
        return {
            "seeds": self.seeds,
            "faults": self.faults,
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
@click.option("--minutes", type=Number(0, min_open=True), help="Stop after this time.")
@click.option("--keep-going", is_flag=True, help="Go on after a seed that fails.")
@click.option("--keys", is_flag=True, help="Nodes have keys.")
@click.option(
    "--length",
    type=Number(0),
    default=0.0,
    metavar="SECONDS",
    help="Virtual seconds of a seed, about: further phases of faults are drawn (one phase).",
)
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
    length: float,
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
    canopy sim soak --length 600 --keys         # ten virtual minutes a seed, with keys
    """
    import msgspec

    from canopy.sim.soak.soak import draw_long_scenario, judge_seed
    from canopy.wire.transport.codec import WireCodec

    if show:
        click.echo(msgspec.yaml.encode(draw_long_scenario(first, length, keys)).decode().rstrip())
        return
    totals = SoakTotals()
    codec = WireCodec()
    for seed in count(first) if seeds is None else range(first, first + seeds):
        verdict = judge_seed(seed, codec, keys, length)
        totals.add(verdict)
        if not verdict.green:
            click.echo(f"seed {seed} is bad:", err=True)
            options = f"{' --keys' if keys else ''}{f' --length {length:g}' if length else ''}"
            again = f"canopy sim soak --seed {seed} --seeds 1{options}"
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
    output.show(totals.facts(), as_json, str(totals))
    if totals.bad:
        sys.exit(1)


# --- `canopy sim pairs`: each fault alone, and each pair of faults at once ---
#
# `canopy.sim.soak.fault_pairs` has the catalogue and the scenarios; here are options and output.


@click.command(short_help="Inject each fault alone, and each pair of faults.")
@click.option(
    "--seed", type=int, default=1, help="Seed of the workload and of the sides of a partition."
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="A fault of the catalogue, alone and in all pairs; given twice, these two and their pair.",
)
@click.option("--alone", is_flag=True, help="Run each fault alone, and no pairs.")
@click.option("--keys", is_flag=True, help="Nodes have keys.")
@click.option("--list", "as_list", is_flag=True, help="Print the catalogue and run nothing.")
@shrink_option
@save_option
@json_option
@quiet_option
def pairs(
    seed: int,
    only: tuple[str, ...],
    alone: bool,
    keys: bool,
    as_list: bool,
    shrink: float,
    save: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Inject each fault of a catalogue alone, and each pair of them at once, into eight simulated
    nodes with a cluster of five, and check the overlay's guarantees.

    Some 400 runs of a second each. The exit code is 1 if one of them fails.

    \b
    canopy sim pairs
    canopy sim pairs --only "primary killed" --shrink 0
    canopy sim pairs --only bridge --only one-way --seed 7
    """
    import msgspec

    from canopy.sim.scenario.run import judge_scenario
    from canopy.sim.soak.fault_pairs import CATALOGUE, trials
    from canopy.wire.transport.codec import WireCodec

    if as_list:
        click.echo("\n".join(CATALOGUE))
        return
    for name in only:
        if name not in CATALOGUE:
            raise click.UsageError(f"--only: there is no {name!r}; `--list` prints the catalogue")
    codec, bad = WireCodec(), []
    chosen = [trial for trial in trials(seed, only) if not alone or len(trial.names) == 1]
    began = shown_at = time.monotonic()
    for number, trial in enumerate(chosen, 1):
        scenario = msgspec.structs.replace(trial.scenario, keys=keys)
        verdict = judge_scenario(scenario, codec)
        if not verdict.green:
            bad.append(trial.names)
            click.echo(f"{' with '.join(trial.names)} fails:", err=True)
            names = " ".join(f"--only {shlex.quote(name)}" for name in trial.names)
            again = f"canopy sim pairs --seed {seed} {names}{' --keys' if keys else ''}"
            report_failure(verdict, codec, again, shrink, save)
            click.echo("", err=True)
        now = time.monotonic()
        if not quiet and now - shown_at > REPORT_INTERVAL:
            shown_at = now
            click.echo(f"{number} of {len(chosen)}, {len(bad)} failed", err=True)
    facts: dict[str, Any] = {
        "seed": seed,
        "trials": len(chosen),
        "seconds": round(time.monotonic() - began, 1),
        "bad": bad,
    }
    said = f"{len(chosen)} trials in {facts['seconds']:g} s, {len(bad)} failed"
    output.show(facts, as_json, said)
    if bad:
        sys.exit(1)
