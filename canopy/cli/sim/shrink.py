"""The report about a failing run: violations, a smaller scenario that fails likewise, what happened
in it, and the command that repeats the run. Used by `sim run`, `sim soak` and `sim pairs`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from canopy.cli.constants import SHRINK_TIME, VIOLATIONS_PRINTED

if TYPE_CHECKING:
    from canopy.sim.scenario.verdict import Verdict
    from overlay.links.events import Codec

shrink_option = click.option(
    "--shrink",
    type=click.FloatRange(0),
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
    """Find and print the smallest scenario that fails likewise, for at most `seconds`."""
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
    """The verdict's scenario as YAML for `canopy sim run`, one line per entry."""
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
