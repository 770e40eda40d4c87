"""What an idle shard costs: memory of a replica, processor time and messages of all three.

    python -m bench.streams.idle
    python -m bench.streams.idle --nodes --streams 500
    python -m bench.streams.idle --nodes --streams 500 --minutes 60

Many shards of three replicas each in virtual time, each with a leader and one row, to which nobody
appends any more. Memory is what the code below streams/ holds (tracemalloc); processor time is that
of running them, simulated disks and links among it, so it says too much. Prints a JSON list with
one object.

With `--nodes`: processor seconds a minute of three real nodes on this machine with streams of one
shard and three replicas each, to which nobody appends. A minute is measured before they are
founded, and `--minutes` after, when they have had leaders for a while; with the private memory of
each node after the first of these minutes and after the last. `grown` are the nodes that hold more
than `GROWTH` of what they held more in the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import psutil

from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed
from harness.real_overlay import Overlay, status, wait_ready
from harness.shard_world import ShardWorld
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
    times = [psutil.Process(process.pid).cpu_times() for process in overlay.processes]
    return [each.user + each.system for each in times]


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
            print(f"minute {len(memory)}: {memory[-1]} MB", file=sys.stderr, flush=True)
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
            print(f"{number + 1} streams", file=sys.stderr)
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
            first = overlay.start()
            for _ in range(2):
                overlay.start(status(first).address)
            wait_ready(*overlay.clients)
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


def of_shards(shards: int) -> dict[str, float]:
    """What shards cost their replicas."""
    tracemalloc.start()
    worlds = [ShardWorld(seed) for seed in range(shards)]
    for world in worlds:
        world.run(0.1)
        world.elect(world.peers[0].id)
        world.run(0.5)
        world.append()
        world.run(4.0)
    traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/streams/*")])
    memory = sum(each.size for each in traces.statistics("filename"))
    tracemalloc.stop()
    sent = [0]
    for world in worlds:

        def send(a: object, b: object, message: object, original: object = world.send) -> None:
            sent[0] += 1
            original(a, b, message)  # type: ignore[operator]

        world.send = send  # type: ignore[method-assign,assignment]
    began = time.process_time()
    for world in worlds:
        world.run(SECONDS)
    spent = time.process_time() - began
    return {
        "shards": shards,
        "bytes_per_replica": round(memory / shards / 3),
        "messages_per_second": round(sent[0] / shards / SECONDS, 2),
        "cpu_ms_per_second": round(spent / shards / SECONDS * 1e3, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--nodes", action="store_true", help="of three real nodes")
    parser.add_argument("--streams", type=int, default=500, help="of these nodes")
    parser.add_argument("--minutes", type=float, default=1.0, help="that they are idle (1)")
    arguments = parser.parse_args()
    row: dict[str, Any] = (
        of_nodes(arguments.streams, arguments.minutes)
        if arguments.nodes
        else of_shards(arguments.shards)
    )
    print(json.dumps([row]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
