"""What an idle shard costs: memory of a replica, processor time and messages of all three.

    python -m bench.streams.idle
    python -m bench.streams.idle --nodes --streams 500

Many shards of three replicas each in virtual time, each with a leader and one row, to which nobody
appends any more. Memory is what the code below streams/ holds (tracemalloc); processor time is that
of running them, simulated disks and links among it, so it says too much. Prints a JSON list with
one object.

With `--nodes`: processor seconds a minute of three real nodes on this machine with streams of one
shard and three replicas each, to which nobody appends. A minute is measured before they are
founded, and one after, when they have had leaders for a while.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import psutil

from canopy.client.blocking import ControlClient
from harness.real_overlay import PATIENCE, Overlay, status, wait_ready
from harness.shard_world import ShardWorld
from overlay.client import GetStreams, Streams
from overlay.stream_client import AddStream

SECONDS = 60.0
SETTLE = 20.0
"""Seconds before each measurement: elections and the first looks are over."""


def spent(overlay: Overlay) -> list[float]:
    """Processor seconds of each node so far."""
    times = [psutil.Process(process.pid).cpu_times() for process in overlay.processes]
    return [each.user + each.system for each in times]


def measured(overlay: Overlay) -> list[float]:
    """Processor seconds a minute of each node, over `SECONDS` from now."""
    time.sleep(SETTLE)
    before, began = spent(overlay), time.monotonic()
    time.sleep(SECONDS)
    minutes = (time.monotonic() - began) / 60
    return [(now - then) / minutes for now, then in zip(spent(overlay), before, strict=True)]


def found(client: ControlClient, streams: int) -> None:
    """Found streams, and wait until each has a leader."""
    for number in range(streams):
        client.ask(AddStream(0, f"idle{number}"), Streams, PATIENCE)
        if number % 100 == 99:
            print(f"{number + 1} streams", file=sys.stderr)
    until = time.monotonic() + PATIENCE
    for number in range(streams):
        while True:
            described = client.ask(GetStreams(0, f"idle{number}"), Streams, PATIENCE).streams[0]
            if described.shards[0].leader:
                break
            assert time.monotonic() < until, f"nobody leads idle{number}"
            time.sleep(0.1)


def of_nodes(streams: int) -> dict[str, float]:
    """What streams cost three nodes."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = Overlay(Path(folder))
        try:
            first = overlay.start()
            for _ in range(2):
                overlay.start(status(first).address)
            wait_ready(*overlay.clients)
            without = measured(overlay)
            found(first, streams)
            used = measured(overlay)
        finally:
            overlay.stop()
    return {
        "streams": streams,
        "cpu_seconds_per_minute": round(sum(used), 2),
        "busiest_node": round(max(used), 2),
        "without_streams": round(sum(without), 2),
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
    held = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/streams/*")])
    memory = sum(each.size for each in held.statistics("filename"))
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
    arguments = parser.parse_args()
    row = of_nodes(arguments.streams) if arguments.nodes else of_shards(arguments.shards)
    print(json.dumps([row]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
