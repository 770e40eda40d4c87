"""Whether a second process that may host takes half of the work of one hot attribute.

`python -m bench.node.two_processes --json` starts overlays of real processes with default settings,
in turns with one node and with two nodes that may host trees. Four others never do
(`cluster.serve`): at two of them programs subscribe with half of `--selectors` selectors each, at
the other two programs publish `--rate` events per second in all. The programs want values of
`STRIPES` stripes in turns, so that most events are for one of them. With `--text` each selector has
a LIKE that is evaluated for one event in fifty.

`events_per_second` is how many events were accepted in `--seconds` seconds, `SETTLE` seconds after
every node that may host does; `virtual_nodes` is what the tree has then. The six nodes and four
programs share the processors of this machine, so the rate is what all of them manage; `busiest` is
the share of one processor that the busiest host had, and `could_per_second` the rate at which that
would be all of it. `ratio` is that of two hosts to that of one, in one repetition. One event in a
hundred is for both subscribing programs: `missing` says how many of these did not come. Progress
goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil

from bench.recovery.measure import Progress
from bench.tracing import add_option, flags
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed
from overlay.client import (
    Done,
    Draft,
    Gather,
    Located,
    Publish,
    Subscribe,
    Subscribed,
    Where,
)

HOT: Final = "level"
"""The attribute that all selectors name; its values are spread over 0 to 1."""

WIDTH: Final = 0.02
"""Share of the values that one selector accepts: its other conditions are evaluated for that share
of the events."""

STRIPES: Final = 16
PROGRAMS: Final = 2
"""Programs that subscribe, and as many that publish, each at a node of its own."""

BATCH: Final = 64
AHEAD: Final = 4
"""Events in a publication, and publications that a publisher has under way."""

PROBE: Final = 100
"""One event in this many matches all subscriptions."""

SETTLE: Final = 10.0
WARM: Final = 60.0
"""Seconds in which a tree is to be cut at the latest."""

PATIENCE: Final = 120.0


def selector(rng: Random, program: int, programs: int, has_text: bool) -> str:
    """Such as one of many programs makes."""
    stripe = rng.randrange(STRIPES // programs) * programs + program
    low = (stripe + rng.random()) / STRIPES * (1 - WIDTH)
    text = f"{HOT} BETWEEN {low:.6f} AND {low + WIDTH:.6f} AND battery >= {rng.randrange(100)}"
    letters = "".join(rng.choices(string.ascii_lowercase, k=2))
    return (
        f"{text} AND station LIKE '%{letters}%'"
        if has_text
        else f"{text} AND rank < {rng.randrange(40)}"
    )


def draft(rng: Random, number: int) -> Draft:
    station = "".join(rng.choices(string.ascii_lowercase, k=12))
    fields: dict[str, Any] = {HOT: rng.random(), "station": station}
    fields |= {"battery": rng.randrange(100), "rank": rng.randrange(100)}
    if number % PROBE == 0:
        fields["probe"] = True
    return Draft(fields, b"x" * 100)


# --- the programs ---------------------------------------------------------------------------------


def asked() -> bool:
    """Whether the bench has written something to this program."""
    return bool(select.select([0], [], [], 0)[0]) and bool(os.read(0, 1))


def subscribe(data: str, selectors: int, program: int, has_text: int) -> None:
    """Subscribe, say so, then count probes; say how many they are when asked."""
    rng = Random(program)
    with ControlClient.connect(data) as client:
        client.ask(Gather(0), Done)
        wanted = [
            Subscribe(0, selector(rng, program, PROGRAMS, bool(has_text))) for _ in range(selectors)
        ]
        client.ask_many(wanted, Subscribed, PATIENCE, 512)
        client.ask(Subscribe(0, f"{HOT} >= 0 AND probe = TRUE"), Subscribed, PATIENCE)
        print("ready", flush=True)
        seen = 0
        while True:
            seen += sum("probe" in event.attributes for event in client.gathered(timeout=0.2))
            if asked():
                print(seen, flush=True)


def publish(data: str, seed: int, rate: int, _: int) -> None:
    """Publish until the input ends; say each second how many were accepted so far."""
    rng = Random(seed)
    drafts = [draft(rng, number) for number in range(BATCH * 64)]
    with ControlClient.connect(data) as client:
        accepted, probes, said = 0, 0, 0.0
        waiting: list[tuple[int, int, int]] = []
        began, sent = time.monotonic(), 0
        while not asked():
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            sent += BATCH
            place = rng.randrange(64) * BATCH
            batch = tuple(drafts[place : place + BATCH])
            found = sum("probe" in one.attributes for one in batch)
            waiting.append((client.begin(Publish(0, batch, receipt=True)), len(batch), found))
            while len(waiting) >= AHEAD:
                number, count, some = waiting.pop(0)
                client.finish(number, PATIENCE)
                accepted, probes = accepted + count, probes + some
            if time.monotonic() - said >= 1.0:
                said = time.monotonic()
                print(accepted, flush=True)
        for number, count, some in waiting:
            client.finish(number, PATIENCE)
            accepted, probes = accepted + count, probes + some
        print(f"end {accepted} {probes}", flush=True)


# --- the bench ------------------------------------------------------------------------------------


class Program:
    """One of these, as a process."""

    def __init__(self, role: str, data: Path, *arguments: int) -> None:
        command = [sys.executable, "-m", "bench.node.two_processes", "--program", role, str(data)]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # else `select` does not see what was read ahead
        )

    def line(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def last(self) -> str:
        """The last of the lines that it has said since, or the next one if there is none."""
        assert self.process.stdout is not None
        last = self.line()
        while select.select([self.process.stdout], [], [], 0)[0]:
            last = self.line() or last
        return last

    def ask(self) -> str:
        """Write to it; returns the next line."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"q")
        return self.line()

    def end(self) -> str:
        """Have it end; returns its last line."""
        last = self.ask()
        while not last.startswith("end"):
            last = self.line()
        return last

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


