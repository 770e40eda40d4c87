"""How long appending pauses when the leader of a stream's shard is killed, in real processes.

    python -m bench.streams.failover --trials 20

Four nodes on this machine, a stream of three replicas, and a program at the fourth that appends one
row after the other. The leader is killed (SIGKILL), and started again when appending goes on. The
pause of a trial is the longest time between two acknowledgements around the kill. Prints a JSON
list with one object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

from canopy.client.blocking import ControlClient
from harness.real_overlay import PATIENCE, Overlay, status, wait_ready
from overlay.client import AppendEvents, Draft, EventsAppended, GetStreams, Streams
from overlay.stream_client import AddStream

STREAM = "bench"
BETWEEN = 2.0
"""Seconds of appending before each kill."""


class Appending(threading.Thread):
    """A program that appends one row after the other, and notes when each was acknowledged."""

    def __init__(self, client: ControlClient) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.times: list[float] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Append until it is to end."""
        while not self.ended.is_set():
            row = (Draft({"n": len(self.times)}),)
            self.client.ask(AppendEvents(0, STREAM, row), EventsAppended, PATIENCE)
            self.times.append(time.monotonic())


def leader(client: ControlClient) -> str:
    """The node that leads the stream's shard; waits for one."""
    until = time.monotonic() + PATIENCE
    while True:
        found = client.ask(GetStreams(0, STREAM), Streams, PATIENCE).streams[0].shards[0].leader
        if found:
            return found
        assert time.monotonic() < until
        time.sleep(0.1)


def pauses(folder: Path, trials: int) -> list[float]:
    """Seconds of each trial."""
    overlay = Overlay(folder)
    try:
        first = overlay.start()
        address = status(first).address
        for _ in range(3):
            overlay.start(address)
        wait_ready(*overlay.clients)
        time.sleep(2.0)  # until everybody is in somebody's view
        made = first.ask(AddStream(0, STREAM), Streams, PATIENCE).streams[0]
        nodes = {status(client).node: place for place, client in enumerate(overlay.clients)}
        addresses = [status(client).address for client in overlay.clients]
        replicas = {replica.node for replica in made.shards[0].replicas}
        stays = next(place for node, place in nodes.items() if node not in replicas)
        program = Appending(ControlClient.connect(overlay.folder / str(stays)))
        program.start()
        found: list[float] = []
        for trial in range(trials):
            time.sleep(BETWEEN)
            lost = nodes[leader(overlay.clients[stays])]
            before = len(program.times)
            killed = time.monotonic()
            overlay.kill(lost)
            while program.times[-1] < killed + 0.5:  # what was under way may still be acknowledged
                assert time.monotonic() < killed + PATIENCE, "nobody leads"
                time.sleep(0.02)
            time.sleep(1.0)
            found.append(_pause(program.times[before - 1 :]))
            print(f"trial {trial + 1}: {found[-1]:.2f} s", file=sys.stderr)
            overlay.start_again(lost, addresses[lost], addresses[stays])
            wait_ready(overlay.client_again(lost))
        program.ended.set()
        program.join(PATIENCE)
        program.client.close()
        return found
    finally:
        overlay.stop()


def _pause(times: list[float]) -> float:
    """The longest time between two acknowledgements."""
    return max((b - a for a, b in pairwise(times)), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="canopy-bench-") as folder:
        found = sorted(pauses(Path(folder), arguments.trials))
    row = {
        "trials": len(found),
        "median_s": round(statistics.median(found), 2),
        "p90_s": round(found[int(len(found) * 0.9)], 2),
        "worst_s": round(found[-1], 2),
    }
    print(json.dumps([row]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
