"""`canopy sim failure`: a share of the simulated nodes fails at one moment.

The computation is canopy/sim/experiments/mass.py's; here are its options and its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from canopy.cli.experiment import json_option, quiet_option, show, show_nothing

if TYPE_CHECKING:
    from canopy.sim.experiments.mass import Report


@click.command()
@click.option("--nodes", type=click.IntRange(8, 100_000), default=1_000, show_default=True)
@click.option("--share", type=click.FloatRange(0, 0.95), default=0.2, show_default=True)
@click.option(
    "--pause",
    type=click.FloatRange(0, 120),
    default=0.0,
    help="The nodes stand still for 1 to so many seconds, instead of being killed.",
)
@click.option("--subscriptions", type=click.IntRange(1, 1_000_000), help="How many (one a node).")
@click.option("--publishers", type=click.IntRange(1, 100_000), default=20, show_default=True)
@click.option("--rate", type=click.FloatRange(0.1, 10_000), default=20.0, show_default=True)
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=40.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--replicas", type=click.IntRange(1, 16), help="Hosts of a virtual node (3).")
@json_option
@quiet_option
def failure(replicas: int | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Kill a share of the nodes at one moment, or let them stand still, while events flow: what do
    the survivors still get, and how soon?

    docs/lab/routing.md says what came out. The exit code is 1 if something was shown twice or
    wrongly.

    \b
    canopy sim failure
    canopy sim failure --share 0.8
    canopy sim failure --pause 10 --json
    """
    import msgspec

    from canopy.sim.experiments.mass import Plan, measure
    from canopy.wire.transport.codec import WireCodec
    from overlay.settings import Settings, TreeSettings

    settings = Settings() if replicas is None else Settings(tree=TreeSettings(replicas=replicas))
    plan = Plan(settings=settings, **options)
    report = measure(plan, WireCodec(), show_nothing if quiet else show)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        print_report(report)
    return 1 if report.twice or report.spurious else 0


def print_report(report: Report) -> None:
    """A table for a person, and what else there is in a few lines."""
    from rich.console import Console
    from rich.table import Table

    what = "stood still" if report.plan.pause else "were killed"
    table = Table(
        title=f"{report.failed} of {report.plan.nodes} nodes {what} at 0 s", title_justify="left"
    )
    for name in ("published", "events", "expected", "delivered", "within 1 s", "slowest"):
        table.add_column(name, justify="left" if name == "published" else "right")
    for band in report.bands:
        table.add_row(
            "before" if band.since is None else f"from {band.since:g} s on",
            f"{band.events:,}",
            f"{band.expected:,}",
            share(band.delivered, band.expected),
            share(band.at_once, band.expected),
            f"{band.worst_s:.2f} s",
        )
    out = Console(highlight=False)
    out.print(table)
    out.print(
        f"messages per event {report.messages_per_event} before and "
        f"{report.messages_per_event_after} after; {report.hosts} hosts with "
        f"{report.entries_mean} index entries in the mean, {report.entries_max} at most\n"
        f"{report.members_failed} members of clusters were among them; in the end every cluster "
        f"{'has a primary' if report.led else 'has a primary, but for some'}\n"
        f"shown twice: {report.twice}; spurious: {report.spurious}; "
        f"healthy nodes taken for dead: {report.doubted}"
    )


def share(part: int, whole: int) -> str:
    """In percent; all of it only if it is all."""
    return "-" if not whole else "all" if part == whole else f"{100 * part / whole:.3f} %"
