"""`canopy bench`: publish and subscribe at given nodes, and measure from outside.

All events are sent and received by this process, so one clock has both ends of each latency. Every
event carries the run, its number, and the time at which its batch was handed to the library; a
latency includes what waits there, at the node's admission, and in this process. (The project's own
measurements, of one machine and one commit against another, are in bench/.)
"""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import click
import msgspec

from canopy.cli.completion import context_names
from canopy.cli.connect import connect_option, json_option, open_client, resolve_folder
from canopy.cli.constants import BENCH_WAIT, PUB_BATCH
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import Markup, TextTable, show
from canopy.cli.parameters import Number
from overlay.client import Draft

if TYPE_CHECKING:
    from canopy.client.client import Client
    from canopy.client.consumer import Gathering
    from canopy.client.frames import OpaqueEvent

STAMP: Final = struct.Struct("<Id")
"""The start of every payload: the event's number, and the time of this process's clock in
seconds."""

RUN: Final = "canopy_bench"
"""The only attribute of the events. The subscribers of a run select by its value."""

PERMILLES: Final = (500, 900, 990, 999)


class MeasurementPlan(msgspec.Struct, frozen=True):
    """The events of one measurement, and how they are published."""

    events: int
    size: int  # bytes of payload, at least those of `STAMP`
    rate: float  # events per second; 0: as fast as they are taken
    receipt: bool
    timeout: float  # seconds for each answer, and without any delivery at the end


