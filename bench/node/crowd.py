"""What many nodes on one machine cost while nothing happens: processor time and memory of each.

`python -m bench.node.crowd --nodes 200 --json` starts 200 nodes as processes of this machine with
default settings, some at a time, waits until all are ready and form one ring, and another
`--settle` seconds; then nothing is published for `--seconds`. `cpu_seconds_per_minute` are the
processor seconds that a node needs a minute, on average, `most_cpu` those of the busiest. `uss_mb`
is the memory of a node alone, which is free when it ends, `rss_mb` its resident memory with shared
libraries; both are averages, after the quiet. Then a program at the first node subscribes, and one
at each of `PUBLISHERS` others publishes an event: `lost` of them did not come. `ended` nodes ended
by themselves.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from bench.command import SEED, TRACE, parser, processor_seconds, show
from bench.processes.overlays import PATIENCE, process, started, status
from canopy.cli.demo.overlay import DemoNode
from canopy.client.blocking import ControlClient
from overlay.client import Draft, Publish, Published, Subscribe, Subscribed

PUBLISHERS: Final = 20


def rings(nodes: Sequence[DemoNode]) -> int:
    """How many rings the nodes that serve in a cluster belong to, by what they say."""
    return len({status(node).ring for node in nodes} - {""})


def lost_events(nodes: Sequence[DemoNode]) -> int:
    """Of an event from each of some nodes, those that the first does not get."""
    publishers = nodes[-PUBLISHERS:]
    with ControlClient.connect(nodes[0].data) as subscriber:
        subscriber.ask(Subscribe(0, "crowd >= 0"), Subscribed, PATIENCE)
        for number, node in enumerate(publishers):
            with ControlClient.connect(node.data) as client:
                client.ask(Publish(0, (Draft({"crowd": number}),)), Published, PATIENCE)
        found: set[Any] = set()
        until = time.monotonic() + PATIENCE
        while len(found) < len(publishers) and time.monotonic() < until:
            found.update(one.event.attributes["crowd"] for one in subscriber.deliveries(1.0))
    return len(publishers) - len(found)


def spent(nodes: Sequence[DemoNode]) -> list[float]:
    """Processor seconds of each node so far."""
    return processor_seconds(process(node).pid for node in nodes)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Start the nodes, and look at them while nothing happens."""

    def note(what: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {what}", file=sys.stderr, flush=True)

    began = time.monotonic()
    with started(options.nodes, options.trace, options.seed) as overlay:
        joined = time.monotonic() - began
        note("all are ready")
        nodes = overlay.nodes
        while (count := rings(nodes)) > 1 and time.monotonic() < began + joined + PATIENCE:
            time.sleep(1.0)
        time.sleep(options.settle)
        before, since = spent(nodes), time.monotonic()
        time.sleep(options.seconds)
        minutes = (time.monotonic() - since) / 60
        each = [(now - then) / minutes for now, then in zip(spent(nodes), before, strict=True)]
        note("measured")
        memory = [process(node).memory_full_info() for node in nodes]
        lost = lost_events(nodes)
        ended = sum(node.process is None or node.process.poll() is not None for node in nodes)
    return {
        "nodes": options.nodes,
        "seed": options.seed,
        "joined_s": round(joined, 1),
        "further_rings": count - 1,
        "seconds": round(60 * minutes, 1),
        "cpu_seconds_per_minute": round(fmean(each), 3),
        "most_cpu": round(max(each), 3),
        "uss_mb": round(fmean(one.uss for one in memory) / 1e6, 1),
        "rss_mb": round(fmean(one.rss for one in memory) / 1e6, 1),
        "lost": lost,
        "ended": ended,
    }


def main(args: Sequence[str] | None = None) -> int:
    """Return 1 if events were lost, nodes ended, or there are several rings."""
    options = parser(
        __doc__,
        nodes=(200, "nodes"),
        settle=(60.0, "seconds before"),
        seconds=(120.0, "seconds of quiet"),
        seed=SEED,
        trace=TRACE,
    ).parse_args(args)
    found = measure(options)
    show(found, options)
    return int(bool(found["lost"] or found["ended"] or found["further_rings"]))


if __name__ == "__main__":
    sys.exit(main())
