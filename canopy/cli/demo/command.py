"""The command line of `canopy demo`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

from canopy.cli.connect import format_option, json_option
from canopy.cli.constants import DEMO_NODES
from canopy.cli.extras import require
from canopy.cli.parameters import Number


@click.command()
@click.option(
    "--nodes", type=click.IntRange(1, DEMO_NODES), default=12, help="Number of node processes."
)
@click.option(
    "--duration",
    type=Number(min=0, min_open=True),
    default=20.0,
    metavar="SECONDS",
    help="How long an endless feed (telemetry) is published.",
)
@click.option(
    "--feed",
    default="telemetry",
    metavar="FEED",
    help="telemetry, usgs, or a file: JSON lines, CloudEvents, GeoJSON, MessagePack.",
)
@format_option
@click.option(
    "--subscriptions",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML: a list of {name, where, node}; needed for feeds that are not built in.",
)
@click.option("--rate", type=Number(min=0), default=0.0, help="Events per second; 0: no limit.")
@click.option(
    "--routing",
    type=click.Choice(["pivot", "counting"]),
    default="pivot",
    help="How events are routed.",
)
@click.option("--seed", type=int, help="Seed of the nodes' random numbers.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("build/demo"),
    help="Output folder; an earlier demo there is replaced.",
)
@click.option(
    "--tour/--no-tour",
    default=None,
    help="Show a tree that is cut, a cluster that splits, regions, a stream, and a node that is "
    "lost and comes back (default: with telemetry and 8 nodes or more).",
)
@json_option
def demo(
    nodes: int,
    duration: float,
    feed: str,
    format_: str,
    subscriptions: Path | None,
    rate: float,
    routing: str,
    seed: int | None,
    out: Path,
    tour: bool | None,
    as_json: bool,
) -> int:
    """Run an overlay of real processes on a feed, and check every delivery with Spark.

    Starts NODES nodes on loopback, subscribes at them, publishes the feed from all of them, and
    waits until no event is under way. The tour shows what happens when the overlay grows and when a
    node is lost. Then the nodes are stopped and their traces analysed. The exit code is 0 only if
    each expected delivery was made once and nothing else was delivered. The folder OUT then has
    summary.json, deliveries.jsonl, traces/, logs/ and report/report.html.

    \b
    canopy demo                                      # this machine's own telemetry
    canopy demo --feed usgs --nodes 30               # a week of earthquakes, from the Internet
    canopy demo --feed events.jsonl --subscriptions subs.yaml --routing counting
    """
    from canopy.cli.demo.plan import TELEMETRY, DemoPlan, read_subscriptions, tour_wanted

    require("analysis", *(("telemetry",) if feed == TELEMETRY else ()))
    from canopy.cli.demo.run import run_demo
    from canopy.cli.demo.summary import show
    from canopy.cli.display import Display
    from canopy.cli.output import console, print_json

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    source = _source(feed, out)
    plan = DemoPlan(
        nodes=nodes,
        duration=duration,
        feed=feed,
        format=format_,
        rate=rate,
        routing=routing,
        seed=seed,
        out=out,
        subscriptions=read_subscriptions(subscriptions, feed, nodes),
        tour=tour_wanted(tour, feed, nodes, own=subscriptions is not None),
    )
    with Display(quiet=as_json) as display:
        found = run_demo(plan, source, display)
    if as_json:
        print_json(found, indent=2)
    else:
        show(console(), plan, found)
    return 0 if found["exact"] else 1


def _source(feed: str, out: Path) -> Path | None:
    """The file of the feed, fetched first for "usgs"; None for telemetry. Raises PlanError."""
    from canopy.cli.demo.plan import TELEMETRY, USGS, PlanError

    if feed == TELEMETRY:
        return None
    if feed == USGS:
        from canopy.cli.demo.plan import fetch

        return fetch(out.parent / "earthquakes.geojson")
    path = Path(feed)
    if not path.is_file():
        raise PlanError(f"there is no feed {feed}: expected telemetry, usgs, or a file")
    try:
        path.open("rb").close()
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    return path


def _interrupt(*_: Any) -> None:
    """Handle SIGTERM and SIGHUP as Ctrl-C, so that all processes are stopped."""
    raise KeyboardInterrupt
