"""What one long selector costs the others: the SUBACK of a selector of very many attributes, and
receipts of other programs meanwhile.

`python -m bench.node.long_selector --json` starts four nodes as real processes on this machine. A
program at one of them publishes one event after the other, `PUBLISHED` per second, each with a
receipt, for a subscriber at another node. A third program subscribes to `a0 = 1 OR a1 = 1 …` at
another node, or at the publisher's own. A row is one such selector:

* `suback_s`: until its SUBACK;
* `others_p50_ms`, `others_p99_ms`, `others_most_ms`: times from a publication to its receipt from
  the selector's request on, until as many were published as before it (`alone_…`);
* `longest_turn_ms`: the longest time for which a node did nothing else, up to the row's end.

Progress goes to standard error.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from bench.command import TRACE, Progress, parser, show
from bench.processes.overlays import PATIENCE, started, status
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.client.blocking import ControlClient
from overlay.client import (
    Done,
    Draft,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

NODES: Final = 4
PUBLISHED: Final = 100.0  # per second
ALONE: Final = 5.0  # seconds of publishing before the selector


def selector(attributes: int) -> str:
    """Return a selector that is true where any of `attributes` attributes is 1."""
    return " OR ".join(f"a{number} = 1" for number in range(attributes))


class Publishing(threading.Thread):
    """Publishes one event at a time, and notes how long each receipt took."""

    def __init__(self, node: DemoNode) -> None:
        super().__init__(daemon=True)
        self.node = node
        self.took: list[float] = []  # seconds
        self.stopping = threading.Event()

    def run(self) -> None:
        with ControlClient.connect(self.node.data) as client:
            number = 0
            while not self.stopping.wait(1 / PUBLISHED):
                number += 1
                began = time.monotonic()
                draft = Draft({"x": number, "y": number % 7})
                client.ask(Publish(0, (draft,), receipt=True), Published, PATIENCE)
                self.took.append(time.monotonic() - began)


def summary(name: str, took: Sequence[float]) -> dict[str, float]:
    """Quantiles in milliseconds, by their names in a row."""
    cuts = statistics.quantiles(took, n=100)
    found = {"p50": cuts[49], "p99": cuts[98], "most": max(took)}
    return {f"{name}_{key}_ms": round(value * 1e3, 1) for key, value in found.items()}


def measure(overlay: Overlay, attributes: int, where: int) -> dict[str, Any]:
    """Return one row: a selector of `attributes` attributes at node number `where`."""
    nodes = overlay.nodes
    with ExitStack() as stack:
        subscriber = stack.enter_context(ControlClient.connect(nodes[2].data))
        subscriber.ask(Subscribe(0, "x >= 0"), Subscribed, PATIENCE)
        other = stack.enter_context(ControlClient.connect(nodes[where].data))
        publishing = Publishing(nodes[1])
        publishing.start()
        time.sleep(1.0)  # until its tree is found
        first = len(publishing.took)
        time.sleep(ALONE)
        alone = publishing.took[first:]
        before, began = len(publishing.took), time.monotonic()
        made = other.ask(Subscribe(0, selector(attributes)), Subscribed, PATIENCE)
        suback = time.monotonic() - began
        while len(publishing.took) < before + len(alone):
            time.sleep(0.1)
        publishing.stopping.set()
        publishing.join()
        meanwhile = publishing.took[before:]
        other.ask(Unsubscribe(0, made.subscription), Done, PATIENCE)
    at = "the publisher's node" if where == 1 else "another node"
    row: dict[str, Any] = {"attributes": attributes, "at": at, "suback_s": round(suback, 2)}
    row |= summary("alone", alone) | summary("others", meanwhile)
    turns = [int(status(node).counters.get("longest_turn", 0)) for node in nodes]
    return row | {"longest_turn_ms": max(turns)}


def main(args: Sequence[str] | None = None) -> int:
    """Measure selectors of some sizes, each at another node and at the publisher's."""
    options = parser(
        __doc__, attributes=([300, 600, 1_000], "of the selectors"), trace=TRACE
    ).parse_args(args)
    progress = Progress(2 * len(options.attributes))
    rows = []
    with started(NODES, options.trace, settle=5.0) as overlay:  # until the cluster is complete
        for attributes in options.attributes:
            for where in (3, 1):
                progress.say(f"{attributes} attributes")
                rows.append(measure(overlay, attributes, where) | {"trace": options.trace})
    show(rows, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
