"""Reads the events of feeds in batches.

One thread reads and parses, another takes the batches. A batch has all events that were read while
the one before was in use: a slow pipe gives each event at once, a file gives large batches.
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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from canopy.cli.constants import (
    COUNT_INTERVAL,
    PUB_BATCH_BYTES,
    READ_AHEAD,
    REFUSED_LISTED,
    REFUSED_PRINTED,
    SESSION_LENGTH,
    SESSION_LETTERS,
)
from canopy.feeds import FeedEvent, Item, Refusal, read_feed, weight
from canopy.feeds.table import inferred
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.client.publication import PublishResult
    from overlay.client import Draft


STDIN: Final = 0
"""The descriptor of standard input."""


class FeedBatch(NamedTuple):
    """Events of one feed, in its order."""

    feed: str
    """The feed's name; "" if there is only one feed."""
    events: list[FeedEvent]


def read_batches(
    sources: Iterable[tuple[str, BinaryIO]],
    format_: str,
    types: Mapping[str, str],
    most: int,
    refuse: Callable[[str, Refusal], None],
    rate: float = 0.0,
) -> Iterator[FeedBatch]:
    """Yield the events of all `sources` in batches of at most `most` events.

    `types`: the types of a table's columns. `refuse` is called with the feed's name for each
    invalid line. `rate`: the most events per second of each feed; 0: unlimited. Raises the errors
    of reading.
    """
    most = max(1, min(most, int(rate / 10))) if rate else most
    for name, stream in sources:
        started, count = time.monotonic(), 0
        for chunk in _chunks(_read_ahead(stream, format_, types), most):
            events: list[FeedEvent] = []
            for item in chunk:
                if isinstance(item, Refusal):
                    refuse(name, item)
                else:
                    events.append(item)
            if events:
                if rate:
                    time.sleep(max(0.0, started + count / rate - time.monotonic()))
                yield FeedBatch(name, events)
                count += len(events)


def open_sources(feeds: tuple[str, ...], data: str | None) -> Iterable[tuple[str, BinaryIO]]:
    """Return the feeds, each opened in its turn, with their names if there are several. Raises
    UsageError for a mixture or a missing file, before anything is published."""
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


def _event(pairs: list[str]) -> bytes:
    """Return the event of `NAME=VALUE` arguments as JSON. Values are parsed as in CSV. Raises
    UsageError."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or name in fields:
            raise click.UsageError(f"{pair!r}: " + ("given twice" if name else "no name before ="))
        fields[name] = inferred(value)
    return json.dumps(fields).encode()


def _opened(file: str) -> BinaryIO:
    """Open a feed. The thread that reads it must close it: closing it in another thread, which an
    interrupt would do, would wait for the end of a read."""
    if file != "-":
        return open(file, "rb")
    if os.isatty(STDIN):
        click.echo(
            "reading events from the terminal, a JSON object per line; Ctrl-D ends", err=True
        )
    # Not sys.stdin: the interpreter cannot shut down cleanly while a thread reads it.
    return open(STDIN, "rb", closefd=False)


def _name(stream: BinaryIO) -> str:
    """Return the name of a file; "" for a pipe."""
    name = getattr(stream, "name", "")
    return name if isinstance(name, str) else ""


def _chunks(items: queue.Queue[Any], most: int) -> Iterator[list[Item]]:
    """Yield lists of items: wait for one, then take those that are there, up to `most` items and
    `PUB_BATCH_BYTES`. Raises the reading thread's exception."""
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


def _read_ahead(file: BinaryIO, format_: str, types: Mapping[str, str]) -> queue.Queue[Any]:
    """Read the feed in a thread. The queue ends with None, or with the thread's exception."""
    items: queue.Queue[Any] = queue.Queue(READ_AHEAD)
    session = "".join(secrets.choice(SESSION_LETTERS) for _ in range(SESSION_LENGTH))

    def read() -> None:
        try:
            with file:
                for item in read_feed(file, format_, types, session, _name(file)):
                    items.put(item)
        except BaseException as error:
            items.put(error)
        else:
            items.put(None)

    threading.Thread(target=read, daemon=True, name="feed reader").start()
    return items


# --- what became of the events of feeds: counted and said by `canopy pub` ---


@dataclass
class FeedTotals:
    """The numbers of published and of refused events. `listed`: the first refused ones; `first` and
    `last`: the ids of published events (the identity of an event without an id)."""

    published: int = 0
    first: str = ""
    last: str = ""
    refused: int = 0
    listed: list[tuple[str, Refusal]] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    hosts: Counter[str] = field(default_factory=Counter)  # events by the node that accepted them
    shown_at: float = field(default_factory=time.monotonic)

    def publish(self, drafts: Sequence[Draft], done: PublishResult) -> None:
        """Count a batch's published events, and note the first and the last of all."""
        from canopy.feeds import id_text

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
        """Count a refused line of the feed `name` ("": the only feed). Keep the first
        `REFUSED_LISTED`, and print each of the first `REFUSED_PRINTED` reasons once."""
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

    @property
    def refused_lines(self) -> list[dict[str, Any]]:
        """The first refused lines, as `--json` lists them."""
        return [
            {**({"file": name} if name else {}), "line": each.number, "reason": each.reason}
            for name, each in self.listed
        ]

    def show(self) -> None:
        """Show the number of published events, on a terminal, every `COUNT_INTERVAL` seconds."""
        if sys.stderr.isatty() and time.monotonic() - self.shown_at > COUNT_INTERVAL:
            self.shown_at = time.monotonic()
            click.echo(f"\rpublished {self.published} events ", err=True, nl=False)

    def repeated(self) -> Iterator[str]:
        """Yield the final sentences about reasons that were repeated or not printed."""
        for reason, times in self.reasons.items():
            if times > 1:
                yield f"… {counted(times - 1, 'more line')}: {reason}"
        rest = self.refused - sum(self.reasons.values())
        if rest:
            yield f"… {counted(rest, 'more line')} for other reasons"
