"""What a subscriber that does not keep up costs the others, on real processes.

`python -m bench.node.slow_subscriber --json` starts a few nodes on loopback, publishes at a steady
rate, and measures how long deliveries to the other subscribers take while one subscriber

* `client`: asks for no deliveries (and asks its node other things), or
* `node`: is a client of a node that stands still (SIGSTOP).

Phases with and without that are interleaved; in those without, the same subscription is read like
any other, so a pair differs in nothing else. For each kind it prints the median over the pairs of
p99 with / p99 without (`p99_ratio`; the target is 1.2), the p99 of each phase in milliseconds, the
most memory that any node took in the phases without and with (`rss_mb`; the slow one's node first)
and the slow program itself (`program_mb`), and what became of its deliveries (`slow`;
bench/node/slow_reader.py). All others get everything, and what the slow one has not got was
reported to it (`missing` and its `unreported` must be 0, else the exit code is 1). Progress goes to
standard error.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from bench.command import TRACE, Progress, group, parser, show
from bench.node.slow_reader import Apart
from bench.processes.nodes import ProxiedNodes
from canopy.client.blocking import ControlClient
from harness.fault_proxy import FaultProxy
from harness.recovery.flows import FlowPublisher, FlowSubscriber
from harness.recovery.plan import selector
from harness.recovery.verdict import PublishedEvent

KINDS: Final = ("client", "node")

CONFIG: Final[dict[str, Any]] = {
    "directory": False,
    "cluster": {"size": 3},
}

NODES: Final = 6

REST: Final = 3.0
"""Seconds at the start of each phase that are not measured: what was held back comes then."""

FLOW: Final = "flow"

PROGRAM: Final = "program"
"""The slow one, among the names of nodes."""


class Slow:
    """One kind of slowness in one overlay."""

    def __init__(self, kind: str, options: argparse.Namespace, progress: Progress) -> None:
        self.kind = kind
        self.options = options
        self.progress = progress
        self.stack = ExitStack()
        self.phases: list[tuple[bool, float, float]] = []  # slow?, from, to
        self.memory: list[dict[str, int]] = []  # the most of each node in each phase, bytes

    def run(self) -> dict[str, Any]:
        """Measure one variant: a row of the table."""
        with self.stack, tempfile.TemporaryDirectory(prefix="canopy-bench-") as work:
            proxy = self.stack.enter_context(FaultProxy())
            self.nodes = ProxiedNodes(
                NODES, Path(work), proxy, {**CONFIG, "trace": group(self.options.trace)}
            )
            self.stack.enter_context(self.nodes)
            self.progress.say(f"{self.kind}: {NODES} nodes start")
            self.nodes.grow()
            idle = [n for n in self.nodes.nodes if self._role(n) == "none"]
            self.slow, source, *rest = idle
            self.program = self.stack.enter_context(
                Apart(self.nodes.nodes[self.slow].data, selector(FLOW))
            )
            others = [FlowSubscriber(self._client(name)) for name in (*rest, source)]
            for other in others:
                other.subscribe(FLOW)
            client, options = self._client(source), self.options
            publisher = FlowPublisher(client, options.rate, [FLOW], options.size)
            for thread in (*others, publisher):
                thread.start()
            time.sleep(REST)
            for _ in range(self.options.pairs):
                for is_slow in (False, True):
                    self._phase(is_slow)
            self._stall(False)
            publisher.stop()
            time.sleep(REST)
            return self._report(others, publisher.so_far(), self.program.end())

    def _role(self, name: str) -> str:
        status = self.nodes.status(name)
        return "" if status is None else status.role

    def _client(self, name: str) -> ControlClient:
        return self.stack.enter_context(ControlClient.connect(self.nodes.nodes[name].data))

    def _stall(self, is_slow: bool) -> None:
        if self.kind == "node":
            (self.nodes.pause if is_slow else self.nodes.resume)(self.slow)
        else:
            self.program.say("stall" if is_slow else "go")

    def _phase(self, is_slow: bool) -> None:
        self.progress.say(f"{self.kind}: phase {len(self.phases) + 1} of {2 * self.options.pairs}")
        self._stall(is_slow)
        time.sleep(REST)
        began = time.monotonic()
        memory: dict[str, int] = {}
        while time.monotonic() - began < self.options.seconds:
            time.sleep(0.5)
            now = {name: node.memory() for name, node in self.nodes.nodes.items()}
            now[PROGRAM] = psutil.Process(self.program.process.pid).memory_info().rss
            for name, size in now.items():
                memory[name] = max(memory.get(name, 0), size)
        self.phases.append((is_slow, began, time.monotonic()))
        self.memory.append(memory)

    def _report(
        self,
        others: Sequence[FlowSubscriber],
        sent: Mapping[str, PublishedEvent],
        slow: dict[str, Any],
    ) -> dict[str, Any]:
        delays = [(sent[a.id].at, a.at - sent[a.id].at) for one in others for a in one.arrivals]
        tails = [
            quantile([d for at, d in delays if since <= at < until], 0.99)
            for _, since, until in self.phases
        ]
        owed = sum(event.wanted for event in sent.values())
        times = [event.at for event in sent.values()]
        pairs = list(zip(tails[::2], tails[1::2], strict=True))
        names = [PROGRAM, self.slow, *(n for n in self.nodes.nodes if n != self.slow)]
        before, during = ([max(m[n] for m in self.memory[k::2]) for n in names] for k in (0, 1))
        program, *nodes = [[round(b / 1e6, 1), round(d / 1e6, 1)]
                           for b, d in zip(before, during, strict=True)]  # fmt: skip
        return {
            "kind": self.kind,
            "trace": self.options.trace,
            "rate": round(len(times) / (max(times) - min(times))),
            "p99_ratio": round(statistics.median(w / wo for wo, w in pairs), 3),
            "p99_ms": [[round(wo * 1e3, 1), round(w * 1e3, 1)] for wo, w in pairs],
            "rss_mb": nodes,
            "program_mb": program,
            "published": owed,
            "missing": sum(owed - len(one.arrivals) for one in others),
            "slow": {**slow, "unreported": owed - slow["got"] - slow["reported"]},
        }


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile `share` of the values by nearest rank; infinity if there are none."""
    return sorted(values)[int(share * len(values))] if values else float("inf")


def main(args: Sequence[str] | None = None) -> int:
    """Return 1 if a delivery is missing, or the loss of one was not reported."""
    made = parser(
        __doc__,
        pairs=(5, "of phases without and with"),
        seconds=(20.0, "of each phase, beside the first three"),
        rate=(500.0, "events per second"),
        size=(2_000, "bytes of an event's payload"),
        trace=TRACE,
    )
    made.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    options = made.parse_args(args)
    progress = Progress(len(options.kind))
    rows = []
    for kind in options.kind:
        rows.append(Slow(kind, options, progress).run())
        progress.note(f"{kind}: {rows[-1]}")
    show(rows, options)
    return 1 if any(row["missing"] or row["slow"]["unreported"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
