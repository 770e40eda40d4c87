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
import math
import sys
import time
from pathlib import Path
from typing import Any, Final

import psutil

from bench.command import medians, parser, show
from bench.processes.overlays import folder
from bench.processes.programs import Program
from bench.security.strangers import Window
from bench.security.tls import Nodes
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


def grown(place: Path) -> Nodes:
    """Three nodes and a leaf, which has no client."""
    nodes = Nodes(place, HONEST, True)
    nodes.join(HONEST, "--role", "leaf")
    be_nice(nodes.processes[HONEST].pid)
    return nodes


def attacker(data: Path, subscriptions: int, conjunctions: int) -> Program:
    """A program at the leaf that subscribes until it is ended."""
    words = ("--subscriptions", subscriptions, "--conjunctions", conjunctions)
    program = Program("bench.security.leaf", "--attack", data, *words)
    be_nice(program.process.pid)
    return program


def run(chosen: argparse.Namespace, place: Path) -> list[dict[str, Any]]:
    """A row without the attack and one with it, of medians over the repetitions."""
    nodes = grown(place)
    window = Window(nodes, chosen.rate, chosen.seconds, HONEST)
    found: dict[str, list[dict[str, float]]] = {"calm": [], "attacked": []}
    try:
        window.measure()
        for repetition in range(chosen.repetitions):
            found["calm"].append(window.measure())
            with attacker(nodes.data(HONEST), chosen.subscriptions, chosen.conjunctions):
                found["attacked"].append(window.measure())
            time.sleep(chosen.seconds)  # owners take back what it had
            print(repetition, {name: each[-1] for name, each in found.items()}, file=sys.stderr)
    finally:
        nodes.stop()
    rows: list[dict[str, Any]] = [
        {"when": name, "repetitions": chosen.repetitions, **medians(each)}
        for name, each in found.items()
    ]
    for row in rows:
        row["refused"] = row.pop("quota_refused")
    rows[1]["p99_ratio"] = rows[1]["p99_ms"] / rows[0]["p99_ms"]
    return rows


def main() -> None:
    """Run the command `python -m bench.security.leaf`, which prints the rows."""
    made = parser(
        __doc__,
        subscriptions=(10_000, "that the leaf asks for"),
        conjunctions=(1_024, "alternatives of each, a square number"),
        rate=(200.0, "events per second"),
        seconds=(10.0, "of a window"),
        repetitions=(3, "of both windows"),
    )
    made.add_argument("--attack", type=Path, help=argparse.SUPPRESS)
    chosen = made.parse_args()
    if chosen.attack:
        subscribe(chosen.attack, chosen.subscriptions, chosen.conjunctions)
        return
    with folder() as place:
        show(run(chosen, place), chosen)


if __name__ == "__main__":
    main()
