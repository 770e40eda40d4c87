"""Many events and many faults at random, on real processes: what is lost, and who learns of it.

`python -m bench.endurance.endurance --events 1000000 --faults 200 --json` starts nodes behind a
fault proxy, with publishers at a third of them and subscribers at another, beside whom other
programs come and go (`--passing`), and does to them what a seed draws (faults.py): kill -9 and
restart with the disk or without, whole clusters among them; SIGSTOP for up to 20 s; links that are
cut, one-way, clogged, slow, reset, or turn bits over. Every event is published with a receipt, as
fast as is asked for and the machine carries. In the end all is healed, what is under way arrives,
and each delivery is held against an oracle (oracle.py):

* `lost`, `duplicates`, `spurious`: must be 0, else the exit code is 1; so must `ended`, nodes whose
  process ended by itself (`last_lines`: of their logs); without `--hostile`, `lost_reported`, too;
* `lost_in_flight`: deliveries that did not come of events with a receipt that were under way when a
  node was killed; `lost_in_flight_elsewhere`: those of them of which no killed node is a host that
  the receipt names, so that a node that fanned out for one is to blame;
* `lost_reported`: others of which the subscribing program learnt by a gap;
* `without_receipt`: events whose publisher does not know what became of them; their own node was
  killed, mostly (`timed_out` counts the requests of others);
* `longest_turn_ms`: the longest turn of a node that was not paused: so long it did nothing else;
  `longest_turn_cpu_ms`: the most processor time of one turn, which other processes do not lengthen;
* `longest_silence_s`: the longest time without a delivery to a client whose own node was well;
  `silences`: how many were longer than a second; `silent`: the longest, each with its node and
  when it began;
* `gaps`: how often a subscription's client heard of a gap; `reported`: the deliveries that these
  gaps count.

`--hostile` draws harder faults (faults.py, HOSTILE): nodes that stand still for up to 70 s, the
overlay in two halves for up to 90, nodes that leave, floods of large events, programs with
thousands of subscriptions and with selectors of a thousand attributes. `--seeds N` runs as many
seeds one after the other.

Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.command import SEED, TRACE, Progress, group, parser, run_seeds
from bench.endurance.clients import (
    CheckedSubscriber,
    EnduranceClient,
    LoadPublisher,
    PassingSubscriber,
)
from bench.endurance.faults import HOSTILE, USUAL, Injector
from bench.endurance.load import SELECTORS
from bench.endurance.oracle import Ledger
from bench.endurance.pressure import Pressure
from bench.processes.nodes import ProxiedNodes
from harness.fault_proxy import FaultProxy
from overlay.client import Status

SETTINGS: Final[dict[str, Any]] = {
    "directory": False,  # addresses come through the proxy only
    "cluster": {"size": 3, "split_trees": 5},  # so that there are several
}

CONNECTIONS: Final = 4
"""Publishing connections to each node: their unanswered events are what a recovery has to carry."""

CALM: Final = 5.0
"""Seconds of events before the first fault. Not measured; ample for trees to be found."""

QUIET: Final = 5.0
"""Seconds without a delivery after which nothing more is expected, once all receipts are there."""

GIVE_UP: Final = 180.0
"""Seconds for everything to come to rest: longer than a receipt is waited for."""


REPORT_EVERY: Final = 20.0
"""Seconds between two lines of progress in a file."""


class Endurance:
    """One run: processes, clients, faults, and the report."""

    def __init__(self, options: argparse.Namespace, folder: Path, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.ledger = Ledger()
        self.stack = ExitStack()
        proxy = self.stack.enter_context(FaultProxy(options.seed))
        settings = {**SETTINGS, "log": options.log, "trace": group(options.trace)}
        self.nodes = self.stack.enter_context(ProxiedNodes(options.nodes, folder, proxy, settings))
        names = list(self.nodes.nodes)
        third = max(1, len(names) // 3)
        self.publishing, self.subscribing = names[:third], names[third : 2 * third]
        self.memory: dict[str, int] = {}
        self.turns = dict.fromkeys(TURNS, 0)
        self._asked_at = time.monotonic()
        self._reported_at = -REPORT_EVERY

    def run(self) -> dict[str, Any]:
        """Run everything and return the report."""
        with self.stack:
            self.say("nodes start")
            self.nodes.grow()
            sinks = [self._sink(number) for number in range(len(self.subscribing))]
            for sink in sinks:
                sink.start()
            for sink in sinks:
                if not sink.is_subscribed.wait(GIVE_UP):
                    raise TimeoutError(f"no SUBACK at node {sink.node}: {list(sink.errors)}")
            sinks += self._passing()
            for sink in sinks[len(self.subscribing) :]:
                sink.start()
            sources = [self._source(n) for n in self.publishing for _ in range(CONNECTIONS)]
            began = time.monotonic()
            for source in sources:
                source.start()
            injector = self._publish(sources)
            self.say("all is healed, the rest arrives")
            self._settle(sources)
            seconds = time.monotonic() - began
            report = self.ledger.verdict(began)
            report |= self._more(injector, [*sources, *sinks], began, seconds)
            for client in (*sources, *sinks):
                client.stop()
        return report

    def say(self, text: str) -> None:
        """On a terminal one line that changes, else a new one from time to time."""
        self.progress.say(text)
        if not sys.stderr.isatty() and time.monotonic() > self._reported_at + REPORT_EVERY:
            self.progress.note(text)
            self._reported_at = time.monotonic()

    def _sink(self, number: int) -> CheckedSubscriber:
        name = self.subscribing[number]
        mine = tuple(range(number, len(SELECTORS), len(self.subscribing)))
        return CheckedSubscriber(name, str(self.nodes.nodes[name].data), self.ledger, mine)

    def _passing(self) -> list[CheckedSubscriber]:
        """Programs that come and go, at the same nodes."""
        return [
            PassingSubscriber(
                name, str(self.nodes.nodes[name].data), self.ledger,
                Random(f"{self.options.seed}/{name}/{number}"),
            )
            for name in self.subscribing
            for number in range(self.options.passing)
        ]  # fmt: skip

    def _source(self, name: str) -> LoadPublisher:
        rate = self.options.rate / (len(self.publishing) * CONNECTIONS)
        data = str(self.nodes.nodes[name].data)
        return LoadPublisher(name, data, self.ledger, rate, self.options.events)

    def _publish(self, sources: list[LoadPublisher]) -> Injector:
        """Faults and events until there were enough of both, or the time is over."""
        options, began = self.options, time.monotonic()
        profile = (HOSTILE if options.hostile else USUAL).only(options.kinds)
        pressure = Pressure(self.nodes, sources)
        plan = (options.seed, options.faults, options.every, profile, pressure.press)
        injector = Injector(self.nodes, self.ledger, *plan)
        while time.monotonic() - began < CALM:
            time.sleep(0.1)
        injector.start()
        while injector.is_alive() or any(source.is_alive() for source in sources):
            time.sleep(0.5)
            self._look()
            count, seconds = len(self.ledger.asked), time.monotonic() - began
            self.say(
                f"{count:,} events, {injector.done} faults, {seconds:.0f} s,"
                f" {injector.story[-1][1] if injector.story else ''}"
            )
            enough = count >= options.events and injector.done >= options.faults
            if enough or seconds > options.seconds:
                injector.stopping.set()
                for source in sources:
                    source.stop()
                break
        injector.join()
        if injector.error is not None:
            raise injector.error
        return injector

    def _settle(self, sources: list[LoadPublisher]) -> None:
        until = time.monotonic() + GIVE_UP
        for source in sources:
            source.join(max(0.0, until - time.monotonic()))
        self.ledger.last_arrival = max(self.ledger.last_arrival, time.monotonic())
        while time.monotonic() < until:
            found = [self.nodes.status(name) for name in self.nodes.nodes]
            pending = [1 if one is None else one.pending for one in found]
            if not any(pending) and time.monotonic() - self.ledger.last_arrival > QUIET:
                return
            self._look()
            self.say(f"waiting: {dict(zip(self.nodes.nodes, pending, strict=True))}")
            time.sleep(0.5)

    def _look(self) -> None:
        """Note who takes most memory, and from time to time the longest turn, which a node that is
        killed takes along. A pause counts as a turn, so nodes that were paused are left out."""
        is_due = time.monotonic() > self._asked_at + REPORT_EVERY
        for name, node in self.nodes.nodes.items():
            node.look()
            self.memory[name] = max(self.memory.get(name, 0), node.memory())
            if is_due and node.is_up and not node.has_stood_still:
                self._note_turn(name, self.nodes.status(name))
        if is_due:
            self._asked_at = time.monotonic()

    def _note_turn(self, name: str, status: Status | None) -> None:
        if status is not None and not self.nodes.nodes[name].has_stood_still:
            for counter in TURNS:
                self.turns[counter] = max(self.turns[counter], status.counters[counter])

    def _more(
        self, injector: Injector, clients: Sequence[EnduranceClient], began: float, seconds: float
    ) -> dict[str, Any]:
        counters: Counter[str] = Counter()
        nodes = self.nodes.nodes
        for name in nodes:
            status = self.nodes.status(name)
            self._note_turn(name, status)
            for counter, value in ({} if status is None else status.counters).items():
                if counter in COUNTERS:
                    counters[counter] += value
        return {
            "seed": self.options.seed,
            "hostile": self.options.hostile,
            "nodes": self.options.nodes,
            "trace": self.options.trace,
            "seconds": round(seconds, 1),
            "faults": injector.done,
            "kinds": dict(injector.kinds),
            "ended": sum(node.ended for node in nodes.values()),
            "last_lines": {n: node.last_lines for n, node in nodes.items() if node.ended},
            "timed_out": sum(client.timeouts for client in clients),
            "memory_most_mb": round(max(self.memory.values()) / 1e6, 1),
            **{f"{counter}_ms": longest for counter, longest in self.turns.items()},
            "counters": dict(counters),
            "story": [[round(at - began, 2), text] for at, text in injector.story],
            "errors": sorted({error for client in clients for error in client.errors}),
        }


COUNTERS: Final = (
    *(
        "deliveries_lost",
        "deliveries_to_ended",
        "deliveries_relayed",
        "deliveries_sent_again",
        "deliveries_given_back",
    ),
    *("duplicates", "link_dropped", "link_errors", "recheck_failed"),
)
"""Of the nodes as they are at the end; those that were killed have taken theirs along."""


TURNS: Final = ("longest_turn", "longest_turn_cpu")
"""Counters that are not added up: the longest of all nodes is reported, in milliseconds."""


def is_good(report: dict[str, Any]) -> bool:
    """Whether nothing came of it that must not."""
    bad = ["lost", "duplicates", "spurious", "ended"]
    if not report["hostile"]:
        bad.append("lost_reported")
    return not any(report[name] for name in bad)


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    made = parser(
        __doc__,
        events=(50_000, "events to publish"),
        faults=(20, "faults to carry out"),
        every=(6.0, "seconds between two faults, in the mean"),
        rate=(500.0, "events per second, at most"),
        seconds=(3_000.0, "end after so long"),
        nodes=(9, "nodes"),
        seed=SEED,
        seeds=(1, "runs, with this seed and those after it"),
        passing=(2, "programs at each subscribing node that come and go"),
        hostile=(False, "harder faults: see above"),
        keep=(Path, "folder where the nodes' data and logs are kept"),
        log=("info", "what the nodes log"),
        trace=TRACE,
    )
    kinds = [kind for kind, _ in HOSTILE.kinds]
    words = "with --hostile: only these faults"
    made.add_argument("--kinds", nargs="+", default=(), choices=kinds, help=words)
    return made.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    """Make the runs and print their reports; the exit code."""
    options = parse(args)
    progress = Progress(options.seeds)

    def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
        return Endurance(options, folder, progress).run()

    return run_seeds(options, options.seeds, run, is_good, ["story", "errors", "missing"])


if __name__ == "__main__":
    sys.exit(main())
