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
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import psutil

from bench.tracing import add_option, flags
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.client.blocking import ControlClient
from overlay.client import Draft, GetStatus, Publish, Published, Status, Subscribe, Subscribed

PUBLISHERS: Final = 20
PATIENCE: Final = 120.0
"""Seconds for an answer, an event, or one ring; ample."""


def process(node: DemoNode) -> psutil.Process:
    """The process of a node that was started."""
    assert node.process is not None
    return psutil.Process(node.process.pid)


def spent(processes: Sequence[psutil.Process]) -> list[float]:
    """Processor seconds of each so far."""
    times = [each.cpu_times() for each in processes]
    return [each.user + each.system for each in times]


def rings(nodes: Sequence[DemoNode]) -> int:
    """How many rings the nodes that serve in a cluster belong to, by what they say."""
    found = set()
    for node in nodes:
        with ControlClient.connect(node.data) as client:
            found.add(client.ask(GetStatus(0), Status, PATIENCE).ring)
    return len(found - {""})


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


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Start the nodes, and look at them while nothing happens."""
    for name in ("nodes", "logs", "traces"):
        (work / name).mkdir()

    def note(what: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {what}", file=sys.stderr, flush=True)

    began = time.monotonic()
    with Overlay(options.nodes, work, flags(options.trace), seed=options.seed) as overlay:
        overlay.start(lambda count: None if count % 20 else note(f"{count} nodes started"))
        overlay.await_ready(lambda count: None)
        joined = time.monotonic() - began
        note("all are ready")
        nodes = overlay.nodes
        while (count := rings(nodes)) > 1 and time.monotonic() < began + joined + PATIENCE:
            time.sleep(1.0)
        time.sleep(options.settle)
        processes = [process(node) for node in nodes]
        before, since = spent(processes), time.monotonic()
        time.sleep(options.seconds)
        minutes = (time.monotonic() - since) / 60
        each = [(now - then) / minutes for now, then in zip(spent(processes), before, strict=True)]
        note("measured")
        memory = [one.memory_full_info() for one in processes]
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
    """Run the command `python -m bench.node.crowd` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.node.crowd",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=int, default=200, help="nodes (200)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds before (60)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of quiet (120)")
    parser.add_argument("--seed", type=int, default=1)
    add_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="canopy-crowd-") as work:
        found = measure(options, Path(work))
    print(json.dumps(found, indent=None if options.json else 2))
    return int(bool(found["lost"] or found["ended"] or found["further_rings"]))


if __name__ == "__main__":
    sys.exit(main())
