"""`canopy pub`: publish a feed, as it comes.

One thread reads and parses, the other sends: what has been read while a batch was on its way makes
up the next one, so a slow pipe sends each event at once and a file travels in large batches.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from canopy.cli.connect import connect_option, json_option, open_client
from canopy.cli.errors import FAILURE
from canopy.cli.output import print_json

if TYPE_CHECKING:
    from canopy.cli.feeds import Entry, Item, Refusal
    from canopy.client.blocking import ControlClient

BATCH: Final = 512
"""Events at most in one command: beyond some hundreds batches gain nothing. Wild guess."""
BATCH_BYTES: Final = 1 << 20
AHEAD: Final = 4 * BATCH
"""Events read ahead of the node."""
SHOWN: Final = 20
"""Refused lines that are printed; the rest is counted. Wild guess."""
KEPT: Final = 10_000
"""Refused lines that --json lists. Wild guess."""
TOLD_EVERY: Final = 0.5
"""Seconds between two lines of progress on a terminal."""


@dataclass
class Tally:
    """What became of the feed."""

    published: int = 0
    refused: int = 0
    reasons: list[Refusal] = field(default_factory=list)

    def refuse(self, refusal: Refusal) -> None:
        """Count one refusal, and keep it if there is room."""
        self.refused += 1
        if len(self.reasons) < KEPT:
            self.reasons.append(refusal)
            if self.refused <= SHOWN:
                click.echo(f"line {refusal.number}: {refusal.reason}", err=True)
            elif self.refused == SHOWN + 1:
                click.echo("… more lines are refused; they are counted", err=True)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["auto", "jsonl", "cloudevents", "geojson", "msgpack"]),
    default="auto",
    show_default=True,
    help="What FILE is.",
)
@click.option(
    "--rate", type=click.FloatRange(min=0), default=0.0, help="Events per second; 0: any."
)
@click.option("--receipt", is_flag=True, help="Wait until all trees have accepted the events.")
@click.option("--strict", is_flag=True, help="Exit code 1 if any line was refused.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
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
) -> int:
    """Publish the events in FILE, or on standard input as they come.

    FILE has a JSON object per line (flat, or a CloudEvent), or is GeoJSON, or MessagePack maps.
    Lines that are no events are refused with their number and reason on standard error, and all
    others are published; the exit code is 0 then, or 1 with --strict, or if nothing was published.

    \b
    canopy pub earthquakes.geojson
    tail -f events.jsonl | canopy pub -
    echo '{"mag": 5.1, "place": "here"}' | canopy pub --receipt
    """
    tally = Tally()
    # Not sys.stdin: a thread that still reads it when we end would upset the interpreter.
    source = 0 if file == "-" else file
    with open_client(connect) as client, open(source, "rb", closefd=file != "-") as stream:
        try:
            for batch in _batches(stream, format_, rate, tally):
                _send(client, batch, receipt, timeout, tally)
        finally:
            _tell(tally, as_json)
    return FAILURE if tally.refused and (strict or not tally.published) else 0


def _send(
    client: ControlClient, batch: list[Entry], receipt: bool, timeout: float, tally: Tally
) -> None:
    from canopy.cli.feeds import Refusal
    from overlay.client import Publish, Published

    command = Publish(0, tuple(entry.draft for entry in batch), receipt)
    reply = client.ask(command, Published, timeout)
    tally.published += len(batch) - len(reply.refused)
    for place, reason in reply.refused:
        tally.refuse(Refusal(batch[place].number, reason))


def _tell(tally: Tally, as_json: bool) -> None:
    if as_json:
        reasons = [{"line": each.number, "reason": each.reason} for each in tally.reasons]
        counts = {"published": tally.published, "refused": tally.refused}
        print_json({**counts, "refused_lines": reasons})
    refused = f", refused {tally.refused}" if tally.refused else ""
    events = "event" if tally.published == 1 else "events"
    click.echo(f"published {tally.published} {events}{refused}", err=True)


def _batches(file: BinaryIO, format_: str, rate: float, tally: Tally) -> Iterator[list[Entry]]:
    """The feed's events in batches of what is there; at `rate` if it is given."""
    from canopy.cli.feeds import Refusal

    started = told = time.monotonic()
    terminal = sys.stderr.isatty()
    most = max(1, min(BATCH, int(rate / 10))) if rate else BATCH
    for chunk in _chunks(_read_ahead(file, format_), most):
        batch: list[Entry] = []
        for item in chunk:
            if isinstance(item, Refusal):
                tally.refuse(item)
            else:
                batch.append(item)
        if batch:
            if rate:
                due = started + tally.published / rate
                time.sleep(max(0.0, due - time.monotonic()))
            yield batch
        if terminal and time.monotonic() - told > TOLD_EVERY:
            told = time.monotonic()
            click.echo(f"\rpublished {tally.published} events ", err=True, nl=False)


def _chunks(items: queue.Queue[Any], most: int) -> Iterator[list[Item]]:
    """Wait for an item, then take what else is there, up to `most` items and BATCH_BYTES."""
    from canopy.cli.feeds import Entry, weight

    while (item := items.get()) is not None:
        chunk: list[Item] = []
        size = 0
        while item is not None:
            if isinstance(item, BaseException):
                if chunk:
                    yield chunk
                raise item
            chunk.append(item)
            size += weight(item.draft) if isinstance(item, Entry) else 0
            if len(chunk) >= most or size >= BATCH_BYTES:
                break
            try:
                item = items.get_nowait()
            except queue.Empty:
                break
        yield chunk
        if item is None:
            return


def _read_ahead(file: BinaryIO, format_: str) -> queue.Queue[Any]:
    """Read the feed in a thread of its own; the end is None, a fault is its exception."""
    from canopy.cli.feeds import read_feed

    items: queue.Queue[Any] = queue.Queue(AHEAD)

    def read() -> None:
        try:
            for item in read_feed(file, format_):
                items.put(item)
        except BaseException as error:
            items.put(error)
        else:
            items.put(None)

    threading.Thread(target=read, daemon=True, name="reader of the feed").start()
    return items
