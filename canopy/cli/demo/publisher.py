"""The publishers of a demo: a file's events from several nodes, or every node's own telemetry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from canopy.cli.demo.overlay import NodeProcess, Overlay
from canopy.cli.demo.plan import TELEMETRY, Plan
from canopy.cli.feeds import Entry, Refusal, read_feed, weight
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import Done, Feed, Publish, Published

BATCH: Final = 64
"""Events that one node publishes before the next one has its turn: small, so that all take part
also in a short feed. Wild guess."""
BATCH_BYTES: Final = 256 * 1024
ADMISSION_TIMEOUT: Final = 120.0
"""Seconds that a batch may wait for admission: the overlay is slow, not dead. Wild guess."""
SAMPLE_EVENTS: Final = 14
"""Events of one telemetry sample on a common machine (measured: 11 to 16), for --rate."""
SAMPLE_PERIOD: Final = 1.0
"""Seconds between two samples of a node: as often as people's tools look. Wild guess."""
SAMPLING_NODES: Final = 16
"""Nodes that sample every SAMPLE_PERIOD on one machine; more take turns. A sample costs 5 to 20 ms
of processor time (measured), and the machine is the overlay's, too."""


@dataclass
class Outcome:
    """What was published, and what was not, with line numbers."""

    published: int = 0
    refused: list[Refusal] = field(default_factory=list)


def publish(
    plan: Plan, overlay: Overlay, source: Path | None, told: Callable[[float, str], None]
) -> Outcome:
    """Publish the plan's feed; `told` hears how far it is, and in words.

    Raises DemoError."""
    with ExitStack() as stack:
        try:
            clients = [stack.enter_context(ControlClient.connect(n.data)) for n in overlay.nodes]
            if source is None:
                return _telemetry(plan, overlay, clients, told)
            return _file(plan, overlay.nodes, clients, source, told)
        except ControlError as error:
            overlay.blame(f"publishing failed: {error}")


def _file(
    plan: Plan,
    nodes: Sequence[NodeProcess],
    clients: list[ControlClient],
    source: Path,
    told: Callable[[float, str], None],
) -> Outcome:
    outcome = Outcome()
    started = time.monotonic()
    with source.open("rb") as stream:
        size = max(1, source.stat().st_size)
        for turn, batch in enumerate(batches(read_feed(stream, plan.format), outcome, plan.rate)):
            command = Publish(0, tuple(entry.draft for entry in batch))
            reply = clients[turn % len(clients)].ask(command, Published, timeout=ADMISSION_TIMEOUT)
            for place, reason in reply.refused:
                outcome.refused.append(Refusal(batch[place].number, reason))
            outcome.published += len(batch) - len(reply.refused)
            told(stream.tell() / size, f"{outcome.published} events from {len(nodes)} nodes")
            if plan.rate:
                due = started + outcome.published / plan.rate
                time.sleep(max(0.0, due - time.monotonic()))
    outcome.refused.sort(key=lambda refusal: refusal.number)
    return outcome


def batches(
    items: Iterator[Entry | Refusal], outcome: Outcome, rate: float = 0.0
) -> Iterator[list[Entry]]:
    """The feed's events in batches; its refusals go to the outcome. At a `rate` (events per
    second) a batch is a tenth of a second's, so that events flow instead of coming in bursts."""
    most = max(1, min(BATCH, int(rate / 10))) if rate else BATCH
    batch: list[Entry] = []
    size = 0
    for item in items:
        if isinstance(item, Refusal):
            outcome.refused.append(item)
            continue
        batch.append(item)
        size += weight(item.draft)
        if len(batch) >= most or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _telemetry(
    plan: Plan,
    overlay: Overlay,
    clients: list[ControlClient],
    told: Callable[[float, str], None],
) -> Outcome:
    """Let every node publish its telemetry for the plan's duration. Spark counts the events."""
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
        told(passed / plan.duration, f"{passed:.0f} of {plan.duration:g} s")
        time.sleep(min(0.2, plan.duration - passed))
    for client in clients:
        client.ask(Feed(0, TELEMETRY, 0.0), Done)
    return Outcome()
