"""The publishers of a demo: a file's events from several nodes, or every node's own telemetry."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canopy.cli.constants import (
    ADMISSION_TIMEOUT,
    DEMO_BATCH,
    DEMO_BATCH_BYTES,
    SAMPLE_EVENTS,
    SAMPLE_PERIOD,
    SAMPLING_NODES,
    TAKEN_PAUSE,
)
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.cli.demo.plan import TELEMETRY, DemoPlan
from canopy.client.blocking import ControlClient
from canopy.feeds import FeedEvent, Refusal, read_feed, weight
from overlay.client import CREDIT, Done, Feed, GetStatus, Publish, Published, Status
from overlay.phrases import counted


@dataclass
class PublishedFeed:
    """The number of published events, and the lines that were refused."""

    published: int = 0
    refused: list[Refusal] = field(default_factory=list)


def publish(
    plan: DemoPlan, overlay: Overlay, source: Path | None, on_progress: Callable[[float, str], None]
) -> PublishedFeed:
    """Publish the plan's feed; calls `on_progress(share, text)` as it goes on. Raises DemoError."""
    with overlay.clients("publishing failed") as clients:
        if source is None:
            return _telemetry(plan, overlay, clients, on_progress)
        return _file(plan, overlay.nodes, clients, source, on_progress)


def _file(
    plan: DemoPlan,
    nodes: Sequence[DemoNode],
    clients: list[ControlClient],
    source: Path,
    on_progress: Callable[[float, str], None],
) -> PublishedFeed:
    outcome = PublishedFeed()
    started = time.monotonic()
    with source.open("rb") as stream:
        size = max(1, source.stat().st_size)
        items = read_feed(stream, plan.format, name=source.name)
        for turn, batch in enumerate(batches(items, outcome, plan.rate, room_of(plan))):
            await_taken(clients)
            command = Publish(0, tuple(entry.draft for entry in batch), receipt=True)
            reply = clients[turn % len(clients)].ask(command, Published, timeout=ADMISSION_TIMEOUT)
            for place, reason in reply.refused:
                outcome.refused.append(Refusal(batch[place].number, reason))
            outcome.published += len(batch) - len(reply.refused)
            said = f"{counted(outcome.published, 'event')} from {counted(len(nodes), 'node')}"
            on_progress(stream.tell() / size, said)
            if plan.rate:
                due = started + outcome.published / plan.rate
                time.sleep(max(0.0, due - time.monotonic()))
    outcome.refused.sort(key=lambda refusal: refusal.number)
    return outcome


def await_taken(clients: Sequence[ControlClient]) -> None:
    """Wait until no node has deliveries that wait for a program's credit, so that the next events
    are not dropped. Asks the nodes one after the other, and gives up after `ADMISSION_TIMEOUT`."""
    until = time.monotonic() + ADMISSION_TIMEOUT  # then a drop is found and named
    for client in clients:
        while is_behind(client):
            if time.monotonic() >= until:
                return
            time.sleep(TAKEN_PAUSE)


def is_behind(client: ControlClient) -> bool:
    """Return whether deliveries of this node wait for a program's credit."""
    return any(program.waiting for program in client.ask(GetStatus(0), Status).clients)


def room_of(plan: DemoPlan) -> int:
    """Return how many bytes of events fit into a program's credit if all subscriptions of its node
    match."""
    at = Counter(wanted.node for wanted in plan.subscriptions)
    return CREDIT // max(at.values(), default=1)


def batches(
    items: Iterator[FeedEvent | Refusal],
    outcome: PublishedFeed,
    rate: float = 0.0,
    room: int = DEMO_BATCH_BYTES,
) -> Iterator[list[FeedEvent]]:
    """Yield the feed's events in batches of at most `room` bytes, or of one event; add refusals to
    `outcome`.

    With a `rate` (events per second) a batch has at most a tenth of a second's events, so that they
    are spread evenly.
    """
    most = max(1, min(DEMO_BATCH, int(rate / 10))) if rate else DEMO_BATCH
    batch: list[FeedEvent] = []
    size = 0
    for item in items:
        if isinstance(item, Refusal):
            outcome.refused.append(item)
            continue
        size += weight(item.draft)
        if batch and size > min(room, DEMO_BATCH_BYTES):
            yield batch
            batch, size = [], weight(item.draft)
        batch.append(item)
        if len(batch) >= most:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _telemetry(
    plan: DemoPlan,
    overlay: Overlay,
    clients: list[ControlClient],
    on_progress: Callable[[float, str], None],
) -> PublishedFeed:
    """Let every node publish its telemetry for the plan's duration. The nodes pause while a program
    is behind, so that nothing is dropped. The analysis counts the events."""
    period = SAMPLE_PERIOD * max(1.0, len(clients) / SAMPLING_NODES)
    if plan.rate:
        period = max(0.05, SAMPLE_EVENTS * len(clients) / plan.rate)
    started = time.monotonic()
    _sample(clients, period, plan.duration)
    while (passed := time.monotonic() - started) < plan.duration:
        overlay.check()
        on_progress(passed / plan.duration, f"{passed:.0f} of {plan.duration:g} s")
        if any(map(is_behind, clients)):
            _sample(clients, 0.0)
            await_taken(clients)
            _sample(clients, period, plan.duration - passed)
        time.sleep(min(0.2, plan.duration - passed))
    _sample(clients, 0.0)
    return PublishedFeed()


def _sample(clients: Sequence[ControlClient], period: float, at_most: float = 0.0) -> None:
    """Tell all nodes to sample every `period` seconds (0: stop), one after another, over at most
    `at_most` seconds."""
    started = time.monotonic()
    for number, client in enumerate(clients):
        client.ask(Feed(0, TELEMETRY, period), Done)
        due = started + period * (number + 1) / len(clients)
        time.sleep(max(0.0, min(due - time.monotonic(), at_most / len(clients))))
