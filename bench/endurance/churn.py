"""Programs that keep their subscriptions while their nodes are killed, stopped and sent away.

`python -m bench.endurance.churn --seconds 600 --json` starts nine nodes, programs of the client
library at each of them, and publishers with receipts, and does to one or two nodes at a time what a
seed draws: SIGKILL and restart, SIGSTOP and SIGCONT, SIGSTOP, then SIGKILL and restart, SIGTERM and
return. Each program finds its node again by itself (`canopy.connect`). In the end each delivery
that is owed is held against what came (`Account`), and each that is missing is one of

* `told`: in a gap that its program was told; `told_vaguely`: in none but one of which the overlay
  does not know when it began;
* `in_flight`: in none, and a host that its receipt names, which is not the program's own node, was
  killed while it may have been under way; `in_flight_elsewhere`: another node was, that may have
  passed it on;
* `untold`: none of these: must be 0, else the exit code is 1. So it is, too, if a host was killed
  while the program's own node stood still, which knows that.

`early`: events with a receipt of before the program's node was started that its program was given
when it was subscribed again, and `twice`: events that came twice to one subscription; both must
be 0. `after_heal_s`: seconds from publication to delivery, for the `after_heals` deliveries of
events published within ten seconds after the last silent node is back, while none is silent.
`--runs N` makes N runs, with this seed and those after it. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

import canopy
from bench.command import SEED, Progress, parser, run_seeds
from bench.endurance.clients import LoadPublisher
from bench.endurance.endurance import SETTINGS
from bench.endurance.faults import CHURNING, Injector
from bench.endurance.load import SELECTORS, attributes
from bench.endurance.oracle import MARGIN, Ledger, after_heals, is_within, quantiles
from bench.processes.nodes import ProxiedNodes
from canopy.client.errors import ControlError
from canopy.client.notices import Gap
from harness.fault_proxy import FaultProxy
from overlay.client import Delivery

UNDER_WAY: Final = 10.0
"""Seconds after its receipt for which an event may be under way to a node that can be reached."""

ROUNDING: Final = 0.05
"""Seconds between the stamp of an event and the time that is noted for it; ample."""

SETTLE: Final = MARGIN + 5.0
"""Seconds after the last fault, in which what is held arrives."""

OUTCOMES: Final = ("told", "told_vaguely", "in_flight", "in_flight_elsewhere", "untold")
"""What a missing delivery may be."""

SHOWN: Final = 20
"""Untold deliveries that the report names."""


@dataclass
class Told:
    """A gap that a program was told, in seconds since 1970."""

    since: float
    until: float
    cause: str


@dataclass
class Seen:
    """What one program saw: `since` its first acknowledgement, by this process' monotonic clock."""

    node: str
    wanted: int
    since: float = inf
    came: dict[int, float] = field(default_factory=dict)  # the first time
    gaps: list[Told] = field(default_factory=list)
    early: int = 0
    twice: int = 0

    def tells(self, stamp: float, vaguely: bool = False) -> bool:
        """Whether a gap covers an event that was published then; `vaguely`: one without a begin."""
        return any(
            gap.since - ROUNDING <= stamp <= gap.until + ROUNDING
            for gap in self.gaps
            if vaguely or gap.since
        )


class LastingProgram(threading.Thread):
    """A program that keeps one subscription, whatever becomes of its node."""

    def __init__(self, seen: Seen, where: str, account: Account) -> None:
        super().__init__(daemon=True)
        self.seen = seen
        self.where = where
        self.account = account
        self.stopping = threading.Event()
        self.error = ""

    def run(self) -> None:
        """Follow the subscription until `stopping`."""
        try:
            with (
                canopy.connect(self.where, timeout=30.0) as client,
                client.subscribe(SELECTORS[self.seen.wanted].selector) as source,
            ):
                self.seen.since = time.monotonic()
                while not self.stopping.is_set():
                    for item in source.receive(0.5):
                        self._take(item)
        except ControlError as error:
            self.error = str(error)

    def _take(self, item: object) -> None:
        if isinstance(item, Gap):
            self.account.told(self.seen, item, time.time())
        elif isinstance(item, Delivery):
            self.account.came(self.seen, int(str(item.event.attributes["id"])))


