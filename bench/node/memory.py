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
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, Final

from bench.command import SEED, TRACE, parser, show
from bench.processes.overlays import process, started
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


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    rng = Random(options.seed)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        (node,) = stack.enter_context(started(1, options.trace)).nodes

        def note(state: str, events: int = 0) -> None:
            time.sleep(options.settle)
            memory = process(node).memory_full_info()
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
    """Print a row for each state of the node."""
    options = parser(
        __doc__,
        subscriptions=(10_000, "of all clients"),
        matches=(1.0, "subscriptions that an event matches, on average"),
        events=(50_000, "that are published"),
        seed=SEED,
        settle=(3.0, "seconds before each look"),
        trace=TRACE,
    ).parse_args(args)
    show(measure(options), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
