"""What the commands of experiments share: options, progress, the result as JSON and picture.

An experiment is computed in `bench.experiments` and returns a struct. Here it becomes
`NAME.json`, with all its parameters and its seed, and `NAME.svg` beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

import click

from canopy.cli.connect import json_option, quiet_option

if TYPE_CHECKING:
    from msgspec import Struct

R = TypeVar("R")
Result = TypeVar("Result", bound="Struct")

seed_option = click.option("--seed", type=int, default=1, help="Seed of the experiment.")


class ExperimentOutput(NamedTuple):
    """Where progress and result of an experiment go."""

    folder: Path | None
    as_json: bool
    quiet: bool

    @property
    def progress(self) -> Callable[[str, float], None]:
        """Shows a share from 0 to 1 with a text on standard error; does nothing if `quiet`."""
        return progress_of(self.quiet)

    def write(
        self,
        result: Result,
        name: str,
        draw: Callable[[Result, BinaryIO], None],
        print_table: Callable[[Result], None],
    ) -> None:
        """Print `result`, and write `name`.json and `name`.svg to the folder, if there is one.
        Raises OSError."""
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(result), indent=2)
        if self.folder is not None:
            (self.folder / f"{name}.json").write_bytes(text + b"\n")
            with (self.folder / f"{name}.svg").open("wb") as file:
                draw(result, file)
        if self.as_json:
            click.echo(text.decode())
            return
        print_table(result)
        if self.folder is not None:
            click.echo(f"written to {self.folder / f'{name}.json'} and .svg")


def output_options(what: str, required: bool = False) -> Callable[[Callable[..., R]], Any]:
    """The options `--out` (the folder for `what`.json and `what`.svg), `--json` and `--quiet`; the
    command gets them as `output`, an ExperimentOutput."""

    def decorate(command: Callable[..., R]) -> Any:
        @wraps(command)
        def call(out: Path | None, as_json: bool, quiet: bool, **options: Any) -> R:
            return command(output=ExperimentOutput(out, as_json, quiet), **options)

        out_option = click.option(
            "--out",
            required=required,
            type=click.Path(file_okay=False, path_type=Path),
            callback=_make_folder,
            help=f"A folder for {what}.json and {what}.svg.",
        )
        return out_option(json_option(quiet_option(call)))

    return decorate


def _make_folder(
    context: click.Context, parameter: click.Parameter, out: Path | None
) -> Path | None:
    """Make the folder before the computation, whose result would be lost otherwise. Raises
    OSError."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    return out


def print_progress(stage: str, share: float) -> None:
    """Print a line about the progress on standard error."""
    click.echo(f"{share:4.0%}  {stage}".rstrip(), err=True)


def progress_of(quiet: bool) -> Callable[[str, float], None]:
    """What prints an experiment's progress: called with a stage and the share that is done."""
    from bench.experiments.running import no_progress

    return no_progress if quiet else print_progress
