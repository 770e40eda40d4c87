"""`canopy sim pairs`: each fault alone, and each pair of faults at once.

`canopy.sim.soak.fault_pairs` has the catalogue and the scenarios; here are options and output.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from canopy.cli.connect import json_option, quiet_option
from canopy.cli.constants import REPORT_INTERVAL
from canopy.cli.sim.shrink import report_failure, save_option, shrink_option


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

    from canopy.sim.scenario.verdict import judge_scenario
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
    if as_json:
        click.echo(msgspec.json.encode(facts).decode())
    else:
        click.echo(f"{len(chosen)} trials in {facts['seconds']:g} s, {len(bad)} failed")
    if bad:
        sys.exit(1)
