"""Measurements of whole overlays in a simulated network, by seed.

    python -m bench.experiments                                # what there is
    python -m bench.experiments scaling --help                 # one of them, with its parameters
    python -m bench.experiments scaling --out build/scaling    # a table, scaling.json, scaling.svg
    python -m bench.experiments scaling --set loads=[] --json

`registry` names them all. Progress goes to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from bench.experiments.frame import Experiment, NotReadyError, no_progress
from bench.experiments.pictures import draw
from bench.experiments.registry import EXPERIMENTS
from canopy.cli.connect import json_option, quiet_option
from canopy.cli.errors import FAILURE, report
from canopy.cli.hints import HintingGroup
from canopy.cli.main import SETTINGS
from canopy.cli.parameters import changed, set_option

NAME = "python -m bench.experiments"


def print_progress(stage: str, share: float) -> None:
    """Print a line on standard error."""
    click.echo(f"{share:4.0%}  {stage}".rstrip(), err=True)


def command(experiment: Experiment[Any]) -> click.Command:
    """The command that runs one experiment, prints its table, and keeps its rows and picture."""

    def run(
        changes: tuple[str, ...], seed: int, out: Path | None, as_json: bool, quiet: bool
    ) -> int:
        plan = changed(experiment.plan, (f"seed={seed}", *changes))
        rows = experiment.rows(plan, no_progress if quiet else print_progress)
        text = json.dumps(rows, indent=1, ensure_ascii=False)
        click.echo(text if as_json else experiment.shown(rows))
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{experiment.name}.json").write_text(text + "\n", encoding="utf-8")
            draw(experiment.pictures, rows, experiment.title, out / f"{experiment.name}.svg")
        return 0 if all(map(experiment.is_good, rows)) else FAILURE

    made: Callable[..., int] = run
    for option in (
        quiet_option,
        json_option,
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            help=f"A folder for {experiment.name}.json, and .svg if there is a picture.",
        ),
        click.option("--seed", type=int, default=experiment.plan.seed, help="The (first) seed."),
        set_option,
    ):
        made = option(made)
    return click.command(
        experiment.name,
        short_help=experiment.title,
        help=f"{experiment.title} {experiment.about}",
        epilog=parameters(experiment.plan),
    )(made)


def parameters(plan: msgspec.Struct) -> str:
    """The parameters that ``--set`` changes, a line each; those of nodes are named as a group."""
    lines = ["\b", "Parameters:"]
    for name, value in msgspec.to_builtins(plan).items():
        if name == "settings":
            lines.append("  settings.GROUP.NAME: of all nodes, as in a node's configuration")
        elif isinstance(value, dict):
            lines += [f"  {name}.{inner}={one}" for inner, one in value.items()]
        else:
            lines.append(f"  {name}={value}")
    return "\n".join(lines)


@click.group(cls=HintingGroup, context_settings=SETTINGS)
def experiments() -> None:
    """Measure whole overlays in a simulated network, by seed."""


for each in EXPERIMENTS:
    experiments.add_command(command(each))


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args` (without the program's name). Returns the exit code."""
    try:
        code = experiments.main(args, prog_name=NAME, standalone_mode=False)
    except NotReadyError as error:
        click.echo(f"{NAME}: {error}", err=True)
        return FAILURE
    except BaseException as error:
        return report(error)
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
