"""`canopy pub`: publish a feed as it is read.

One thread reads and parses, the other sends: what has been read while a batch was on its way is the
next batch, so that events of a slow pipe are sent at once and a file in large batches.
"""

from __future__ import annotations

import io
import json
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
    SESSION_LENGTH,
    SESSION_LETTERS,
)
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json, visible
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.cli.feeds import FeedEvent, Item, Refusal
    from canopy.client.publishing import PublishResult
    from canopy.client.synchronous import Client
    from overlay.client import Draft

STDIN: Final = 0
"""The descriptor of standard input."""


@dataclass
class FeedTotals:
    """How many events of the feeds were published and refused; `listed` are the first ones of
    those that were refused, `first` and `last` the ids of events that were not (the identity of an
    event without an id)."""

    published: int = 0
    first: str = ""
    last: str = ""
    refused: int = 0
    listed: list[tuple[str, Refusal]] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)

    def publish(self, drafts: Sequence[Draft], done: PublishResult) -> None:
        """Count a batch's events that were published, and note which are the first and the last of
        all."""
        from canopy.cli.feeds import id_text

        names = [
            id_text(draft.attributes.get("id")) or identity
            for draft, identity in zip(drafts, done.identities, strict=True)
            if identity
        ]
        self.published += len(names)
        if names:
            self.first, self.last = self.first or names[0], names[-1]

    def refuse(self, name: str, refusal: Refusal) -> None:
        """Count one refusal of the feed `name` ("": the only one); keep the first `REFUSED_LISTED`,
        and print each reason once, `REFUSED_PRINTED` of them."""
        self.refused += 1
        if len(self.listed) < REFUSED_LISTED:
            self.listed.append((name, refusal))
        if refusal.reason in self.reasons:
            self.reasons[refusal.reason] += 1
        elif len(self.reasons) < REFUSED_PRINTED:
            self.reasons[refusal.reason] = 1
            line = f"line {refusal.number}" if refusal.number else ""
            place = ", ".join(part for part in (name, line) if part)
            click.echo(f"{place}: {refusal.reason}" if place else refusal.reason, err=True)

    def repeated(self) -> Iterator[str]:
        """What is said in the end of reasons that came again or were not printed."""
        for reason, times in self.reasons.items():
            if times > 1:
                yield f"… {counted(times - 1, 'more line')}: {reason}"
        rest = self.refused - sum(self.reasons.values())
        if rest:
            yield f"… {counted(rest, 'more line')} for other reasons"


def _types(ctx: click.Context, parameter: click.Parameter, value: str) -> dict[str, str]:
    """`--types`: names of columns with their types. Raises BadParameter."""
    from canopy.cli.feeds.table import TYPES

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
@click.option(
    "--rate", type=click.FloatRange(min=0), default=0.0, help="Events per second; 0: no limit."
)
@click.option("--receipt", is_flag=True, help="Wait until all trees have accepted the events.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Publish nothing: show which subscriptions would get the events.",
)
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
    feeds: tuple[str, ...],
    data: str | None,
    format_: str,
    types: dict[str, str],
    rate: float,
    receipt: bool,
    dry_run: bool,
    strict: bool,
    timeout: float,
    as_json: bool,
    connect: str | None,
    wait: float,
) -> int:
    """Publish one event given as NAME=VALUE, or the events in each FILE, or on standard input (-)
    as they come.

    FILE has JSON of any layout (objects, arrays, CloudEvents), a JSON object per line, GeoJSON, CSV
    with a header, or MessagePack maps; .gz is unpacked. An event without an id gets one, which
    `canopy why` takes. Invalid lines are refused, with number and
    reason on standard error, and all others are published. The exit code is 1 if nothing was
    published, or with --strict if any line was refused.

    With --dry-run no event is published: the hosts of the overlay say which nodes and subscriptions
    would get each of them. The exit code is 5 if some host did not answer in time, so that others
    may get it too.

    \b
    canopy pub mag=5.1 place=Nome
    canopy pub --dry-run mag=5.1 place=Nome
    canopy pub earthquakes.geojson readings.csv.gz --types zip=text
    tail -f events.jsonl | canopy pub -
    canopy pub --data '{"mag": 5.1, "place": "here"}' --receipt
    """
    totals = FeedTotals()
    sources = _sources(feeds, data)
    if dry_run:
        if receipt:
            raise click.UsageError("--dry-run publishes nothing, so there is no --receipt")
        return _dry_run(sources, format_, types, strict, timeout, as_json, connect, wait)
    with open_client(connect, wait) as client:
        try:
            for name, stream in sources:
                for batch in _batches(stream, name, format_, types, rate, totals):
                    _send(client, name, batch, receipt, timeout, totals)
            _warn_if_alone(client, timeout)
        finally:
            _print_totals(totals, as_json)
    return FAILURE if not totals.published or (strict and totals.refused) else OK


