"""`canopy sim pairs`: each fault alone, and each pair of faults at once.

The catalogue and the scenarios are canopy/sim/soak/pairs'; here are the options and what is said of
them.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from canopy.cli.experiment import json_option, quiet_option
from canopy.cli.sim.shrink import save_option, shrink_option, tell_bad

TELL_EVERY = 10.0
"""Wall-clock seconds between two lines of progress."""


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Workload and sides.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="A fault of the catalogue: it alone and in all pairs; given twice, these and their pairs.",
)
@click.option("--alone", is_flag=True, help="No pairs.")
@click.option("--list", "as_list", is_flag=True, help="Print the catalogue and do nothing.")
@shrink_option
@save_option
@json_option
@quiet_option
def pairs(
    seed: int,
    only: tuple[str, ...],
    alone: bool,
    as_list: bool,
    shrink: float,
    save: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Let each fault of a catalogue happen alone, and each pair of them at once, to eight simulated
    nodes with a cluster of five, and hold the overlay to its promises.

    Some 400 runs of a second each. The exit code is 1 if one of them is bad.

    \b
    canopy sim pairs
    canopy sim pairs --only "primary killed" --shrink 0
    canopy sim pairs --only bridge --only one-way --seed 7
    """
    import msgspec

    from canopy.sim.scenario.examine import examine_scenario
    from canopy.sim.soak.pairs import CATALOGUE, trials
    from canopy.wire.transport.codec import WireCodec

    if as_list:
        click.echo("\n".join(CATALOGUE))
        return
    for name in only:
        if name not in CATALOGUE:
            raise click.UsageError(f"--only: there is no {name!r}; `--list` says what there is")
    codec, bad = WireCodec(), []
    chosen = [trial for trial in trials(seed, only) if not alone or len(trial.names) == 1]
    began = told = time.monotonic()
    for number, trial in enumerate(chosen, 1):
        verdict = examine_scenario(trial.scenario, codec)
        if not verdict.green:
            bad.append(trial.names)
            click.echo(f"{' with '.join(trial.names)} is bad:", err=True)
            names = " ".join(f"--only {shlex.quote(name)}" for name in trial.names)
            tell_bad(verdict, codec, f"canopy sim pairs --seed {seed} {names}", shrink, save)
            click.echo("", err=True)
        now = time.monotonic()
        if not quiet and now - told > TELL_EVERY:
            told = now
            click.echo(f"{number} of {len(chosen)}, {len(bad)} bad", err=True)
    facts: dict[str, Any] = {
        "seed": seed,
        "trials": len(chosen),
        "seconds": round(time.monotonic() - began, 1),
        "bad": bad,
    }
    if as_json:
        click.echo(msgspec.json.encode(facts).decode())
    else:
        click.echo(f"{len(chosen)} trials in {facts['seconds']:g} s, {len(bad)} bad")
    if bad:
        sys.exit(1)