class HostOverlay(Overlay):
    """An overlay of which only the first nodes may host."""

    def __init__(self, hosts: int, out: Path, arguments: list[str]) -> None:
        super().__init__(hosts + 2 * PROGRAMS, out, arguments, seed=1)
        self.hosts = self.nodes[:hosts]
        never = out / "never.yaml"
        never.write_text("cluster: {serve: false}\n")
        self._never = ["--config", str(never)]

    def _launch(self, node: DemoNode, peers: list[str]) -> None:
        usual = self._arguments
        self._arguments = usual if node in self.hosts else [*usual, *self._never]
        super()._launch(node, peers)
        self._arguments = usual


class Run:
    """One overlay under load."""

    def __init__(self, overlay: HostOverlay, stack: ExitStack, options: argparse.Namespace) -> None:
        self.overlay = overlay
        first = len(overlay.hosts)
        subscribing = overlay.nodes[first : first + PROGRAMS]
        self.subscribers = [
            stack.enter_context(
                Program(
                    "subscribe", n.data, options.selectors // PROGRAMS, place, int(options.text)
                )
            )
            for place, n in enumerate(subscribing)
        ]
        assert all(program.line() == "ready" for program in self.subscribers)
        self.publishers = [
            stack.enter_context(
                Program("publish", node.data, place + 100, options.rate // PROGRAMS, 0)
            )
            for place, node in enumerate(overlay.nodes[first + PROGRAMS :])
        ]
        self.asking = stack.enter_context(ControlClient.connect(subscribing[0].data))

    def located(self) -> Located:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.asking.ask(Where(0, HOT), Located, PATIENCE)
            except CommandFailed:  # the owner is a host under load, and answers late
                if time.monotonic() > until:
                    raise

    def hosts(self) -> set[str]:
        return {id_ for one in self.located().virtual_nodes for id_ in (one.host, *one.others)}

    def measure(self, seconds: float) -> dict[str, Any]:
        began = time.monotonic()
        while len(self.hosts()) < len(self.overlay.hosts) and time.monotonic() < began + WARM:
            time.sleep(0.5)
        took = time.monotonic() - began
        time.sleep(SETTLE)
        first, before = self._accepted(), self.processor_seconds()
        at = time.monotonic()
        time.sleep(seconds)
        took_for = time.monotonic() - at
        after = self.processor_seconds()
        rate = (self._accepted() - first) / took_for
        busiest = max(b - a for a, b in zip(before, after, strict=True)) / took_for
        located = self.located()
        ends = [program.end() for program in self.publishers]
        probes = sum(int(end.split()[2]) for end in ends)
        time.sleep(2.0)
        got = sum(int(program.ask()) for program in self.subscribers)
        return {
            "may_host": len(self.overlay.hosts),
            "events_per_second": round(rate),
            "busiest": round(busiest, 2),
            "could_per_second": round(rate / busiest),
            "virtual_nodes": len(located.virtual_nodes),
            "hosts": len(self.hosts()),
            "hosted_after_s": round(took, 1),
            "probes": probes,
            "missing": probes * len(self.subscribers) - got,
        }

    def processor_seconds(self) -> list[float]:
        """Of each host so far."""
        pids = [node.process.pid for node in self.overlay.hosts if node.process is not None]
        times = [psutil.Process(pid).cpu_times() for pid in pids]
        return [one.user + one.system for one in times]

    def _accepted(self) -> int:
        """Events accepted so far, as the publishers said last."""
        return sum(int(program.last()) for program in self.publishers)


def measure(hosts: int, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Measure with `hosts` nodes that may host."""
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        for name in ("nodes", "logs", "traces"):
            (out / name).mkdir()
        overlay = HostOverlay(hosts, out, flags(options.trace))
        stack.enter_context(overlay)
        progress.say(f"{hosts} nodes that may host")
        overlay.start(lambda _: None)
        overlay.await_ready(lambda _: None)
        time.sleep(5.0)  # until clusters are complete
        found = Run(overlay, stack, options).measure(options.seconds)
        sizes = {"selectors": options.selectors, "text": options.text, "trace": options.trace}
        return {**found, **sizes}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.node.two_processes` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.node.two_processes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--selectors", type=int, default=20_000, help="in all (20000)")
    parser.add_argument("--text", action="store_true", help="each selector has a LIKE")
    parser.add_argument("--rate", type=int, default=400, help="events per second in all (400)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that are measured (20)")
    parser.add_argument("--repeat", type=int, default=3, help="pairs of overlays (3)")
    parser.add_argument("--program", nargs=5, help=argparse.SUPPRESS)
    add_option(parser)
    options = parser.parse_args(args)
    if options.program:
        role, data, *numbers = options.program
        play = subscribe if role == "subscribe" else publish
        play(data, *map(int, numbers))
        return 0
    progress = Progress(2 * options.repeat)
    rows: list[dict[str, Any]] = []
    for repetition in range(options.repeat):
        one, two = (measure(hosts, options, progress) for hosts in (1, 2))
        ratio = round(two["could_per_second"] / one["could_per_second"], 2)
        rows += [{"repetition": repetition, **row} for row in (one, {**two, "ratio": ratio})]
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    rows.append({"median_ratio": statistics.median(ratios)})
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(", ".join(f"{key}: {value:,}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
