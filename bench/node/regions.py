"""How often an event crosses between two regions of five real nodes, and how long it takes (M1).

    python -m bench.node.regions --json

Ten processes on loopback behind the fault proxy, which delays what runs between the two groups of
five. (Network namespaces with netem would need its kernel module.) Every node has a subscriber that
wants all events, and one node of each region publishes. The events' payload is so large that the
bytes between the groups count copies: those that pass meanwhile, without those of as long a quiet
time before, by the size of all payloads. Two rows: the nodes know their region, and they do not.
Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.processes.nodes import ProxiedNodes
from bench.tracing import add_option, group
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from harness.fault_proxy import FaultProxy, Faults
from matching import Value
from overlay.client import Draft, Publish, Published, Subscribe, Subscribed

EACH: Final = 5
"""Nodes in a region."""

REGIONS: Final = ("east", "west")

SELECTOR: Final = "number >= 0"

WARM: Final = 20
"""Events before those that are measured: they find the tree, and open links."""

SETTLE: Final = 20.0
"""Seconds for hosts to be found in both regions, and for views to fill."""

ARRIVED: Final = 10.0
"""Seconds after the last event in which all have arrived; ample."""

CONFIG: Final[dict[str, Any]] = {"directory": False}


class ArrivalRecorder(threading.Thread):
    """Subscribes at a node of a region, and notes how long events take."""

    def __init__(self, client: ControlClient, region: str) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.region = region
        self.took: dict[int, tuple[str, float]] = {}
        """By number of the event: the region that it came from, and seconds."""
        self.twice = 0
        client.ask(Subscribe(0, SELECTOR), Subscribed, 60.0)

    def run(self) -> None:
        while True:
            try:
                found = self.client.deliveries(0.2)
            except ControlError:
                return
            now = time.monotonic()
            for one in found:
                facts = one.event.attributes
                number = int(facts["number"])  # type: ignore[arg-type]
                self.twice += number in self.took
                self.took[number] = (str(facts["region"]), now - float(facts["at"]))  # type: ignore[arg-type]


class TwoRegions:
    """Two regions of real nodes behind a proxy that delays what crosses, and what their programs
    were shown."""

    def __init__(self, known: bool, options: argparse.Namespace) -> None:
        """`known`: whether nodes know their region."""
        self.known = known
        self.options = options
        self.stack = ExitStack()
        self.region = {str(n): REGIONS[n // EACH] for n in range(EACH * len(REGIONS))}
        self.payload = random.Random(1).randbytes(options.size)

    def run(self) -> dict[str, Any]:
        """Grow, publish, and measure: one row."""
        with self.stack, tempfile.TemporaryDirectory(prefix="canopy-bench-") as work:
            self.proxy = self.stack.enter_context(FaultProxy())
            self._delay()
            own = {name: {"region": place} for name, place in self.region.items()}
            config = {**CONFIG, "trace": group(self.options.trace)}
            self.nodes = ProxiedNodes(
                len(self.region), Path(work), self.proxy, config, own if self.known else {}
            )
            self.stack.enter_context(self.nodes)
            self.nodes.grow()
            recorders = [
                ArrivalRecorder(self._client(name), place) for name, place in self.region.items()
            ]
            for thread in recorders:
                thread.start()
            publishers = [(self._client(name), self.region[name]) for name in ("1", str(EACH + 1))]
            time.sleep(SETTLE)
            self._publish(publishers, range(WARM))
            time.sleep(SETTLE)
            seconds = self.options.events / self.options.rate + ARRIVED
            before = self._between()
            time.sleep(seconds)
            quiet = self._between() - before
            numbers = range(WARM, WARM + self.options.events)
            before = self._between()
            self._publish(publishers, numbers)
            time.sleep(ARRIVED)
            return self._report(recorders, numbers, self._between() - before, quiet)

    def _delay(self) -> None:
        for one, here in self.region.items():
            for other, there in self.region.items():
                if one != other:
                    ms = self.options.between if here != there else self.options.inside
                    self.proxy.spoil(one, other, Faults(delay=ms / 1_000))

    def _client(self, name: str) -> ControlClient:
        return self.stack.enter_context(ControlClient.connect(self.nodes.nodes[name].data))

    def _between(self) -> int:
        """Bytes that have passed from one region to another."""
        return sum(
            size
            for (one, other), size in list(self.proxy.passed.items())
            if self.region.get(one) != self.region.get(other)
        )

    def _publish(self, publishers: Sequence[tuple[ControlClient, str]], numbers: range) -> None:
        for number in numbers:
            client, place = publishers[number % len(publishers)]
            facts: dict[str, Value | None] = {
                "number": number,
                "region": place,
                "at": time.monotonic(),
            }
            client.ask(Publish(0, (Draft(facts, self.payload),)), Published, 60.0)
            time.sleep(1.0 / self.options.rate)

    def _report(
        self, recorders: Sequence[ArrivalRecorder], numbers: range, passed: int, quiet: int
    ) -> dict[str, Any]:
        took: dict[bool, list[float]] = {True: [], False: []}
        for one in recorders:
            for number, (place, seconds) in one.took.items():
                if number in numbers:
                    took[place == one.region].append(seconds)
        copies = (passed - quiet) / (len(self.payload) * len(numbers))
        row: dict[str, Any] = {
            "known": self.known,
            "nodes": EACH,
            "events": len(numbers),
            "crossings": round(copies, 2),
            "ratio": round(copies / len(REGIONS), 2),
            "quiet_kb_s": round(quiet / 1_000 / (len(numbers) / self.options.rate + ARRIVED), 1),
            "delivered": sum(map(len, took.values())),
            "expected": len(numbers) * len(recorders),
            "twice": sum(one.twice for one in recorders),
        }
        for name, is_inside in (("inside", True), ("across", False)):
            for share in (0.5, 0.99):
                row[f"{name}_p{share * 100:.0f}"] = quantile(took[is_inside], share)
        return row


def quantile(seconds: Sequence[float], share: float) -> float | None:
    """In milliseconds, by nearest rank; None if there are none."""
    if not seconds:
        return None
    return round(1_000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))], 1)


def main(args: Sequence[str] | None = None) -> int:
    """Print a row with regions and one without. The exit code is 1 if a delivery is missing or was
    made twice."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.node.regions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--rate", type=float, default=5.0, help="events per second (5)")
    parser.add_argument("--size", type=int, default=50_000, help="bytes of a payload (50000)")
    parser.add_argument("--inside", type=float, default=1.0, help="milliseconds each way (1)")
    parser.add_argument("--between", type=float, default=80.0, help="milliseconds each way (80)")
    add_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args(args)
    rows = []
    for known in (True, False):
        rows.append(TwoRegions(known, options).run())
        print(rows[-1], file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(rows))
    return int(any(row["delivered"] != row["expected"] or row["twice"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
