"""What a leaf that subscribes without end costs the others: `python -m bench.security.leaf --json`.

Three nodes with keys, and a leaf that has joined them. A program publishes at the first node, at
`--rate` events per second, and programs at the two others subscribe. Windows of `--seconds` are
calm and attacked in turns: then a program at the leaf asks for `--subscriptions` subscriptions of
`--conjunctions` alternatives each (a square number), as fast as it is answered. Owners take what
a leaf may have; its own node, or they, refuse the rest (`refused`, registrations in a window), and
when the program ends they take back what it had. `p99_ms` is of the others' events; `memory_mib`
the most that the memory of a node was above that before a window, `cpu_share` the processor time of
the three nodes. Medians of `--repetitions`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from bench.security.strangers import Watch
from bench.security.tls import ROOT, SIZE, Nodes
from canopy.cli.bench import MeasurementPlan, measure
from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed, ControlError
from overlay.client import Subscribe

HONEST: Final = 3
AHEAD: Final = 8
"""Subscriptions that are asked for and not answered."""

ELSEWHERE: Final = 10
"""How much nicer the leaf and its program are than the nodes: elsewhere they have a machine of
their own."""

SUBACK: Final = 600.0


def subscribe(data: Path, subscriptions: int, conjunctions: int) -> None:
    """Ask for all of them, until this process is ended."""
    answers: dict[str, int] = {}
    with ControlClient.connect(data) as client:
        begun: list[int] = []

        def finish() -> None:
            try:
                client.finish(begun.pop(0), SUBACK)
                reason = "subscribed"
            except CommandFailed as error:
                reason = str(error)
            answers[reason] = answers.get(reason, 0) + 1

        try:
            for number in range(subscriptions):
                if len(begun) >= AHEAD:
                    finish()
                sides = [
                    " OR ".join(f"{name}{n} = {number}" for n in range(math.isqrt(conjunctions)))
                    for name in "ab"
                ]
                selector = f"({sides[0]}) AND ({sides[1]})"
                begun.append(client.begin(Subscribe(0, selector), SUBACK))
        except ControlError as error:
            answers[str(error)] = 1
    print(answers, file=sys.stderr)


def be_nice(pid: int) -> None:
    """Let the nodes go first."""
    psutil.Process(pid).nice(min(19, psutil.Process().nice() + ELSEWHERE))


class Overlay:
    """Three nodes and a leaf."""

    def __init__(self, folder: Path) -> None:
        self.nodes = Nodes(folder, HONEST, True)
        self.leaf = self.nodes.data(HONEST)
        words = ["keys", "invite", "--role", "leaf", "--data", str(self.nodes.data(0))]
        command = [sys.executable, "-m", "canopy", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        self.nodes.start(HONEST, "--join", done.stdout.strip())
        while not self.nodes.status(HONEST).ready:
            time.sleep(0.05)
        be_nice(self.nodes.processes[HONEST].pid)

    def refused(self) -> int:
        counters = [self.nodes.status(number).counters for number in range(HONEST + 1)]
        return sum(each.get("quota_refused", 0) for each in counters)

    def measure(self, plan: MeasurementPlan) -> dict[str, float]:
        """Milliseconds that honest events take in one window, and what the nodes spend in it."""
        honest = [psutil.Process(one.pid) for one in self.nodes.processes[:HONEST]]
        spent, refused = self._cpu(honest), self.refused()
        began = time.monotonic()
        with ExitStack() as stack:
            watches = [stack.enter_context(Watch(one.pid)) for one in honest]
            found = measure(self.nodes.clients[:1], self.nodes.clients[1:HONEST], plan)
        took = time.monotonic() - began
        assert found.missing == 0, f"{found.missing} deliveries are missing"
        return {
            "p50_ms": found.latency_ms["p50"],
            "p99_ms": found.latency_ms["p99"],
            "cpu_share": (self._cpu(honest) - spent) / took,
            "memory_mib": max(one.most - one.before for one in watches) / 2**20,
            "refused": self.refused() - refused,
        }

    def _cpu(self, processes: list[psutil.Process]) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in processes)


@contextmanager
def attacker(data: Path, subscriptions: int, conjunctions: int) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.security.leaf", "--attack", str(data)]
    command += ["--subscriptions", str(subscriptions), "--conjunctions", str(conjunctions)]
    process = subprocess.Popen(command, cwd=ROOT)
    be_nice(process.pid)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(chosen: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row without the attack and one with it, of medians over the repetitions."""
    overlay = Overlay(folder)
    count = int(chosen.rate * chosen.seconds)
    plan = MeasurementPlan(count, SIZE, chosen.rate, receipt=True, timeout=30.0)
    found: dict[str, list[dict[str, float]]] = {"calm": [], "attacked": []}
    try:
        overlay.measure(plan)
        for repetition in range(chosen.repetitions):
            found["calm"].append(overlay.measure(plan))
            with attacker(overlay.leaf, chosen.subscriptions, chosen.conjunctions):
                found["attacked"].append(overlay.measure(plan))
            time.sleep(chosen.seconds)  # owners take back what it had
            print(repetition, {name: each[-1] for name, each in found.items()}, file=sys.stderr)
    finally:
        overlay.nodes.stop()
    rows = [
        {
            "when": name,
            "repetitions": chosen.repetitions,
            **{key: statistics.median(one[key] for one in each) for key in each[0]},
        }
        for name, each in found.items()
    ]
    rows[1]["p99_ratio"] = rows[1]["p99_ms"] / rows[0]["p99_ms"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--conjunctions", type=int, default=1_024)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print rows")
    parser.add_argument("--attack", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.attack:
        subscribe(chosen.attack, chosen.subscriptions, chosen.conjunctions)
        return
    with tempfile.TemporaryDirectory(prefix="canopy-leaf-") as folder:
        rows = run(chosen, Path(folder))
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