class Figures(msgspec.Struct, frozen=True):
    """The results of a measurement. Times are seconds, rates events per second."""

    published: int
    refused: int
    publish_seconds: float
    publish_rate: float
    expected: int  # events for all subscribers
    delivered: int
    missing: int
    repeated: int
    delivery_rate: float  # of all subscribers, from the first event published to the last delivered
    subscribe_seconds: list[float]  # of each subscriber until its acknowledgement
    latency_ms: dict[str, float]  # p50 … max; empty where nothing came


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the least value, the nearest-rank percentiles of `PERMILLES`, and the greatest value.
    An empty input gives {}."""
    if not values:
        return {}
    ordered = sorted(values)
    ranks = {f"p{k / 10:g}": ordered[-(-k * len(ordered) // 1_000) - 1] for k in PERMILLES}
    return {"min": ordered[0], **ranks, "max": ordered[-1]}


class LatencyTally:
    """The latencies (seconds) of the events that one subscriber received, by event number."""

    def __init__(self) -> None:
        self.latencies: dict[int, float] = {}
        self.repeated = 0
        self.last = 0.0  # when the last new one came

    def note(self, events: Iterable[OpaqueEvent], now: float) -> None:
        """Count events that arrived at the time `now`."""
        for event in events:
            number, sent = STAMP.unpack_from(event.payload)
            if number in self.latencies:
                self.repeated += 1
            else:
                self.latencies[number] = now - sent
                self.last = now


def drafts(plan: MeasurementPlan, run: str, start: int, count: int, now: float) -> list[Draft]:
    """A batch of events, numbered from `start`."""
    filler = bytes(max(0, plan.size - STAMP.size))
    return [
        Draft({RUN: run}, STAMP.pack(number, now) + filler)
        for number in range(start, start + count)
    ]


def measure(
    sources: Sequence[Client],
    sinks: Sequence[Client],
    plan: MeasurementPlan,
    show: Callable[[str, int, int], None] = lambda stage, done, total: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Figures:
    """Subscribe at all `sinks`, publish at the `sources` in turn, and wait for the deliveries.

    Calls `show(stage, done, total)` as it goes on. Raises a ControlError.
    """
    run = secrets.token_hex(8)
    acknowledged: list[float] = []
    feeds: list[Gathering] = []
    tallies = [LatencyTally() for _ in sinks]
    stop = threading.Event()
    readers: list[threading.Thread] = []
    try:
        for sink, tally in zip(sinks, tallies, strict=True):
            began = clock()
            feeds.append(sink.gather([f"{RUN} = '{run}'"], timeout=plan.timeout))
            acknowledged.append(clock() - began)
            show("subscribe", len(feeds), len(sinks))
            reader = threading.Thread(target=_read, args=(feeds[-1], tally, stop, clock))
            readers.append(reader)
            reader.start()
        began = clock()
        published, refused = _publish(sources, plan, run, show, clock)
        ended = clock()
        _await(tallies, published, plan.timeout, show)
    finally:
        stop.set()
        for feed in feeds:
            feed.close()
        for reader in readers:
            reader.join()
    last = max((tally.last for tally in tallies), default=0.0)
    delivered = sum(len(tally.latencies) for tally in tallies)
    latencies = [1_000 * one for tally in tallies for one in tally.latencies.values()]
    return Figures(
        published=published,
        refused=refused,
        publish_seconds=ended - began,
        publish_rate=_rate(published, ended - began),
        expected=published * len(sinks),
        delivered=delivered,
        missing=max(0, published * len(sinks) - delivered),
        repeated=sum(tally.repeated for tally in tallies),
        delivery_rate=_rate(delivered, last - began),
        subscribe_seconds=acknowledged,
        latency_ms=percentiles(latencies),
    )


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _batches(plan: MeasurementPlan) -> Iterator[tuple[int, int]]:
    """Yield (first number, count) of each batch. With a rate, a batch has the events of 10 ms."""
    most = max(1, min(PUB_BATCH, int(plan.rate / 100))) if plan.rate else PUB_BATCH
    for start in range(0, plan.events, most):
        yield start, min(most, plan.events - start)


def _publish(
    sources: Sequence[Client],
    plan: MeasurementPlan,
    run: str,
    show: Callable[[str, int, int], None],
    clock: Callable[[], float],
) -> tuple[int, int]:
    """Publish all events. Returns the numbers of published and of refused events."""
    began = clock()
    refused = 0
    for turn, (start, count) in enumerate(_batches(plan)):
        if plan.rate:
            time.sleep(max(0.0, began + start / plan.rate - clock()))
        batch = drafts(plan, run, start, count, clock())
        source = sources[turn % len(sources)]
        done = source.publish_many(batch, receipt=plan.receipt, timeout=plan.timeout)
        refused += len(done.refused)
        show("publish", start + count, plan.events)
    return plan.events - refused, refused


def _read(
    feed: Gathering, tally: LatencyTally, stop: threading.Event, clock: Callable[[], float]
) -> None:
    from canopy.client.errors import ControlError
    from canopy.client.frames import OpaqueEvent

    while not stop.is_set():
        try:
            found = feed.receive(BENCH_WAIT)
        except ControlError:  # the node has gone: what is missing is counted
            return
        tally.note([one for one in found if isinstance(one, OpaqueEvent)], clock())


def _await(
    tallies: Sequence[LatencyTally],
    published: int,
    timeout: float,
    show: Callable[[str, int, int], None],
) -> None:
    """Wait until all events have arrived, or until none has arrived for `timeout` seconds."""
    expected, had = published * len(tallies), -1
    changed = time.monotonic()
    while had < expected:
        delivered = sum(len(tally.latencies) for tally in tallies)
        if delivered != had:
            had, changed = delivered, time.monotonic()
            show("deliver", had, expected)
        elif time.monotonic() - changed > timeout:
            return
        time.sleep(BENCH_WAIT)


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
    type=Number(min=0),
    default=0.0,
    help="Events per second; 0: as fast as the overlay takes them.",
)
@click.option("--receipt", is_flag=True, help="Wait for each batch until all trees accepted it.")
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True),
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

    Prints how long the subscriptions took to be acknowledged, events published and delivered per
    second, and percentiles of the latency from publishing to delivery. One clock measures both
    ends, since this process publishes and receives. Without --rate it publishes as fast as
    possible, and the latency is that of full queues; --rate shows the latency of an overlay that
    keeps up. The events have one attribute, canopy_bench, so that only subscriptions to events of
    any kind receive them too. Exit code 1 if events were refused, missing or repeated.

    \b
    canopy bench
    canopy bench --from /tmp/a --to /tmp/b --to /tmp/c --events 100000
    canopy bench --from lab --to home --rate 500 --events 5000 --json | jq .latency_ms
    """
    from canopy.cli.display import Bars

    plan = MeasurementPlan(events, size, rate, receipt, timeout)
    publishers, subscribers = sources or [connect], sinks or [connect]
    with ExitStack() as stack:
        opened = {
            where: stack.enter_context(open_client(where, wait))
            for where in dict.fromkeys([*publishers, *subscribers])
        }
        bars = stack.enter_context(Bars())
        stages: set[str] = set()

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages.add(stage)
                bars.begin(stage, total)
            bars.show(done, total, "")

        found = measure(
            [opened[where] for where in publishers],
            [opened[where] for where in subscribers],
            plan,
            progress,
        )
    show(msgspec.to_builtins(found), as_json, _rows(found))
    return FAILURE if found.missing or found.repeated or found.refused else OK


def _rows(found: Figures) -> TextTable:
    rows = TextTable("", ">")
    slowest = max(found.subscribe_seconds, default=0.0)
    rows.add("subscribed within", f"{1_000 * slowest:,.1f} ms")
    rows.add("published", f"{found.published:,} ({found.publish_rate:,.0f} per second)")
    rows.add("delivered", f"{found.delivered:,} ({found.delivery_rate:,.0f} per second)")
    lost = (("refused", found.refused), ("missing", found.missing), ("repeated", found.repeated))
    rows.of((Markup(f"[red]{name}[/]"), count) for name, count in lost if count)
    return rows.of((f"latency {name}", f"{ms:,.2f} ms") for name, ms in found.latency_ms.items())
