"""`canopy sub`: subscribe, and print matching events as they are delivered."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from canopy.cli.completion import attribute_names, stream_names
from canopy.cli.connect import NodeOptions, node_options, seal_option
from canopy.cli.constants import EVENTS_LOOKED_AT, NAMES_TIMEOUT, REMIND_EVERY
from canopy.cli.errors import OK, TIME_OUT
from canopy.cli.output import on_reader_gone
from canopy.cli.parameters import Number
from canopy.cli.streams.read import FollowOptions, read_stream
from canopy.cli.streams.share import GroupNotice, group_options, share_stream
from canopy.cli.subscribe.delivery import Show, printer, template_of, warn_of_absent
from overlay.client import LEVELS
from overlay.phrases import visible

if TYPE_CHECKING:
    from canopy.cli.subscribe.delivery import Template
    from canopy.client.client import Client
    from canopy.client.consumer import Subscription
    from canopy.client.notices import Notice
    from matching import Predicate, Value
    from overlay.client import Delivery, Event


class NodeSearch:
    """Reports on standard error that the node is away and is looked for: one search after another,
    each of at most `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since = 0.0  # when the node was found to be away (monotonic)
        self._is_on = False
        self._is_away = False  # the connection has ended; a node that leaves still delivers
        self._remind_at = 0.0

    def begin(self, reason: str) -> None:
        """Print that the node has gone or is leaving, why, and how long it will be looked for."""
        self._is_on, self._is_away = True, False
        self._start()
        wait = f"looking for it for {self._patience:g} s (--timeout)"
        print(f"! {reason}; {wait}", file=sys.stderr, flush=True)

    def _start(self) -> None:
        self._since = time.monotonic()
        self._remind_at = self._since + REMIND_EVERY

    def limit(self, rest: float | None) -> float | None:
        """Return how long to wait for events, at most `rest` seconds (None: any time). While the
        node is away, the wait ends when the next message is due."""
        if not self._is_on:
            return rest
        due = max(0.0, self._remind_at - time.monotonic()) if self._is_away else REMIND_EVERY
        return due if rest is None else min(rest, due)

    def looked(self, is_live: bool) -> None:
        """Print the remaining time of the search, or end the search if `is_live`: a node has
        acknowledged the subscription."""
        if not self._is_on:
            return
        if is_live:
            self._is_on = not self._is_away
        elif not self._is_away:
            self._is_away = True
            self._start()
        now = time.monotonic()
        if self._is_on and self._is_away and now >= self._remind_at:
            self._remind_at = now + REMIND_EVERY
            left = max(0.0, self._since + self._patience - now)
            text = f"! still without the node; giving up in {left:.0f} s"
            print(text, file=sys.stderr, flush=True)


@click.command()
@click.argument("selector", shell_complete=attribute_names, required=False)
@click.option(
    "--diff",
    nargs=2,
    metavar="OLD NEW",
    help="Subscribe to nothing: show what the selector NEW would gain and lose over OLD.",
)
@click.option("--name", default="", help="A name for the subscription, in traces and the TUI.")
@click.option(
    "--stream",
    metavar="STREAM",
    default="",
    shell_complete=stream_names,
    help="Read the events of a stream instead.",
)
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="With --stream: first, new, keys, an offset, a position (ID@0:118, as it says when it "
    "ends), or a time (2026-11-23T08:00). [default: new]",
)
@click.option(
    "--durable",
    metavar="NAME",
    default="",
    help="With --stream: go on where NAME ended, and keep the position in the stream.",
)
@click.option(
    "--last",
    is_flag=True,
    help="Begin with the newest event of each key, from a stream that captures them all.",
)
@group_options
@click.option("--count", type=click.IntRange(min=1), help="End after this number of events.")
@click.option(
    "--for",
    "seconds",
    type=Number(min=0, min_open=True),
    help="End after this number of seconds; exit code 5 if --count was not reached.",
)
@click.option(
    "--latency-level",
    type=click.IntRange(1, LEVELS),
    help=f"Priority of the events at a busy host, 1 (most urgent) to {LEVELS}.",
)
@click.option(
    "--format",
    "template",
    metavar="TEMPLATE",
    callback=template_of,
    help="Print each event as TEMPLATE says, with names in braces.",
)
@click.option("--raw", is_flag=True, help="Print whole events, which canopy pub reads unchanged.")
@seal_option
@node_options
def sub(
    selector: str | None,
    diff: tuple[str, str] | None,
    name: str,
    stream: str,
    start: str | None,
    durable: str,
    last: bool,
    shared: GroupNotice,
    count: int | None,
    seconds: float | None,
    latency_level: int | None,
    template: Template | None,
    raw: bool,
    node: NodeOptions,
) -> int:
    """Subscribe with SELECTOR and print each matching event, until Ctrl-C.

    A selector is the condition of an SQL WHERE clause over an event's attributes: = <> < <= > >=,
    BETWEEN, IN, LIKE, IS NULL, AND, OR, NOT, arithmetic. Events that are published after
    "subscribed" was printed (on standard error) are delivered. Warnings there name a selector that
    is never true, and attributes that the node has not seen yet. When the node goes away, the
    command looks for it for --timeout seconds and subscribes again, with a notice on standard
    error.

    --format fills in a template for each event: {mag} is an attribute, empty if absent. {event}
    (identity), {subscription}, {time} (of publishing, UTC), {latency_ms}, {hops}, {attributes}
    (JSON), {payload} and {payload_type} are not attributes. An attribute with such a name, or with
    a name that is no identifier, is written in double quotes: {"time"}. {{ and }} are braces, \\t
    and \\n a tab and a line end.

    --stream reads the events that a stream has kept, and then new ones: those that SELECTOR matches
    (default: all), in the order of their offsets. With --durable the stream keeps the position of
    the printed events. Programs of one --group share the events that they print.

    --last prints the newest matching event of each key first, and then all new ones: it finds a
    stream with a key (canopy stream add NAME --key ATTRIBUTE --capture SELECTOR) that captures all
    events that SELECTOR matches, and reads it. No event is missed in between or printed twice.

    --diff compares two selectors without subscribing: on the node's last events (tree.history), and
    for any event by the values of single attributes.

    \b
    canopy sub "mag >= 4.5 AND place LIKE '%Alaska%'"
    canopy sub "type = 'cpu' AND cpu_percent > 90" --json | jq .attributes.host
    canopy sub "TRUE" --count 10 --for 60
    canopy sub "mag > 4" --format '{time}\\t{mag}\\t{place}' > quakes.tsv
    canopy sub --stream alarms "mag >= 4.5" --from first
    canopy sub --stream alarms --durable archive --json >> alarms.jsonl
    canopy sub "sensor = 's7'" --last
    canopy sub --stream orders --group billing --lease 60s --by customer --json
    canopy sub --diff "mag >= 4.5" "mag >= 4 AND place LIKE '%Alaska%'"
    canopy sub "TRUE" --raw | canopy pub - --connect /tmp/b       # into another overlay
    """
    if node.as_json + raw + (template is not None) > 1:
        raise click.UsageError("give one of --json, --raw and --format")
    if diff is not None:
        if selector is not None or raw or template is not None:
            raise click.UsageError("--diff takes two selectors and, if at all, --json")
        from canopy.cli.subscribe.difference import show_difference

        with node.open() as client:
            show_difference(client, *diff, node.as_json, node.timeout)
        return OK
    if last:
        if selector is None:
            raise click.UsageError("Missing argument 'SELECTOR'.")
        if shared or stream or start is not None or durable or name or latency_level:
            raise click.UsageError(
                "--last finds its stream: it goes without --stream, --from, --durable, --group, "
                "--name and --latency-level"
            )
        start = "last"
    if shared or stream or start is not None or durable:
        wanted = FollowOptions(stream, selector, start, durable, count, seconds, node)
        show = printer((), template, raw, as_json=False)
        return share_stream(wanted, shared, show) if shared else read_stream(wanted, show)
    if selector is None:
        raise click.UsageError("Missing argument 'SELECTOR'.")
    shown = partial(printer, template=template, raw=raw, as_json=node.as_json)
    with node.open(reconnect=node.timeout) as client:
        try:
            return _receive(
                client, selector, name, latency_level or 0, count, seconds, node.timeout, shown
            )
        finally:
            warn_of_absent(template)


def _receive(
    client: Client,
    selector: str,
    name: str,
    urgency: int,
    count: int | None,
    seconds: float | None,
    timeout: float,
    show: Callable[[tuple[str, ...]], Show],
) -> int:
    """Subscribe, and print deliveries. `show` makes the function that prints them from the
    attributes to print first. Returns the exit code."""
    from matching import compile_selector

    predicate = compile_selector(selector)
    until = None if seconds is None else time.monotonic() + seconds
    remarks = _remarks(client, predicate, timeout)  # before the node knows our own attributes
    with client.subscribe(selector, name=name, latency_level=urgency, timeout=timeout) as source:
        _say_subscribed(source.id, remarks)
        reader_gone = threading.Event()

        def stop() -> None:
            reader_gone.set()
            source.close()

        on_reader_gone(stop)
        search = NodeSearch(timeout)
        left = _follow(source, count, until, show(predicate.attributes), reader_gone, search)
    return TIME_OUT if left else OK


def _say_subscribed(id_: str, remarks: tuple[str, ...]) -> None:
    print(f"subscribed ({id_})", file=sys.stderr, flush=True)
    for remark in remarks:
        print(f"warning: {visible(remark)}", file=sys.stderr, flush=True)


def _follow(
    source: Subscription,
    count: int | None,
    until: float | None,
    show: Show,
    reader_gone: threading.Event,
    search: NodeSearch,
) -> int:
    """Print `count` deliveries, until the time `until` or until the reader has gone. While the node
    is away, report the search for it. Returns how many deliveries are missing."""
    left = count
    while left is None or left > 0:
        rest = None if until is None else until - time.monotonic()
        if rest is not None and rest <= 0:
            break
        received = source.receive(search.limit(rest))
        if reader_gone.is_set():
            return 0
        left = _show(received, left, show, search)
        search.looked(source.is_live)
    return left or 0


def _remarks(client: Client, predicate: Predicate, timeout: float) -> tuple[str, ...]:
    """Return hints about oddities of the selector. A node that does not answer counts as having
    seen no attributes."""
    from canopy.client.errors import CommandFailed, CommandTimeoutError
    from canopy.client.hints import bare_names, hints
    from overlay.client import Attributes, Events, GetAttributes, GetEvents

    seen: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    if predicate.attributes:
        with suppress(CommandFailed, CommandTimeoutError):
            seen = client.ask(GetAttributes(0), Attributes, min(timeout, NAMES_TIMEOUT)).names
    if bare_names(predicate):
        with suppress(CommandFailed, CommandTimeoutError):
            asked = GetEvents(0, EVENTS_LOOKED_AT)
            events = client.ask(asked, Events, min(timeout, NAMES_TIMEOUT)).events

    def values_of(name: str) -> list[Value]:
        found = (event.attributes.get(name) for event in events)
        return [value for value in found if value is not None]

    return hints(predicate, seen, values_of)


def _show(
    received: list[Delivery | Notice], left: int | None, show: Show, search: NodeSearch
) -> int | None:
    """Print at most `left` deliveries, and notices on standard error. Returns how many are left."""
    from canopy.client.notices import Disconnected
    from overlay.client import Delivery

    for one in received:
        if isinstance(one, Disconnected):
            search.begin(one.reason)
        elif not isinstance(one, Delivery):
            print(f"! {one.reason}", file=sys.stderr, flush=True)
        elif left is None or left > 0:
            show(one)
            left = None if left is None else left - 1
    return left
