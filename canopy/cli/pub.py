"""`canopy pub`: publish a feed as it is read.

One thread reads and parses, the other sends: what has been read while a batch was on its way is the
next batch, so that events of a slow pipe are sent at once and a file in large batches.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from canopy.cli.connect import connect_option, format_option, json_option, open_client
from canopy.cli.constants import (
    COUNT_INTERVAL,
    PUB_BATCH,
    PUB_BATCH_BYTES,
    READ_AHEAD,
    REFUSED_LISTED,
    REFUSED_PRINTED,
)
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json

if TYPE_CHECKING:
    from canopy.cli.feeds import FeedEvent, Item, Refusal
    from canopy.client.synchronous import Client

STDIN: Final = 0
"""The descriptor of standard input."""


@dataclass
class FeedTotals:
    """How many events of the feed were published and refused; `reasons` of the first ones."""

    published: int = 0
    refused: int = 0
    reasons: list[Refusal] = field(default_factory=list)

    def refuse(self, refusal: Refusal) -> None:
        """Count one refusal; keep the first `REFUSED_LISTED`, print the first `REFUSED_PRINTED`."""
        self.refused += 1
        if len(self.reasons) < REFUSED_LISTED:
            self.reasons.append(refusal)
            if self.refused <= REFUSED_PRINTED:
                click.echo(f"line {refusal.number}: {refusal.reason}", err=True)
            elif self.refused == REFUSED_PRINTED + 1:
                click.echo("… further refused lines are only counted", err=True)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@format_option
@click.option(
    "--rate", type=click.FloatRange(min=0), default=0.0, help="Events per second; 0: no limit."
)
@click.option("--receipt", is_flag=True, help="Wait until all trees have accepted the events.")
@click.option("--strict", is_flag=True, help="Exit code 1 if any line was refused.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    help="Seconds that a batch may wait for the node.",
)
@json_option
@connect_option
def pub(
    file: str,
    format_: str,
    rate: float,
    receipt: bool,
    strict: bool,
    timeout: float,
    as_json: bool,
    connect: str | None,
    wait: float,
) -> int:
    """Publish the events in FILE, or on standard input as they come.

    FILE has a JSON object per line (flat, or a CloudEvent), or is GeoJSON, or MessagePack maps.
    Invalid lines are refused, with number and reason on standard error, and all others are
    published. The exit code is 1 if nothing was published, or with --strict if any line was
    refused.

    \b
    canopy pub earthquakes.geojson
    tail -f events.jsonl | canopy pub -
    echo '{"mag": 5.1, "place": "here"}' | canopy pub --receipt
    """
    totals = FeedTotals()
    with open_client(connect, wait) as client:
        try:
            for batch in _batches(_opened(file), format_, rate, totals):
                _send(client, batch, receipt, timeout, totals)
            _warn_if_alone(client, timeout)
        finally:
            _print_totals(totals, as_json)
    return FAILURE if not totals.published or (strict and totals.refused) else OK


def _warn_if_alone(client: Client, timeout: float) -> None:
    """Say so when the events can have reached no other node although the node has peers."""
    from canopy.cli.show import alone
    from overlay.client import GetStatus, Status

    status = client.ask(GetStatus(0), Status, timeout)
    if alone(status) and status.seeds:
        click.echo(
            "! this node is alone: it reached none of its peers (canopy status says why), so only "
            "its own programs get the events",
            err=True,
        )


def _opened(file: str) -> BinaryIO:
    """The feed, which is closed by the thread that reads it: another one, which an interrupt sends
    there, would wait for the end of its read."""
    if file != "-":
        return open(file, "rb")
    if os.isatty(STDIN):
        click.echo(
            "reading events from the terminal, a JSON object per line; Ctrl-D ends", err=True
        )
    # Not sys.stdin: the interpreter cannot shut down cleanly while a thread reads it.
    return open(STDIN, "rb", closefd=False)


def _send(
    client: Client, batch: list[FeedEvent], receipt: bool, timeout: float, totals: FeedTotals
) -> None:
    from canopy.cli.feeds import Refusal

    drafts = [entry.draft for entry in batch]
    done = client.publish_many(drafts, receipt=receipt, timeout=timeout)
    totals.published += done.count
    for place, reason in done.refused:
        totals.refuse(Refusal(batch[place].number, reason))


def _print_totals(totals: FeedTotals, as_json: bool) -> None:
    if as_json:
        reasons = [{"line": each.number, "reason": each.reason} for each in totals.reasons]
        counts = {"published": totals.published, "refused": totals.refused}
        print_json({**counts, "refused_lines": reasons})
    refused = f", refused {totals.refused}" if totals.refused else ""
    events = "event" if totals.published == 1 else "events"
    click.echo(f"published {totals.published} {events}{refused}", err=True)


def _batches(
    file: BinaryIO, format_: str, rate: float, totals: FeedTotals
) -> Iterator[list[FeedEvent]]:
    """The feed's events in batches of what has been read; at most `rate` per second if not 0."""
    from canopy.cli.feeds import Refusal

    started = shown_at = time.monotonic()
    terminal = sys.stderr.isatty()
    most = max(1, min(PUB_BATCH, int(rate / 10))) if rate else PUB_BATCH
    for chunk in _chunks(_read_ahead(file, format_), most):
        batch: list[FeedEvent] = []
        for item in chunk:
            if isinstance(item, Refusal):
                totals.refuse(item)
            else:
                batch.append(item)
        if batch:
            if rate:
                due = started + totals.published / rate
                time.sleep(max(0.0, due - time.monotonic()))
            yield batch
        if terminal and time.monotonic() - shown_at > COUNT_INTERVAL:
            shown_at = time.monotonic()
            click.echo(f"\rpublished {totals.published} events ", err=True, nl=False)


def _chunks(items: queue.Queue[Any], most: int) -> Iterator[list[Item]]:
    """Lists of items: wait for one, then take what else is there, up to `most` items and
    `PUB_BATCH_BYTES`. Raises the reading thread's exception."""
    from canopy.cli.feeds import FeedEvent, weight

    while (item := items.get()) is not None:
        chunk: list[Item] = []
        size = 0
        while item is not None:
            if isinstance(item, BaseException):
                if chunk:
                    yield chunk
                raise item
            chunk.append(item)
            size += weight(item.draft) if isinstance(item, FeedEvent) else 0
            if len(chunk) >= most or size >= PUB_BATCH_BYTES:
                break
            try:
                item = items.get_nowait()
            except queue.Empty:
                break
        yield chunk
        if item is None:
            return


def _read_ahead(file: BinaryIO, format_: str) -> queue.Queue[Any]:
    """Read the feed in a thread. The queue ends with None, or with an exception of the thread."""
    from canopy.cli.feeds import read_feed

    items: queue.Queue[Any] = queue.Queue(READ_AHEAD)

    def read() -> None:
        try:
            with file:
                for item in read_feed(file, format_):
                    items.put(item)
        except BaseException as error:
            items.put(error)
        else:
            items.put(None)

    threading.Thread(target=read, daemon=True, name="feed reader").start()
    return items
