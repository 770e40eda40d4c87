"""`canopy bench`: publish and subscribe at given nodes, and measure."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.completion import context_names
from canopy.cli.connect import connect_option, json_option, open_client
from canopy.cli.context_store import resolve_folder
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import console, print_json, table

if TYPE_CHECKING:
    from canopy.cli.bench.measuring import Figures


def _nodes(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> list[str]:
    return [folder for folder in map(resolve_folder, value) if folder is not None]


@click.command()
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="NODE",
    callback=_nodes,
    shell_complete=context_names,
    help="Publish at this node (repeatable: by turns). [default: --connect]",
)
@click.option(
    "--to",
    "sinks",
    multiple=True,
    metavar="NODE",
    callback=_nodes,
    shell_complete=context_names,
    help="Subscribe at this node (repeatable). [default: --connect]",
)
@click.option("--events", type=click.IntRange(1, 2**32 - 1), default=10_000, help="How many.")
@click.option(
    "--size", type=click.IntRange(0, 400_000), default=128, help="Bytes of payload of each, about."
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Events per second; 0: as fast as the overlay takes them.",
)
@click.option("--receipt", is_flag=True, help="Wait for each batch until all trees accepted it.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="Seconds to wait for an answer, and for a delivery when all is published.",
)
@json_option
@connect_option
def bench(
    sources: list[str | None],
    sinks: list[str | None],
    events: int,
    size: int,
    rate: float,
    receipt: bool,
    timeout: float,
    as_json: bool,
    connect: str | None,
    wait: float,
) -> int:
    """Measure the overlay: publish events at some nodes, subscribe to them at others.

    Printed are how long the subscriptions took to be acknowledged, events published and delivered
    per second, and percentiles of the latency from publishing to delivery, by one clock, since this
    process has both ends. As fast as possible, latency is that of full queues; --rate shows that of
    an overlay that keeps up. The events have one attribute, canopy_bench, so that other programs
    get them only where they subscribe to events of any kind. Exit code 1 if events were refused,
    missing or repeated.

    \b
    canopy bench
    canopy bench --from /tmp/a --to /tmp/b --to /tmp/c --events 100000
    canopy bench --from lab --to home --rate 500 --events 5000 --json | jq .latency_ms
    """
    from canopy.cli.bars import Bars
    from canopy.cli.bench.measuring import MeasurementPlan, measure

    plan = MeasurementPlan(events, size, rate, receipt, timeout)
    publishers, subscribers = sources or [connect], sinks or [connect]
    with ExitStack() as stack:
        opened = {
            where: stack.enter_context(open_client(where, wait))
            for where in dict.fromkeys([*publishers, *subscribers])
        }
        bars = stack.enter_context(Bars())
        stages: set[str] = set()

        def show(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages.add(stage)
                bars.begin(stage, total)
            bars.show(done, total, "")

        found = measure(
            [opened[where] for where in publishers],
            [opened[where] for where in subscribers],
            plan,
            show,
        )
    _print(found, as_json)
    return FAILURE if found.missing or found.repeated or found.refused else OK


def _print(found: Figures, as_json: bool) -> None:
    import msgspec

    if as_json:
        figures: dict[str, Any] = msgspec.to_builtins(found)
        print_json(figures)
        return
    rows = table("", ">")
    rows.show_header = False
    slowest = max(found.subscribe_seconds, default=0.0)
    rows.add_row("subscribed within", f"{1_000 * slowest:,.1f} ms")
    rows.add_row("published", f"{found.published:,} ({found.publish_rate:,.0f} per second)")
    rows.add_row("delivered", f"{found.delivered:,} ({found.delivery_rate:,.0f} per second)")
    lost = (("refused", found.refused), ("missing", found.missing), ("repeated", found.repeated))
    for name, count in lost:
        if count:
            rows.add_row(f"[red]{name}[/]", f"{count:,}")
    for name, value in found.latency_ms.items():
        rows.add_row(f"latency {name}", f"{value:,.2f} ms")
    console().print(rows)
