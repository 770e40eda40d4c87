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
import os
import select
import statistics
import string
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, Final

from bench.command import TRACE, Progress, parser, show
from bench.processes.overlays import spent, started
from bench.processes.programs import Program
from canopy.cli.demo.overlay import DemoNode
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
    return bool(select.select([0], [], [], 0)[0]) and bool(os.read(0, 64))


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


def played(role: str, node: DemoNode, *numbers: int) -> Program:
    """Start one of these programs at a node."""
    return Program("bench.node.two_processes", "--program", role, node.data, *numbers)


def end(program: Program) -> str:
    """Have a program that publishes end; returns its last line."""
    last = program.ask()
    while not last.startswith("end"):
        last = program.line()
    return last


class Run:
    """One overlay under load."""

    def __init__(
        self, nodes: Sequence[DemoNode], hosts: int, stack: ExitStack, options: argparse.Namespace
    ) -> None:
        """The first `hosts` of the nodes may host."""
        self.may_host = nodes[:hosts]
        subscribing, publishing = nodes[hosts : hosts + PROGRAMS], nodes[hosts + PROGRAMS :]
        self.subscribers = [
            stack.enter_context(
                played("subscribe", n, options.selectors // PROGRAMS, place, int(options.text))
            )
            for place, n in enumerate(subscribing)
        ]
        assert all(program.line() == "ready" for program in self.subscribers)
        self.publishers = [
            stack.enter_context(played("publish", node, place + 100, options.rate // PROGRAMS, 0))
            for place, node in enumerate(publishing)
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
        while len(self.hosts()) < len(self.may_host) and time.monotonic() < began + WARM:
            time.sleep(0.5)
        took = time.monotonic() - began
        time.sleep(SETTLE)
        first, before = self._accepted(), spent(self.may_host)
        at = time.monotonic()
        time.sleep(seconds)
        took_for = time.monotonic() - at
        after = spent(self.may_host)
        rate = (self._accepted() - first) / took_for
        busiest = max(b - a for a, b in zip(before, after, strict=True)) / took_for
        located = self.located()
        ends = [end(program) for program in self.publishers]
        probes = sum(int(end.split()[2]) for end in ends)
        time.sleep(2.0)
        got = sum(int(program.ask()) for program in self.subscribers)
        return {
            "may_host": len(self.may_host),
            "events_per_second": round(rate),
            "busiest": round(busiest, 2),
            "could_per_second": round(rate / busiest),
            "virtual_nodes": len(located.virtual_nodes),
            "hosts": len(self.hosts()),
            "hosted_after_s": round(took, 1),
            "probes": probes,
            "missing": probes * len(self.subscribers) - got,
        }

    def _accepted(self) -> int:
        """Events accepted so far, as the publishers said last."""
        return sum(int(program.last()) for program in self.publishers)


def measure(hosts: int, options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Measure with `hosts` nodes that may host."""

    def bounds(number: int) -> dict[str, str]:
        return {} if number < hosts else {"CANOPY_CLUSTER__SERVE": "false"}

    progress.say(f"{hosts} nodes that may host")
    count = hosts + 2 * PROGRAMS
    with (
        started(count, options.trace, settle=5.0, bounds=bounds) as overlay,  # clusters fill
        ExitStack() as stack,
    ):
        found = Run(overlay.nodes, hosts, stack, options).measure(options.seconds)
    sizes = {"selectors": options.selectors, "text": options.text, "trace": options.trace}
    return {**found, **sizes}


def main(args: Sequence[str] | None = None) -> int:
    """Print a row for each overlay, and the median of the ratios."""
    made = parser(
        __doc__,
        selectors=(20_000, "in all"),
        text=(False, "each selector has a LIKE"),
        rate=(400, "events per second in all"),
        seconds=(20.0, "that are measured"),
        repeat=(3, "pairs of overlays"),
        trace=TRACE,
    )
    made.add_argument("--program", nargs=5, help=argparse.SUPPRESS)
    options = made.parse_args(args)
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
    show(rows, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
