"""`canopy pub`: publish feeds as they are read (feeds/reading.py)."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from canopy.cli.connect import connect_option, format_option, json_option, open_client
from canopy.cli.constants import (
    COUNT_INTERVAL,
    PUB_BATCH,
    REFUSED_LISTED,
    REFUSED_PRINTED,
)
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json, visible
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.cli.feeds import Refusal
    from canopy.cli.feeds.reading import FeedBatch
    from canopy.client.publishing import PublishResult
    from canopy.client.synchronous import Client
    from overlay.client import Draft


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
    hosts: Counter[str] = field(default_factory=Counter)  # events by the node that accepted them
    shown_at: float = field(default_factory=time.monotonic)

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
        self.hosts.update(host for hosts in done.hosts for host in dict.fromkeys(hosts.values()))
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

    def show(self) -> None:
        """On a terminal, say from time to time how many events are published."""
        if sys.stderr.isatty() and time.monotonic() - self.shown_at > COUNT_INTERVAL:
            self.shown_at = time.monotonic()
            click.echo(f"\rpublished {self.published} events ", err=True, nl=False)

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
    from canopy.cli.feeds.reading import open_sources, read_batches
    from overlay.client import DRY_RUN_MOST

    totals = FeedTotals()
    sources = open_sources(feeds, data)
    if dry_run and receipt:
        raise click.UsageError("--dry-run publishes nothing, so there is no --receipt")
    most, pace = (DRY_RUN_MOST, 0.0) if dry_run else (PUB_BATCH, rate)
    batches = read_batches(sources, format_, types, most, totals.refuse, pace)
    with open_client(connect, wait) as client:
        if dry_run:
            return _ask(client, batches, totals, strict, timeout, as_json)
        try:
            for batch in batches:
                _send(client, batch, receipt, timeout, totals)
            _warn_if_alone(client, timeout)
        finally:
            _print_totals(totals, receipt, as_json)
    return FAILURE if not totals.published or (strict and totals.refused) else OK


def _ask(
    client: Client,
    batches: Iterable[FeedBatch],
    totals: FeedTotals,
    strict: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Ask who would get the events, as far as they could be published. Returns the exit code."""
    from canopy.cli import dry_run
    from canopy.cli.feeds import Refusal

    found = dry_run.DryRunTotals(names=dry_run.names_at(client, timeout))
    for name, events in batches:
        answers = dry_run.ask(client, events, timeout)
        for entry, answer in zip(events, answers, strict=True):
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


def _send(
    client: Client, batch: FeedBatch, receipt: bool, timeout: float, totals: FeedTotals
) -> None:
    from canopy.cli.feeds import Refusal

    drafts = [entry.draft for entry in batch.events]
    done = client.publish_many(drafts, receipt=receipt, timeout=timeout)
    totals.publish(drafts, done)
    for place, reason in done.refused:
        totals.refuse(batch.feed, Refusal(batch.events[place].number, reason))
    totals.show()


def _print_totals(totals: FeedTotals, receipt: bool, as_json: bool) -> None:
    if as_json:
        reasons = [
            {**({"file": name} if name else {}), "line": each.number, "reason": each.reason}
            for name, each in totals.listed
        ]
        counts = {"published": totals.published, "refused": totals.refused}
        ids = {"first_id": totals.first, "last_id": totals.last}
        hosts = {"hosts": dict(totals.hosts)} if receipt else {}
        print_json({**counts, **ids, **hosts, "refused_lines": reasons})
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