class Account:
    """Holds what is owed against what came. Times are this process' monotonic seconds, but for
    those of gaps."""

    def __init__(self, ledger: Ledger, offset: float) -> None:
        """`offset`: how far the wall clock is ahead of the monotonic one."""
        self.ledger = ledger
        self.offset = offset
        self.seen: list[Seen] = []
        self.early: list[dict[str, Any]] = []  # the first that came early
        self.subscribed: dict[int, float] = {}  # by program: its last acknowledgement after a gap

    def told(self, seen: Seen, gap: Gap, wall: float) -> None:
        """A program was told a gap at `wall`."""
        seen.gaps.append(Told(gap.since, gap.until or wall, gap.cause))
        if gap.cause == "reconnected":
            self.subscribed[id(seen)] = gap.until - self.offset

    def came(self, seen: Seen, number: int) -> None:
        """A program was given an event."""
        subscribed = self.subscribed.get(id(seen), -inf)
        started = self.ledger.started.get(seen.node, inf)
        if self.ledger.answered[number] < started < subscribed:  # NaN: not answered yet
            seen.early += 1
            if len(self.early) < SHOWN:
                self.early.append(self._named(number, seen) | {"subscribed": round(subscribed, 2)})
        elif number in seen.came and self.ledger.asked[number] > subscribed:
            seen.twice += 1
        seen.came.setdefault(number, time.monotonic())

    def sort(self, number: int, seen: Seen) -> str:
        """What a missing delivery is."""
        asked = self.ledger.asked[number]
        if seen.tells(asked + self.offset):
            return "told"
        what = self._in_flight(number, seen)
        if not what and seen.tells(asked + self.offset, vaguely=True):
            return "told_vaguely"
        return what or "untold"

    def _in_flight(self, number: int, seen: Seen) -> str:
        asked, until = self.ledger.asked[number], self.ledger.answered[number] + UNDER_WAY
        found = ""
        for at, id_, name in self.ledger.kills:
            stood_still = any(
                name_ == seen.node and since <= at <= to and asked <= to
                for name_, since, to in self.ledger.pauses
            )
            if name == seen.node or stood_still or not asked <= at <= until:
                continue
            if id_ in self.ledger.hosts[number].values():
                return "in_flight"
            found = "in_flight_elsewhere"
        return found

    def verdict(self, end: float) -> dict[str, Any]:
        """Judge all that had its receipt `MARGIN` before `end`."""
        counts = dict.fromkeys(OUTCOMES, 0)
        owed = 0
        delays: list[float] = []
        healed = after_heals(self.ledger.silences)
        named: list[dict[str, Any]] = []
        for number, answered in enumerate(self.ledger.answered):
            if not answered < end - MARGIN:
                continue
            event = attributes(number)
            is_healed = is_within(self.ledger.asked[number], healed)
            for seen in self.seen:
                if self.ledger.asked[number] <= seen.since or not SELECTORS[seen.wanted].means(
                    event
                ):
                    continue
                owed += 1
                if number not in seen.came:
                    what = self.sort(number, seen)
                    counts[what] += 1
                    if what == "untold" and len(named) < SHOWN:
                        named.append(self._named(number, seen))
                elif is_healed:
                    delays.append(seen.came[number] - self.ledger.asked[number])
        return {
            "published": len(self.ledger.asked),
            "receipts": self.ledger.receipts(),
            "owed": owed,
            "missing": sum(counts.values()),
            **counts,
            "after_heals": len(delays),
            "after_heal_s": quantiles(delays),
            "early": sum(seen.early for seen in self.seen),
            "twice": sum(seen.twice for seen in self.seen),
            "gaps": sum(len(seen.gaps) for seen in self.seen),
            "gaps_without_begin": sum(not gap.since for seen in self.seen for gap in seen.gaps),
            "named": named,
            "named_early": self.early,
        }

    def _named(self, number: int, seen: Seen) -> dict[str, Any]:
        ledger = self.ledger
        return {
            "event": number,
            "node": seen.node,
            "asked": round(ledger.asked[number], 2),
            "answered": round(ledger.answered[number], 2),
            "hosts": dict(ledger.hosts[number]),
            "gaps": [
                [gap.cause, round(gap.since - self.offset, 2), round(gap.until - self.offset, 2)]
                for gap in seen.gaps
                if abs(gap.until - self.offset - ledger.asked[number]) < 120.0
            ],
        }


