"""`canopy sim routing`: how close routing comes to the lower bound, and at what state and load.

`canopy.sim.experiments.routing_model` computes it; here are its options, its table and its picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.constants import STAGE_INTERVAL
from canopy.cli.output import console, table
from canopy.cli.sim.experiment import (
    json_option,
    out_option,
    print_progress,
    quiet_option,
    write_report,
)

if TYPE_CHECKING:
    from canopy.sim.experiments.routing_model.measure import Progress, RoutingPlan
    from canopy.sim.experiments.routing_model.report import RoutingReport, Spread, StyleReport


@click.command(short_help="Compare styles of routing.")
@click.option("--nodes", type=click.IntRange(2, 1_000_000), default=3_000)
@click.option(
    "--subscriptions",
    type=click.IntRange(1, 5_000_000),
    help="Number of subscriptions (one per node).",
)
@click.option("--attributes", type=click.IntRange(1, 100_000), default=100)
@click.option("--zipf", type=click.FloatRange(0, 5), default=0.8)
@click.option(
    "--predicates",
    type=click.FloatRange(0.1, 1_000),
    default=8.0,
    help="Attributes per subscription and event, on average.",
)
@click.option(
    "--kinds",
    type=click.IntRange(0, 1_000_000),
    default=150,
    help="Kinds of events; 0: each event and subscription draws its own attributes.",
)
@click.option(
    "--matching",
    type=click.FloatRange(0),
    default=10.0,
    help="Interested nodes per event; the width of ranges is fitted to it.",
)
@click.option(
    "--width", type=click.FloatRange(0.0001, 1), help="The width of ranges, instead of --matching."
)
@click.option("--events", type=click.IntRange(1), default=2_000)
@click.option("--seed", type=int, default=1)
@click.option(
    "--entries", type=click.IntRange(1), default=1_000, help="Index entries per host, at most."
)
@click.option("--boxes", type=click.IntRange(1), default=128, help="Boxes per summary, at most.")
@click.option(
    "--per-box",
    type=click.IntRange(1),
    default=2,
    help="Registrations per box of a summary, at least.",
)
@click.option("--slack", type=click.FloatRange(0, 1), default=0.0)
@click.option("--replicas", type=click.IntRange(1), default=6, help="Hosts, at least.")
@click.option("--fan-out", type=click.IntRange(1), default=16)
@click.option(
    "--fail", type=click.FloatRange(0, 0.99), default=0.0, help="Share of nodes that are dead."
)
@click.option("--host-load", type=click.FloatRange(0.01), default=5.0)
@click.option(
    "--publishers", type=click.IntRange(0), default=0, help="Number of nodes that publish (0: all)."
)
@click.option("--style", "styles", multiple=True, help="Only this style (repeatable).")
@json_option
@out_option("routing")
@quiet_option
def routing(as_json: bool, out: Path | None, quiet: bool, seed: int, **options: Any) -> None:
    """Compare styles of routing: messages, state and load of each.

    The lower bound is one message to enter the overlay and one per interested node.
    docs/lab/routing.md describes the styles and has the results.

    \b
    canopy sim routing
    canopy sim routing --subscriptions 10000 --kinds 0 --seed 2
    canopy sim routing --fail 0.2 --out build/routing
    canopy sim routing --nodes 100000 --entries 500 --events 20000
    """
    from canopy.sim.experiments.routing_model.measure import measure
    from canopy.sim.experiments.routing_model.picture import draw

    try:
        found = measure(plan_of(**options), seed, None if quiet else throttled())
    except ValueError as error:
        raise click.UsageError(f"--style: {error}") from None
    write_report(found, "routing", out, as_json, draw, print_report)


def plan_of(
    nodes: int,
    subscriptions: int | None,
    attributes: int,
    zipf: float,
    predicates: float,
    kinds: int,
    matching: float,
    width: float | None,
    boxes: int,
    per_box: int,
    slack: float,
    styles: tuple[str, ...],
    **rest: Any,
) -> RoutingPlan:
    """The plan with the values of the options. Raises UsageError."""
    from canopy.sim.experiments.routing_model.measure import RoutingPlan
    from canopy.sim.experiments.routing_model.pivot_placement import Coarseness
    from canopy.sim.scenario.range_load import LoadShape

    shape = LoadShape(attributes=attributes, zipf=zipf, mean=predicates, kinds=kinds)
    if predicates > attributes:
        raise click.UsageError(f"--predicates {predicates:g}: there are only {attributes}")
    if width is not None:
        shape = LoadShape(attributes, zipf, predicates, kinds, width)
    if styles:
        rest["styles"] = styles
    return RoutingPlan(
        nodes=nodes,
        subscriptions=nodes if subscriptions is None else subscriptions,
        load=shape,
        matching=matching if width is None else None,
        summary=Coarseness(boxes, per_box, slack),
        **rest,
    )


def throttled() -> Progress:
    """A progress function that prints each stage at once, then at most every `STAGE_INTERVAL`."""
    shown_at, shown = time.monotonic(), ""

    def progress(stage: str, share: float) -> None:
        nonlocal shown_at, shown
        now = time.monotonic()
        if stage == shown and now - shown_at < STAGE_INTERVAL:
            return
        shown_at, shown = now, stage
        print_progress(stage, share)

    return progress


def print_report(found: RoutingReport) -> None:
    """Print tables with a column per style."""

    def peak(spread: Spread | None) -> str:
        return "-" if spread is None else f"{spread.max:,.0f} ({spread.max_over_mean:.1f} x mean)"

    rows: dict[str, Callable[[StyleReport], str]] = {
        "times the lower bound": lambda s: f"{s.ratio:.3f}",
        "visits per event": lambda s: f"{s.visits_per_event:.2f}",
        "delivered": lambda s: f"{s.delivered_share:.4%}",
        "… without the fallback": lambda s: f"{s.without_fallback:.4%}",
        "retries per event": lambda s: f"{s.retries_per_event:.2f}",
        "hops, median and 99 %": lambda s: f"{s.hops_p50}, {s.hops_p99}",
        "most copies by one node": lambda s: str(s.most_copies),
        "hosts": lambda s: f"{s.hosts:,}",
        "entries per host": lambda s: f"{s.entries.mean:,.0f}" if s.entries else "-",
        "… at most": lambda s: peak(s.entries),
        "registrations / S log S": lambda s: f"{s.per_s_log_s:.2f}",
        "load of hosts, at most": lambda s: peak(s.hosting),
        "traffic of nodes, at most": lambda s: peak(s.traffic),
        "… of this their own": lambda s: peak(s.demand),
        "summaries, kB": lambda s: f"{s.summary_bytes / 1000:,.0f}",
    }
    out = console()
    interested = f"{found.interested_per_event:.2f} interested nodes per event"
    out.print(f"seed {found.seed}, {interested}, {found.dead} nodes dead")
    for start in range(0, len(found.styles), 4):  # four styles are as wide as a terminal
        styles = found.styles[start : start + 4]
        shown = table("", *(style.name for style in styles))
        for name, value in rows.items():
            shown.add_row(name, *map(value, styles))
        out.print(shown)
