"""What `canopy sim run` and `canopy sim soak` say of a bad seed: what was wrong, how little of it
suffices, what happened then, and the one command that does it again."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from canopy.sim.scenario.examine import Verdict
    from overlay.links.events import Codec

SHRINK = 30.0
"""Seconds that a bad seed may be shrunk for, unless told: some fifty runs of a small overlay."""

MOST_TOLD = 20
"""Violations that are printed."""

shrink_option = click.option(
    "--shrink",
    type=click.FloatRange(0),
    default=SHRINK,
    show_default=True,
    metavar="SECONDS",
    help="How long to look for a smaller scenario that fails in the same way.",
)
save_option = click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write that smaller scenario there, for `canopy sim run`.",
)


def tell_bad(
    verdict: Verdict, codec: Codec, again: str, seconds: float, save: Path | None
) -> Verdict:
    """Print it to standard error; the smallest verdict that was found."""
    for violation in verdict.violations[:MOST_TOLD]:
        click.echo(f"{violation.kind}: {violation.text}", err=True)
    if len(verdict.violations) > MOST_TOLD:
        click.echo(f"… {len(verdict.violations) - MOST_TOLD} more", err=True)
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
    """The smallest scenario that fails likewise, found within so many seconds; printed as YAML."""
    from canopy.sim.soak.shrink import Shrinker

    if not seconds:
        return verdict
    until = time.monotonic() + seconds
    shrinker = Shrinker(verdict, codec, lambda: time.monotonic() < until)
    if sys.stderr.isatty():
        click.echo(f"looking for a smaller scenario, {seconds:g} s at most …", err=True)
    small = shrinker.shrink()
    click.echo(f"\nthe smallest scenario found in {shrinker.runs} runs that fails so:", err=True)
    for line in as_yaml(small).splitlines():
        click.echo(f"  {line}", err=True)
    return small


def as_yaml(verdict: Verdict) -> str:
    """Its scenario as a file for `canopy sim run`; one line per entry."""
    import json

    from canopy.sim.soak.shrink import spare

    lines = []
    for name, value in spare(verdict.scenario).items():
        if isinstance(value, list):
            lines.append(f"{name}:")
            lines += [f"  - {json.dumps(item, ensure_ascii=False)}" for item in value]
        else:
            lines.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"