def _dry_run(
    sources: Iterable[tuple[str, BinaryIO]],
    format_: str,
    types: dict[str, str],
    strict: bool,
    timeout: float,
    as_json: bool,
    connect: str | None,
    wait: float,
) -> int:
    """Ask who would get the events of the feeds, as far as they could be published."""
    from canopy.cli import dry_run
    from canopy.cli.feeds import Refusal
    from overlay.client import DRY_RUN_MOST

    totals, found = FeedTotals(), dry_run.DryRunTotals()
    with open_client(connect, wait) as client:
        found.names = dry_run.names_at(client, timeout)
        for name, stream in sources:
            for batch in _batches(stream, name, format_, types, 0.0, totals, DRY_RUN_MOST):
                answers = dry_run.ask(client, batch, timeout)
                for entry, answer in zip(batch, answers, strict=True):
                    if answer.refused:
                        totals.refuse(name, Refusal(entry.number, answer.refused))
                    else:
                        found.add(answer)
                        dry_run.show(entry, answer, found, as_json)
    for text in totals.repeated():
        click.echo(text, err=True)
    dry_run.print_totals(found)
    return FAILURE if strict and totals.refused else found.code


def _warn_if_alone(client: Client, timeout: float) -> None:
    """Say so when the events can have reached no other node although the node has peers."""
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


def _sources(feeds: tuple[str, ...], data: str | None) -> Iterable[tuple[str, BinaryIO]]:
    """The feeds, each opened when its turn has come, with its name where there are several. Raises
    UsageError for a mixture, and for a file that is not there, before anything is published."""
    if data is not None:
        if feeds:
            raise click.UsageError("give --data, or files, or NAME=VALUE")
        return (("", io.BytesIO(data.encode())),)
    pairs = [feed for feed in feeds if "=" in feed and not Path(feed).exists()]
    if pairs and len(pairs) < len(feeds):
        raise click.UsageError("give files, or the NAME=VALUE of one event")
    if pairs:
        return (("", io.BytesIO(_event(pairs))),)
    for feed in feeds:
        if feed != "-" and not Path(feed).is_file():
            what = "is a folder" if Path(feed).is_dir() else "does not exist"
            raise click.UsageError(f"File {feed!r} {what}; an event is given as NAME=VALUE.")
    several = len(feeds) > 1
    return ((feed if several else "", _opened(feed)) for feed in feeds or ("-",))


def _format_of(stream: BinaryIO, format_: str) -> str:
    """`format_`, or that of a file whose name says that it is a table: with one column it does not
    look like one."""
    name = str(getattr(stream, "name", "")).lower().removesuffix(".gz")
    return "csv" if format_ == "auto" and name.endswith((".csv", ".tsv")) else format_


def _event(pairs: list[str]) -> bytes:
    """The event of `NAME=VALUE` arguments as JSON: values as in CSV. Raises UsageError."""
    from canopy.cli.feeds.table import inferred

    fields: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or name in fields:
            raise click.UsageError(f"{pair!r}: " + ("given twice" if name else "no name before ="))
        fields[name] = inferred(value)
    return json.dumps(fields).encode()


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
    client: Client,
    name: str,
    batch: list[FeedEvent],
    receipt: bool,
    timeout: float,
    totals: FeedTotals,
) -> None:
    from canopy.cli.feeds import Refusal

    drafts = [entry.draft for entry in batch]
    done = client.publish_many(drafts, receipt=receipt, timeout=timeout)
    totals.publish(drafts, done)
    for place, reason in done.refused:
        totals.refuse(name, Refusal(batch[place].number, reason))


def _print_totals(totals: FeedTotals, as_json: bool) -> None:
    if as_json:
        reasons = [
            {**({"file": name} if name else {}), "line": each.number, "reason": each.reason}
            for name, each in totals.listed
        ]
        counts = {"published": totals.published, "refused": totals.refused}
        ids = {"first_id": totals.first, "last_id": totals.last}
        print_json({**counts, **ids, "refused_lines": reasons})
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


def _batches(
    file: BinaryIO,
    name: str,
    format_: str,
    types: dict[str, str],
    rate: float,
    totals: FeedTotals,
    largest: int = PUB_BATCH,
) -> Iterator[list[FeedEvent]]:
    """The feed's events in batches of what has been read, at most `largest` events; at most `rate`
    per second if not 0."""
    from canopy.cli.feeds import Refusal

    started = shown_at = time.monotonic()
    before = totals.published
    terminal = sys.stderr.isatty()
    most = max(1, min(largest, int(rate / 10))) if rate else largest
    for chunk in _chunks(_read_ahead(file, format_, types), most):
        batch: list[FeedEvent] = []
        for item in chunk:
            if isinstance(item, Refusal):
                totals.refuse(name, item)
            else:
                batch.append(item)
        if batch:
            if rate:
                due = started + (totals.published - before) / rate
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


def _read_ahead(file: BinaryIO, format_: str, types: dict[str, str]) -> queue.Queue[Any]:
    """Read the feed in a thread. The queue ends with None, or with an exception of the thread."""
    from canopy.cli.feeds import read_feed

    items: queue.Queue[Any] = queue.Queue(READ_AHEAD)
    session = "".join(secrets.choice(SESSION_LETTERS) for _ in range(SESSION_LENGTH))

    def read() -> None:
        try:
            with file:
                for item in read_feed(file, _format_of(file, format_), types, session):
                    items.put(item)
        except BaseException as error:
            items.put(error)
        else:
            items.put(None)

    threading.Thread(target=read, daemon=True, name="feed reader").start()
    return items
