"""`canopy sub`: subscribe, and print matching events as they are delivered."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import click

from canopy.cli.connect import node_options, open_client
from canopy.cli.constants import NAMES_TIMEOUT
from canopy.cli.errors import OK, TIME_OUT
from canopy.cli.output import delivery_object, on_reader_gone, print_json, printable, visible
from overlay.client import LEVELS

if TYPE_CHECKING:
    from canopy.client.notices import Notice
    from canopy.client.synchronous import Client
    from matching import Predicate
    from overlay.client import Delivery


@click.command()
@click.argument("selector")
@click.option("--name", default="", help="A name for the subscription, in traces and the TUI.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many events.")
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="End after so many seconds; exit code 5 if --count was not reached.",
)
@click.option(
    "--latency-level",
    type=click.IntRange(1, LEVELS),
    help=f"Priority of the events at a busy host, 1 (most urgent) to {LEVELS}.",
)
@node_options
def sub(
    selector: str,
    name: str,
    count: int | None,
    seconds: float | None,
    latency_level: int | None,
    as_json: bool,
    timeout: float,
    connect: str | None,
    wait: float,
) -> int:
    """Subscribe with SELECTOR and print each matching event, until Ctrl-C.

    A selector is the condition of an SQL WHERE clause over an event's attributes: = <> < <= > >=,
    BETWEEN, IN, LIKE, IS NULL, AND, OR, NOT, arithmetic. Events that are published after
    "subscribed" was printed (on standard error) are delivered. A selector that is never true, and
    attributes that the node has not seen yet, are pointed out there as well. When the node goes
    away it is looked for during --timeout seconds and subscribed to again; what may be missing is
    said on standard error.

    \b
    canopy sub "mag >= 4.5 AND place LIKE '%Alaska%'"
    canopy sub "type = 'cpu' AND cpu_percent > 90" --json | jq .attributes.host
    canopy sub "TRUE" --count 10 --for 60
    """
    from matching import compile_selector

    predicate = compile_selector(selector)
    until = None if seconds is None else time.monotonic() + seconds
    urgency = latency_level or 0
    with open_client(connect, wait, reconnect=timeout) as client, ExitStack() as stack:
        remarks = _remarks(client, predicate, timeout)  # before the node knows our own attributes
        source = stack.enter_context(
            client.subscribe(selector, name=name, latency_level=urgency, timeout=timeout)
        )
        print(f"subscribed ({source.id})", file=sys.stderr, flush=True)
        for remark in remarks:
            print(f"warning: {visible(remark)}", file=sys.stderr, flush=True)
        reader_gone = threading.Event()

        def stop() -> None:
            reader_gone.set()
            source.close()

        on_reader_gone(stop)
        left = count
        while left is None or left > 0:
            rest = None if until is None else until - time.monotonic()
            if rest is not None and rest <= 0:
                break
            received = source.receive(rest)
            if reader_gone.is_set():
                return OK
            left = _show(received, left, predicate.attributes, as_json)
    return TIME_OUT if left is not None and left > 0 else 0


def _remarks(client: Client, predicate: Predicate, timeout: float) -> tuple[str, ...]:
    """What is odd about the selector. A node that does not answer has seen nothing."""
    from canopy.client.errors import CommandFailed, CommandTimeoutError
    from canopy.client.hints import hints
    from overlay.client import Attributes, GetAttributes

    seen: tuple[str, ...] = ()
    if predicate.attributes:
        with suppress(CommandFailed, CommandTimeoutError):
            seen = client.ask(GetAttributes(0), Attributes, min(timeout, NAMES_TIMEOUT)).names
    return hints(predicate, seen)


def _show(
    received: list[Delivery | Notice], left: int | None, first: tuple[str, ...], as_json: bool
) -> int | None:
    """Print at most `left` deliveries, and notices on standard error; how many are left."""
    from overlay.client import Delivery

    for one in received:
        if not isinstance(one, Delivery):
            print(f"! {one.reason}", file=sys.stderr, flush=True)
        elif left is None or left > 0:
            _print(one, first, as_json)
            left = None if left is None else left - 1
    return left


def _print(delivery: Delivery, first: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print_json(delivery_object(delivery))
        return
    event = delivery.event
    clock = time.strftime("%H:%M:%S", time.localtime(event.time))
    shown = [name for name in first if name in event.attributes]
    shown += [name for name in event.attributes if name not in shown]
    fields = [
        f"{printable(name)}={printable(event.attributes[name])}"
        for name in shown
        if name not in ("id", "type") and event.attributes[name] is not None
    ]
    identity = printable(event.attributes.get("id"))
    kind = printable(event.attributes.get("type"))
    click.echo(
        f"{clock}  {click.style(identity, bold=True)}  {click.style(kind, fg='cyan')}  "
        f"{' '.join(fields)}"
    )
    sys.stdout.flush()
