"""Keys, roots and policies that change while programs publish: what is lost, and how long it takes.

`python -m bench.security.changes --json` starts a first node and `--nodes` others that join it by
invitation, and at last a leaf of a tenant. A program publishes `--rate` events per second at the
second node, and one program at each other node subscribes to everything, the tenant's as well, whom
each policy permits that. Meanwhile, one after the other: other policies are pushed; the root is
replaced, every node renews its certificate, and the former root is dropped; an id is revoked; a new
node joins; all nodes reload their configuration. `missing` events have to be 0, and every process
has to be the one that was started. `p99_ms` is of the events, with all of that in between.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.command import parser, show
from bench.processes.overlays import folder
from bench.security.tls import SIZE, Nodes
from canopy.cli.bench import Figures, MeasurementPlan, measure
from canopy.client.client import connect

PAUSE: Final = 1.5
"""Seconds between two changes: each has reached all nodes before the next."""

POLICIES: Final = ("TRUE", "a = 1 OR TRUE", "b IS NULL OR b IS NOT NULL")
"""What the tenant may see: everything, said in several ways."""


class Changes:
    """An overlay of nodes that have joined, and the commands of who runs it."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.nodes = Nodes(folder, 1, True)
        self.version = 0
        for number in range(1, count + 1):
            self.nodes.join(number)
        self.push()
        self.nodes.join(count + 1, "--role", "leaf", "--tenant", "acme")
        everybody = range(count + 2)
        self.nodes.clients += [connect(self.nodes.data(number)) for number in everybody[1:]]

    def push(self) -> None:
        """Give the overlay the next policy."""
        self.version += 2  # a rotation signs the present one again, under the next version
        selector = POLICIES[self.version % len(POLICIES)]
        path = self.folder / "policy.yaml"
        tenants = {"acme": {"publish": "FALSE", "subscribe": selector}}
        path.write_text(json.dumps({"version": self.version, "tenants": tenants}))
        self.nodes.canopy("policy", "push", str(path))

    def renew(self) -> None:
        """Every node gets the next certificate."""
        for number in range(len(self.nodes.processes)):
            self.nodes.canopy("keys", "renew", number=number)

    def reload(self) -> None:
        for number in range(len(self.nodes.processes)):
            self.nodes.canopy("reload", number=number)

    def steps(self) -> dict[str, Callable[[], object]]:
        """What is changed, in this order."""
        last = len(self.nodes.processes)
        return {
            "policy": self.push,
            "another policy": self.push,
            "rotate": lambda: self.nodes.canopy("keys", "rotate"),
            "renew": self.renew,
            "a third policy": self.push,
            "finish": lambda: self.nodes.canopy("keys", "rotate", "--finish"),
            "revoke": lambda: self.nodes.canopy("keys", "revoke", "0" * 32),
            "join": lambda: self.nodes.join(last),
            "reload": self.reload,
        }


def run(count: int, rate: float, place: Path) -> dict[str, Any]:
    """Make all changes under `rate` events per second; what was delivered, and each one's time."""
    changes = Changes(place, count)
    nodes, seconds = changes.nodes, {}
    pids = [nodes.status(number).pid for number in range(len(nodes.processes))]
    sinks = [*nodes.clients[:1], *nodes.clients[2:]]
    found: list[Figures] = []
    is_over = threading.Event()

    def publish() -> None:
        """Measurements of some seconds, one after the other, until all is changed."""
        while not is_over.is_set() or not found:
            plan = MeasurementPlan(int(rate * 10), SIZE, rate, receipt=True, timeout=30.0)
            found.append(measure(nodes.clients[1:2], sinks, plan))

    try:
        publisher = threading.Thread(target=publish)
        publisher.start()
        for name, step in changes.steps().items():
            time.sleep(PAUSE)
            began = time.monotonic()
            step()
            seconds[name] = round(time.monotonic() - began, 2)
            print(f"{name}: {seconds[name]} s", file=sys.stderr)
        is_over.set()
        publisher.join()
        after = [nodes.status(number).pid for number in range(len(pids))]
    finally:
        is_over.set()
        nodes.stop()
    assert after == pids, "a node was started again"
    return {
        "nodes": count + 2,
        "changes": len(seconds),
        "events": sum(one.published for one in found),
        "refused": sum(one.refused for one in found),
        "delivered": sum(one.delivered for one in found),
        "missing": sum(one.missing for one in found),
        "repeated": sum(one.repeated for one in found),
        "p50_ms": min(one.latency_ms["p50"] for one in found),
        "p99_ms": max(one.latency_ms["p99"] for one in found),
        "seconds": seconds,
    }


def main() -> None:
    """Print the row of all changes."""
    options = parser(
        __doc__, nodes=(4, "that join the first one"), rate=(200.0, "events per second")
    ).parse_args()
    with folder() as place:
        show([run(options.nodes, options.rate, place)], options)


if __name__ == "__main__":
    main()
