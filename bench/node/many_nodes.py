"""Whether a feed that loads an overlay of real processes spreads its tree over them, exactly.

`python -m bench.node.many_nodes --json` starts `--nodes` nodes with default settings. Programs at
`PROGRAMS` of them subscribe with `--selectors` selectors in all, as in two_processes.py, and
programs at as many others publish `--rate` events per second in all for `--seconds` seconds. Each
program that subscribes gathers, so it is owed each event once that some selector of its wants; what
these are is found here from the selectors' numbers, by no code of the product.

`virtual_nodes` and `hosts` are what `canopy where` says of the tree at the load's end, the most of
several looks; `tree_visits` counts the trace records of events that one host passed on to another
along the tree (`--trace` of the events are traced). Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from bench.node.two_processes import HOT, asked, draft, selector
from bench.recovery.measure import Progress
from bench.tracing import flags
from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed
from matching import Value
from overlay.client import Done, Draft, Gather, Located, Publish, Subscribe, Subscribed, Where

PROGRAMS: Final = 4
"""Programs that subscribe, each at a node of its own; half as many publish."""

BATCH: Final = 32
AHEAD: Final = 4
PATIENCE: Final = 300.0
QUIET: Final = 15.0
"""Seconds without a delivery after which none is expected any more."""


def numbered(seed: int, number: int) -> Draft:
    """One event, the same wherever it is made."""
    made = draft(Random(f"{seed}/{number}"), 1)
    return Draft({**made.attributes, "seed": seed, "number": number}, made.payload)


def identity(attributes: Mapping[str, Value | None]) -> tuple[int, int]:
    """Which event it is."""
    seed, number = attributes["seed"], attributes["number"]
    assert isinstance(seed, int), "as `numbered` makes it"
    assert isinstance(number, int), "as `numbered` makes it"
    return seed, number


def selectors(program: int, count: int) -> list[str]:
    """The selectors of a program, the same wherever they are made."""
    rng = Random(program)
    return [selector(rng, program, PROGRAMS, True) for _ in range(count)]


# --- the programs ---------------------------------------------------------------------------------


def subscribe(data: str, program: int, count: int) -> None:
    """Subscribe and say so; when asked, say what came: (seed, number) of each event."""
    with ControlClient.connect(data) as client:
        client.ask(Gather(0), Done)
        wanted = [Subscribe(0, text) for text in selectors(program, count)]
        client.ask_many(wanted, Subscribed, PATIENCE, 512)
        print("ready", flush=True)
        came: list[tuple[int, int]] = []
        last = time.monotonic()
        while not asked():
            for event in client.gathered(timeout=0.2):
                came.append(identity(event.attributes))
                last = time.monotonic()
        while time.monotonic() < last + QUIET:
            for event in client.gathered(timeout=0.2):
                came.append(identity(event.attributes))
                last = time.monotonic()
        print(json.dumps(came), flush=True)


def publish(data: str, seed: int, rate: int) -> None:
    """Publish with receipts until asked to end; then say how many events were accepted."""
    with ControlClient.connect(data) as client:
        waiting: list[int] = []
        began, sent = time.monotonic(), 0
        while not asked():
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            batch = tuple(numbered(seed, number) for number in range(sent, sent + BATCH))
            sent += BATCH
            waiting.append(client.begin(Publish(0, batch, receipt=True)))
            while len(waiting) >= AHEAD:
                client.finish(waiting.pop(0), PATIENCE)
        for number in waiting:
            client.finish(number, PATIENCE)
        print(sent, flush=True)


class Program:
    """One of these, as a process."""

    def __init__(self, role: str, data: Path, *numbers: int) -> None:
        command = [sys.executable, "-m", "bench.node.many_nodes", "--program", role, str(data)]
        self._process = subprocess.Popen(
            [*command, *map(str, numbers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def line(self) -> str:
        """The next line that it says. Raises RuntimeError if it has ended."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("a program of the bench has ended by itself")
        return line.decode().strip()

    def ask(self) -> None:
        """Have it come to its end; what it has to say follows in `line`."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"q")
        self._process.stdin.flush()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


# --- what is owed ---------------------------------------------------------------------------------


class Wanted:
    """The selectors of a program as numbers, evaluated without the product's code."""

    def __init__(self, texts: Sequence[str]) -> None:
        words = [text.split() for text in texts]  # HOT BETWEEN low AND high AND battery >= n AND …
        self._low = np.array([float(each[2]) for each in words])
        self._high = np.array([float(each[4]) for each in words])
        self._battery = np.array([int(each[8]) for each in words])
        self._letters = [each[12].strip("'%") for each in words]

    def has(self, event: Draft) -> bool:
        """Whether some selector wants the event."""
        level, battery = event.attributes[HOT], event.attributes["battery"]
        assert isinstance(level, float), "as `draft` makes it"
        assert isinstance(battery, int), "as `draft` makes it"
        fit = (self._low <= level) & (level <= self._high) & (battery >= self._battery)
        station = str(event.attributes["station"])
        return any(self._letters[index] in station for index in np.flatnonzero(fit))


