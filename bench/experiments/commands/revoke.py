"""`bench.experiments revoke`: certificates are revoked in a simulated overlay.

`bench.experiments.revocation` computes it; here are its options and its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bench.experiments.options import progress_of, seed_option
from canopy.cli.connect import json_option, quiet_option
from canopy.cli.output import console
from canopy.cli.parameters import changed, set_option

if TYPE_CHECKING:
    from bench.experiments.revocation import RevocationReport


@click.command(short_help="Revoke certificates, and see when all links are closed.")
@click.option("--nodes", type=click.IntRange(3, 100_000), default=1_000, show_default=True)
@click.option(
    "--revoked",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Nodes whose certificates are revoked at once; one of them leads a cluster.",
)
@seed_option
@set_option
@json_option
@quiet_option
def revoke(
    nodes: int, revoked: int, seed: int, changes: tuple[str, ...], as_json: bool, quiet: bool
) -> int:
    """Revoke the certificates of some nodes of an overlay with keys, and see how soon the last link
    to one of them is closed.

    The exit code is 1 if links were left, or were opened again. docs/lab/security.md has the
    results.

    \b
    python -m bench.experiments revoke
    python -m bench.experiments revoke --nodes 100 --revoked 1 --json
    """
    import msgspec

    from bench.experiments.revocation import RevocationPlan, measure
    from canopy.wire.transport.codec import WireCodec

    given = [f"nodes={nodes}", f"revoked={revoked}", f"seed={seed}"]
    if nodes < RevocationPlan().voters:
        given.append(f"voters={nodes}")
    plan = changed(RevocationPlan(), (*given, *changes))
    try:
        report = measure(plan, WireCodec(), progress_of(quiet))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        print_report(report)
    return 1 if report.closed_s is None or report.reopened else 0


def print_report(report: RevocationReport) -> None:
    """Print what became of the links, in four lines."""
    plan = report.plan
    console().print(
        f"{plan.revoked} of {plan.nodes} nodes revoked, {report.primaries} of them primaries; they "
        f"had {report.links} of {report.connections} connections\n"
        f"closed: half after {seconds(report.half_closed_s)}, all after "
        f"{seconds(report.closed_s)}; seen again: {report.reopened}; refused: {report.refused}\n"
        f"the list is known: to half of the nodes after {seconds(report.half_listed_s)}, to all "
        f"after {seconds(report.listed_s)}\n"
        f"in the end every key is {'' if report.led else 'not '}led by a node that is not revoked"
    )


def seconds(took: float | None) -> str:
    """A time, or that it was not reached."""
    return "never" if took is None else f"{took:.2f} s"
