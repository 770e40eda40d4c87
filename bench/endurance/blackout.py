"""How soon events flow again after all nodes were killed and are started at once.

`python -m bench.endurance.blackout --json` starts nodes as processes, with a program at each that
keeps a subscription to all events, and one that publishes some ten events a second and says through
which node. `--times` times all nodes are killed (SIGKILL) at once and started again, with their
disks. `flow_s` is the longest time, of all rounds, from the start of the last node until every
program has got events of every node, `up_s` that until programs have connected to all of them: a
node starts within half a second of processor time. `ended` counts nodes that ended by themselves.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.command import SEED, parser, show
from bench.endurance.endurance import SETTINGS
from bench.processes.nodes import ProxiedNodes
from bench.processes.overlays import folder
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from harness.fault_proxy import FaultProxy
from overlay.client import Draft, Publish, Published, Subscribe, Subscribed

EVERY: Final = 0.1
PATIENCE: Final = 120.0
"""Seconds for events to flow; ample."""


class Flows:
    """Programs at all nodes, and which node's events each of them got since `since`."""

    def __init__(self, nodes: ProxiedNodes) -> None:
        self.since = time.monotonic()
        self.ends = threading.Event()
        self.up: dict[str, float] = {}  # by node: when a program connected last
        self.first: dict[tuple[str, str], float] = {}
        """By names of receiver's and publisher's node, when an event published since came first."""
        for name, node in nodes.nodes.items():
            for work in (self._subscribe, self._publish):
                threading.Thread(target=self._keep, args=(work, name, node.data)).start()

    def _keep(self, work: Any, name: str, data: Path) -> None:
        while not self.ends.is_set():
            try:
                with ControlClient.connect(data) as client:
                    self.up[name] = time.monotonic()
                    work(client, name)
            except ControlError:
                self.ends.wait(EVERY)

    def _subscribe(self, client: ControlClient, name: str) -> None:
        client.ask(Subscribe(0, "flow > 0"), Subscribed, PATIENCE)
        while not self.ends.is_set():
            for one in client.deliveries(EVERY):
                found = one.event.attributes
                if float(str(found["at"])) >= self.since:
                    self.first.setdefault((name, str(found["node"])), time.monotonic())

    def _publish(self, client: ControlClient, name: str) -> None:
        while not self.ends.wait(EVERY):
            draft = Draft({"flow": 1, "node": name, "at": time.monotonic()})
            client.ask(Publish(0, (draft,)), Published, PATIENCE)

    def wait(self, pairs: int) -> float:
        """Wait until all have got events of all, for `PATIENCE` at most. Returns how long after
        `since` that was."""
        until = time.monotonic() + PATIENCE
        while len(self.first) < pairs and time.monotonic() < until:
            time.sleep(0.05)
        if len(self.first) < pairs:
            return PATIENCE
        return max(self.first.values()) - self.since


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill and start all nodes some times."""
    took, up, ended = list[float](), list[float](), 0
    with (
        FaultProxy(options.seed) as proxy,
        ProxiedNodes(options.nodes, folder, proxy, dict(SETTINGS)) as nodes,
    ):
        nodes.grow()
        flows = Flows(nodes)
        try:
            for _ in range(options.times + 1):
                took.append(round(flows.wait(options.nodes**2), 2))
                up.append(round(max(flows.up.values()) - flows.since, 2))
                print(f"all are up after {up[-1]} s, events flow after {took[-1]}", file=sys.stderr)
                if len(took) > options.times:
                    break
                time.sleep(options.rest)
                for name in nodes.nodes:
                    nodes.kill(name)
                for name in nodes.nodes:
                    nodes.restart(name, wiped=False)
                flows.first.clear()
                flows.since = time.monotonic()
        finally:
            flows.ends.set()
            for node in nodes.nodes.values():
                node.look()
                ended += node.ended
    return {
        "nodes": options.nodes,
        "seed": options.seed,
        "blackouts": options.times,
        "flow_s": max(took[1:]),
        "up_s": max(up[1:]),
        "series": [*zip(up[1:], took[1:], strict=True)],
        "ended": ended,
        "never": sum(each >= PATIENCE for each in took[1:]),
    }


def main(args: Sequence[str] | None = None) -> int:
    """Return 1 if a node ended by itself, or events never flowed again."""
    options = parser(
        __doc__,
        nodes=(6, "nodes"),
        times=(3, "how often all are killed"),
        rest=(10.0, "seconds before each"),
        seed=SEED,
    ).parse_args(args)
    with folder() as place:
        found = measure(options, place)
    show(found, options)
    return int(bool(found["ended"] or found["never"]))


if __name__ == "__main__":
    sys.exit(main())
