"""A smoke bench: what one node and what twelve carry, in real processes on this machine.

`python -m bench.node.smoke` prints events per second (from the first publish to the last delivery)
and CPU seconds per million events (of all node processes), for one node and for twelve. Every event
has six attributes; of ten subscriptions one in a hundred matches on average, spread over the nodes;
publishers and subscribers are on different nodes. Tracing is off. It is a smoke bench: a machine
that does other things at the same time shows it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

import psutil

from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from canopy.client.errors import UnreachableError
from overlay.client import Draft, GetStatus, Publish, Published, Status, Subscribe, Subscribed

BATCH: Final = 256
SUBSCRIPTIONS: Final = 10
IDLE: Final = 20.0  # seconds without a delivery after which some are lost


def drafts(count: int, seed: int = 1) -> list[Draft]:
    rng = Random(seed)
    return [
        Draft(
            {
                "id": f"e{number}",
                "type": "reading",
                "sensor": f"s{rng.randrange(1_000):03}",
                "value": round(rng.uniform(0, 100), 3),
                "battery": rng.randrange(100),
                "ok": rng.random() < 0.9,
            }
        )
        for number in range(count)
    ]


def selectors() -> list[str]:
    """Each is true for about one event in a hundred, and names three attributes."""
    return [
        f"value BETWEEN {10 * n} AND {10 * n + 2} AND battery >= 50 AND ok"
        for n in range(SUBSCRIPTIONS)
    ]


def expected(events: Sequence[Draft]) -> int:
    from matching import compile_selector

    predicates = [compile_selector(text) for text in selectors()]
    return sum(p.matches(event.attributes) for event in events for p in predicates)


class DeliveryCounter(threading.Thread):
    """Counts the deliveries of one connection until it is closed."""

    def __init__(self, client: ControlClient) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.count = 0
        self.last = 0.0

    def run(self) -> None:
        while True:
            try:
                found = self.client.deliveries(timeout=1.0)
            except UnreachableError:
                return
            if found:
                self.count += len(found)
                self.last = time.monotonic()


def processor_seconds(overlay: Overlay) -> float:
    total = 0.0
    for node in overlay.nodes:
        assert node.process is not None
        times = psutil.Process(node.process.pid).cpu_times()
        total += times.user + times.system
    return total


def publish(clients: list[ControlClient], events: Sequence[Draft]) -> None:
    """All clients at once, each with its share."""

    def one(number: int, client: ControlClient) -> None:
        mine = events[number :: len(clients)]
        for start in range(0, len(mine), BATCH):
            command = Publish(0, tuple(mine[start : start + BATCH]))
            client.ask(command, Published, timeout=120.0)

    threads = [threading.Thread(target=one, args=entry) for entry in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(nodes: int, events: Sequence[Draft]) -> dict[str, float | int]:
    wanted = expected(events)
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        for name in ("nodes", "logs", "traces"):
            (out / name).mkdir()
        overlay = stack.enter_context(Overlay(nodes, out, ["--no-trace"], seed=1))
        overlay.start(lambda _: None)
        overlay.await_ready(lambda _: None)
        receivers = []
        for number, text in enumerate(selectors()):
            node = overlay.nodes[number % nodes]
            client = stack.enter_context(ControlClient.connect(node.data))
            client.ask(Subscribe(0, text), Subscribed, timeout=60.0)
            receivers.append(DeliveryCounter(client))
        for receiver in receivers:
            receiver.start()
        sources = overlay.nodes[nodes // 2 : nodes // 2 + 4]
        publishers = [stack.enter_context(ControlClient.connect(n.data)) for n in sources]
        before, started = processor_seconds(overlay), time.monotonic()
        publish(publishers, events)
        admitted = time.monotonic()
        while sum(r.count for r in receivers) < wanted:
            last = max(admitted, *(r.last for r in receivers))
            if time.monotonic() - last > IDLE:
                break
            time.sleep(0.01)
        while any(c.ask(GetStatus(0), Status).pending for c in publishers):
            time.sleep(0.01)
        ended = time.monotonic()
        spent = processor_seconds(overlay) - before
        delivered = sum(r.count for r in receivers)
        overlay.stop(lambda _: None)
    return {
        "nodes": nodes,
        "events": len(events),
        "expected": wanted,
        "delivered": delivered,
        "seconds": round(ended - started, 3),
        "events_per_second": round(len(events) / (ended - started)),
        "cpu_seconds_per_million_events": round(spent / len(events) * 1e6, 1),
    }


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.node.smoke", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--events", type=int, default=20_000, help="events to publish (20000)")
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 12], help="overlays (1 12)")
    options = parser.parse_args(args)
    events = drafts(options.events)
    found = []
    for nodes in options.nodes:
        if not options.json:
            print(f"{nodes:>3} nodes …", end=" ", flush=True)
        found.append(measure(nodes, events))
        if not options.json:
            one = found[-1]
            print(
                f"{one['events_per_second']:>8,} events/s  "
                f"{one['cpu_seconds_per_million_events']:>8,} CPU s per million events  "
                f"{one['delivered']:,} of {one['expected']:,} deliveries"
            )
    if options.json:
        print(json.dumps(found, indent=2))
    return 0 if all(one["delivered"] == one["expected"] for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
