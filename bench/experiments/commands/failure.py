"""`bench.experiments failure`: a share of the simulated nodes fails at once.

`bench.experiments.mass_failure` computes it; here are its options and its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bench.experiments.options import progress_of
from canopy.cli.connect import json_option, quiet_option
from canopy.cli.output import console, table

if TYPE_CHECKING:
    from bench.experiments.mass_failure import FailureReport


@click.command(short_help="Kill or pause a share of the nodes at once.")
@click.option("--nodes", type=click.IntRange(8, 100_000), default=1_000)
@click.option("--share", type=click.FloatRange(0, 0.95), default=0.2)
@click.option(
    "--pause",
    type=click.FloatRange(0, 120),
    default=0.0,
    help="Pause the nodes for 1 to this many seconds, instead of killing them.",
)
@click.option(
    "--subscriptions",
    type=click.IntRange(1, 1_000_000),
    help="Number of subscriptions (one per node).",
)
@click.option("--publishers", type=click.IntRange(1, 100_000), default=20)
@click.option("--rate", type=click.FloatRange(0.1, 10_000), default=20.0)
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=40.0)
@click.option("--seed", type=int, default=1)
@click.option("--replicas", type=click.IntRange(1, 16), help="Hosts of a virtual node (3).")
@json_option
@quiet_option
def failure(replicas: int | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Kill or pause a share of the nodes at once while events are published: how many deliveries do
    the survivors still get, and how soon?

    docs/lab/routing.md has the results. The exit code is 1 if something was delivered twice, or
    without a match.

    \b
    python -m bench.experiments failure
    python -m bench.experiments failure --share 0.8
    python -m bench.experiments failure --pause 10 --json
    """
    import msgspec

    from bench.experiments.mass_failure import FailurePlan, measure
    from canopy.wire.transport.codec import WireCodec
    from overlay.settings import Settings, TreeSettings

    settings = Settings() if replicas is None else Settings(tree=TreeSettings(replicas=replicas))
    plan = FailurePlan(settings=settings, **options)
    report = measure(plan, WireCodec(), progress_of(quiet))
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        print_report(report)
    return 1 if report.twice or report.spurious else 0


def print_report(report: FailureReport) -> None:
    """Print a table by time of publication, and totals."""
    what = "were paused" if report.plan.pause else "were killed"
    title = f"{report.failed} of {report.plan.nodes} nodes {what} at 0 s"
    counts = (">events", ">expected", ">delivered", ">within 1 s", ">slowest")
    shown = table("published", *counts, title=title)
    for band in report.bands:
        shown.add_row(
            "before" if band.since is None else f"from {band.since:g} s on",
            f"{band.events:,}",
            f"{band.expected:,}",
            share(band.delivered, band.expected),
            share(band.at_once, band.expected),
            f"{band.worst_s:.2f} s",
        )
    out = console()
    out.print(shown)
    out.print(
        f"messages per event {report.messages_per_event} before and "
        f"{report.messages_per_event_after} after; {report.hosts} hosts with "
        f"{report.entries_mean} index entries in the mean, {report.entries_max} at most\n"
        f"{report.members_failed} of the failed nodes were members of clusters; in the end "
        f"{'every cluster has' if report.led else 'some clusters do not have'} a primary\n"
        f"delivered twice: {report.twice}; spurious: {report.spurious}; "
        f"healthy nodes suspected: {report.doubted}"
    )


def share(part: int, whole: int) -> str:
    """The share in percent; "all" only if `part` equals `whole`."""
    return "-" if not whole else "all" if part == whole else f"{100 * part / whole:.3f} %"
