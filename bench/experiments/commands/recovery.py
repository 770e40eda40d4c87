"""`bench.experiments recovery`: how long the simulated overlay takes to recover from a loss.

`bench.experiments.recovery` computes it; here are its options, its table and its picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bench.experiments.options import ExperimentOutput, output_options
from canopy.cli.output import console, table

if TYPE_CHECKING:
    from bench.experiments.recovery.report import RecoveryReport

KILLS = ("primary", "standby", "broker", "cluster", "link", "last-link")


def rates_of(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
    """The numbers of a comma-separated list. Raises click.BadParameter."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 500,1000") from None
    if not all(1 <= rate <= 100_000 for rate in found):
        raise click.BadParameter("rates are 1 to 100000 events per second")
    return found


@click.command(short_help="Measure the recovery from losses.")
@click.option(
    "--kill",
    "kills",
    multiple=True,
    type=click.Choice(KILLS),
    help="What is lost (repeatable; all of them by default).",
)
@click.option(
    "--rate", "rates", callback=rates_of, default="500,1000,2000,4000", help="Events per second."
)
@click.option("--nodes", type=click.IntRange(8, 10_000), default=12)
@click.option("--times", type=click.IntRange(1, 1_000), default=3)
@click.option("--seed", type=int, default=1, help="The first of `times` seeds.")
@click.option(
    "--silent", is_flag=True, help="Whole machines fail: no connection is reset (a power cut)."
)
@output_options("recovery")
def recovery(
    kills: tuple[str, ...],
    rates: tuple[float, ...],
    output: ExperimentOutput,
    **options: Any,
) -> int:
    """Lose a primary, a standby, a match broker, a whole cluster or a link while events are
    published: how long until deliveries that depend on it are made again, and which are lost?

    docs/lab/recovery.md describes the measurement; `python -m bench.recovery.measure` does the same
    with real processes. The exit code is 1 if something did not recover, or was delivered twice or
    without a match.

    \b
    python -m bench.experiments recovery
    python -m bench.experiments recovery --kill primary --rate 2000 --times 30 --json
    python -m bench.experiments recovery --silent --out build/recovery
    """
    from bench.experiments.recovery.picture import draw
    from bench.experiments.recovery.report import RecoveryPlan, measure
    from bench.experiments.recovery.verdict import is_good
    from canopy.wire.transport.codec import WireCodec

    plan = RecoveryPlan(kills or KILLS, rates, **options)
    found = measure(plan, WireCodec(), output.progress)
    output.write(found, "recovery", draw, print_report)
    return 0 if all(map(is_good, found.rows)) else 1


def print_report(found: RecoveryReport) -> None:
    """Print a line per loss and rate."""

    def pair(each: dict[str, float | None]) -> str:
        if each["median"] is None:
            return "-"
        return f"{each['median']:.2f} ≤ {each['most']:.2f}"

    seconds = (">first", ">all", ">new subscription", ">longest gap", ">late until")
    events = (">events lost before, after", ">twice", ">spurious", ">recovered")
    title = "Seconds, median ≤ longest; events"
    shown = table("lost", ">rate", *seconds, *events, title=title)
    for row in found.rows:
        times = [row[n] for n in ("first_s", "all_s", "subscribe_s", "gap_s", "late_until_s")]
        shown.add_row(
            row["kill"],
            f"{row['rate']:g}",
            *map(pair, times),
            f"{row['lost_before']}, {row['lost_after']}",
            str(row["duplicates"]),
            str(row["spurious"]),
            f"{row['times'] - row['failed']} of {row['times']}",
        )
    out = console()
    out.print(shown)
    for line in found.not_measured:
        out.print(f"not measured: {line}", markup=False)
