"""`canopy pub`: publish feeds as they are read (`canopy.feeds`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, format_option, node_options_within, seal_option
from canopy.cli.constants import PUB_BATCH
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json
from canopy.cli.parameters import Number
from canopy.cli.publish.feed_batches import FeedTotals
from overlay.phrases import counted, visible

if TYPE_CHECKING:
    from canopy.cli.publish.feed_batches import FeedBatch
    from canopy.client.client import Client


def _types(ctx: click.Context, parameter: click.Parameter, value: str) -> dict[str, str]:
    """Parse `--types`: names of columns with their types. Raises BadParameter."""
    from canopy.feeds.table import TYPES

    found: dict[str, str] = {}
    for part in filter(None, value.split(",")):
        name, _, kind = part.rpartition("=")
        if not name or kind not in TYPES:
            raise click.BadParameter(
                f"{part!r}; expected NAME=TYPE, with one of {', '.join(TYPES)}"
            )
        found[name] = kind
    return found


@click.command()
@click.argument("feeds", nargs=-1, metavar="[FILE | NAME=VALUE]...")
@click.option("--data", metavar="JSON", help="Publish the event in JSON (an object, or an array).")
@format_option
@click.option(
    "--types",
    metavar="NAME=TYPE,…",
    default="",
    callback=_types,
    show_default=False,
    help="Types of columns of a CSV file: text, int, float, bool.  [default: as they look]",
)
@click.option("--rate", type=Number(min=0), default=0.0, help="Events per second; 0: no limit.")
@click.option(
    "--receipt",
    is_flag=True,
    help="Wait until all trees have accepted the events; say at which nodes.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Publish nothing: show which subscriptions would get the events.",
)
@click.option(
    "--stream",
    metavar="NAME",
    default="",
    shell_complete=stream_names,
    help="Append the events to a stream instead.",
)
@click.option(
    "--producer",
    metavar="NAME",
    default="",
    help="With --stream: append as this producer, and end its other sessions.",
)
@click.option(
    "--first",
    type=click.IntRange(min=0),
    default=None,
    show_default=False,
    help="With --producer: the number of the first event; those that it has appended are passed "
    "over.  [default: whatever comes next]",
)
@click.option(
    "--receipts",
    type=click.File("w", lazy=True),
    default=None,
    help="With --stream: write the receipt of each batch as a line of JSON.",
)
@click.option("--strict", is_flag=True, help="Exit code 1 if any line was refused.")
@seal_option
@node_options_within(120.0, "Seconds that a batch may wait for the node.")
def pub(
    feeds: tuple[str, ...],
    data: str | None,
    format_: str,
    types: dict[str, str],
    rate: float,
    receipt: bool,
    dry_run: bool,
    stream: str,
    producer: str,
    first: int | None,
    receipts: TextIO | None,
    strict: bool,
    node: NodeOptions,
) -> int:
    """Publish one event given as NAME=VALUE, or the events in each FILE, or on standard input (-)
    as they arrive.

    FILE has JSON of any layout (objects, arrays, CloudEvents, GeoJSON), a JSON object per line, a
    JSON text sequence, CSV with a header, or MessagePack maps. The format is known from its name
    (.csv, .geojson, …), or else from its first value or rows; .gz is unpacked. An event without id
    gets one (`canopy why`). Invalid lines are refused, with number and reason on standard error,
    and all others are published. The exit code is 1 if nothing was published, or with --strict if a
    line was refused.

    With --dry-run no event is published: the hosts of the overlay report which nodes and
    subscriptions would receive each of them. The exit code is 5 if a host did not answer in time,
    so that there may be further recipients.

    With --stream the events are appended to a stream, in batches that are each appended as a whole,
    and are on the disks of a majority of its replicas when the command ends. With --producer and
    --first 0, a command that was interrupted may be repeated with the same input: each event is
    appended once.

    \b
    canopy pub mag=5.1 place=Nome
    canopy pub --dry-run mag=5.1 place=Nome
    canopy pub earthquakes.geojson readings.csv.gz --types zip=text
    tail -f events.jsonl | canopy pub -
    canopy pub --data '{"mag": 5.1, "place": "here"}' --receipt
    canopy pub --stream orders --producer till-4 --first 0 --receipts r.jsonl orders.jsonl
    """
    from canopy.cli.publish import stream_append
    from canopy.cli.publish.feed_batches import open_sources, read_batches
    from overlay.client import DRY_RUN_MOST

    totals = FeedTotals()
    sources = open_sources(feeds, data)
    if dry_run and receipt:
        raise click.UsageError("--dry-run publishes nothing, so there is no --receipt")
    wrong = stream_append.fault(stream, producer, first, receipts, receipt or dry_run)
    if wrong:
        raise click.UsageError(wrong)
    most, pace = (DRY_RUN_MOST, 0.0) if dry_run else (PUB_BATCH, rate)
    batches = read_batches(sources, format_, types, most, totals.refuse, pace)
    with node.open() as client:
        if dry_run:
            return _ask(client, batches, totals, strict, node)
        if stream:
            to = stream_append.Target(client, stream, producer, first, receipts, node)
            return stream_append.append(to, batches, totals, strict)
        try:
            for batch in batches:
                _send(client, batch, receipt, node.timeout, totals)
            _warn_if_alone(client, node.timeout)
        finally:
            _print_totals(totals, receipt, node.as_json)
    return FAILURE if not totals.published or (strict and totals.refused) else OK


def _ask(
    client: Client,
    batches: Iterable[FeedBatch],
    totals: FeedTotals,
    strict: bool,
    node: NodeOptions,
) -> int:
    """Ask who would receive those events that could be published. Returns the exit code."""
    from canopy.cli.publish import dry_run
    from canopy.feeds import Refusal

    found = dry_run.DryRunTotals(names=dry_run.names_at(client, node.timeout))
    for name, events in batches:
        answers = dry_run.ask(client, events, node.timeout)
        for entry, answer in zip(events, answers, strict=True):
            if answer.refused:
                totals.refuse(name, Refusal(entry.number, answer.refused))
            else:
                found.add(answer)
                dry_run.show(entry, answer, found, node.as_json)
    for text in totals.repeated():
        click.echo(text, err=True)
    dry_run.print_totals(found)
    return FAILURE if strict and totals.refused else found.code


def _warn_if_alone(client: Client, timeout: float) -> None:
    """Warn if the node has configured peers and no neighbours: the events can have reached no other
    node."""
    from canopy.cli.inspection.show import alone
    from canopy.client.errors import ControlError
    from overlay.client import GetStatus, Status

    try:
        status = client.ask(GetStatus(0), Status, timeout)
    except ControlError:  # the node has gone since: what was published stays published
        return
    if alone(status) and status.seeds:
        click.echo(
            "! this node is alone: it reached none of its peers (canopy status says why), so only "
            "its own programs get the events",
            err=True,
        )


def _send(
    client: Client, batch: FeedBatch, receipt: bool, timeout: float, totals: FeedTotals
) -> None:
    from canopy.feeds import Refusal

    drafts = [entry.draft for entry in batch.events]
    done = client.publish_many(drafts, receipt=receipt, timeout=timeout)
    totals.publish(drafts, done)
    for place, reason in done.refused:
        totals.refuse(batch.feed, Refusal(batch.events[place].number, reason))
    totals.show()


def _print_totals(totals: FeedTotals, receipt: bool, as_json: bool) -> None:
    if as_json:
        counts = {"published": totals.published, "refused": totals.refused}
        ids = {"first_id": totals.first, "last_id": totals.last}
        hosts = {"hosts": dict(totals.hosts)} if receipt else {}
        print_json({**counts, **ids, **hosts, "refused_lines": totals.refused_lines})
    for text in totals.repeated():
        click.echo(text, err=True)
    refused = f", refused {totals.refused}" if totals.refused else ""
    named = ""
    if totals.published == 1:
        named = f", id {visible(totals.first)}"
    elif totals.published:
        named = f", first id {visible(totals.first)}, last {visible(totals.last)}"
    elif not totals.refused:
        named = ": there was none to read"
    click.echo(f"published {counted(totals.published, 'event')}{named}{refused}", err=True)
    if receipt and totals.published:
        each = [f"{counted(n, 'event')} at {host}" for host, n in totals.hosts.most_common()]
        click.echo(f"accepted: {', '.join(each) or 'no tree wants them'}", err=True)
