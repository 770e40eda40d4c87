"""What idle streams cost three real nodes.

    python -m bench.streams.idle --streams 500
    python -m bench.streams.idle --streams 500 --minutes 60

Streams of one shard and three replicas each, to which nobody appends. Processor seconds are
measured for a minute before they are founded, and for `--minutes` after, when they have had leaders
for a while; and the private memory of each node after the first of these minutes and after the
last. `grown` are the nodes that hold more than `GROWTH` of what they held more in the end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.command import parser, processor_seconds, say, show
from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed
from harness.real_overlay import Overlay
from overlay.client import GetStreams, Streams
from overlay.stream_client import AddStream

SECONDS = 60.0
FOUNDED = 300.0
"""Seconds for a stream to be founded, and for all to have leaders, on a busy machine; ample."""
SETTLE = 20.0
"""Seconds before each measurement: elections and the first looks are over."""

GROWTH = 0.1
"""A share of a node's memory that its samples of its own health, its trace and what they are
written from may grow by in an hour."""


def spent(overlay: Overlay) -> list[float]:
    """Processor seconds of each node so far."""
    return processor_seconds(process.pid for process in overlay.processes)


def held(overlay: Overlay) -> list[float]:
    """Private memory of each node, in MB."""
    processes = [psutil.Process(process.pid) for process in overlay.processes]
    return [round(process.memory_full_info().uss / 1e6, 1) for process in processes]


def measured(overlay: Overlay, minutes: float = 1.0) -> tuple[list[float], list[list[float]]]:
    """Processor seconds a minute of each node, over so many minutes from now; and their memory
    after each minute."""
    time.sleep(SETTLE)
    before, began = spent(overlay), time.monotonic()
    memory: list[list[float]] = []
    while (left := began + minutes * 60 - time.monotonic()) > 0:
        time.sleep(min(SECONDS, left))
        memory.append(held(overlay))
        if len(memory) % 10 == 1:
            say(f"minute {len(memory)}: {memory[-1]} MB")
    took = (time.monotonic() - began) / 60
    used = [(now - then) / took for now, then in zip(spent(overlay), before, strict=True)]
    return used, memory


def found(client: ControlClient, streams: int) -> None:
    """Found streams, and wait until each has a leader."""
    for number in range(streams):
        until = time.monotonic() + FOUNDED
        while True:
            try:
                client.ask(AddStream(0, f"idle{number}"), Streams, FOUNDED)
                break
            except CommandFailed as error:  # the overlay may be too slow; it says so
                if error.code == "exists":
                    break
                if time.monotonic() > until:
                    raise
            time.sleep(1.0)
        if number % 100 == 99:
            say(f"{number + 1} streams")
    until = time.monotonic() + FOUNDED
    for number in range(streams):
        while True:
            described = client.ask(GetStreams(0, f"idle{number}"), Streams, FOUNDED).streams
            if described and described[0].shards[0].leader:
                break
            assert time.monotonic() < until, f"nobody leads idle{number}"
            time.sleep(0.1)


def of_nodes(streams: int, minutes: float) -> dict[str, Any]:
    """What streams cost three nodes in so many minutes."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = Overlay(Path(folder))
        try:
            first = overlay.grow(3)
            without, _ = measured(overlay)
            found(first, streams)
            used, memory = measured(overlay, minutes)
        finally:
            overlay.stop()
    return {
        "streams": streams,
        "cpu_seconds_per_minute": round(sum(used), 2),
        "busiest_node": round(max(used), 2),
        "without_streams": round(sum(without), 2),
        "minutes": minutes,
        "first_mb": memory[0],
        "last_mb": memory[-1],
        "grown": [
            number
            for number, (first_mb, last_mb) in enumerate(zip(memory[0], memory[-1], strict=True))
            if last_mb > first_mb * (1 + GROWTH)
        ],
    }


def main() -> int:
    """Run the command `python -m bench.streams.idle`."""
    asked = parser(__doc__, streams=(500, "of these nodes"), minutes=(1.0, "that they are idle"))
    options = asked.parse_args()
    show([of_nodes(options.streams, options.minutes)], options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
