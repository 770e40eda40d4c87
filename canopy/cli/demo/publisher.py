"""The publishers of a demo: a file's events from several nodes, or every node's own telemetry."""

from __future__ import annotations

import time
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
from canopy.cli.feeds import FeedEvent, Refusal, read_feed, weight
from canopy.client.blocking import ControlClient
from overlay.client import Done, Feed, GetStatus, Publish, Published, Status
from overlay.wording import counted


@dataclass
class PublishResult:
    """How many events were published, and which lines were refused."""

    published: int = 0
    refused: list[Refusal] = field(default_factory=list)


def publish(
    plan: DemoPlan, overlay: Overlay, source: Path | None, on_progress: Callable[[float, str], None]
) -> PublishResult:
    """Publish the plan's feed; calls `on_progress(share, text)` as it goes on.

    Raises DemoError.
    """
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
) -> PublishResult:
    outcome = PublishResult()
    started = time.monotonic()
    with source.open("rb") as stream:
        size = max(1, source.stat().st_size)
        for turn, batch in enumerate(batches(read_feed(stream, plan.format), outcome, plan.rate)):
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
    """Wait until no node has deliveries that wait for a program's credit: what is published next
    finds room, so that nothing is dropped. Asks the nodes one after the other."""
    until = time.monotonic() + ADMISSION_TIMEOUT  # then a drop is found and named
    for client in clients:
        while any(program.waiting for program in client.ask(GetStatus(0), Status).clients):
            if time.monotonic() >= until:
                return
            time.sleep(TAKEN_PAUSE)


def batches(
    items: Iterator[FeedEvent | Refusal], outcome: PublishResult, rate: float = 0.0
) -> Iterator[list[FeedEvent]]:
    """The feed's events in batches; its refusals are added to `outcome`.

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
        batch.append(item)
        size += weight(item.draft)
        if len(batch) >= most or size >= DEMO_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _telemetry(
    plan: DemoPlan,
    overlay: Overlay,
    clients: list[ControlClient],
    on_progress: Callable[[float, str], None],
) -> PublishResult:
    """Let every node publish its telemetry for a time. The analysis counts the events."""
    period = SAMPLE_PERIOD * max(1.0, len(clients) / SAMPLING_NODES)
    if plan.rate:
        period = max(0.05, SAMPLE_EVENTS * len(clients) / plan.rate)
    started = time.monotonic()
    for number, client in enumerate(clients):
        client.ask(Feed(0, TELEMETRY, period), Done)
        due = started + period * (number + 1) / len(clients)  # nodes sample one after another
        time.sleep(max(0.0, min(due - time.monotonic(), plan.duration / len(clients))))
    while (passed := time.monotonic() - started) < plan.duration:
        overlay.check()
        on_progress(passed / plan.duration, f"{passed:.0f} of {plan.duration:g} s")
        time.sleep(min(0.2, plan.duration - passed))
    for client in clients:
        client.ask(Feed(0, TELEMETRY, 0.0), Done)
    return PublishResult()