def judge(wanted: Wanted, events: Sequence[Draft], came: Sequence[Sequence[int]]) -> dict[str, int]:
    """What a program was owed, and what it got."""
    owed = {identity(event.attributes) for event in events if wanted.has(event)}
    got = {(seed, number) for seed, number in came}
    return {
        "expected": len(owed),
        "delivered": len(owed & got),
        "spurious": len(got - owed),
        "twice": len(came) - len(got),
    }


# --- the bench ------------------------------------------------------------------------------------


def hosted(client: ControlClient) -> tuple[int, int]:
    """Virtual nodes and hosts of the tree, as `canopy where` names them."""
    try:
        nodes = client.ask(Where(0, HOT), Located, PATIENCE).virtual_nodes
    except CommandFailed:  # the owner is under load, and answers late
        return 0, 0
    return len(nodes), len({host for one in nodes for host in (one.host, *one.others)})


def tree_visits(out: Path) -> int:
    """Traced events that a host passed on along the tree."""
    found = 0
    for path in out.glob("**/traces/**/*.jsonl"):
        for line in filter(None, path.read_text().splitlines()):
            record = json.loads(line)
            found += record.get("kind") == "visit" and record.get("hop", 0) > 1
    return found


def measure(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Start the overlay, load it, and judge what came."""
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        for name in ("nodes", "logs"):
            (out / name).mkdir()
        overlay = Overlay(options.nodes, out, flags(options.trace), seed=options.seed)
        stack.enter_context(overlay)
        progress.say(f"{options.nodes} nodes start")
        overlay.start(lambda _: None)
        overlay.await_ready(lambda _: None)
        time.sleep(5.0)  # until clusters are complete
        nodes = overlay.nodes[-PROGRAMS - PROGRAMS // 2 :]
        count = options.selectors // PROGRAMS
        subscribing = [
            stack.enter_context(Program("subscribe", node.data, number, count))
            for number, node in enumerate(nodes[:PROGRAMS])
        ]
        assert all(program.line() == "ready" for program in subscribing)
        progress.say(f"{options.seconds:g} s of load")
        seeds = range(options.seed * 10, options.seed * 10 + PROGRAMS // 2)
        publishing = [
            stack.enter_context(Program("publish", node.data, seed, options.rate // len(seeds)))
            for seed, node in zip(seeds, nodes[PROGRAMS:], strict=True)
        ]
        asking = stack.enter_context(ControlClient.connect(overlay.nodes[0].data))
        looks: list[tuple[int, int]] = []
        until = time.monotonic() + options.seconds
        while time.monotonic() < until:
            time.sleep(2.0)
            looks.append(hosted(asking))
        for program in publishing:
            program.ask()
        numbers = [int(program.line()) for program in publishing]
        progress.say("what came is judged")
        for program in subscribing:
            program.ask()
        came = [json.loads(program.line()) for program in subscribing]
        overlay.check()
        overlay.stop(lambda _: None)
        events = [
            numbered(s, n) for s, most in zip(seeds, numbers, strict=True) for n in range(most)
        ]
        each = [judge(Wanted(selectors(n, count)), events, got) for n, got in enumerate(came)]
        virtual_nodes, hosts = max(looks)
        return {
            "nodes": options.nodes,
            "selectors": options.selectors,
            "seed": options.seed,
            "published": len(events),
            "events_per_second": round(len(events) / options.seconds),
            "virtual_nodes": virtual_nodes,
            "hosts": hosts,
            "tree_visits": tree_visits(out),
            **{key: sum(one[key] for one in each) for key in each[0]},
            "trace": options.trace,
        }


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.node.many_nodes` and return its exit code: 1 if something
    was missing, twice or spurious."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.node.many_nodes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--nodes", type=int, default=30, help="processes (30)")
    parser.add_argument("--selectors", type=int, default=20_000, help="in all (20000)")
    parser.add_argument("--rate", type=int, default=400, help="events per second in all (400)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load (60)")
    parser.add_argument("--seed", type=int, default=1, help="of events and nodes (1)")
    parser.add_argument("--trace", type=float, default=1.0, help="share of events traced (1)")
    parser.add_argument("--program", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    if options.program:
        role, data, first, second = options.program
        play = subscribe if role == "subscribe" else publish
        play(data, int(first), int(second))
        return 0
    if options.nodes < 2 * PROGRAMS:
        parser.error(f"--nodes is {options.nodes}, must be at least {2 * PROGRAMS}")
    row = measure(options, Progress(3))
    is_exact = row["delivered"] == row["expected"] and not row["twice"] and not row["spurious"]
    row["exact"] = is_exact
    if options.json:
        print(json.dumps([row], indent=2))
    else:
        print(", ".join(f"{key}: {value}" for key, value in row.items()))
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
