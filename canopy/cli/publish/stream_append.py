"""`canopy pub --stream`: append feeds to a stream, and report the events' offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TextIO

import click
import msgspec

from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.cli.connect import NodeOptions
    from canopy.cli.publish.feed_batches import FeedBatch, FeedTotals
    from canopy.client.client import Client
    from overlay.client import Draft
    from overlay.info import AppendReceipt


class Target(NamedTuple):
    """The stream to append to, and the options of appending."""

    client: Client
    stream: str
    producer: str
    first: int | None
    receipts: TextIO | None
    node: NodeOptions


def fault(
    stream: str, producer: str, first: int | None, receipts: TextIO | None, publishes: bool
) -> str:
    """Return an error message for options that contradict one another; "" if they do not."""
    if not stream and (producer or first is not None or receipts is not None):
        return "--producer, --first and --receipts need --stream NAME"
    if stream and publishes:
        return "--receipt and --dry-run are for events that are published, without --stream"
    if first is not None and not producer:
        return "--first needs --producer NAME, whose events are numbered"
    return ""


class _Appended:
    def __init__(self) -> None:
        self.events = 0
        self.passed = 0
        self.forked = 0
        self.stream = ""
        self.offsets: dict[int, tuple[int, int]] = {}  # by shard: the first and the last


def append(to: Target, batches: Iterable[FeedBatch], totals: FeedTotals, strict: bool) -> int:
    """Append the events of `batches`. Returns the exit code."""
    from canopy.feeds import Refusal
    from overlay.upper_tree.publisher.admission import refusal

    done = _Appended()
    first = -1 if to.first is None else to.first
    one = to.client.producer(to.stream, to.producer, first) if to.producer else None
    try:
        for batch in batches:
            drafts: list[Draft] = []
            for entry in batch.events:
                if reason := refusal(entry.draft):
                    totals.refuse(batch.feed, Refusal(entry.number, reason))
                else:
                    drafts.append(entry.draft)
            if one is not None:
                result = one.append(drafts, timeout=to.node.timeout)
            else:
                result = to.client.append(to.stream, drafts, timeout=to.node.timeout)
            _note(done, result.stream, result.receipts, result.count, to.receipts)
            totals.published += result.count
            totals.show()
    finally:
        _print(done, totals, to)
    return FAILURE if not totals.published or (strict and totals.refused) else OK


def _note(
    done: _Appended,
    stream: str,
    receipts: Iterable[AppendReceipt],
    count: int,
    file: TextIO | None,
) -> None:
    done.events += count
    done.passed += count
    done.stream = stream or done.stream
    for each in receipts:
        done.passed -= each.count
        last = each.first + each.count - 1
        if each.fork:
            done.forked += each.count
        else:
            done.offsets[each.shard] = (done.offsets.get(each.shard, (each.first,))[0], last)
        if file is not None:
            fields = {name: getattr(each, name) for name in each.__struct_fields__}
            del fields["places"]
            if not each.fork:
                del fields["fork"]
            file.write(msgspec.json.encode({"stream": stream, **fields}).decode() + "\n")
            file.flush()


def _print(done: _Appended, totals: FeedTotals, to: Target) -> None:
    if to.node.as_json:
        shards = [
            {"shard": shard, "first": first, "last": last}
            for shard, (first, last) in sorted(done.offsets.items())
        ]
        counts = {"appended": done.events, "without_receipt": done.passed, "in_forks": done.forked}
        there = {"stream": to.stream, "id": done.stream, "offsets": shards}
        refused_lines = {"refused": totals.refused, "refused_lines": totals.refused_lines}
        print_json({**there, **counts, **refused_lines})
    for text in totals.repeated():
        click.echo(text, err=True)
    places = [
        f"{first} to {last}" + (f" of shard {shard}" if len(done.offsets) > 1 or shard else "")
        for shard, (first, last) in sorted(done.offsets.items())
    ]
    where = f", offsets {', '.join(places)}" if places else ""
    passed = f", {done.passed} of them by an earlier session" if done.passed else ""
    forked = f", {done.forked} of them into a fork, on one disk for now" if done.forked else ""
    refused = f", refused {totals.refused}" if totals.refused else ""
    text = (
        f"appended {counted(done.events, 'event')} to {to.stream}{where}{passed}{forked}{refused}"
    )
    click.echo(text, err=True)
