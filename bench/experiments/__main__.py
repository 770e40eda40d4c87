"""The command `bench.experiments`: measurements of whole overlays in the simulator."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from bench.experiments.commands.failure import failure
from bench.experiments.commands.figure import figure
from bench.experiments.commands.health import health
from bench.experiments.commands.liars import liars
from bench.experiments.commands.recovery import recovery
from bench.experiments.commands.regions import regions
from bench.experiments.commands.revoke import revoke
from bench.experiments.commands.scaling import scaling
from bench.experiments.commands.timeliness import timeliness
from bench.experiments.running import NotReadyError
from canopy.cli.errors import FAILURE, report
from canopy.cli.hints import HintingGroup
from canopy.cli.main import SETTINGS

NAME = "python -m bench.experiments"


@click.group(cls=HintingGroup, context_settings=SETTINGS)
def experiments() -> None:
    """Measure whole overlays in a simulated network, by seed."""


for each in (failure, figure, health, liars, recovery, regions, revoke, scaling, timeliness):
    experiments.add_command(each)


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
