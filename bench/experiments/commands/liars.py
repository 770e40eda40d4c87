"""`bench.experiments liars`: members that lie, and what each defence is worth.

`bench.experiments.liars` computes it; here are its options, its table and its picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bench.experiments.options import ExperimentOutput, output_options, seed_option
from canopy.cli.output import console, table
from canopy.cli.parameters import changed, set_option

if TYPE_CHECKING:
    from bench.experiments.liars.report import LiarsExperiment

NAMES = (
    *("poisoning", "made-up", "eclipse", "access-points", "black-hole", "push-and-drop"),
    *("nobody-there", "owners", "voter"),
)
"""As in `bench.experiments.liars.attacks`, which would have to be imported for `--help`."""


@click.command(short_help="Let a share of the nodes lie, with and without each defence.")
@click.option("--attack", type=click.Choice(NAMES), default="poisoning", help="What the liars do.")
@click.option(
    "--malicious",
    type=click.FloatRange(0.0, 0.8),
    multiple=True,
    metavar="SHARE",
    help="Share of the nodes that lie; may be repeated. Without it: from 0 to 0.3.",
)
@output_options("liars")
@seed_option
@set_option
def liars(
    attack: str,
    malicious: tuple[float, ...],
    seed: int,
    changes: tuple[str, ...],
    output: ExperimentOutput,
) -> None:
    """Grow an overlay of which a share of the members lies, and see what honest programs still get.

    \b
    poisoning      name only liars in exchanges of neighbours, pushed at everybody; drop walks
    made-up        name nodes that do not exist, by thousands, at their own addresses
    eclipse        the same as poisoning at nodes that have just come
    access-points  claim to be the access point of every tree; accept events and drop them
    black-hole     drop walks, lookups, events and copies that are to be passed on
    push-and-drop  both poisoning and black-hole
    nobody-there   say that trees have no subscribers
    owners         claim to lead every cluster, under a later epoch
    voter          one voter of five acknowledges and does not store, votes twice, claims epochs

    Each is tried without keys, with keys, and with each defence that nodes with keys have by
    default. docs/lab/security.md has the results. Takes some minutes.

    \b
    python -m bench.experiments liars --malicious 0.2 --attack access-points
    python -m bench.experiments liars --attack poisoning --set nodes=150 --out build/liars
    """
    from bench.experiments.liars.picture import draw
    from bench.experiments.liars.report import measure
    from bench.experiments.liars.trial import LiarsPlan
    from canopy.wire.transport.codec import WireCodec

    given = [f"attack={attack}", f"seed={seed}"]
    if malicious:
        given.append(f"malicious={list(malicious)}")
    plan = changed(LiarsPlan(), (*given, *changes))
    try:
        found = measure(plan, WireCodec(), output.progress)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    output.write(found, "liars", draw, print_report)


def print_report(found: LiarsExperiment) -> None:
    """Print a line for each trial."""
    columns = (">liars", "=defences", ">delivered", ">to newcomers", ">walks hit", ">in views")
    shown = table(*columns, ">isolated", title=f"attack: {found.parameters.attack}")
    for row in found.rows:
        shares = (row.delivered, row.newcomers_delivered, row.walk_hits, row.liars_in_views)
        shown.add_row(
            f"{row.malicious:.0%}",
            row.defence,
            *("-" if share is None else f"{100 * share:.1f} %" for share in shares),
            str(row.isolated),
        )
    console().print(shown)
