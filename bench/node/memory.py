"""How much memory a node takes: a real process, before and after its subscriptions and some events.

`python -m bench.node.memory` starts one node, has eight clients that gather subscribe
`--subscriptions`
(two intervals each, on seven numbers), and publishes `--events` in batches of 64. Shown are the
resident memory (`rss_mb`) and what is this process's alone (`uss_mb`: what would be free if it
ended) when the node is ready, when all is subscribed, when the first events have brought in the
fast matching engine, after a tenth of all events, and at the end. `--json` prints one JSON list of
these rows.
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
from typing import Any, Final

import psutil

from bench.tracing import add_option, flags
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.client.blocking import ControlClient
from overlay.client import Done, Draft, Gather, Publish, Published, Subscribe, Subscribed

CLIENTS: Final = 8
NUMBERS: Final = 7  # attributes that are numbers; three are texts
BATCH: Final = 64
WARMING: Final = 8_192  # events until the fast engine has taken over
AT_ONCE: Final = 48  # subscriptions of a client without an answer


def selector(rng: Random, width: float) -> str:
    first, second = rng.sample(range(NUMBERS), 2)
    low, high = rng.random() * (1 - width), rng.random() * (1 - width)
    return (
        f"a{first} BETWEEN {low} AND {low + width} AND a{second} BETWEEN {high} AND {high + width}"
    )


def draft(rng: Random) -> Draft:
    attributes: dict[str, Any] = {f"a{n}": rng.random() for n in range(NUMBERS)}
    attributes |= {f"t{n}": f"text{rng.randrange(100)}" for n in range(3)}
    return Draft(attributes, b"x" * 100, "", time.time())


class DiscardingSubscriber(threading.Thread):
    """Reads and drops what a client receives."""

    def __init__(self, client: ControlClient) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.over = threading.Event()
        self.events = 0

    def run(self) -> None:
        while not self.over.is_set():
            self.events += len(self.client.gathered(timeout=0.2))


def start_node(stack: ExitStack, work: Path, trace: float) -> tuple[DemoNode, psutil.Process]:
    """Start one node in the folder `work` that traces this share of the events; it runs until
    `stack` is closed. Returns it, ready, and its process."""
    for name in ("nodes", "logs", "traces"):
        (work / name).mkdir()
    overlay = stack.enter_context(Overlay(1, work, flags(trace), seed=1))
    overlay.start(lambda _: None)
    overlay.await_ready(lambda _: None)
    node = overlay.nodes[0]
    assert node.process is not None
    return node, psutil.Process(node.process.pid)


def measure(options: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    rng = Random(options.seed)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        node, process = start_node(stack, work, options.trace)

        def note(state: str, events: int = 0) -> None:
            time.sleep(options.settle)
            memory = process.memory_full_info()
            row = {"state": state, "subscriptions": options.subscriptions, "events": events}
            row["trace"] = options.trace
            rows.append(
                row | {"rss_mb": round(memory.rss / 1e6, 1), "uss_mb": round(memory.uss / 1e6, 1)}
            )

        note("ready")
        clients = [stack.enter_context(ControlClient.connect(node.data)) for _ in range(CLIENTS)]
        width = (options.matches / options.subscriptions) ** 0.5
        for client in clients:
            client.ask(Gather(0), Done)
            wanted = [
                Subscribe(0, selector(rng, width)) for _ in range(options.subscriptions // CLIENTS)
            ]
            client.ask_many(wanted, Subscribed, 300.0, AT_ONCE)
        note("subscribed")
        readers = [DiscardingSubscriber(client) for client in clients]
        for reader in readers:
            reader.start()
        publisher = stack.enter_context(ControlClient.connect(node.data))
        looks = (min(WARMING, options.events), options.events // 10, options.events)
        for events in sorted(dict.fromkeys(looks)):
            done = rows[-1]["events"]
            for _ in range(done, events, BATCH):
                drafts = tuple(draft(rng) for _ in range(BATCH))
                publisher.ask(Publish(0, drafts), Published, 120.0)
            note("published", events)
        for reader in readers:
            reader.over.set()
            reader.join()
    return rows


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.node.memory", description=__doc__)
    add = parser.add_argument
    add("--subscriptions", type=int, default=10_000)
    add("--matches", type=float, default=1.0, help="subscriptions that an event matches (1)")
    add("--events", type=int, default=50_000)
    add("--seed", type=int, default=1)
    add("--settle", type=float, default=3.0, help="seconds before each look (3)")
    add_option(parser)
    add("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="canopy-memory-") as work:
        rows = measure(options, Path(work))
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(
                f"{row['state']:>10} {row['events']:>9,} events: {row['rss_mb']:7.1f} MB resident, "
                f"{row['uss_mb']:7.1f} MB its own"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