def run(options: argparse.Namespace, folder: Path, progress: Progress) -> dict[str, Any]:
    """One run; its report."""
    ledger = Ledger()
    account = Account(ledger, time.time() - time.monotonic())
    with (
        FaultProxy(options.seed) as proxy,
        ProxiedNodes(options.nodes, folder, proxy, {**SETTINGS, "log": options.log}) as nodes,
    ):
        progress.say("nodes start")
        nodes.grow()
        programs = _programs(nodes, account, options.programs)
        sources = [
            LoadPublisher(name, str(node.data), ledger, options.rate / options.nodes, sys.maxsize)
            for name, node in nodes.nodes.items()
        ]
        for program in programs:
            program.start()
        while not all(program.seen.since < inf or program.error for program in programs):
            time.sleep(0.1)
        for source in sources:
            source.start()
        injector = Injector(nodes, ledger, options.seed, sys.maxsize, options.every, CHURNING)
        began = time.monotonic()
        injector.start()
        while injector.is_alive() and time.monotonic() - began < options.seconds:
            time.sleep(0.5)
            progress.say(f"{len(ledger.asked):,} events, {injector.done} faults")
        injector.stopping.set()
        injector.join()
        if injector.error is not None:
            raise injector.error
        for node in nodes.nodes.values():
            nodes.await_ready(node)
        progress.say("all is back, the rest arrives")
        time.sleep(SETTLE)
        for source in sources:
            source.stop()
        end = time.monotonic()
        for program in programs:
            program.stopping.set()
        for program in programs:
            program.join(10.0)
        report = account.verdict(end)
        return {
            "seed": options.seed,
            "seconds": round(end - began),
            "faults": injector.done,
            "ended": sum(node.ended for node in nodes.nodes.values()),
            "errors": sorted({each.error for each in programs if each.error}),
            **report,
            "story": [[round(at, 1), text] for at, text in injector.story],
        }


def _programs(nodes: ProxiedNodes, account: Account, count: int) -> list[LastingProgram]:
    found = []
    for place, (name, node) in enumerate(nodes.nodes.items()):
        for number in range(count):
            seen = Seen(name, (place * count + number) % len(SELECTORS))
            account.seen.append(seen)
            found.append(LastingProgram(seen, str(node.data), account))
    return found


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    return parser(
        __doc__,
        seconds=(600.0, "seconds of faults"),
        nodes=(9, "nodes"),
        programs=(2, "subscribing programs at each node"),
        rate=(100.0, "events per second, of all nodes together"),
        every=(6.0, "seconds between two faults, in the mean"),
        seed=SEED,
        runs=(1, "runs, with this seed and those after it"),
        keep=(Path, "folder where the nodes' data and logs are kept"),
        log=("info", "what the nodes log"),
    ).parse_args(args)


def is_good(report: dict[str, Any]) -> bool:
    """Whether nothing came of it that must not."""
    return not any(report[name] for name in ("untold", "early", "twice", "ended", "errors"))


def main(args: Sequence[str] | None = None) -> int:
    """Make the runs and print their reports; the exit code."""
    options = parse(args)
    progress = Progress(options.runs)

    def one(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
        return run(options, folder, progress)

    return run_seeds(options, options.runs, one, is_good, ["story"])


if __name__ == "__main__":
    sys.exit(main())
