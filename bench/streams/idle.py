"""What an idle shard costs: memory of a replica, processor time and messages of all three.

    python -m bench.streams.idle

Many shards of three replicas each in virtual time, each with a leader and one row, to which nobody
appends any more. Memory is what the code below streams/ holds (tracemalloc); processor time is that
of running them, simulated disks and links among it, so it says too much. Prints a JSON list with
one object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc

from tests.support.shards.shard_world import ShardWorld

SECONDS = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shards", type=int, default=200)
    arguments = parser.parse_args()
    tracemalloc.start()
    worlds = [ShardWorld(seed) for seed in range(arguments.shards)]
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
    row = {
        "shards": arguments.shards,
        "bytes_per_replica": round(memory / arguments.shards / 3),
        "messages_per_second": round(sent[0] / arguments.shards / SECONDS, 2),
        "cpu_ms_per_second": round(spent / arguments.shards / SECONDS * 1e3, 3),
    }
    print(json.dumps([row]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
